"""Test the plan of a pool from stored outputs alone: changes and needed permissions."""

from typing import Any

import pytest

from gpuform.providers.permissions import Permission
from gpuform.providers.scp.node_changes import find_change_guard, find_deletion_guard
from gpuform.providers.scp.node_pool import NodePoolLifecycle
from gpuform.schemas.changes import Action
from gpuform.schemas.values import UNKNOWN

Properties = dict[str, Any]


def build_node(key: str, state: str = "RUNNING", **fields: Any) -> Properties:
    return {
        "id": f"id-{key}",
        "gpu_node_name": f"train-{key}",
        "state": state,
        "cluster_fabric_id": "f1",
        "cluster_fabric_name": "fabric1",
        "policy_ip": "192.168.0.7",
        **fields,
    }


@pytest.fixture
def declared(pool_inputs: Properties) -> Properties:
    return {**pool_inputs, "count": 3}


def build_state(declared: Properties, *nodes: Properties, **fields: Any) -> Properties:
    """Return the state of a pool with these nodes, under the keys of a count."""
    keyed = {node["gpu_node_name"]: node for node in nodes}
    ids = [node["id"] for node in nodes]
    more = {"ready": True, "cluster_fabric_id": "f1", **fields}
    return {**declared, "gpu_nodes": keyed, "node_ids": ids, **more}


@pytest.fixture
def three_nodes(declared: Properties) -> Properties:
    return build_state(declared, build_node("001"), build_node("002"), build_node("003"))


def format_changes(old: Properties, new: Properties) -> dict[str, tuple[Any, Any]]:
    changes = NodePoolLifecycle().list_changes(old, new)
    return {
        change.path: (change.before, change.after)
        for change in changes
        if change.action != Action.KEEP
    }


def list_replacing_paths(old: Properties, new: Properties) -> list[str]:
    return [change.path for change in NodePoolLifecycle().list_changes(old, new) if change.replaces]


def test_nodes_as_declared_plan_nothing(declared: Properties, three_nodes: Properties) -> None:
    assert format_changes(three_nodes, declared) == {}
    assert (
        format_changes(
            three_nodes, {**declared, "count": 3.0, "init_script": "", "cluster_fabric_id": ""}
        )
        == {}
    )
    assert (
        format_changes(three_nodes, {**declared, "os_user_id": "root", "remove": ["train-003"]})
        == {}
    )
    assert format_changes(three_nodes, {**declared, "tags": {"team": "x"}}) == {}
    assert (
        format_changes(three_nodes, {**declared, "cluster_fabric_id": "f1", "state": "RUNNING"})
        == {}
    )


def test_growth_shows_a_number_and_shrinking_the_removed_nodes(
    declared: Properties, three_nodes: Properties
) -> None:
    assert format_changes(three_nodes, {**declared, "count": 5}) == {"count": (3, 5)}
    assert format_changes(three_nodes, {**declared, "count": 2, "remove": ["train-001"]}) == {
        "count": (3, 2),
        'nodes["train-001"]': ("id-001", None),
    }


def test_a_stopped_node_is_drift_of_that_node_alone(declared: Properties) -> None:
    old = build_state(declared, build_node("001"), build_node("002", "STOPPED"), build_node("003"))
    assert format_changes(old, declared) == {'nodes["train-002"].state': ("STOPPED", "RUNNING")}


def test_a_missing_node_is_a_change_of_the_count(declared: Properties) -> None:
    old = build_state({**declared, "count": 2}, build_node("001"), build_node("003"))
    assert format_changes(old, declared) == {"count": (2, 3)}


def test_a_failed_node_is_planned_as_recreated(declared: Properties) -> None:
    old = build_state(
        declared, build_node("001"), build_node("002", "ERROR"), build_node("003"), ready=False
    )
    (change,) = NodePoolLifecycle().list_changes(old, declared)
    assert (change.path, change.replaces) == ('nodes["train-002"].state', False)
    assert "deletes and recreates it" in change.because


