"""Test which changes are dangerous, and the order of dangers."""

from collections.abc import Callable

import pytest

from gpuform.schemas.plan import PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes, RunningJob
from gpuform.schemas.resource_facts import ResourceUsage
from gpuform.stacks.review.dangers import Risk, find_danger, sort_by_danger
from gpuform.stacks.review.facts import GpuCount

Make = Callable[..., ResourceChange]
VOLUME = "pulumi-python:dynamic/gpuform.together:SharedVolume"
CLAIM = "pulumi-python:dynamic/gpuform.together:VolumeClaim"
POOL = "pulumi-python:dynamic/gpuform.scp:NodePool"
GATE = "pulumi-python:dynamic/gpuform.lens:HealthGate"
DELETE, REPLACE, UPDATE = PlanAction.DELETE, PlanAction.REPLACE, PlanAction.UPDATE
LEFT, CHANGED = PlanReason.NOT_IN_PROGRAM, PlanReason.CHANGED


@pytest.mark.parametrize(
    ("action", "reason", "facts", "risk", "text"),
    [
        (DELETE, LEFT, {"gpus_removed": 16}, Risk.DESTROYS_CAPACITY, "destroys 16 GPUs"),
        (REPLACE, CHANGED, {"gpus_removed": 1}, Risk.DESTROYS_CAPACITY, "destroys 1 GPU"),
        (
            *(DELETE, LEFT, {"gpus_removed": None}),
            *(Risk.DESTROYS_CAPACITY, "destroys an unknown number of GPUs"),
        ),
        (DELETE, LEFT, {"type_": VOLUME}, Risk.DESTROYS_DATA, "destroys a volume and its data"),
        (DELETE, LEFT, {}, Risk.DELETES, "is deleted for good"),
        (
            *(DELETE, LEFT, {"others": ("n1",)}, Risk.DESTROYS_OTHERS),
            "is deleted for good; also deletes n1, which others created in a",
        ),
        (REPLACE, CHANGED, {}, Risk.REPLACES, "deletes and recreates it"),
        (UPDATE, CHANGED, {"gpus_removed": 8}, Risk.REDUCES_CAPACITY, "removes 8 GPUs"),
        (
            *(DELETE, PlanReason.GONE, {"gpus_removed": 8}),
            *(Risk.GONE, "no longer exists on the platform, with 8 GPUs"),
        ),
        (DELETE, PlanReason.GONE, {"type_": VOLUME}, Risk.GONE, "no longer exists on the platform"),
    ],
)
def test_dangerous_changes_have_risk_and_text(
    resource: Make, action: PlanAction, reason: PlanReason, facts: dict, risk: Risk, text: str
) -> None:
    danger = find_danger(resource("a", action, reason, **facts))
    assert danger is not None
    assert (danger.risk, danger.text) == (risk, text)


@pytest.mark.parametrize(
    ("keeps_data", "text"),
    [(True, "deletes and recreates it"), (False, "destroys a volume and its data")],
)
def test_a_claim_destroys_data_unless_its_volume_stays(
    resource: Make, keeps_data: bool, text: str
) -> None:
    before = ResourceUsage(keeps_data=keeps_data)
    change = resource("a", REPLACE, CHANGED, type_=CLAIM).model_copy(update={"before": before})
    danger = find_danger(change)
    assert danger is not None
    assert (danger.text, danger.loses_data) == (text, not keeps_data)


@pytest.mark.parametrize(
    ("facts", "on_busy", "text"),
    [
        ({}, "wait", None),
        ({}, "evict", "ends 2 jobs on 2 removed nodes"),
        ({"gpus_removed": 8}, "wait", "removes 8 GPUs; 2 jobs run on 2 removed nodes"),
        ({"gpus_removed": 8}, "evict", "removes 8 GPUs; ends 2 jobs on 2 removed nodes"),
    ],
)
def test_a_job_on_several_nodes_is_counted_once(
    resource: Make, facts: dict, on_busy: str, text: str | None
) -> None:
    wide, small = RunningJob(id="7", name="pretrain"), RunningJob(id="8", name="evaluate")
    nodes = (
        RemovedNode(name="a", because="replaced", jobs=(wide,)),
        RemovedNode(name="b", because="replaced", jobs=(wide, small)),
        RemovedNode(name="c", because="replaced"),
    )
    leaving = RemovedNodes(scheduler="Slurm", on_busy=on_busy, nodes=nodes)
    change = resource("a", UPDATE, CHANGED, **facts).model_copy(update={"leaving": leaving})
    danger = find_danger(change)
    assert (danger and danger.text) == text


@pytest.mark.parametrize(
    ("because", "text"), [("idle", "removes an unknown number of GPUs"), ("replaced", None)]
)
def test_a_shrinking_cluster_with_an_unknown_number_of_gpus_is_dangerous(
    resource: Make, because: str, text: str | None
) -> None:
    nodes = (RemovedNode(name="a", because=because),)
    leaving = RemovedNodes(scheduler="Slurm", on_busy="wait", nodes=nodes)
    change = resource("a", UPDATE, CHANGED).model_copy(
        update={"leaving": leaving, "gpus_removed": None}
    )
    danger = find_danger(change)
    assert (danger and danger.text) == text


@pytest.mark.parametrize(
    ("action", "facts"),
    [
        (PlanAction.CREATE, {"gpus_added": None}),
        (UPDATE, {"gpus_added": 8}),
        (DELETE, {"type_": GATE}),
        (REPLACE, {"type_": GATE}),
        (PlanAction.READ, {}),
    ],
)
def test_safe_changes_have_no_danger(resource: Make, action: PlanAction, facts: dict) -> None:
    assert find_danger(resource("a", action, CHANGED, **facts)) is None


def test_changes_are_ordered_by_risk_and_lost_gpus(resource: Make) -> None:
    changes = [
        resource("same", PlanAction.SAME, PlanReason.UNCHANGED),
        resource("grown", UPDATE, CHANGED, gpus_added=8),
        resource("deleted", DELETE, LEFT),
        resource("volume", DELETE, LEFT, type_=VOLUME),
        resource("shrunk", UPDATE, CHANGED, gpus_removed=8),
        resource("train", REPLACE, CHANGED, gpus_removed=16, gpus_added=64),
        resource("pool", DELETE, LEFT, type_=POOL, gpus_removed=None),
        resource("stack", DELETE, LEFT, type_="pulumi:pulumi:Stack"),
    ]
    assert [change.name for change in sort_by_danger(changes)] == [
        *("pool", "train", "shrunk", "volume", "deleted", "grown", "same")
    ]


@pytest.mark.parametrize(
    ("numbers", "text", "any_"),
    [
        ([1, 2000], "2,001", True),
        ([1, None], "1 or more", True),
        ([None], "an unknown number", True),
        ([0, 0], "0", False),
        ([], "0", False),
    ],
)
def test_gpu_sums_say_whether_numbers_are_unknown(
    numbers: list[int | None], text: str, any_: bool
) -> None:
    gpu_count = GpuCount.from_numbers(numbers)
    assert (str(gpu_count), bool(gpu_count)) == (text, any_)
