"""Test one node that joins a fabric: creates, changes in place, moves and refused plans."""

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
def pool(environment: Any, pool_inputs: Properties) -> Any:
    """Create a pool of two nodes, whose fabric can be joined."""
    return environment.create("NodePool", {**pool_inputs, "count": 2}, name="pool")


@pytest.fixture
def other(environment: Any, pool_inputs: Properties) -> Any:
    """Create another fabric of the same vendor pool."""
    names = {"cluster_fabric_name": "fabric2", "gpu_node_name_prefix": "other", "count": 2}
    return environment.create("NodePool", {**pool_inputs, **names}, name="other")


@pytest.fixture
def inputs(pool: Any, node_inputs: Properties) -> Properties:
    return {**node_inputs, "cluster_fabric_id": pool.outs["cluster_fabric_id"]}


@pytest.mark.slow
def test_a_node_joins_its_fabric_and_shows_its_placement(
    environment: Any, inputs: Properties
) -> None:
    environment.count_writes()
    node = environment.create("GpuNode", inputs)
    assert environment.count_writes() == {"POST /v1/gpu-nodes": 1}
    assert node.outs["ready"] is True
    assert node.outs["cluster_fabric_name"] == "fabric1"
    assert node.outs["node_pool_id"] == "POOL001-krw1a"
    assert node.outs["policy_ip"].startswith("192.168.")
    assert environment.list_changes(node) == {}
    environment.delete(node)
    assert "solo" not in environment.list_node_states()


@pytest.mark.parametrize("change", [NAT, {"lock_enabled": True}, {"state": "STOPPED"}])
def test_a_node_is_created_as_declared(
    environment: Any, inputs: Properties, change: Properties
) -> None:
    node = environment.create("GpuNode", {**inputs, **change})
    assert node.outs["ready"] is True
    assert {name: node.outs[name] for name in change} == change
    assert environment.list_changes(node) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "request_"),
    [
        ({"state": "STOPPED"}, "POST /v1/gpu-nodes/stop"),
        ({"lock_enabled": True}, "PUT /v1/gpu-nodes/*/lock"),
        (NAT, "POST /v1/gpu-nodes/*/public-nat-ip"),
    ],
)
def test_a_node_changes_in_place_and_back(
    environment: Any, inputs: Properties, change: Properties, request_: str
) -> None:
    node = environment.create("GpuNode", inputs)
    environment.count_writes()
    assert environment.diff(node, {**inputs, **change}) == []
    node = environment.update(node, {**inputs, **change})
    assert environment.count_writes() == {request_: 1}
    assert (node.outs["ready"], environment.list_changes(node)) == (True, {})
    back = {**inputs, "state": "RUNNING", "lock_enabled": False, "nat_enabled": False}
    node = environment.update(node, back)
    assert sum(environment.count_writes().values()) == 1
    assert (node.outs["ready"], environment.list_changes(node)) == (True, {})


def test_another_public_ip_is_exchanged(environment: Any, inputs: Properties) -> None:
    node = environment.create("GpuNode", {**inputs, **NAT})
    changed = {**inputs, **NAT, "public_ip_address_id": OTHER_IP}
    assert environment.list_changes(node, changed) == {
        "public_ip_address_id": (PUBLIC_IP, OTHER_IP)
    }
    environment.count_writes()
    node = environment.update(node, changed)
    assert sum(environment.count_writes().values()) == 2
    assert node.outs["public_ip_address_id"] == OTHER_IP
    assert environment.list_changes(environment.refresh(node)) == {}


@pytest.mark.slow
def test_a_node_moves_within_its_vendor_pool(
    environment: Any, inputs: Properties, other: Any
) -> None:
    node = environment.create("GpuNode", inputs)
    moved = {**inputs, "cluster_fabric_id": other.outs["cluster_fabric_id"]}
    assert environment.find_problems("GpuNode", moved, node) == {}
    environment.count_writes()
    after = environment.update(node, moved)
    assert environment.count_writes() == {"POST /v1/cluster-fabrics/modify-members": 1}
    assert (after.outs["ready"], after.outs["cluster_fabric_name"]) == (True, "fabric2")
    assert environment.list_changes(after) == {}


@pytest.mark.slow
def test_a_move_to_another_vendor_pool_is_refused(
    environment: Any, inputs: Properties, pool_inputs: Properties
) -> None:
    names = {"node_pool_id": "POOL002-krw1b", "gpu_node_name_prefix": "away"}
    away = environment.create("NodePool", {**pool_inputs, **names}, name="away")
    node = environment.create("GpuNode", inputs)
    moved = {**inputs, "cluster_fabric_id": away.outs["cluster_fabric_id"]}
    assert (
        "is in the vendor pool POOL002"
        in environment.find_problems("GpuNode", moved, node)["cluster_fabric_id"]
    )
    environment.count_writes()
    with pytest.raises(GpuformError, match="is in the vendor pool POOL002"):
        environment.update(node, moved)
    assert environment.count_writes() == {}


@pytest.mark.slow
def test_a_move_that_empties_a_declared_fabric_is_refused(
    environment: Any, inputs: Properties, pool: Any, other: Any
) -> None:
    node = environment.create("GpuNode", inputs)
    environment.delete(pool)
    fabric = {"node_pool_id": "POOL001-krw1a", "cluster_fabric_name": "fabric1"}
    assert environment.find_problems("Fabric", fabric) == {}
    moved = {**inputs, "cluster_fabric_id": other.outs["cluster_fabric_id"]}
    assert "the last node" in environment.find_problems("GpuNode", moved, node)["cluster_fabric_id"]
    with pytest.raises(GpuformError, match="the last node of fabric fabric1"):
        environment.update(node, moved)


