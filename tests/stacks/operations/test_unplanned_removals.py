"""Test that a run may remove no more nodes and GPUs than its saved plan."""

from typing import Any

import pytest

from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.values import RemovalCount
from gpuform.stacks.operations.runs.saved_plans import describe_unplanned_removals, sum_removals


def build_change(
    nodes: tuple[str, ...], action: PlanAction = PlanAction.UPDATE, **fields: Any
) -> ResourceChange:
    removed_nodes = tuple(RemovedNode(name=name, because="idle") for name in nodes)
    return ResourceChange(
        urn="urn:pulumi:dev::lab::together:Cluster::train",
        type="together:Cluster",
        name="train",
        action=action,
        leaving=RemovedNodes(scheduler="Kubernetes", on_busy="wait", nodes=removed_nodes)
        if nodes
        else None,
        **{"gpus_removed": 0, "reason": PlanReason.CHANGED, **fields},
    )


def find_problems(planned: ResourceChange, now: ResourceChange) -> list[str]:
    plan = Plan.from_changes("lab", "dev", [planned])
    return list(describe_unplanned_removals(plan, [now]))


@pytest.mark.parametrize("action", [PlanAction.UPDATE, PlanAction.DELETE])
@pytest.mark.parametrize(("nodes", "is_refused"), [(("w1",), False), (("w1", "w2"), True)])
def test_a_removal_of_other_nodes_passes_and_of_more_nodes_does_not(
    nodes: tuple[str, ...], is_refused: bool, action: PlanAction
):
    problems = find_problems(build_change(("w9",), action), build_change(nodes, action))
    assert problems == (
        ["train: this would remove 2 nodes, and the plan removes 1 node"] if is_refused else []
    )


@pytest.mark.parametrize(
    ("planned", "now", "message"),
    [
        (0, 16, "this would remove 2 nodes with 16 GPUs, and the plan removes none"),
        (8, 16, "this would remove 2 nodes with 16 GPUs, and the plan removes 8 GPUs"),
        (16, 16, ""),
        (None, 16, ""),
        (0, None, ""),
    ],
)
def test_a_plan_without_names_of_nodes_limits_the_gpus(
    planned: int | None, now: int | None, message: str
):
    """Plans of older releases have no nodes if no scheduler has reported their jobs."""
    problems = find_problems(
        build_change((), gpus_removed=planned), build_change(("w1", "w2"), gpus_removed=now)
    )
    assert problems == ([f"train: {message}"] if message else [])


@pytest.mark.parametrize(
    ("because", "count"), [("repaired", 0), ("replaced", 0), ("failed", 1), ("idle", 1)]
)
def test_planned_repairs_limit_repaired_nodes_and_not_removed_ones(because: str, count: int):
    """A shrink removes a broken node first, although the node's repair is due."""
    node_repair = NodeRepair(node="w1", mode="HOST_AWARE", cause="platform", because="GpuLost")
    removed_nodes = RemovedNodes(nodes=(RemovedNode(name="w1", because=because),))
    change = build_change((), repairs=(node_repair,))
    assert change.model_copy(update={"leaving": removed_nodes}).removal.nodes == count


def test_a_replacement_removes_the_nodes_whose_repair_is_due_as_well():
    node_repair = NodeRepair(node="w1", mode="HOST_AWARE", cause="platform", because="GpuLost")
    change = build_change(("w1", "w2"), PlanAction.REPLACE, repairs=(node_repair,), gpus_removed=16)
    assert change.removal == RemovalCount(2, 16)


def test_what_a_refresh_finds_gone_is_not_removed_by_the_run():
    gone = build_change((), PlanAction.DELETE, gpus_removed=8, reason=PlanReason.GONE)
    assert find_problems(build_change(()), gone) == []


def test_an_old_object_is_counted_with_its_replacement():
    old, new = build_change((), gpus_removed=8), build_change(("w1",), gpus_removed=16)
    assert sum_removals([old, new]) == {old.urn: RemovalCount(None, 24)}
