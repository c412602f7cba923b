"""A fabric is bound by its name: nothing is sent for it, and without members it is not gone."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError

Properties = dict[str, Any]

FABRIC = {"node_pool_id": "POOL001-krw1a", "cluster_fabric_name": "fabric1"}


def test_without_members_it_is_ready_and_has_no_id(world: Any) -> None:
    fabric = world.create("Fabric", FABRIC)
    assert fabric.id == "POOL001-krw1a/fabric1"
    assert fabric.outs["ready"] is True
    assert fabric.outs["cluster_fabric_id"] == ""
    assert "state" not in fabric.outs
    again = world.refresh(fabric)
    assert again is not None
    assert again.outs == fabric.outs
    assert world.changes(again) == {}
    world.delete(fabric)
    assert world.writes() == {}


@pytest.mark.slow
def test_with_members_it_shows_them(world: Any, pool_inputs: Properties) -> None:
    fabric = world.create("Fabric", FABRIC, name="fabric")
    pool = world.create("NodePool", pool_inputs)
    seen = world.refresh(fabric)
    assert seen.outs["cluster_fabric_id"] == pool.outs["cluster_fabric_id"]
    assert seen.outs["state"] == "RUNNING"
    members = {each["gpu_node_id"] for each in seen.outs["gpu_node_details"]}
    assert members == set(pool.outs["node_ids"])
    assert world.changes(seen) == {}
    # Its last node ends it; the declaration stays.
    world.delete(pool)
    empty = world.refresh(seen)
    assert empty.outs["cluster_fabric_id"] == ""
    assert (empty.outs["ready"], world.changes(empty)) == (True, {})


@pytest.mark.slow
def test_it_is_deleted_only_when_it_is_empty(world: Any, pool_inputs: Properties) -> None:
    pool = world.create("NodePool", pool_inputs)
    fabric = world.create("Fabric", FABRIC, name="fabric")
    world.writes()
    with pytest.raises(GpuformError) as caught:
        world.delete(fabric)
    assert "it has nodes: train-001, train-002, train-003" in str(caught.value)
    assert "delete or move them first" in str(caught.value)
    assert world.writes() == {}
    world.client.delete_nodes(pool.outs["node_ids"])
    world.delete(fabric)
    assert world.client.list_fabrics() == []


def test_another_name_or_pool_is_another_fabric(world: Any) -> None:
    fabric = world.create("Fabric", FABRIC)
    for change in ({"cluster_fabric_name": "fabric2"}, {"node_pool_id": "POOL002-krw1b"}):
        assert world.diff(fabric, {**FABRIC, **change}) == list(change)


def test_a_vendor_pool_that_does_not_exist_is_refused_while_planning(world: Any) -> None:
    found = world.problems("Fabric", {**FABRIC, "node_pool_id": "POOL009-krw1a"})
    assert list(found) == ["node_pool_id"]
    assert "the platform has no node pool POOL009-krw1a" in found["node_pool_id"]


def test_a_fabric_that_fails_is_told(world: Any, pool_inputs: Properties) -> None:
    world.create("NodePool", pool_inputs)
    world.fault("GET", "^/v1/cluster-fabrics/", status_override="ERROR", count=None)
    fabric = world.create("Fabric", FABRIC, name="fabric")
    assert (fabric.outs["ready"], fabric.reason) == (
        False,
        "fabric fabric1: its state is ERROR",
    )


def test_an_import_takes_the_name_in_the_pool(world: Any, pool_inputs: Properties) -> None:
    world.create("NodePool", pool_inputs)
    inputs, found = world.imported("Fabric", "POOL001-krw1a/fabric1")
    assert inputs == FABRIC
    assert found.outs["state"] == "RUNNING"
    assert world.imported("Fabric", "no-such-form") is None