@pytest.mark.parametrize("fabric_id", ["", "f" * 32])
def test_a_node_of_a_missing_fabric_is_refused_while_planning(
    environment: Any, node_inputs: Properties, fabric_id: str
) -> None:
    problems = environment.find_problems("GpuNode", {**node_inputs, "cluster_fabric_id": fabric_id})
    assert list(problems) == ["cluster_fabric_id"]
    assert "one server cannot create a fabric" in problems["cluster_fabric_id"]


def test_a_fabric_that_ends_before_the_create_is_an_error(
    environment: Any, inputs: Properties, pool: Any
) -> None:
    environment.delete(pool)
    with (
        environment.use_context("thing"),
        pytest.raises(GpuformError, match=r"fabric .* not found"),
    ):
        GpuNodeLifecycle().create(inputs)
    assert environment.intents.list_all() == []


@pytest.mark.slow
def test_a_stop_by_others_is_drift_and_undone(environment: Any, inputs: Properties) -> None:
    node = environment.create("GpuNode", inputs)
    environment.client.stop_nodes([node.id])
    environment.move_clock(3600)
    node = environment.refresh(node)
    assert environment.list_changes(node) == {"state": ("STOPPED", "RUNNING")}
    node = environment.update(node)
    assert (node.outs["state"], environment.list_changes(node)) == ("RUNNING", {})


@pytest.mark.exact_waits
def test_a_public_ip_that_scp_rolls_back_is_an_error_and_the_next_run_assigns_it(
    environment: Any, inputs: Properties
) -> None:
    node = environment.create("GpuNode", inputs)
    environment.inject_fault("POST", "/public-nat-ip$", rolled_back=True)
    node = environment.update(node, {**inputs, **NAT})
    assert "accepted the step assign_nat and rolled it back" in node.outs["not_ready_reason"]
    node = environment.update(environment.refresh(node), {**inputs, **NAT})
    assert (node.outs["ready"], node.outs["policy_use_nat"]) == (True, True)


class TestLocks:
    @pytest.mark.slow
    def test_a_locked_node_is_not_deleted_stopped_or_replaced_without_permission(
        self, environment: Any, inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        locked = {**inputs, "lock_enabled": True}
        node = environment.create("GpuNode", locked)
        environment.count_writes()
        for change in ({"state": "STOPPED"}, {"image_id": "IMAGE-2"}):
            with pytest.raises(NotAllowed, match="GPU node solo is locked"):
                environment.diff(node, {**locked, **change})
        with pytest.raises(NotAllowed, match="--allow unlock"):
            environment.delete(node)
        assert environment.count_writes() == {}
        with environment.grant_permission(monkeypatch, "unlock"):
            node = environment.update(node, {**locked, "state": "STOPPED"})
            assert (node.outs["state"], node.outs["lock_enabled"]) == ("STOPPED", True)
            environment.delete(node)
        assert "solo" not in environment.list_node_states()

    def test_a_stopped_locked_node_is_not_started_without_permission_and_keeps_its_lock(
        self, environment: Any, inputs: Properties, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        node = environment.create("GpuNode", {**inputs, "state": "STOPPED", "lock_enabled": True})
        running = {**inputs, "lock_enabled": True}
        environment.count_writes()
        with pytest.raises(NotAllowed, match="GPU node solo is locked"):
            environment.update(node, running)
        assert environment.count_writes() == {}
        with environment.grant_permission(monkeypatch, "unlock"):
            node = environment.update(node, running)
        assert (node.outs["state"], node.outs["lock_enabled"]) == ("RUNNING", True)

    def test_a_lock_set_by_others_is_respected(self, environment: Any, inputs: Properties) -> None:
        node = environment.create("GpuNode", inputs)
        environment.client.lock_node(node.id)
        environment.count_writes()
        with pytest.raises(NotAllowed):
            environment.update(node, {**inputs, "state": "STOPPED"})
        with pytest.raises(NotAllowed):
            environment.delete(node)
        assert environment.count_writes() == {}
        refreshed = environment.refresh(node)
        assert refreshed.outs["lock_enabled"] is True
        assert environment.list_changes(refreshed) == {}


def test_a_failed_node_is_shown_in_every_plan_and_not_replaced(
    environment: Any, inputs: Properties
) -> None:
    environment.inject_fault("POST", "^/v1/gpu-nodes$", failing="solo")
    node = environment.create("GpuNode", inputs)
    assert "its state is ERROR: replace it" in node.reason
    for old in (node, environment.refresh(node)):
        assert "ready" in environment.list_changes(old)
        assert environment.diff(old, inputs) == []


def test_unknown_values_are_changes_in_place(environment: Any, inputs: Properties) -> None:
    node = environment.create("GpuNode", inputs)
    assert list(environment.list_changes(node)) == []
    planned_changes = GpuNodeLifecycle().hooks.find_planned_changes(
        node.outs, {**inputs, "cluster_fabric_id": UNKNOWN}
    )
    assert [(change.path, change.replaces) for change in planned_changes] == [
        ("cluster_fabric_id", False)
    ]


def test_an_import_needs_no_replacement(environment: Any, inputs: Properties) -> None:
    node = environment.create("GpuNode", {**inputs, **NAT})
    imported, outputs = environment.import_object("GpuNode", node.id)
    assert imported["cluster_fabric_id"] == inputs["cluster_fabric_id"]
    assert "nat_enabled" not in imported  # it takes an id that nobody tells
    assert environment.diff(outputs, {**inputs, **NAT}) == []
    environment.count_writes()
    after = environment.update(outputs, {**inputs, **NAT})
    assert environment.count_writes() == {}
    assert after.outs["ready"] is True
