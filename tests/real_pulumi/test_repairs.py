"""A broken node that the real CLI repairs, in both forms: shown, done, and then nothing to do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conformance.emulated import Platform, start_emulated_platform
from conformance.kind_descriptions import Request
from conformance.together_kinds import CLUSTER
from processes.commands import PASSPHRASE, SALT, Result, pulumi

from gpuform.providers.emulator.server import environment

INPUTS = {**CLUSTER.valid_inputs, "repair": {"on": ["platform"]}}
PROGRAMS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "plugin": (
        {
            "runtime": "yaml",
            "resources": {"train": {"type": "gpuform:together:Cluster", "properties": INPUTS}},
        },
        {},
    ),
    "dynamic": (
        {"runtime": "python"},
        {
            "__main__.py": "from gpuform.stacks import run\n\nrun('topology.yaml')\n",
            "topology.yaml": yaml.safe_dump(
                {"clusters": {"train": {"platform": "together", **INPUTS}}}
            ),
        },
    ),
}


@pytest.fixture
def platform() -> Iterator[Platform]:
    with start_emulated_platform(seed="repaired") as platform:
        yield platform


@pytest.mark.parametrize(
    "form", ["dynamic", pytest.param("plugin", marks=pytest.mark.language_host("yaml"))]
)
def test_a_repair_that_needs_a_review_runs_only_with_permission(
    form: str, platform: Platform, tmp_path: Path
) -> None:
    settings, files = PROGRAMS[form]
    folder = tmp_path / "project"
    (tmp_path / "state").mkdir()
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({"name": "repairs", **settings}))
    (folder / "Pulumi.dev.yaml").write_text(yaml.safe_dump({"encryptionsalt": SALT}))
    for name, content in files.items():
        (folder / name).write_text(content)
    environ = {
        **environment(platform.server.url),
        "PULUMI_BACKEND_URL": f"file://{tmp_path}/state",
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
    }

    def run(*arguments: str, **more: str) -> Result:
        return pulumi(folder, *arguments, "--non-interactive", **environ, **more)

    def run_and_read(*arguments: str, **more: str) -> str:
        done = run(*arguments, **more)
        assert done.code == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def list_remediation_states() -> list[str]:
        remediations = []
        (cluster,) = platform.list_ids(CLUSTER)
        cluster_answer = platform.send(CLUSTER, Request("GET", f"/compute/clusters/{cluster}"))
        for node in (
            *cluster_answer["gpu_worker_nodes"],
            *cluster_answer["deleted_gpu_worker_nodes"],
        ):
            path = f"/compute/clusters/{cluster}/instances/{node['instance_id']}/remediations"
            remediations += platform.send(CLUSTER, Request("GET", path))["remediations"]
        return [remediation["state"] for remediation in remediations]

    run_and_read("stack", "init", "dev")
    run_and_read("up", "--yes", "--skip-preview")
    (cluster,) = platform.list_ids(CLUSTER)
    body = {"cluster_id": cluster, "instance_name": "train-worker-1"}
    platform.http.post("/_emulator/together/remediations", json=body).raise_for_status()
    run_and_read("up", "--yes", "--skip-preview", "--refresh")
    assert list_remediation_states() == ["PENDING_APPROVAL"], (
        "nobody says that the plan was reviewed"
    )
    output = run_and_read("preview", "--refresh", GPUFORM_ALLOW="repair")
    if form == "plugin":
        assert "repairs node train-worker-1 by HOST_AWARE: GpuPcieReplayRateHigh" in output
    run_and_read("up", "--yes", "--skip-preview", "--refresh", GPUFORM_ALLOW="repair")
    assert list_remediation_states() == ["SUCCEEDED"]
    run_and_read("preview", "--refresh", "--expect-no-changes")
