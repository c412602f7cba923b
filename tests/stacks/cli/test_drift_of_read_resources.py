"""Test drift of resources that are only read (`.get`): live values do not count as drift."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.emulator.tensorone import KEY

Run = Any
PROGRAM = """
from gpuform.providers.tensorone import Cluster

Cluster.get("theirs", "{}")
"""
BODY = {
    "name": "theirs",
    "gpu_type": "A100",
    "gpu_count": 2,
    "storage_gb": 100,
    "region": "us-west-2",
    "project_id": "proj_456",
    "docker_image": "a/b:c",
    "auto_terminate": {"enabled": True, "max_runtime_hours": 24},
}


@pytest.fixture
def read_cluster(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Create a stack that reads a running cluster; return what changes the cluster's answers."""
    with serve(seed="read-told") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        with httpx.Client(base_url=server.url, trust_env=False, verify=False) as http:
            headers = {"Authorization": f"Bearer {KEY}"}
            made = http.post("/tensorone/v1/clusters", json=BODY, headers=headers)
            id_ = made.raise_for_status().json()["data"]["id"]
            http.post("/_emulator/clock", json={"advance": 600}).raise_for_status()

            def show(**instead: object) -> None:
                url = f"/_emulator/tensorone/clusters/{id_}"
                http.post(url, json={"shown": instead}).raise_for_status()

            (project / "__main__.py").write_text(PROGRAM.format(id_))
            ran = dev("up", "--yes", "--skip-preview")
            assert ran.code == 0, ran.out + ran.err
            yield dev, show


def is_drift(run: Run) -> bool:
    ran = run("drift", "--detailed-exitcode")
    return bool(ran.code)


def test_values_that_change_by_themselves_are_no_drift(read_cluster: Any) -> None:
    run, show = read_cluster
    assert not is_drift(run)
    show(
        auto_terminate={"estimated_termination": "2031-01-01T00:00:00Z"},
        metrics={"alerts": []},
        updated_at="2031-01-01T00:00:00Z",
    )
    assert not is_drift(run)
    show(auto_terminate={"estimated_termination": None})
    assert not is_drift(run)
    assert run("preview", "--refresh", "--expect-no-changes").code == 0


def test_other_changes_of_a_read_cluster_are_drift(read_cluster: Any) -> None:
    run, show = read_cluster
    show(
        auto_terminate={"estimated_termination": "2031-01-01T00:00:00Z"},
        project_info={"owner_email": "somebody@else.com"},
    )
    ran = run("drift", "--detailed-exitcode")
    assert ran.code, ran.out
    assert "somebody@else.com" in ran.out
    assert "estimated_termination" not in ran.out


def test_an_old_state_lacks_outputs_without_drift(read_cluster: Any, project: Path) -> None:
    run, _ = read_cluster
    exported = json.loads(run("stack", "export").out)
    for entry in exported["deployment"]["resources"]:
        for name in ("firewall_rules", "owner_email", "cost_breakdown"):
            entry.get("outputs", {}).pop(name, None)
    (project / "old.json").write_text(json.dumps(exported))
    ran = run("stack", "import", "--file", "old.json")
    assert ran.code == 0, ran.out + ran.err
    assert "firewall_rules" not in run("stack", "export").out
    assert not is_drift(run)