def test_a_node_that_changes_state_plans_nothing(declared: Properties) -> None:
    nodes = [build_node("001"), build_node("002", "CREATING"), build_node("003")]
    old = build_state(declared, *nodes, ready=False, not_ready_reason="1 CREATING")
    (change,) = NodePoolLifecycle().list_changes(old, declared)
    assert (change.path, change.because) == ("ready", "resume waiting: 1 CREATING")


def test_a_move_of_all_is_one_change(declared: Properties, three_nodes: Properties) -> None:
    moved = {**declared, "cluster_fabric_name": "fabric2"}
    assert format_changes(three_nodes, moved) == {"cluster_fabric_name": ("fabric1", "fabric2")}
    astray = build_node("002", cluster_fabric_name="fabric9", cluster_fabric_id="f9")
    old = build_state(declared, build_node("001"), astray, build_node("003"))
    assert format_changes(old, declared) == {
        'nodes["train-002"].cluster_fabric_name': ("fabric9", "fabric1")
    }


def test_a_shared_input_is_one_change(declared: Properties, three_nodes: Properties) -> None:
    assert format_changes(three_nodes, {**declared, "lock_enabled": True}) == {
        "lock_enabled": (None, True)
    }
    assert format_changes(three_nodes, {**declared, "state": "STOPPED"}) == {
        "state": ("RUNNING", "STOPPED")
    }
    stopped = {**three_nodes, "state": "STOPPED"}
    assert format_changes(stopped, declared) == {"state": ("STOPPED", "RUNNING")}
    locked = {**three_nodes, "lock_enabled": True}
    (change,) = NodePoolLifecycle().list_changes(locked, declared)
    assert (change.path, change.action) == ("lock_enabled", Action.KEEP)


def test_changes_of_single_nodes_have_their_own_paths(declared: Properties) -> None:
    keys = {"a": build_node("a"), "b": build_node("b", lock_enabled=True), "c": build_node("c")}
    base = {key: value for key, value in declared.items() if key != "count"}
    declared_before: Properties = {"nodes": {"a": {}, "b": {}, "c": {}}}
    old = {**base, **declared_before, "gpu_nodes": keys, "node_ids": [], "ready": True}
    nodes = {"a": {"ip_address": "192.168.0.8"}, "b": {"lock_enabled": False}, "d": {}}
    assert format_changes(old, {**base, "nodes": nodes}) == {
        'nodes["d"]': (None, "train-d"),
        'nodes["c"]': ("id-c", None),
        'nodes["a"].ip_address': ("192.168.0.7", "192.168.0.8"),
        'nodes["b"].lock_enabled': (True, False),
    }
    assert format_changes(old, {**base, **declared_before}) == {}
    # Another key for the same name is the same node.
    renamed = {"a": {}, "b": {}, "x": {"gpu_node_name": "train-c"}}
    assert format_changes(old, {**base, "nodes": renamed}) == {}


def test_an_unknown_input_is_a_change_in_place(
    declared: Properties, three_nodes: Properties
) -> None:
    for name in ("count", "cluster_fabric_name", "cluster_fabric_id"):
        changes = format_changes(three_nodes, {**declared, name: UNKNOWN})
        assert list(changes) == [name]
        assert list_replacing_paths(three_nodes, {**declared, name: UNKNOWN}) == []
    base = {key: value for key, value in declared.items() if key != "count"}
    nodes = {"a": {"nat_enabled": True, "public_ip_address_id": UNKNOWN}}
    assert list(format_changes(three_nodes, {**base, "nodes": nodes})) == ["nodes"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node_pool_id", "POOL002-krw1b"),
        ("gpu_node_name_prefix", "other"),
        ("image_id", "IMAGE-2"),
        ("server_type_id", "1" * 32),
        ("region_id", "kr-east1"),
        ("vpc_id", "2" * 32),
        ("subnet_id", "3" * 32),
        ("os_user_password", "Other#pass1"),
        ("init_script", "echo"),
        ("os_user_id", "ubuntu"),
    ],
)
def test_an_input_fixed_at_creation_replaces_the_pool(
    declared: Properties, three_nodes: Properties, name: str, value: str
) -> None:
    assert list_replacing_paths(three_nodes, {**declared, name: value}) == [name]


