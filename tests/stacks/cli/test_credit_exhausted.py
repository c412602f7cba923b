"""No credit: what stopped, since when, what still runs, what is lost next, and an exit code."""

import json
import urllib.request
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

CLUSTER = """
big = Cluster(
    "big",
    cluster_name="big",
    region=region,
    gpu_type="H100_SXM",
    num_gpus=8,
    driver_version="CUDA_12_6_560",
    billing_type="RESERVED",
    duration_days=30,
)
"""
OUT_OF_CREDIT = 9


def control(planned_project: PlannedProject, path: str, body: Any) -> None:
    data = json.dumps(body).encode()
    urllib.request.urlopen(f"{planned_project.url}/_emulator/{path}", data).close()


def credit(planned_project: PlannedProject, *, exhausted: bool) -> None:
    control(planned_project, "together/credit", {"exhausted": exhausted})


@pytest.fixture
def both(planned_project: PlannedProject) -> PlannedProject:
    """A volume, a cluster on demand and a reserved one."""
    file = planned_project.project / "__main__.py"
    file.write_text(file.read_text().replace('print("hello', CLUSTER + 'print("hello'))
    assert planned_project.run("up", "--yes").code == 0
    return planned_project


@pytest.mark.slow
def test_what_has_stopped_what_runs_and_what_is_next(both: PlannedProject) -> None:
    assert both.run("status", "--refresh").code == 0
    credit(both, exhausted=True)
    status = both.run("status", "--refresh", "--json")
    assert status.code == OUT_OF_CREDIT
    told = {each["name"]: each for each in status.json["notices"]}
    assert told["train"]["text"] == (
        f"no credit is left: its on-demand compute has been paused since {told['train']['at']}"
    )
    assert told["train"]["at"] > told["big"]["at"][:4]
    assert told["big"]["text"] == f"is reserved and runs until {told['big']['at']}"
    assert told[""]["text"] == (
        "without new credit: train: its on-demand compute is decommissioned; data: access "
        "to its data is revoked. Add credit to the account, then run `gpuform up` again"
    )
    shown = both.run("status", "--refresh")
    assert all(each["text"] in shown.out for each in told.values())


@pytest.mark.slow
def test_plans_and_runs_tell_it(both: PlannedProject) -> None:
    credit(both, exhausted=True)
    assert both.run("preview").code == 0, "the state does not know it yet"
    plan = both.run("preview", "--refresh", "--save-plan", "plan.json")
    assert plan.code == OUT_OF_CREDIT
    assert "without new credit: train: its on-demand compute is decommissioned" in plan.out
    review = both.run("review", "plan.json", "--format", "markdown").out
    assert "Notes: 3" in review
    failed = both.run("up", "--yes", "--refresh")
    assert failed.code == OUT_OF_CREDIT
    assert "error: no credit is left: add credit to the account" in failed.err
    assert both.run("status").code == OUT_OF_CREDIT
    credit(both, exhausted=False)
    assert both.run("up", "--yes").code == 0
    assert both.run("status").code == 0


@pytest.mark.slow
def test_what_is_lost_in_the_end(both: PlannedProject) -> None:
    credit(both, exhausted=True)
    control(both, "clock", {"advance": 8 * 86400})
    refreshed = both.run("refresh", "--yes")
    assert refreshed.code == OUT_OF_CREDIT
    told = {each["name"]: each["text"] for each in both.run("status", "--json").json["notices"]}
    assert told["data"] == "no credit is left: access to its data has been revoked"
    assert told["big"].startswith("is reserved and runs until ")
    assert "train" not in told, "it was decommissioned"
    refused = both.run("up", "--yes")
    assert refused.code == OUT_OF_CREDIT


@pytest.mark.slow
def test_nothing_new_is_made(planned_project: PlannedProject) -> None:
    credit(planned_project, exhausted=True)
    refused = planned_project.run("up", "--yes")
    assert refused.code == OUT_OF_CREDIT
    assert "answered 402: Insufficient credits" in refused.out
    assert "add credit to the account, then run the command again" in refused.out
    assert planned_project.run("destroy", "--yes").code == 0
