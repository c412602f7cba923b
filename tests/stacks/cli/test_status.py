"""`gpuform status`: what it shows, and that it neither locks nor changes anything."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from support.platforms.lens_document import CONSUMERS, OVERVIEW

from gpuform.providers.emulator.server import environment, serve

Run = Any


@pytest.fixture
def emulator(monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="status", start=1_800_000_000.0) as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def call_emulator(emulator: Any) -> Any:
    def ask(method: str, path: str, body: Any = None) -> Any:
        url = f"{emulator.url}/_emulator/{path}"
        answer = httpx.request(method, url, json=body, trust_env=False, verify=False)
        answer.raise_for_status()
        return answer.json()

    return ask


@pytest.fixture
def run_applied(dev: Run, emulator: Any) -> Run:
    ran = dev("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    return dev


def read_files(project: Path) -> dict[str, bytes]:
    """Return every file of the project except Python's caches."""
    matching_paths = (path for path in project.rglob("*") if path.is_file())
    return {str(p): p.read_bytes() for p in matching_paths if "__pycache__" not in p.parts}


def test_status_shows_resources_and_figures_of_lens(run_applied: Run) -> None:
    ran = run_applied("status")
    assert ran.code == 0
    lines = ran.out.splitlines()[3:]
    assert lines[0].split() == ["NAME", "TYPE", "STATE", "READY", "GPUS", "COST"]
    assert lines[1].split() == ["data", "together:SharedVolume", "available", "yes", "-", "unknown"]
    assert lines[2].split() == ["train", "together:Cluster", "Ready", "yes", "16", "unknown"]
    assert "2 resources, 16 GPUs" in lines
    assert "    nodes: 2, 2 healthy, 0 faulty; 2 idle, 0 partially idle, 0 busy" in lines
    assert "client-certificate-data" not in ran.out


def test_status_json_has_resources_and_lens(run_applied: Run, call_emulator: Any) -> None:
    settings = {"overview": OVERVIEW["data"], "consumers": CONSUMERS["data"]["data"]}
    call_emulator("POST", "lens/settings", settings)
    document = run_applied("status", "--json").json
    assert [resource["name"] for resource in document["resources"]] == ["data", "train"]
    assert document["resources"][1]["gpus"] == 16
    assert document["lens"]["overview"] == OVERVIEW["data"]
    assert [consumer["name"] for consumer in document["lens"]["consumers"]] == [
        "training-job-1",
        "inference-service",
    ]
    assert document["lens"]["problem"] == ""


@pytest.mark.slow
def test_status_asks_platforms_only_with_refresh(
    run_applied: Run, call_emulator: Any, project: Path
) -> None:
    path = "^/compute/clusters/[0-9a-f-]{36}$"
    rule = {"method": "GET", "path": path, "status_override": "Degraded", "count": None}
    call_emulator("POST", "faults", rule)
    before = read_files(project)
    call_emulator("DELETE", "requests")
    assert run_applied("status", "--json").json["resources"][1]["state"] == "Ready"
    asked = {request["platform"] for request in call_emulator("GET", "requests")}
    assert asked == {"lens"}
    ran = run_applied("status", "--refresh")
    assert ran.code == 0
    assert "Degraded  no" in ran.out
    assert "not ready: some of it does not work (Degraded)" in ran.out
    assert "1 not ready" in ran.out
    assert read_files(project) == before


@pytest.mark.slow
def test_status_refresh_shows_the_state_of_unread_resources_with_the_reason(
    run_applied: Run, call_emulator: Any
) -> None:
    rule = {"method": "GET", "path": "^/compute/clusters", "status": 403, "count": None}
    call_emulator("POST", "faults", rule)
    rule = {"method": "GET", "path": "^/api/clusters/overview", "status": 400, "count": None}
    call_emulator("POST", "faults", rule)
    ran = run_applied("status", "--refresh")
    assert ran.code == 1
    assert ran.out.count("could not be read: together: GET") == 2
    assert "could not be read: lens: GET /clusters/overview answered 400" in ran.out
    assert "traceId trace-" in ran.out
    call_emulator("DELETE", "faults")
    call_emulator("POST", "reset")
    assert run_applied("status", "--refresh").out.count("it no longer exists on the platform") == 2


def test_status_needs_no_lock(run_applied: Run, project: Path) -> None:
    locks = project / ".pulumi" / "locks" / "organization" / "demo" / "dev"
    locks.mkdir(parents=True, exist_ok=True)
    held = locks / "somebody.json"
    held.write_text('{"pid": 1, "username": "somebody", "hostname": "elsewhere"}')
    assert run_applied("status", "--refresh").code == 0
    assert list(locks.iterdir()) == [held]


def test_status_shows_lens_only_if_configured(
    run_applied: Run, emulator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LENS_URL")
    assert "Lens:" not in run_applied("status").out
    assert run_applied("status", "--json").json["lens"] is None
    url = f"{emulator.url}/lens/api"
    assert run_applied("config", "set", "--secret", "lens:url", url).code == 0
    ran = run_applied("status")
    assert "nodes: 2, 2 healthy" in ran.out


def test_status_of_an_empty_and_of_an_unknown_stack(dev: Run) -> None:
    assert dev("status").out.endswith("\n\nStack dev has no resources.\n")
    assert dev("status", "--stack", "nope").code == 6


@pytest.mark.slow
def test_status_emulate_uses_the_projects_emulator(dev: Run) -> None:
    assert dev("up", "--emulate", "--yes", "--skip-preview").code == 0
    ran = dev("status", "--emulate", "--refresh")
    assert ran.code == 0
    assert ran.out.splitlines()[5].split()[2:5] == ["Ready", "yes", "16"]
    assert "nodes: 2, 2 healthy" in ran.out


def test_the_inventory_has_the_nodes_that_status_shows(run_applied: Run) -> None:
    inventory = run_applied("topology", "--format", "inventory-json").json
    (shown,) = [
        it["nodes"] for it in run_applied("status", "--json").json["resources"] if it["nodes"]
    ]
    assert [{**node, "stack": "demo/dev"} for node in shown] == inventory["nodes"]
    assert inventory["success"] is True
    assert {node["health_state"] for node in inventory["nodes"]} == {"healthy"}
    rows = run_applied("topology", "train", "--format", "inventory-csv", "--refresh").out
    assert len(rows.splitlines()) == 1 + inventory["nodes_checked"] == 3
    unknown = run_applied("topology", "trian", "--format", "inventory-csv")
    assert (unknown.code, "no resource 'trian'" in unknown.err) == (1, True)
