"""Test the commands without credit: stopped and running objects, next losses, exit code."""

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


def call_emulator(planned_project: PlannedProject, path: str, body: Any) -> None:
    data = json.dumps(body).encode()
    urllib.request.urlopen(f"{planned_project.url}/_emulator/{path}", data).close()


def set_credit(planned_project: PlannedProject, *, exhausted: bool) -> None:
    call_emulator(planned_project, "together/credit", {"exhausted": exhausted})


@pytest.fixture
def billed_clusters(planned_project: PlannedProject) -> PlannedProject:
    """Create a volume, an on-demand cluster and a reserved cluster."""
    file = planned_project.project / "__main__.py"
    file.write_text(file.read_text().replace('print("hello', CLUSTER + 'print("hello'))
    assert planned_project.run("up", "--yes").code == 0
    return planned_project


@pytest.mark.slow
def test_status_without_credit_shows_what_stopped_runs_and_ends_next(
    billed_clusters: PlannedProject,
) -> None:
    assert billed_clusters.run("status", "--refresh").code == 0
    set_credit(billed_clusters, exhausted=True)
    status = billed_clusters.run("status", "--refresh", "--json")
    assert status.code == OUT_OF_CREDIT
    notices = {notice["name"]: notice for notice in status.json["notices"]}
    assert notices["train"]["text"] == (
        f"no credit is left: its on-demand compute has been paused since {notices['train']['at']}"
    )
    assert notices["train"]["at"] > notices["big"]["at"][:4]
    assert notices["big"]["text"] == f"is reserved and runs until {notices['big']['at']}"
    assert notices[""]["text"] == (
        "without new credit: train: its on-demand compute is decommissioned; data: access "
        "to its data is revoked. Add credit to the account, then run `gpuform up` again"
    )
    ran = billed_clusters.run("status", "--refresh")
    assert all(notice["text"] in ran.out for notice in notices.values())


@pytest.mark.slow
def test_plans_and_runs_without_credit_say_so_with_an_exit_code(
    billed_clusters: PlannedProject,
) -> None:
    set_credit(billed_clusters, exhausted=True)
    assert billed_clusters.run("preview").code == 0, "the state does not know it yet"
    plan = billed_clusters.run("preview", "--refresh", "--save-plan", "plan.json")
    assert plan.code == OUT_OF_CREDIT
    assert "without new credit: train: its on-demand compute is decommissioned" in plan.out
    review = billed_clusters.run("review", "plan.json", "--format", "markdown").out
    assert "Notes: 3" in review
    failed = billed_clusters.run("up", "--yes", "--refresh")
    assert failed.code == OUT_OF_CREDIT
    assert "error: no credit is left: add credit to the account" in failed.err
    assert billed_clusters.run("status").code == OUT_OF_CREDIT
    set_credit(billed_clusters, exhausted=False)
    assert billed_clusters.run("up", "--yes").code == 0
    assert billed_clusters.run("status").code == 0


@pytest.mark.slow
def test_refresh_after_revocation_reports_lost_data_and_compute(
    billed_clusters: PlannedProject,
) -> None:
    set_credit(billed_clusters, exhausted=True)
    call_emulator(billed_clusters, "clock", {"advance": 8 * 86400})
    refreshed = billed_clusters.run("refresh", "--yes")
    assert refreshed.code == OUT_OF_CREDIT
    messages = {
        notice["name"]: notice["text"]
        for notice in billed_clusters.run("status", "--json").json["notices"]
    }
    assert messages["data"] == "no credit is left: access to its data has been revoked"
    assert messages["big"].startswith("is reserved and runs until ")
    assert "train" not in messages, "it was decommissioned"
    refused = billed_clusters.run("up", "--yes")
    assert refused.code == OUT_OF_CREDIT


@pytest.mark.slow
def test_up_without_credit_creates_nothing(planned_project: PlannedProject) -> None:
    set_credit(planned_project, exhausted=True)
    refused = planned_project.run("up", "--yes")
    assert refused.code == OUT_OF_CREDIT
    assert "answered 402: Insufficient credits" in refused.out
    assert "add credit to the account, then run the command again" in refused.out
    assert planned_project.run("destroy", "--yes").code == 0
