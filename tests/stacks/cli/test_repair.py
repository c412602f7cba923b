"""`gpuform repair`, and what plans do about broken nodes: shown, reviewed, bound, done, or left."""

import json
import urllib.request
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

TRAIN = """
clusters:
  train:
    platform: together
    cluster_name: train
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: GPUS
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
"""
ROW = '~ repair["train-worker-1"]: "broken" => "HOST_AWARE"  # GpuPcieReplayRateHigh (critical)'
REPAIR_BY_NAME = "repair", "train-worker-0", "--mode", "REBOOT_VM"


def call_emulator(
    planned_project: PlannedProject, path: str, body: Any = None, method: str | None = None
) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{planned_project.url}/_emulator/{path}", data, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def get_cluster_id(planned_project: PlannedProject) -> str:
    (cluster,) = call_emulator(planned_project, "objects")["together"]["clusters"]
    return str(cluster["id"])


def propose(planned_project: PlannedProject, worker: int = 1, **fields: Any) -> str:
    name = f"train-worker-{worker}"
    body = {"cluster_id": get_cluster_id(planned_project), "instance_name": name, **fields}
    return str(call_emulator(planned_project, "together/remediations", body)["id"])


def list_repair_requests(planned_project: PlannedProject) -> list[str]:
    """Return the requested or approved repairs."""
    return [
        change.rpartition("/")[2]
        for change in planned_project.sent_changes
        if "remediations" in change
    ]


