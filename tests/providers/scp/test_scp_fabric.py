"""Test that a fabric is bound by its name: no request creates it, and it needs no members."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError

Properties = dict[str, Any]

FABRIC = {"node_pool_id": "POOL001-krw1a", "cluster_fabric_name": "fabric1"}


def test_a_fabric_without_members_is_ready_and_has_no_id(environment: Any) -> None:
    fabric = environment.create("Fabric", FABRIC)
    assert fabric.id == "POOL001-krw1a/fabric1"
    assert fabric.outs["ready"] is True
    assert fabric.outs["cluster_fabric_id"] == ""
    assert "state" not in fabric.outs
    again = environment.refresh(fabric)
    assert again is not None
    assert again.outs == fabric.outs
    assert environment.list_changes(again) == {}
    environment.delete(fabric)
    assert environment.count_writes() == {}


@pytest.mark.slow
def test_a_fabric_shows_its_members(environment: Any, pool_inputs: Properties) -> None:
    fabric = environment.create("Fabric", FABRIC, name="fabric")
    pool = environment.create("NodePool", pool_inputs)
    refreshed = environment.refresh(fabric)
    assert refreshed.outs["cluster_fabric_id"] == pool.outs["cluster_fabric_id"]
    assert refreshed.outs["state"] == "RUNNING"
    members = {member["gpu_node_id"] for member in refreshed.outs["gpu_node_details"]}
    assert members == set(pool.outs["node_ids"])
    assert environment.list_changes(refreshed) == {}
    # Its last node ends it; the declaration stays.
    environment.delete(pool)
    empty = environment.refresh(refreshed)
    assert empty.outs["cluster_fabric_id"] == ""
    assert (empty.outs["ready"], environment.list_changes(empty)) == (True, {})


@pytest.mark.slow
def test_a_fabric_with_members_is_not_deleted(environment: Any, pool_inputs: Properties) -> None:
    pool = environment.create("NodePool", pool_inputs)
    fabric = environment.create("Fabric", FABRIC, name="fabric")
    environment.count_writes()
    with pytest.raises(GpuformError) as caught:
        environment.delete(fabric)
    assert "it has nodes: train-001, train-002, train-003" in str(caught.value)
    assert "delete or move the nodes first" in str(caught.value)
    assert environment.count_writes() == {}
    environment.client.delete_nodes(pool.outs["node_ids"])
    environment.delete(fabric)
    assert environment.client.list_fabrics() == []


def test_another_name_or_pool_is_another_fabric(environment: Any) -> None:
    fabric = environment.create("Fabric", FABRIC)
    for change in ({"cluster_fabric_name": "fabric2"}, {"node_pool_id": "POOL002-krw1b"}):
        assert environment.diff(fabric, {**FABRIC, **change}) == list(change)


def test_a_vendor_pool_that_does_not_exist_is_refused_while_planning(environment: Any) -> None:
    problems = environment.find_problems("Fabric", {**FABRIC, "node_pool_id": "POOL009-krw1a"})
    assert list(problems) == ["node_pool_id"]
    assert "node pool POOL009-krw1a not found for this account" in problems["node_pool_id"]


def test_a_failed_fabric_is_not_ready(environment: Any, pool_inputs: Properties) -> None:
    environment.create("NodePool", pool_inputs)
    environment.inject_fault("GET", "^/v1/cluster-fabrics/", status_override="ERROR", count=None)
    fabric = environment.create("Fabric", FABRIC, name="fabric")
    assert (fabric.outs["ready"], fabric.reason) == (
        False,
        "fabric fabric1: its state is ERROR",
    )


def test_an_import_needs_vendor_pool_and_name(environment: Any, pool_inputs: Properties) -> None:
    environment.create("NodePool", pool_inputs)
    inputs, imported = environment.import_object("Fabric", "POOL001-krw1a/fabric1")
    assert inputs == FABRIC
    assert imported.outs["state"] == "RUNNING"
    assert environment.import_object("Fabric", "no-such-form") is None
