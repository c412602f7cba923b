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
def admin(emulator: Any) -> Any:
    def ask(method: str, path: str, body: Any = None) -> Any:
        url = f"{emulator.url}/_emulator/{path}"
        answer = httpx.request(method, url, json=body, trust_env=False, verify=False)
        answer.raise_for_status()
        return answer.json()

    return ask


@pytest.fixture
def up(dev: Run, emulator: Any) -> Run:
    ran = dev("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    return dev


def files(project: Path) -> dict[str, bytes]:
    """Everything in the project but what Python itself keeps there."""
    found = (path for path in project.rglob("*") if path.is_file())
    return {str(p): p.read_bytes() for p in found if "__pycache__" not in p.parts}


def test_the_resources_and_what_lens_sees(up: Run) -> None:
    ran = up("status")
    assert ran.code == 0
    lines = ran.out.splitlines()[3:]
    assert lines[0].split() == ["NAME", "TYPE", "STATE", "READY", "GPUS", "COST"]
    assert lines[1].split() == ["data", "together:SharedVolume", "available", "yes", "-", "unknown"]
    assert lines[2].split() == ["train", "together:Cluster", "Ready", "yes", "16", "unknown"]
    assert "2 resources, 16 GPUs" in lines
    assert "    nodes: 2, 2 healthy, 0 faulty; 2 idle, 0 partially idle, 0 busy" in lines
    assert "client-certificate-data" not in ran.out


def test_as_json(up: Run, admin: Any) -> None:
    settings = {"overview": OVERVIEW["data"], "consumers": CONSUMERS["data"]["data"]}
    admin("POST", "lens/settings", settings)
    found = up("status", "--json").json
    assert [each["name"] for each in found["resources"]] == ["data", "train"]
    assert found["resources"][1]["gpus"] == 16
    assert found["lens"]["overview"] == OVERVIEW["data"]
    assert [each["name"] for each in found["lens"]["consumers"]] == [
        "training-job-1",
        "inference-service",
    ]
    assert found["lens"]["problem"] == ""


@pytest.mark.slow
def test_the_platforms_are_asked_on_request_alone(up: Run, admin: Any, project: Path) -> None:
    path = "^/compute/clusters/[0-9a-f-]{36}$"
    rule = {"method": "GET", "path": path, "status_override": "Degraded", "count": None}
    admin("POST", "faults", rule)
    before = files(project)
    admin("DELETE", "requests")
    assert up("status", "--json").json["resources"][1]["state"] == "Ready"
    asked = {each["platform"] for each in admin("GET", "requests")}
    assert asked == {"lens"}
    ran = up("status", "--refresh")
    assert ran.code == 0
    assert "Degraded  no" in ran.out
    assert "not ready: some of it does not work (Degraded)" in ran.out
    assert "1 not ready" in ran.out
    assert files(project) == before


@pytest.mark.slow
def test_what_cannot_be_read_is_shown_as_it_was_with_the_reason(up: Run, admin: Any) -> None:
    rule = {"method": "GET", "path": "^/compute/clusters", "status": 403, "count": None}
    admin("POST", "faults", rule)
    rule = {"method": "GET", "path": "^/api/clusters/overview", "status": 400, "count": None}
    admin("POST", "faults", rule)
    ran = up("status", "--refresh")
    assert ran.code == 1
    assert ran.out.count("could not be read: together: GET") == 2
    assert "could not be read: lens: GET /clusters/overview answered 400" in ran.out
    assert "traceId trace-" in ran.out
    admin("DELETE", "faults")
    admin("POST", "reset")
    assert up("status", "--refresh").out.count("it no longer exists on the platform") == 2


def test_a_lock_is_neither_needed_nor_left(up: Run, project: Path) -> None:
    locks = project / ".pulumi" / "locks" / "organization" / "demo" / "dev"
    locks.mkdir(parents=True, exist_ok=True)
    held = locks / "somebody.json"
    held.write_text('{"pid": 1, "username": "somebody", "hostname": "elsewhere"}')
    assert up("status", "--refresh").code == 0
    assert list(locks.iterdir()) == [held]


def test_lens_is_shown_where_it_is_configured(
    up: Run, emulator: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LENS_URL")
    assert "Lens:" not in up("status").out
    assert up("status", "--json").json["lens"] is None
    url = f"{emulator.url}/lens/api"
    assert up("config", "set", "--secret", "lens:url", url).code == 0
    ran = up("status")
    assert "nodes: 2, 2 healthy" in ran.out


def test_an_empty_stack_and_no_stack(dev: Run) -> None:
    assert dev("status").out.endswith("\n\nStack dev has no resources.\n")
    assert dev("status", "--stack", "nope").code == 6


@pytest.mark.slow
def test_with_an_emulator_of_its_own(dev: Run) -> None:
    assert dev("up", "--emulate", "--yes", "--skip-preview").code == 0
    ran = dev("status", "--emulate", "--refresh")
    assert ran.code == 0
    assert ran.out.splitlines()[5].split()[2:5] == ["Ready", "yes", "16"]
    assert "nodes: 2, 2 healthy" in ran.out