@pytest.fixture
def declare_train(planned_project: PlannedProject) -> Any:
    """Return a function that declares the cluster with `repair`, and applies the declaration."""
    (planned_project.project / "__main__.py").write_text(
        "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    )

    def declare(repair: str = "{}", *lines: str, gpus: int = 32) -> PlannedProject:
        more = "".join(f"    {line}\n" for line in (f"repair: {repair}", *lines) if repair or lines)
        (planned_project.project / "topology.yaml").write_text(
            TRAIN.replace("GPUS", str(gpus)) + more
        )
        assert planned_project.run("up", "--yes").code == 0
        return planned_project

    return declare


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_proposed_repair_is_planned_reviewed_and_done(declare_train: Any) -> None:
    planned_project = declare_train()
    propose(planned_project)
    ran = planned_project.run("preview", "--refresh")
    assert (ran.code, ROW in ran.out) == (0, True)
    assert "removes node train-worker-1: repaired; no job runs there (Kubernetes)" in ran.out
    due = planned_project.run("repair", "--dry-run", "--save-plan", "plan.json")
    assert (due.code, ROW in due.out) == (3, True)
    review = planned_project.run("review", "plan.json", "--format", "github")
    assert "## Repairs: 1" in review.out
    assert "train/train-worker-1 by HOST_AWARE: GpuPcieReplayRateHigh (critical)" in review.out
    assert list_repair_requests(planned_project) == []
    done = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert (done.code, done.err) == (0, "")
    assert list_repair_requests(planned_project) == ["approve"]
    empty = planned_project.run("preview", "--refresh", "--expect-no-changes")
    assert (empty.code, empty.err) == (0, "")
    assert planned_project.run("repair", "--dry-run").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_repair_that_nobody_reviewed_is_not_done(declare_train: Any) -> None:
    planned_project = declare_train()
    propose(planned_project)
    for command in ("up", "repair"):
        ran = planned_project.run(command, "--yes", *(["--refresh"] if command == "up" else []))
        assert (ran.code, list_repair_requests(planned_project)) == (0, [])
        assert "Not repaired: the repair needs a review of the plan" in ran.out
    assert "Some broken nodes are not repaired. Next:" in ran.out
    assert "gpuform repair --stack dev  " in ran.out
    assert "gpuform repair NODE --stack dev  " in ran.out
    assert planned_project.run("repair", "--yes", "--allow", "repair").code == 0
    assert list_repair_requests(planned_project) == ["approve"]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_automatic_repairs_need_no_review(declare_train: Any) -> None:
    planned_project = declare_train("{approve: automatic}")
    propose(planned_project)
    ran = planned_project.run("repair", "--yes")
    assert (ran.code, list_repair_requests(planned_project)) == (0, ["approve"])
    assert "Next:" not in ran.out


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_broken_node_without_a_repair_setting_is_reported(declare_train: Any) -> None:
    planned_project = declare_train("")
    propose(planned_project)
    for command in (
        ("drift",),
        ("status", "--refresh"),
        ("preview", "--refresh"),
        ("repair", "--dry-run"),
    ):
        ran = planned_project.run(*command)
        message = "node train-worker-1 is broken: GpuPcieReplayRateHigh (critical)"
        assert (ran.code, message in ran.out) == (0, True), command
        assert "the platform proposes HOST_AWARE" in ran.out
    assert planned_project.run("drift", "--detailed-exitcode").code == 0, "it is no drift"
    assert planned_project.run("up", "--yes", "--refresh").code == 0
    assert list_repair_requests(planned_project) == []


def test_status_names_the_next_repair(declare_train: Any) -> None:
    planned_project = declare_train("{approve: automatic}")
    propose(planned_project)
    assert (
        "To repair it by HOST_AWARE, run `gpuform repair`"
        in planned_project.run("status", "--refresh").out
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_saved_repair_plan_is_refused_for_another_proposal(declare_train: Any) -> None:
    planned_project = declare_train("{max_unhealthy: 4}")
    id_ = propose(planned_project)
    assert planned_project.run("repair", "--dry-run", "--save-plan", "plan.json").code == 3
    propose(planned_project, id=id_, mode="REMEDIATION_MODE_VM_ONLY")
    ran = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert (ran.code, list_repair_requests(planned_project)) == (1, [])
    assert "is different from the plan: HOST_AWARE" in ran.err
    propose(planned_project, id=id_)
    propose(planned_project, 2)
    ran = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert (ran.code, list_repair_requests(planned_project)) == (1, [])
    assert "train-worker-2" in ran.err


def test_a_saved_repair_plan_skips_resolved_repairs(declare_train: Any) -> None:
    planned_project = declare_train()
    id_ = propose(planned_project)
    assert planned_project.run("repair", "--dry-run", "--save-plan", "plan.json").code == 3
    call_emulator(planned_project, f"together/remediations/{id_}/resolve", {})
    ran = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert (ran.code, list_repair_requests(planned_project)) == (0, [])


def test_above_max_unhealthy_nothing_is_repaired_and_the_plan_says_why(declare_train: Any) -> None:
    planned_project = declare_train("{approve: automatic}")
    for worker in (0, 1, 2):
        propose(planned_project, worker)
    ran = planned_project.run("repair", "--yes")
    assert (ran.code, list_repair_requests(planned_project)) == (0, [])
    assert "3 of 4 nodes are unhealthy, more than repair.max_unhealthy (25%)" in ran.out


def test_gates_limit_repairs(declare_train: Any) -> None:
    planned_project = declare_train("{max_unhealthy: 4}")
    (planned_project.project / "gates.yaml").write_text(
        "gates:\n  one: {max_repaired_nodes: 1}\n  quiet: {not_busy: {}}\n"
    )
    propose(planned_project)
    pod = {"name": "train-0", "namespace": "ml", "node": "train-worker-1"}
    call_emulator(planned_project, f"kubernetes/{get_cluster_id(planned_project)}/pods", pod)
    ran = planned_project.run("repair", "--dry-run")
    assert (
        ran.code,
        "ml/train-0 on train-worker-1, which the plan drains" in ran.out + ran.err,
    ) == (5, True)
    propose(planned_project, 2)
    ran = planned_project.run("repair", "--dry-run", "--allow", "gate:quiet")
    assert ran.code == 5
    assert "2 nodes would be repaired (train-worker-1, train-worker-2)" in ran.out + ran.err


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_repair_by_name_repairs_only_that_node(declare_train: Any) -> None:
    planned_project = declare_train("")
    propose(planned_project, 2)
    ran = planned_project.run(*REPAIR_BY_NAME, "--dry-run")
    assert ran.code == 3
    assert '~ repair["train-worker-0"]: "in use" => "REBOOT_VM"  # requested' in ran.out
    before = planned_project.sent_changes
    done = planned_project.run(*REPAIR_BY_NAME, "--yes")
    assert (done.code, done.err) == (0, "")
    writes = planned_project.sent_changes[len(before) :]
    assert [write for write in writes if "/compute/" in write] == [
        next(write for write in writes if write.endswith("/remediations"))
    ]
    again = planned_project.run(*REPAIR_BY_NAME, "--yes")
    assert (again.code, len(list_repair_requests(planned_project))) == (0, 1)
    assert "was repaired already, at" in again.out + again.err


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_proposal_is_rejected_with_a_reviewed_plan(declare_train: Any) -> None:
    planned_project = declare_train("")
    (planned_project.project / "gates.yaml").write_text(
        "gates:\n  none: {max_repaired_nodes: 0}\n  quiet: {not_busy: {}}\n"
    )
    pod = {"name": "train-0", "namespace": "ml", "node": "train-worker-1"}
    call_emulator(planned_project, f"kubernetes/{get_cluster_id(planned_project)}/pods", pod)
    propose(planned_project)
    reject = "repair", "train-worker-1", "--mode", "REJECT"
    due = planned_project.run(*reject, "--dry-run", "--save-plan", "plan.json")
    row = '~ repair["train-worker-1"]: "HOST_AWARE" => "REJECT"  # GpuPcieReplayRateHigh (critical)'
    assert (due.code, row in due.out, "removes node" in due.out) == (3, True, False)
    review = planned_project.run("review", "plan.json", "--format", "github")
    assert "train/train-worker-1: rejects HOST_AWARE: GpuPcie" in review.out
    done = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert (done.code, list_repair_requests(planned_project)) == (0, ["reject"])
    assert "train-worker-1 is broken" not in done.out
    again = planned_project.run(*reject, "--yes")
    assert (again.code, list_repair_requests(planned_project)) == (0, ["reject"])
    status = planned_project.run("status", "--refresh")
    reviewed = "repair HOST_AWARE is CANCELLED; requested by together, reviewed by api"
    assert reviewed in status.out
    assert planned_project.run("preview", "--refresh", "--save-plan", "later.json").code == 0
    for form in ("text", "github"):
        assert reviewed in planned_project.run("review", "later.json", "--format", form).out
    late = planned_project.run("repair", "train-worker-2", "--mode", "CANCEL", "--yes")
    assert (late.code, list_repair_requests(planned_project)) == (1, ["reject"])
    assert "node train-worker-2 has no repair that could be cancelled" in late.out + late.err


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_repair_by_name_of_a_working_node_leaves_no_next_step(declare_train: Any) -> None:
    planned_project = declare_train("")

    done = planned_project.run(*REPAIR_BY_NAME, "--yes")

    assert done.code == 0
    assert "Some broken nodes are not repaired" not in done.out


INVALID_ARGUMENTS = [
    ("nobody --yes", 1, "node nobody not found in stack dev"),
    ("train-worker-0 --mode PRAY --yes", 1, "the platform has no repair PRAY"),
    ("--mode REBOOT_VM", 2, "--mode requires named nodes"),
    ("--save-plan x.json --yes", 2, "--save-plan requires --dry-run"),
    ("", 1, "`gpuform repair` requires a confirmation"),
]


def test_invalid_arguments_of_repair_are_refused(declare_train: Any) -> None:
    planned_project = declare_train("")
    for flags, code, message in INVALID_ARGUMENTS:
        ran = planned_project.run("repair", *flags.split())
        assert (ran.code, message in ran.err) == (code, True), (flags, ran.err)
    assert list_repair_requests(planned_project) == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_slurm_node_that_is_down_long_enough_is_repaired(declare_train: Any) -> None:
    repair = "{on: [not_ready], approve: automatic, modes: [REBOOT_VM]}"
    planned_project = declare_train(repair, "cluster_type: SLURM", "slurm_shm_size_gib: 64")
    down = ["scontrol", "update", "NodeName=slurm-worker-1", "State=DOWN", "Reason=xid"]
    call_emulator(
        planned_project, f"slurm/{get_cluster_id(planned_project)}/run", {"command": down}
    )
    ran = planned_project.run("repair", "--yes")
    assert (ran.code, list_repair_requests(planned_project)) == (0, []), (
        "Slurm does not tell since when: it is as of now"
    )
    call_emulator(planned_project, "clock", {"advance": 700})
    ran = planned_project.run("repair", "--yes")
    assert (ran.code, len(list_repair_requests(planned_project))) == (0, 1)
    assert '"broken" => "REBOOT_VM"  # unusable: DOWN (xid) (Slurm), since ' in ran.out
    assert planned_project.run("preview", "--refresh", "--expect-no-changes").code == 0
