"""`gpuform repair`, and what plans do about broken nodes: shown, reviewed, bound, done, or left."""

import json
import urllib.request
from typing import Any

import pytest
from plan_scenes import PlannedProject

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
BY_HAND = "repair", "train-worker-0", "--mode", "REBOOT_VM"


def control(scene: PlannedProject, path: str, body: Any = None, method: str | None = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{scene.url}/_emulator/{path}", data, method=method)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def cluster_of(scene: PlannedProject) -> str:
    (found,) = control(scene, "objects")["together"]["clusters"]
    return str(found["id"])


def propose(scene: PlannedProject, worker: int = 1, **fields: Any) -> str:
    name = f"train-worker-{worker}"
    body = {"cluster_id": cluster_of(scene), "instance_name": name, **fields}
    return str(control(scene, "together/remediations", body)["id"])


def asked(scene: PlannedProject) -> list[str]:
    """The repairs that were asked for or approved."""
    return [each.rpartition("/")[2] for each in scene.sent_changes if "remediations" in each]


@pytest.fixture
def train(scene: PlannedProject) -> Any:
    """A project with the cluster, Ready; called, it declares `repair`."""
    (scene.project / "__main__.py").write_text(
        "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    )

    def declare(repair: str = "{}", *lines: str, gpus: int = 32) -> PlannedProject:
        more = "".join(f"    {line}\n" for line in (f"repair: {repair}", *lines) if repair or lines)
        (scene.project / "topology.yaml").write_text(TRAIN.replace("GPUS", str(gpus)) + more)
        assert scene.run("up", "--yes").code == 0
        return scene

    return declare


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_proposal_becomes_a_row_a_comment_a_repair_and_an_empty_plan(train: Any) -> None:
    scene = train()
    propose(scene)
    shown = scene.run("preview", "--refresh")
    assert (shown.code, ROW in shown.out) == (0, True)
    assert "node train-worker-1 goes: repaired; no job runs there (Kubernetes)" in shown.out
    due = scene.run("repair", "--dry-run", "--save-plan", "plan.json")
    assert (due.code, ROW in due.out) == (3, True)
    review = scene.run("review", "plan.json", "--format", "github")
    assert "## Repairs: 1" in review.out
    assert "train/train-worker-1 by HOST_AWARE: GpuPcieReplayRateHigh (critical)" in review.out
    assert asked(scene) == []
    done = scene.run("repair", "--plan", "plan.json", "--yes")
    assert (done.code, done.err) == (0, "")
    assert asked(scene) == ["approve"]
    empty = scene.run("preview", "--refresh", "--expect-no-changes")
    assert (empty.code, empty.err) == (0, "")
    assert scene.run("repair", "--dry-run").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_nobody_repairs_what_nobody_has_reviewed(train: Any) -> None:
    scene = train()
    propose(scene)
    for command in ("up", "repair"):
        ran = scene.run(command, "--yes", *(["--refresh"] if command == "up" else []))
        assert (ran.code, asked(scene)) == (0, [])
        assert "Not repaired: the repair needs a review of the plan" in ran.out
    assert "Not everything that is broken is repaired. Next:" in ran.out
    assert "gpuform repair --stack dev  " in ran.out
    assert "gpuform repair NODE --stack dev  " in ran.out
    assert scene.run("repair", "--yes", "--allow", "repair").code == 0
    assert asked(scene) == ["approve"]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_automatic_ones_are_repaired_without_a_person(train: Any) -> None:
    scene = train("{approve: automatic}")
    propose(scene)
    ran = scene.run("repair", "--yes")
    assert (ran.code, asked(scene)) == (0, ["approve"])
    assert "Next:" not in ran.out


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_what_is_not_declared_is_told_by_all_who_look(train: Any) -> None:
    scene = train("")
    propose(scene)
    for command in (
        ("drift",),
        ("status", "--refresh"),
        ("preview", "--refresh"),
        ("repair", "--dry-run"),
    ):
        ran = scene.run(*command)
        told = "node train-worker-1 is broken: GpuPcieReplayRateHigh (critical)"
        assert (ran.code, told in ran.out) == (0, True), command
        assert "the platform proposes HOST_AWARE" in ran.out
    assert scene.run("drift", "--detailed-exitcode").code == 0, "it is no drift"
    assert scene.run("up", "--yes", "--refresh").code == 0
    assert asked(scene) == []


def test_status_tells_what_the_next_run_repairs(train: Any) -> None:
    scene = train("{approve: automatic}")
    propose(scene)
    assert (
        "To repair it by HOST_AWARE, run `gpuform repair`" in scene.run("status", "--refresh").out
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_saved_plan_is_bound_to_the_proposal(train: Any) -> None:
    scene = train("{max_unhealthy: 4}")
    id_ = propose(scene)
    assert scene.run("repair", "--dry-run", "--save-plan", "plan.json").code == 3
    propose(scene, id=id_, mode="REMEDIATION_MODE_VM_ONLY")
    ran = scene.run("repair", "--plan", "plan.json", "--yes")
    assert (ran.code, asked(scene)) == (1, [])
    assert "is another one than planned: HOST_AWARE" in ran.err
    propose(scene, id=id_)
    propose(scene, 2)
    ran = scene.run("repair", "--plan", "plan.json", "--yes")
    assert (ran.code, asked(scene)) == (1, [])
    assert "train-worker-2" in ran.err


def test_a_saved_plan_does_less_where_less_is_broken(train: Any) -> None:
    scene = train()
    id_ = propose(scene)
    assert scene.run("repair", "--dry-run", "--save-plan", "plan.json").code == 3
    control(scene, f"together/remediations/{id_}/resolve", {})
    ran = scene.run("repair", "--plan", "plan.json", "--yes")
    assert (ran.code, asked(scene)) == (0, [])


def test_above_max_unhealthy_the_plan_says_why_nothing_happens(train: Any) -> None:
    scene = train("{approve: automatic}")
    for worker in (0, 1, 2):
        propose(scene, worker)
    ran = scene.run("repair", "--yes")
    assert (ran.code, asked(scene)) == (0, [])
    assert "3 of 4 nodes are unhealthy, more than repair.max_unhealthy (25%)" in ran.out


def test_gates_bound_repairs(train: Any) -> None:
    scene = train("{max_unhealthy: 4}")
    (scene.project / "gates.yaml").write_text(
        "gates:\n  one: {max_repaired_nodes: 1}\n  quiet: {not_busy: {}}\n"
    )
    propose(scene)
    pod = {"name": "train-0", "namespace": "ml", "node": "train-worker-1"}
    control(scene, f"kubernetes/{cluster_of(scene)}/pods", pod)
    ran = scene.run("repair", "--dry-run")
    assert (ran.code, "ml/train-0 on train-worker-1, which goes" in ran.out + ran.err) == (5, True)
    propose(scene, 2)
    ran = scene.run("repair", "--dry-run", "--allow", "gate:quiet")
    assert ran.code == 5
    assert "2 nodes would be repaired (train-worker-1, train-worker-2)" in ran.out + ran.err


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_one_node_by_hand_and_nothing_else(train: Any) -> None:
    scene = train("")
    propose(scene, 2)
    shown = scene.run(*BY_HAND, "--dry-run")
    assert shown.code == 3
    assert '~ repair["train-worker-0"]: "in use" => "REBOOT_VM"  # requested' in shown.out
    before = scene.sent_changes
    done = scene.run(*BY_HAND, "--yes")
    assert (done.code, done.err) == (0, "")
    writes = scene.sent_changes[len(before) :]
    assert [each for each in writes if "/compute/" in each] == [
        next(each for each in writes if each.endswith("/remediations"))
    ]
    again = scene.run(*BY_HAND, "--yes")
    assert (again.code, len(asked(scene))) == (0, 1)
    assert "was repaired already, at" in again.out + again.err


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_repair_by_name_of_a_node_that_works_leaves_nothing_to_do(train: Any) -> None:
    scene = train("")

    done = scene.run(*BY_HAND, "--yes")

    assert done.code == 0
    assert "Not everything that is broken is repaired" not in done.out


NOT_MEANT = [
    ("nobody --yes", 1, "nobody: there is no such node in stack dev"),
    ("train-worker-0 --mode PRAY --yes", 1, "the platform has no repair PRAY"),
    ("--mode REBOOT_VM", 2, "--mode is for the nodes that are named"),
    ("--save-plan x.json --yes", 2, "--save-plan goes with --dry-run"),
    ("", 1, "`gpuform repair` asks before it changes anything"),
]


def test_what_cannot_be_meant_is_refused(train: Any) -> None:
    scene = train("")
    for flags, code, message in NOT_MEANT:
        ran = scene.run("repair", *flags.split())
        assert (ran.code, message in ran.err) == (code, True), (flags, ran.err)
    assert asked(scene) == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_slurm_node_that_is_down_for_long_is_repaired(train: Any) -> None:
    repair = "{on: [not_ready], approve: automatic, modes: [REBOOT_VM]}"
    scene = train(repair, "cluster_type: SLURM", "slurm_shm_size_gib: 64")
    down = ["scontrol", "update", "NodeName=slurm-worker-1", "State=DOWN", "Reason=xid"]
    control(scene, f"slurm/{cluster_of(scene)}/run", {"command": down})
    ran = scene.run("repair", "--yes")
    assert (ran.code, asked(scene)) == (0, []), "Slurm does not tell since when: it is as of now"
    control(scene, "clock", {"advance": 700})
    ran = scene.run("repair", "--yes")
    assert (ran.code, len(asked(scene))) == (0, 1)
    assert '"broken" => "REBOOT_VM"  # unusable: DOWN (xid) (Slurm), since ' in ran.out
    assert scene.run("preview", "--refresh", "--expect-no-changes").code == 0