def test_outputs_without_nodes_are_compared_by_their_inputs(declared: Properties) -> None:
    old = {**declared, "ready": False, "not_ready_reason": "interrupted"}
    assert format_changes(old, declared) == {"ready": (False, True)}
    assert format_changes(old, {**declared, "count": 4}) == {"count": (3, 4)}


class TestGuards:
    def test_locked_nodes_need_a_permission(self, declared: Properties) -> None:
        old = build_state(
            declared, build_node("001"), build_node("002", lock_enabled=True), build_node("003")
        )
        guard = find_deletion_guard(old)
        assert guard is not None
        assert (guard.permission, guard.because) == (
            Permission.UNLOCK,
            "GPU node train-002 is locked",
        )
        assert find_change_guard(old, declared) is None
        assert find_change_guard(old, {**declared, "count": 4}) is None
        assert find_change_guard(old, {**declared, "count": 2}) is None
        for change in ({"count": 2, "remove": ["train-002"]}, {"count": 1}, {"state": "STOPPED"}):
            guard = find_change_guard(old, {**declared, **change})
            assert guard is not None, change
            assert "train-002" in guard.because

    def test_a_stop_with_an_unlock_needs_no_permission(self, declared: Properties) -> None:
        old = build_state(
            declared, *(build_node(key, lock_enabled=True) for key in ("001", "002", "003"))
        )
        assert find_change_guard(old, {**declared, "state": "STOPPED"}) is not None
        unlocked = {**declared, "state": "STOPPED", "lock_enabled": False}
        assert find_change_guard(old, unlocked) is None
        assert find_change_guard(old, {**unlocked, "count": 2}) is not None

    def test_unknown_inputs_need_no_permission_yet(self, declared: Properties) -> None:
        old = build_state(declared, build_node("001", lock_enabled=True))
        assert find_change_guard(old, {**declared, "count": UNKNOWN}) is None
        assert find_change_guard(declared, declared) is None
        assert find_deletion_guard(declared) is None


def test_the_plan_of_a_replaced_pool_shows_the_new_nodes(declared: Properties) -> None:
    named = {name: value for name, value in declared.items() if name != "count"}
    edge = {"nat_enabled": True, "public_ip_address_id": "ip-1", "lock_enabled": True}
    before = {**named, "nodes": {"edge": edge, "inner": {}}, "lock_enabled": True}
    old = build_state(before, build_node("edge", policy_use_nat=True), build_node("inner"))
    old["gpu_nodes"] = {key: old["gpu_nodes"][f"train-{key}"] for key in ("edge", "inner")}
    new = {
        **named,
        "nodes": {"edge": {"nat_enabled": False, "lock_enabled": True}, "inner": {}},
        "image_id": "IMAGE-other",
    }
    changes = format_changes(old, new)
    assert list_replacing_paths(old, new) == ["image_id"]
    assert changes['nodes["edge"].nat_enabled'] == (True, False)
    assert changes['nodes["edge"].public_ip_address_id'] == ("ip-1", None)
    assert changes["lock_enabled"] == (True, None)
    assert set(changes) == {
        "image_id",
        "lock_enabled",
        'nodes["edge"].nat_enabled',
        'nodes["edge"].public_ip_address_id',
    }


@pytest.mark.parametrize("state", [{"gpu_nodes": {}}, {}])
def test_nodes_that_no_run_has_seen_are_not_planned_as_created(
    declared: Properties, state: Properties
) -> None:
    unseen = {**declared, **state, "node_ids": ["id-001", "id-002", "id-003"], "ready": False}
    assert "count" not in format_changes(unseen, declared)
    assert format_changes(unseen, {**declared, "count": 2})["count"] == (3, 2)
    gone = {**unseen, "gpu_nodes": {}, "node_ids": []}
    assert format_changes(gone, declared)["count"] == (0, 3)
