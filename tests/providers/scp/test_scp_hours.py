"""Test running hours of pools and nodes, which are stopped outside of them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gpuform.providers.context import synchronize_clock
from gpuform.providers.errors import NotAllowed
from gpuform.providers.scp.gpu_node import GpuNodeLifecycle
from gpuform.providers.scp.node_pool import NodePoolLifecycle

Properties = dict[str, Any]
KINDS = {"NodePool": NodePoolLifecycle, "GpuNode": GpuNodeLifecycle}


def build_hours(environment: Any) -> Properties:
    """Return running hours that begin in four hours."""
    start = datetime.fromtimestamp(environment.now, UTC) + timedelta(hours=4)
    stop = start + timedelta(hours=10)
    return {"start": f"{start:%H:%M}", "stop": f"{stop:%H:%M}", "time_zone": "UTC"}


def advance(environment: Any, **time: float) -> None:
    environment.move_clock(timedelta(**time).total_seconds())
    synchronize_clock(environment.clock)


def plan_paths(environment: Any, pool: Any, inputs: Properties) -> dict[str, Any]:
    """Return the planned changes by path, without unchanged values."""
    with environment.use_context(pool.name):
        changes = KINDS[pool.kind]().list_changes(pool.outs, inputs)
    return {change.path: change.after for change in changes if change.action != "keep"}


def list_states(pool: Any) -> set[str]:
    return {node["state"] for node in pool.nodes.values()}


@pytest.mark.slow
def test_a_pool_is_stopped_outside_of_its_hours_and_started_in_them(
    environment: Any, pool_inputs: Properties
) -> None:
    inputs = {**pool_inputs, "schedule": build_hours(environment)}
    made = environment.create("NodePool", inputs)
    assert list_states(made) == {"RUNNING"}, "who makes it wants to use it"
    assert plan_paths(environment, made, inputs) == {}, "only `gpuform expire` stops it"

    stopped = environment.update(made, {**inputs, "state": "STOPPED"})
    assert list_states(stopped) == {"STOPPED"}
    assert plan_paths(environment, stopped, inputs) == {}
    assert plan_paths(environment, environment.refresh(stopped), inputs) == {}

    larger = environment.update(stopped, {**inputs, "count": 4})
    assert (list_states(larger), larger.outs["ready"]) == ({"STOPPED"}, True)

    advance(environment, hours=5)
    inputs = {**inputs, "count": 4}
    assert plan_paths(environment, larger, inputs) == {"state": "RUNNING"}
    assert list_states(environment.update(larger, inputs)) == {"RUNNING"}


@pytest.mark.slow
def test_a_node_with_a_state_of_its_own_keeps_it(environment: Any, pool_inputs: Properties) -> None:
    del pool_inputs["count"]
    nodes = {"head": {"state": "RUNNING"}, "worker": {}, "spare": {"state": "STOPPED"}}
    inputs = {**pool_inputs, "nodes": nodes, "schedule": build_hours(environment)}
    made = environment.create("NodePool", inputs)
    assert NodePoolLifecycle.hooks.is_off(made.outs) is False, "the spare one is not the pool's"
    stopped = environment.update(made, {**inputs, "state": "STOPPED"})
    states_by_key = {key: node["state"] for key, node in stopped.nodes.items()}
    assert states_by_key == {"head": "RUNNING", "worker": "STOPPED", "spare": "STOPPED"}
    assert plan_paths(environment, stopped, inputs) == {}


def test_a_node_is_stopped_outside_of_its_hours(
    environment: Any, pool_inputs: Properties, node_inputs: Properties
) -> None:
    pool = environment.create("NodePool", {**pool_inputs, "count": 2}, name="pool")
    fabric = {"cluster_fabric_id": pool.outs["cluster_fabric_id"]}
    inputs = {**node_inputs, **fabric, "schedule": build_hours(environment), "ttl": "7d"}
    made = environment.create("GpuNode", inputs)
    stopped = environment.update(made, {**inputs, "state": "STOPPED"})
    assert stopped.outs["state"] == "STOPPED"
    assert plan_paths(environment, stopped, inputs) == {}
    advance(environment, hours=5)
    assert plan_paths(environment, stopped, inputs) == {"state": "RUNNING"}
    created = GpuNodeLifecycle.hooks.get_creation_time(stopped.outs)
    assert created is not None
    assert 0 < environment.clock.now() - created < 86400


@pytest.mark.slow
def test_a_locked_pool_is_stopped_only_with_permission(
    environment: Any, pool_inputs: Properties, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = {**pool_inputs, "schedule": build_hours(environment), "lock_enabled": True}
    made = environment.create("NodePool", inputs)
    with pytest.raises(NotAllowed, match="locked"):
        environment.diff(made, {**inputs, "state": "STOPPED"})
    monkeypatch.setenv("GPUFORM_ALLOW", "unlock")
    assert environment.diff(made, {**inputs, "state": "STOPPED"}) == []


@pytest.mark.slow
def test_a_pool_is_as_old_as_its_oldest_node(environment: Any, pool_inputs: Properties) -> None:
    made = environment.create("NodePool", {**pool_inputs, "ttl": "7d"})
    first = NodePoolLifecycle.hooks.get_creation_time(made.outs)
    advance(environment, days=1)
    larger = environment.update(made, {**made.inputs, "count": 5})
    assert NodePoolLifecycle.hooks.get_creation_time(larger.outs) == first


def test_a_change_of_records_alone_sends_nothing(environment: Any, pool_inputs: Properties) -> None:
    made = environment.create("NodePool", pool_inputs)
    environment.count_writes()
    inputs = {**pool_inputs, "schedule": build_hours(environment), "expires": "9000-01-01"}
    with environment.use_context(made.name):
        changes = NodePoolLifecycle().list_changes(made.outs, inputs)
    assert {(change.path, change.is_sent) for change in changes} == {
        ("expires", False),
        ("schedule", False),
    }
    changed = environment.update(made, inputs)
    assert environment.count_writes() == {}
    assert (changed.outs["expires"], changed.outs["schedule"]) == (
        "9000-01-01",
        build_hours(environment),
    )
