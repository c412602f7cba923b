"""Test that an update may remove no more nodes than its saved plan."""

from typing import Any

import pytest

from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.stacks.operations.runs.saved_plans import describe_unplanned_removals


def build_change(
    nodes: tuple[str, ...], action: PlanAction = PlanAction.UPDATE, **fields: Any
) -> ResourceChange:
    removed_nodes = tuple(RemovedNode(name=name, because="idle") for name in nodes)
    return ResourceChange(
        urn="urn:pulumi:dev::lab::together:Cluster::train",
        type="together:Cluster",
        name="train",
        action=action,
        reason=PlanReason.CHANGED,
        leaving=RemovedNodes(scheduler="Kubernetes", on_busy="wait", nodes=removed_nodes)
        if nodes
        else None,
        **{"gpus_removed": 0, **fields},
    )


def find_problems(planned: ResourceChange, now: ResourceChange, *unchecked: str) -> list[str]:
    plan = Plan.from_changes("lab", "dev", [planned], unchecked=unchecked)
    return list(describe_unplanned_removals(plan, [now]))


def test_a_planned_growth_removes_no_node_of_a_cluster_that_has_grown_further():
    assert find_problems(build_change(()), build_change(("w7", "w8"))) == [
        "train: the update would remove 2 nodes, and the plan removes none"
    ]


@pytest.mark.parametrize(("nodes", "is_refused"), [(("w1",), False), (("w1", "w2"), True)])
def test_a_removal_of_other_nodes_passes_and_of_more_nodes_does_not(
    nodes: tuple[str, ...], is_refused: bool
):
    problems = find_problems(build_change(("w9",)), build_change(nodes))
    assert problems == (
        ["train: the update would remove 2 nodes, and the plan removes 1"] if is_refused else []
    )


def test_nodes_that_are_repaired_are_limited_by_the_planned_repairs():
    node_repair = NodeRepair(node="w1", mode="HOST_AWARE", cause="platform", because="GpuLost")
    assert find_problems(build_change(()), build_change(("w1",), repairs=(node_repair,))) == []


def test_a_plan_that_does_not_know_its_removed_nodes_sets_no_limit():
    now = build_change(("w1",))
    assert find_problems(build_change(()), now, "the jobs of train are unknown") == []
    assert find_problems(build_change((), gpus_removed=8), now) == []
    assert find_problems(build_change((), gpus_removed=None), now) == []


def test_a_deletion_takes_all_nodes():
    planned, now = (build_change(nodes, PlanAction.DELETE) for nodes in [("w1",), ("w1", "w2")])
    assert find_problems(planned, now) == []
