"""Test that commands report the AIOS network's own changes of a record, without a change."""

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
CHANGED_REPUTATION = "west: its reputation in the registry is now 97; it was 94"


@pytest.fixture
def registered_cluster(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="network") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        (project / "__main__.py").write_text(PROGRAM)
        ran = dev("up", "--yes", "--skip-preview")
        assert ran.code == 0, ran.out + ran.err
        url = f"{server.url}/aios/clusters/west-1"
        yield dev, url


def test_drift_refresh_and_status_report_a_changed_reputation(registered_cluster: Any) -> None:
    run, url = registered_cluster
    quiet = run("drift", "--detailed-exitcode")
    assert (quiet.code, "Notes:" in quiet.out) == (0, False), quiet.out
    body = {"$set": {"reputation": 97}}
    httpx.put(url, json=body, trust_env=False, verify=False).raise_for_status()
    drift = run("drift", "--detailed-exitcode")
    assert (drift.code, CHANGED_REPUTATION in drift.out) == (0, True), drift.out
    assert CHANGED_REPUTATION in run("status", "--refresh").out
    assert CHANGED_REPUTATION not in run("status").out
    assert run("preview", "--refresh", "--expect-no-changes").code == 0
    refreshed = run("refresh", "--yes")
    assert CHANGED_REPUTATION in refreshed.out, refreshed.out
    assert "updated" not in refreshed.out
    assert CHANGED_REPUTATION not in run("drift").out


def test_policies_keep_the_users_keys(registered_cluster: Any) -> None:
    run, url = registered_cluster
    config = httpx.get(url, trust_env=False, verify=False).json()["config"]
    declared_policies = {"onScaleUp": {"maxGpus": 8, "pre_check": [True, "runFirst"]}}
    assert config["actionsPolicyMap"] == declared_policies
    assert run("preview", "--refresh", "--expect-no-changes").code == 0


def test_a_changed_reputation_of_a_read_cluster_is_reported(
    registered_cluster: Any, project: Path
) -> None:
    run, url = registered_cluster
    (project / "__main__.py").write_text(f'{PROGRAM}\nCluster.get("theirs", "west-1")\n')
    ran = run("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    body = {"$set": {"reputation": 97}}
    httpx.put(url, json=body, trust_env=False, verify=False).raise_for_status()
    message = CHANGED_REPUTATION.replace("west:", "theirs:")
    plan = run("preview")
    assert message in plan.out, plan.out
    assert "0 to" not in plan.out
    assert message in run("drift").out
    assert message in run("status", "--refresh").out
