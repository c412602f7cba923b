"""Test which nodes a plan creates, deletes, replaces and keeps, for any existing nodes."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.scp.nodes import (
    DeclaredNode,
    DeclaredPool,
    PoolPlan,
    TargetFabric,
    find_differences,
    is_terminating,
    plan_pool,
)
from gpuform.providers.scp.nodes.planning import sort_for_removal
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NodeState

BASE = {"gpu_node_name_prefix": "train", "cluster_fabric_name": "fabric1"}


def node(number: int, state: str = "RUNNING", **fields: Any) -> NodeOutputs:
    known = {
        "id": f"id-{number}",
        "gpu_node_name": f"train-{number:03}",
        "state": state,
        "cluster_fabric_id": "f1",
        "cluster_fabric_name": "fabric1",
        "policy_ip": f"192.168.0.{number}",
        "created_at": f"2026-01-01T00:00:{number:02}Z",
    }
    return NodeOutputs.model_validate({**known, **fields})


def counted(count: int, **fields: Any) -> DeclaredPool:
    return DeclaredPool.from_inputs({**BASE, "count": count, **fields})


def mapped(nodes: dict[str, dict[str, Any]], **fields: Any) -> DeclaredPool:
    return DeclaredPool.from_inputs({**BASE, "nodes": nodes, **fields})


def names(found: Sequence[Any]) -> list[str]:
    return [each.name if isinstance(each, DeclaredNode) else each.gpu_node_name for each in found]


def kept(found: PoolPlan) -> list[str]:
    return [each.gpu_node_name for each, _ in found.keep]


def test_missing_nodes_get_the_lowest_free_names() -> None:
    pool = plan_pool(counted(4), [node(2), node(5)])
    assert names(pool.create) == ["train-001", "train-003"]
    assert kept(pool) == ["train-002", "train-005"]


def test_names_of_removed_nodes_are_not_used_again() -> None:
    assert names(plan_pool(counted(2, remove=["train-001"]), []).create) == [
        "train-002",
        "train-003",
    ]


def test_a_node_under_deletion_does_not_count() -> None:
    pool = plan_pool(counted(2), [node(1), node(2, "TERMINATING")])
    assert names(pool.create) == ["train-002"]
    assert names(pool.delete) == []


def test_nodes_are_removed_by_name_failure_power_and_age() -> None:
    nodes = [node(1), node(2, "STOPPED"), node(3, "ERROR"), node(4), node(5), node(6)]
    declared = counted(1, remove=["train-004", "nobody", "train-001"])
    order = names(sort_for_removal(nodes, declared))
    assert order == [f"train-00{number}" for number in (4, 1, 3, 2, 6, 5)]
    assert kept(plan_pool(declared, nodes)) == ["train-005"]


def test_nodes_of_a_stopped_pool_are_removed_by_age() -> None:
    nodes = [node(1, "STOPPED"), node(2), node(3, "STOPPED")]
    order = names(sort_for_removal(nodes, counted(1, state="STOPPED")))
    assert order == ["train-003", "train-002", "train-001"]


def test_a_failed_node_is_replaced_unless_it_is_spared() -> None:
    nodes = [node(1), node(2, "ERROR")]
    pool = plan_pool(counted(2), nodes)
    assert [(problem.node.id, problem.reason) for problem in pool.replace] == [
        ("id-2", "the node has failed: gpuform deletes and recreates it")
    ]
    assert names(pool.deleted_nodes) == ["train-002"]
    assert pool.create == []
    spared = plan_pool(counted(2), nodes, spared_ids={"id-2"})
    assert (spared.replace, kept(spared)) == ([], ["train-001", "train-002"])


def test_a_map_of_nodes_is_kept_by_names() -> None:
    declared = mapped({"a": {}, "b": {"gpu_node_name": "train-002"}, "c": {"state": "STOPPED"}})
    pool = plan_pool(declared, [node(1), node(2)])
    assert names(pool.create) == ["train-a", "train-c"]
    assert names(pool.delete) == ["train-001"]
    assert kept(pool) == ["train-002"]
    assert [wanted.key for _, wanted in pool.keep] == ["b"]
    assert {w.name: w.state for w in pool.create} == {"train-a": "RUNNING", "train-c": "STOPPED"}


def test_another_address_replaces_that_node_alone() -> None:
    declared = mapped({"001": {"ip_address": "192.168.0.1"}, "002": {"ip_address": "192.168.0.9"}})
    pool = plan_pool(declared, [node(1), node(2)])
    assert [each.name for each in pool.replace] == ["train-002"]
    assert kept(pool) == ["train-001"]


def test_shared_inputs_hold_for_nodes_without_their_own() -> None:
    declared = mapped({"a": {}, "b": {"lock_enabled": False}}, lock_enabled=True, state="STOPPED")
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
    nodes = [node(number, state) for number, state in there]
    live = [node for node in nodes if not is_terminating(node.state)]
    declared = counted(count, remove=remove)
    pool = plan_pool(declared, nodes)
    after = len(live) - len(pool.delete) + len(pool.create)
    assert after == count
    assert not pool.delete or not pool.create
    made = names(pool.create)
    assert len(set(made)) == len(made)
    assert not {*made} & {each.gpu_node_name for each in live}
    assert not {*made} & {*remove}
    # Nothing is told twice, and nothing that leaves is told anything.
    ids = [each.id for each in (*pool.deleted_nodes, *(each for each, _ in pool.keep))]
    assert sorted(ids) == sorted(each.id for each in live)
    # Once it is done, there is nothing more to do.
    left = [node(int(name[-3:])) for name in (*made, *kept(pool))]
    again = plan_pool(declared, [*left, *(node(int(each.name[-3:])) for each in pool.replace)])
    assert (again.create, again.delete, again.replace) == ([], [], [])


@given(st.permutations([node(n, s) for n, s in enumerate(["RUNNING", "ERROR", "STOPPED"] * 3, 1)]))
def test_the_order_of_listed_nodes_changes_no_plan(nodes: list[NodeOutputs]) -> None:
    assert names(plan_pool(counted(4), nodes).delete) == names(
        plan_pool(counted(4), sorted_(nodes)).delete
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
def test_differences_between_a_node_and_its_declaration(
    seen: dict[str, Any], wanted: dict[str, Any], fields: list[str]
) -> None:
    differences = find_differences(
        node(1, **seen), DeclaredNode("k", "train-001", **wanted), FABRIC
    )
    assert [each.field for each in differences] == fields


def test_a_fabric_declared_by_id_is_compared_by_id() -> None:
    fabric = TargetFabric(name="fabric1", id="f2")
    assert not fabric.contains(node(1))
    assert fabric.contains(node(1, cluster_fabric_id="f2", cluster_fabric_name="renamed"))
    (found,) = find_differences(node(1), DeclaredNode("k", "train-001"), fabric)
    assert (found.field, found.before, found.after) == ("cluster_fabric_id", "f1", "f2")
