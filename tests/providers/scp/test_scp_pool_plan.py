"""Test which nodes a plan creates, deletes, replaces and keeps, for any existing nodes."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.scp.nodes.planning import (
    DeclaredNode,
    DeclaredPool,
    PoolPlan,
    TargetFabric,
    find_differences,
    is_terminating,
    plan_pool,
    sort_for_removal,
)
from gpuform.schemas.scp.outputs import NodeOutputs, NodeState

BASE = {"gpu_node_name_prefix": "train", "cluster_fabric_name": "fabric1"}


def build_node(number: int, state: str = "RUNNING", **fields: Any) -> NodeOutputs:
    defaults = {
        "id": f"id-{number}",
        "gpu_node_name": f"train-{number:03}",
        "state": state,
        "cluster_fabric_id": "f1",
        "cluster_fabric_name": "fabric1",
        "policy_ip": f"192.168.0.{number}",
        "created_at": f"2026-01-01T00:00:{number:02}Z",
    }
    return NodeOutputs.model_validate({**defaults, **fields})


def declare_count(count: int, **fields: Any) -> DeclaredPool:
    return DeclaredPool.from_inputs({**BASE, "count": count, **fields})


def declare_map(nodes: dict[str, dict[str, Any]], **fields: Any) -> DeclaredPool:
    return DeclaredPool.from_inputs({**BASE, "nodes": nodes, **fields})


def list_names(nodes: Sequence[Any]) -> list[str]:
    return [node.name if isinstance(node, DeclaredNode) else node.gpu_node_name for node in nodes]


def list_kept_names(pool_plan: PoolPlan) -> list[str]:
    return [node.gpu_node_name for node, _ in pool_plan.keep]


def test_missing_nodes_get_the_lowest_free_names() -> None:
    pool = plan_pool(declare_count(4), [build_node(2), build_node(5)])
    assert list_names(pool.create) == ["train-001", "train-003"]
    assert list_kept_names(pool) == ["train-002", "train-005"]


def test_names_of_removed_nodes_are_not_used_again() -> None:
    assert list_names(plan_pool(declare_count(2, remove=["train-001"]), []).create) == [
        "train-002",
        "train-003",
    ]


def test_a_node_under_deletion_does_not_count() -> None:
    pool = plan_pool(declare_count(2), [build_node(1), build_node(2, "TERMINATING")])
    assert list_names(pool.create) == ["train-002"]
    assert list_names(pool.delete) == []


def test_nodes_are_removed_by_name_failure_power_and_age() -> None:
    nodes = [
        build_node(1),
        build_node(2, "STOPPED"),
        build_node(3, "ERROR"),
        build_node(4),
        build_node(5),
        build_node(6),
    ]
    declared = declare_count(1, remove=["train-004", "nobody", "train-001"])
    order = list_names(sort_for_removal(nodes, declared))
    assert order == [f"train-00{number}" for number in (4, 1, 3, 2, 6, 5)]
    assert list_kept_names(plan_pool(declared, nodes)) == ["train-005"]


def test_nodes_of_a_stopped_pool_are_removed_by_age() -> None:
    nodes = [build_node(1, "STOPPED"), build_node(2), build_node(3, "STOPPED")]
    order = list_names(sort_for_removal(nodes, declare_count(1, state="STOPPED")))
    assert order == ["train-003", "train-002", "train-001"]


def test_a_failed_node_is_replaced_unless_it_is_spared() -> None:
    nodes = [build_node(1), build_node(2, "ERROR")]
    pool = plan_pool(declare_count(2), nodes)
    assert [(problem.node.id, problem.reason) for problem in pool.replace] == [
        ("id-2", "the node has failed: gpuform deletes and recreates it")
    ]
    assert list_names(pool.deleted_nodes) == ["train-002"]
    assert pool.create == []
    spared = plan_pool(declare_count(2), nodes, spared_ids={"id-2"})
    assert (spared.replace, list_kept_names(spared)) == ([], ["train-001", "train-002"])


def test_a_map_of_nodes_is_kept_by_names() -> None:
    declared = declare_map(
        {"a": {}, "b": {"gpu_node_name": "train-002"}, "c": {"state": "STOPPED"}}
    )
    pool = plan_pool(declared, [build_node(1), build_node(2)])
    assert list_names(pool.create) == ["train-a", "train-c"]
    assert list_names(pool.delete) == ["train-001"]
    assert list_kept_names(pool) == ["train-002"]
    assert [declared_node.key for _, declared_node in pool.keep] == ["b"]
    assert {w.name: w.state for w in pool.create} == {"train-a": "RUNNING", "train-c": "STOPPED"}


def test_another_address_replaces_that_node_alone() -> None:
    declared = declare_map(
        {"001": {"ip_address": "192.168.0.1"}, "002": {"ip_address": "192.168.0.9"}}
    )
    pool = plan_pool(declared, [build_node(1), build_node(2)])
    assert [node.name for node in pool.replace] == ["train-002"]
    assert list_kept_names(pool) == ["train-001"]


def test_shared_inputs_hold_for_nodes_without_their_own() -> None:
    declared = declare_map(
        {"a": {}, "b": {"lock_enabled": False}}, lock_enabled=True, state="STOPPED"
    )
    assert declared.get_declared_node("train-a") == DeclaredNode(
        "a", "train-a", lock_enabled=True, state="STOPPED"
    )
    assert declared.get_declared_node("train-b").lock_enabled is False
    assert declared.get_key("train-b") == "b"
    assert declared.get_key("another") == "another"


STATES = [str(state) for state in NodeState]


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.sampled_from(STATES)), unique_by=lambda pair: pair[0]
    ),
    st.integers(1, 20),
    st.lists(st.integers(1, 30).map(lambda number: f"train-{number:03}"), max_size=4),
)
def test_any_plan_leads_to_the_declared_number_of_nodes(
    there: list[tuple[int, str]], count: int, remove: list[str]
) -> None:
    nodes = [build_node(number, state) for number, state in there]
    live = [node for node in nodes if not is_terminating(node.state)]
    declared = declare_count(count, remove=remove)
    pool = plan_pool(declared, nodes)
    after = len(live) - len(pool.delete) + len(pool.create)
    assert after == count
    assert not pool.delete or not pool.create
    made = list_names(pool.create)
    assert len(set(made)) == len(made)
    assert not {*made} & {planned_node.gpu_node_name for planned_node in live}
    assert not {*made} & {*remove}
    # Nothing is told twice, and nothing that leaves is told anything.
    ids = [
        planned_node.id
        for planned_node in (*pool.deleted_nodes, *(planned_node for planned_node, _ in pool.keep))
    ]
    assert sorted(ids) == sorted(planned_node.id for planned_node in live)
    # Once it is done, there is nothing more to do.
    remaining_nodes = [build_node(int(name[-3:])) for name in (*made, *list_kept_names(pool))]
    again = plan_pool(
        declared,
        [
            *remaining_nodes,
            *(build_node(int(planned_node.name[-3:])) for planned_node in pool.replace),
        ],
    )
    assert (again.create, again.delete, again.replace) == ([], [], [])


@given(
    st.permutations(
        [build_node(n, s) for n, s in enumerate(["RUNNING", "ERROR", "STOPPED"] * 3, 1)]
    )
)
def test_the_order_of_listed_nodes_changes_no_plan(nodes: list[NodeOutputs]) -> None:
    assert list_names(plan_pool(declare_count(4), nodes).delete) == list_names(
        plan_pool(declare_count(4), sorted_(nodes)).delete
    )


def sorted_(nodes: list[NodeOutputs]) -> list[NodeOutputs]:
    return sorted(nodes, key=lambda each: each.id)


FABRIC = TargetFabric(name="fabric1")


@pytest.mark.parametrize(
    ("seen", "wanted", "fields"),
    [
        ({}, {}, []),
        ({"state": "STOPPED"}, {}, ["state"]),
        ({"state": "STOPPING"}, {}, ["state"]),
        ({"state": "STARTING"}, {}, []),
        ({"state": "CREATING"}, {"state": "STOPPED"}, ["state"]),
        ({"state": "EDITING"}, {"state": "STOPPED"}, []),
        ({"lock_enabled": True}, {}, []),
        ({"lock_enabled": True}, {"lock_enabled": False}, ["lock_enabled"]),
        ({"policy_use_nat": True}, {}, []),
        ({"policy_use_nat": True}, {"nat_enabled": False}, ["nat_enabled"]),
        ({}, {"nat_enabled": True, "public_ip_address_id": "a"}, ["nat_enabled"]),
        (
            {"policy_use_nat": True, "public_ip_address_id": "a"},
            {"nat_enabled": True, "public_ip_address_id": "b"},
            ["public_ip_address_id"],
        ),
        # Nobody knows which one it is: the declaration is believed.
        ({"policy_use_nat": True}, {"nat_enabled": True, "public_ip_address_id": "b"}, []),
        ({"cluster_fabric_name": "fabric2"}, {}, ["cluster_fabric_name"]),
        ({"cluster_fabric_id": None, "cluster_fabric_name": None}, {}, []),
    ],
)
def test_a_node_differs_from_its_declaration_in_the_changed_fields(
    seen: dict[str, Any], wanted: dict[str, Any], fields: list[str]
) -> None:
    differences = find_differences(
        build_node(1, **seen), DeclaredNode("k", "train-001", **wanted), FABRIC
    )
    assert [difference.field for difference in differences] == fields


def test_a_fabric_declared_by_id_is_compared_by_id() -> None:
    fabric = TargetFabric(name="fabric1", id="f2")
    assert not fabric.contains(build_node(1))
    assert fabric.contains(build_node(1, cluster_fabric_id="f2", cluster_fabric_name="renamed"))
    (difference,) = find_differences(build_node(1), DeclaredNode("k", "train-001"), fabric)
    assert (difference.field, difference.before, difference.after) == (
        "cluster_fabric_id",
        "f1",
        "f2",
    )
