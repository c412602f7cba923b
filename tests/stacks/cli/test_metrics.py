"""Metrics of stacks: `gpuform status --prometheus FILE`, and a collector after runs."""

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.servers.otlp_receiver import OtlpReceiver, receive_otlp
from support.stacks.planned_project import PlannedProject
from support.stacks.workspace import create_workspace

from gpuform.providers.emulator.server import serve

SECRETS = ("hunter2", "apiVersion")


def call_emulator(planned_project: PlannedProject, path: str, body: Any) -> Any:
    request = urllib.request.Request(
        f"{planned_project.url}/_emulator/{path}", json.dumps(body).encode()
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def read_figures(path: Path, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the value of each sample, by name and the values of these labels."""
    return {
        (sample.name, *(sample.labels[label] for label in labels if label in sample.labels)): (
            sample.value
        )
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
    }


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpReceiver]:
    with receive_otlp() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"{receiver.url}/v1/metrics")
        yield receiver


def test_the_file_has_the_figures_of_the_state(applied_project: PlannedProject) -> None:
    ran = applied_project.run("status", "--prometheus", "gpuform.prom")
    assert ran.code == 0, ran.err
    path = applied_project.project / "gpuform.prom"
    figures = read_figures(path, "platform", "type", "state")
    assert figures["gpuform_gpus", "together", "H100_SXM", "declared"] == 16
    assert figures["gpuform_gpus", "together", "H100_SXM", "ready"] == 16
    assert figures["gpuform_gpus", "together", "H100_SXM", "broken"] == 0
    assert figures["gpuform_waiting_repairs", "together"] == 0
    assert 0 <= figures["gpuform_last_apply_age_seconds",] < 3600
    assert figures["gpuform_stack_readable",] == 1
    names = {name for name, *_ in figures}
    assert "gpuform_drifted_resources" not in names, "nobody has looked"
    assert 'emulated="true"' in path.read_text()
    assert not any(secret in path.read_text() for secret in SECRETS)


@pytest.mark.slow
def test_a_refreshed_file_counts_drift_and_broken_nodes_as_drift_and_repair_do(
    applied_project: PlannedProject,
) -> None:
    resources = json.loads(applied_project.state_file)["checkpoint"]["latest"]["resources"]
    (train,) = (resource for resource in resources if resource["urn"].endswith("::train"))
    body = {"cluster_id": train["id"], "instance_name": "training-worker-0"}
    call_emulator(applied_project, "together/remediations", body)
    request = urllib.request.Request(
        f"{applied_project.url}/together/v1/compute/clusters/{train['id']}",
        json.dumps({"num_gpus": 24}).encode(),
        {
            "Authorization": f"Bearer {os.environ['TOGETHER_API_KEY']}",
            "Content-Type": "application/json",
        },
        method="PUT",
    )
    urllib.request.urlopen(request).close()
    call_emulator(applied_project, "clock", {"advance": 3600})
    ran = applied_project.run("status", "--refresh", "--prometheus", "gpuform.prom")
    assert ran.code == 0, ran.err
    path = applied_project.project / "gpuform.prom"
    figures = read_figures(path, "platform", "type", "state")
    assert figures["gpuform_drifted_resources",] == 1
    assert figures["gpuform_gpus", "together", "H100_SXM", "declared"] == 16
    assert figures["gpuform_gpus", "together", "H100_SXM", "broken"] == 8
    assert figures["gpuform_gpus", "together", "H100_SXM", "ready"] == 16
    assert figures["gpuform_waiting_repairs", "together"] == 1
    assert applied_project.run("drift", "--detailed-exitcode").code == 2


def test_drift_is_absent_while_a_resource_cannot_be_read(applied_project: PlannedProject) -> None:
    refused = {"platform": "together", "method": "GET", "status": 403, "count": None}
    call_emulator(applied_project, "faults", refused)
    ran = applied_project.run("status", "--refresh", "--prometheus", "gpuform.prom")
    assert ran.code == 1
    figures = read_figures(applied_project.project / "gpuform.prom", "state")
    assert ("gpuform_drifted_resources",) not in figures
    assert figures["gpuform_gpus", "declared"] == 16
    assert ("gpuform_gpus", "ready") not in figures


def test_the_end_of_a_resource_counts_down(planned_project: PlannedProject) -> None:
    program = "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    (planned_project.project / "__main__.py").write_text(program)
    (planned_project.project / "topology.yaml").write_text(
        "clusters:\n  bench: {platform: tensorone, name: bench, gpu_type: A100, gpu_count: 2,\n"
        "    storage_gb: 500, region: us-west-2, project_id: proj_456, ttl: 10d,\n"
        "    template_id: tmpl_pytorch_latest}\n"
    )
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    call_emulator(planned_project, "clock", {"advance": 86400})
    arguments = ("status", "--refresh", "--prometheus", "gpuform.prom")
    assert planned_project.run(*arguments).code == 0
    figures = read_figures(planned_project.project / "gpuform.prom", "resource", "state")
    assert 8.8 < figures["gpuform_days_until_end", "bench"] < 9
    assert figures["gpuform_gpus", "idle"] in (0, 2), "TensorOne measures the use"


def test_a_collector_gets_the_figures_after_a_run_and_not_after_a_preview(
    applied_project: PlannedProject, collector: OtlpReceiver
) -> None:
    assert applied_project.run("preview").code == 0
    assert collector.points == []
    assert applied_project.run("up", "--yes", "--skip-preview").code == 0
    points = {name: value for name, labels, value in collector.points if "state" not in labels}
    assert points["gpuform.stack_readable"] == 1
    assert points["gpuform.last_apply_age"] < 60
    assert not collector.spans, "only metrics have an address"
    assert not any(secret.encode() in body for secret in SECRETS for body in collector.bodies)


def test_a_collector_gets_the_drift_of_a_check(
    applied_project: PlannedProject, collector: OtlpReceiver
) -> None:
    assert applied_project.run("drift").code == 0
    points = {name: value for name, labels, value in collector.points if "state" not in labels}
    assert points["gpuform.drifted_resources"] == 0


@pytest.mark.slow
def test_the_file_of_all_stacks_says_which_could_not_be_read(tmp_path: Path) -> None:
    with serve(seed="several") as server:
        workspace = create_workspace(tmp_path / "fleet", server.url, {}, {})
        workspace.run_successfully("up", "--all", "--yes")
        (workspace.root / ".pulumi/stacks/volumes").mkdir(parents=True, exist_ok=True)
        for state in workspace.root.rglob("volumes/dev.json"):
            state.write_text("{")
        ran = workspace.run("status", "--all", "--prometheus", "gpuform.prom")
    assert ran.code == 1
    figures = read_figures(workspace.root / "gpuform.prom", "project", "state")
    readable = {key[1]: value for key, value in figures.items() if key[0].endswith("readable")}
    assert readable == {"volumes": 0, "training": 1, "told": 1}
    assert figures["gpuform_gpus", "training", "ready"] == 16


def test_a_file_that_cannot_be_written_fails_after_the_status(
    applied_project: PlannedProject,
) -> None:
    ran = applied_project.run("status", "--prometheus", "missing/gpuform.prom")
    assert ran.code == 1
    assert "train" in ran.out
    assert "error: the metrics file missing/gpuform.prom cannot be written" in ran.err
