"""What the AIOS network writes into a record, in what the commands say: told, and no change."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.emulator.server import environment, serve

Run = Any
PROGRAM = """
from gpuform.providers.aios import Cluster

Cluster(
    "west",
    cluster_id="west-1",
    config={
        "public_hostname": "west.example.com",
        "actions_policy_map": {"onScaleUp": {"maxGpus": 8, "pre_check": [True, "runFirst"]}},
    },
    tags=["gpu"],
    cluster_metadata={"name": "West", "description": "Serves.", "owner": "AI"},
    reputation=94,
)
"""
TOLD = "west: its reputation in the registry is now 97; it was 94"


@pytest.fixture
def up(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="network") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        (project / "__main__.py").write_text(PROGRAM)
        ran = dev("up", "--yes", "--skip-preview")
        assert ran.code == 0, ran.out + ran.err
        url = f"{server.url}/aios/clusters/west-1"
        yield dev, url


def test_drift_refresh_and_status_tell_it(up: Any) -> None:
    run, url = up
    quiet = run("drift", "--detailed-exitcode")
    assert (quiet.code, "Notes:" in quiet.out) == (0, False), quiet.out
    body = {"$set": {"reputation": 97}}
    httpx.put(url, json=body, trust_env=False, verify=False).raise_for_status()
    drift = run("drift", "--detailed-exitcode")
    assert (drift.code, TOLD in drift.out) == (0, True), drift.out
    assert TOLD in run("status", "--refresh").out
    assert TOLD not in run("status").out
    assert run("preview", "--refresh", "--expect-no-changes").code == 0
    refreshed = run("refresh", "--yes")
    assert TOLD in refreshed.out, refreshed.out
    assert "updated" not in refreshed.out
    assert TOLD not in run("drift").out


def test_policies_keep_the_keys_of_people(up: Any) -> None:
    run, url = up
    config = httpx.get(url, trust_env=False, verify=False).json()["config"]
    wanted = {"onScaleUp": {"maxGpus": 8, "pre_check": [True, "runFirst"]}}
    assert config["actionsPolicyMap"] == wanted
    assert run("preview", "--refresh", "--expect-no-changes").code == 0


def test_of_a_cluster_that_is_only_read(up: Any, project: Path) -> None:
    run, url = up
    (project / "__main__.py").write_text(f'{PROGRAM}\nCluster.get("theirs", "west-1")\n')
    ran = run("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    body = {"$set": {"reputation": 97}}
    httpx.put(url, json=body, trust_env=False, verify=False).raise_for_status()
    told = TOLD.replace("west:", "theirs:")
    plan = run("preview")
    assert told in plan.out, plan.out
    assert "0 to" not in plan.out
    assert told in run("drift").out
    assert told in run("status", "--refresh").out
