"""One node that joins a fabric: what it needs, what changes in place, what a plan refuses."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError, NotAllowed
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.schemas.values import UNKNOWN

Properties = dict[str, Any]

PUBLIC_IP = "0123456789abcdef0123456789abcdef"
OTHER_IP = "fedcba9876543210fedcba9876543210"
NAT = {"nat_enabled": True, "public_ip_address_id": PUBLIC_IP}


@pytest.fixture
def pool(world: Any, pool_inputs: Properties) -> Any:
    """A pool of two, whose fabric can be joined."""
    return world.create("NodePool", {**pool_inputs, "count": 2}, name="pool")


@pytest.fixture
def other(world: Any, pool_inputs: Properties) -> Any:
    """Another fabric of the same vendor pool."""
    names = {"cluster_fabric_name": "fabric2", "gpu_node_name_prefix": "other", "count": 2}
    return world.create("NodePool", {**pool_inputs, **names}, name="other")


@pytest.fixture
def inputs(pool: Any, node_inputs: Properties) -> Properties:
    return {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}


@pytest.mark.slow
def test_it_joins_and_tells_where_it_is(world: Any, inputs: Properties) -> None:
    world.writes()
    node = world.create("GpuNode", inputs)
    assert world.writes() == {"POST /v1/gpu-nodes": 1}
    assert node.outs["ready"] is True
    assert node.outs["cluster_fabric_name"] == "fabric1"
    assert node.outs["node_pool_id"] == "POOL001-krw1a"
    assert node.outs["policy_ip"].startswith("192.168.")
    assert world.changes(node) == {}
    world.delete(node)
    assert "solo" not in world.states()


@pytest.mark.parametrize("change", [NAT, {"lock_enabled": True}, {"state": "STOPPED"}])
def test_it_is_made_as_declared(world: Any, inputs: Properties, change: Properties) -> None:
    node = world.create("GpuNode", {**inputs, **change})
    assert node.outs["ready"] is True
    assert {name: node.outs[name] for name in change} == change
    assert world.changes(node) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "request_"),
    [
        ({"state": "STOPPED"}, "POST /v1/gpu-nodes/stop"),
        ({"lock_enabled": True}, "PUT /v1/gpu-nodes/*/lock"),
        (NAT, "POST /v1/gpu-nodes/*/public-nat-ip"),
    ],
)
def test_it_changes_in_place_there_and_back(
    world: Any, inputs: Properties, change: Properties, request_: str
) -> None:
    node = world.create("GpuNode", inputs)
    world.writes()
    assert world.diff(node, {**inputs, **change}) == []
    node = world.update(node, {**inputs, **change})
    assert world.writes() == {request_: 1}
    assert (node.outs["ready"], world.changes(node)) == (True, {})
    back = {**inputs, "state": "RUNNING", "lock_enabled": False, "nat_enabled": False}
    node = world.update(node, back)
    assert sum(world.writes().values()) == 1
    assert (node.outs["ready"], world.changes(node)) == (True, {})


def test_another_public_ip_is_exchanged(world: Any, inputs: Properties) -> None:
    node = world.create("GpuNode", {**inputs, **NAT})
    changed = {**inputs, **NAT, "public_ip_address_id": OTHER_IP}
    assert world.changes(node, changed) == {"public_ip_address_id": (PUBLIC_IP, OTHER_IP)}
    world.writes()
    node = world.update(node, changed)
    assert sum(world.writes().values()) == 2
    assert node.outs["public_ip_address_id"] == OTHER_IP
    assert world.changes(world.refresh(node)) == {}


@pytest.mark.slow
def test_it_moves_within_its_vendor_pool(world: Any, inputs: Properties, other: Any) -> None:
    node = world.create("GpuNode", inputs)
    moved = {**inputs, "cluster_fabric_id": other.outs["cluster_fabric_id"]}
    assert world.problems("GpuNode", moved, node) == {}
    world.writes()
    after = world.update(node, moved)
    assert world.writes() == {"POST /v1/cluster-fabrics/modify-members": 1}
    assert (after.outs["ready"], after.outs["cluster_fabric_name"]) == (True, "fabric2")
    assert world.changes(after) == {}


@pytest.mark.slow
def test_it_does_not_move_to_another_vendor_pool(
    world: Any, inputs: Properties, pool_inputs: Properties
) -> None:
    names = {"node_pool_id": "POOL002-krw1b", "gpu_node_name_prefix": "away"}
    away = world.create("NodePool", {**pool_inputs, **names}, name="away")
    node = world.create("GpuNode", inputs)
    moved = {**inputs, "cluster_fabric_id": away.outs["cluster_fabric_id"]}
    assert (
        "is of vendor pool POOL002" in world.problems("GpuNode", moved, node)["cluster_fabric_id"]
    )
    world.writes()
    with pytest.raises(GpuformError, match="is of vendor pool POOL002"):
        world.update(node, moved)
    assert world.writes() == {}


@pytest.mark.slow
def test_it_does_not_leave_a_declared_fabric_empty(
    world: Any, inputs: Properties, pool: Any, other: Any
) -> None:
    node = world.create("GpuNode", inputs)
    world.delete(pool)
    fabric = {"node_pool_id": "POOL001-krw1a", "cluster_fabric_name": "fabric1"}
    assert world.problems("Fabric", fabric) == {}
    moved = {**inputs, "cluster_fabric_id": other.outs["cluster_fabric_id"]}
    assert "the last node" in world.problems("GpuNode", moved, node)["cluster_fabric_id"]
    with pytest.raises(GpuformError, match="the last node from fabric fabric1"):
        world.update(node, moved)


@pytest.mark.parametrize("fabric_id", ["", "f" * 32])
def test_alone_it_is_refused_while_planning(
    world: Any, node_inputs: Properties, fabric_id: str
) -> None:
    found = world.problems("GpuNode", {**node_inputs, "cluster_fabric_id": fabric_id})
    assert list(found) == ["cluster_fabric_id"]
    assert "one server cannot make a fabric" in found["cluster_fabric_id"]


def test_a_fabric_that_ends_before_the_create_is_told(
    world: Any, inputs: Properties, pool: Any
) -> None:
    world.delete(pool)
    with world.serving("thing"), pytest.raises(GpuformError, match="there is no fabric"):
        GpuNodeLifecycle().create(inputs)
    assert world.intents.all() == []


@pytest.mark.slow
def test_a_stop_behind_our_back_is_drift_and_undone(world: Any, inputs: Properties) -> None:
    node = world.create("GpuNode", inputs)
    world.client.stop_nodes([node.id])
    world.advance(3600)
    node = world.refresh(node)
    assert world.changes(node) == {"state": ("STOPPED", "RUNNING")}
    node = world.update(node)
    assert (node.outs["state"], world.changes(node)) == ("RUNNING", {})


class TestLocks:
    @pytest.mark.slow
    def test_neither_deleted_nor_stopped_nor_replaced_without_permission(
        self, world: Any, inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        locked = {**inputs, "lock_enabled": True}
        node = world.create("GpuNode", locked)
        world.writes()
        for change in ({"state": "STOPPED"}, {"image_id": "IMAGE-2"}):
            with pytest.raises(NotAllowed, match="GPU node solo is locked"):
                world.diff(node, {**locked, **change})
        with pytest.raises(NotAllowed, match="--allow unlock"):
            world.delete(node)
        assert world.writes() == {}
        with world.allowed(monkeypatch, "unlock"):
            node = world.update(node, {**locked, "state": "STOPPED"})
            assert (node.outs["state"], node.outs["lock_enabled"]) == ("STOPPED", True)
            world.delete(node)
        assert "solo" not in world.states()

    def test_a_lock_of_somebody_elses_is_respected(self, world: Any, inputs: Properties) -> None:
        node = world.create("GpuNode", inputs)
        world.client.lock_node(node.id)
        world.writes()
        with pytest.raises(NotAllowed):
            world.update(node, {**inputs, "state": "STOPPED"})
        with pytest.raises(NotAllowed):
            world.delete(node)
        assert world.writes() == {}
        seen = world.refresh(node)
        assert seen.outs["lock_enabled"] is True
        assert world.changes(seen) == {}


def test_a_failed_node_is_told_in_every_plan_and_not_replaced_by_itself(
    world: Any, inputs: Properties
) -> None:
    world.fault("POST", "^/v1/gpu-nodes$", failing="solo")
    node = world.create("GpuNode", inputs)
    assert "its state is ERROR: replace it" in node.reason
    for old in (node, world.refresh(node)):
        assert "ready" in world.changes(old)
        assert world.diff(old, inputs) == []


def test_unknown_values_are_changes_in_place(world: Any, inputs: Properties) -> None:
    node = world.create("GpuNode", inputs)
    assert list(world.changes(node)) == []
    found = GpuNodeLifecycle().find_planned_changes(
        node.outs, {**inputs, "cluster_fabric_id": UNKNOWN}
    )
    assert [(each.path, each.replaces) for each in found] == [("cluster_fabric_id", False)]


def test_an_import_needs_no_replacement(world: Any, inputs: Properties) -> None:
    node = world.create("GpuNode", {**inputs, **NAT})
    imported, found = world.imported("GpuNode", node.id)
    assert imported["cluster_fabric_id"] == inputs["cluster_fabric_id"]
    assert "nat_enabled" not in imported  # it takes an id that nobody tells
    assert world.diff(found, {**inputs, **NAT}) == []
    world.writes()
    after = world.update(found, {**inputs, **NAT})
    assert world.writes() == {}
    assert after.outs["ready"] is True
