"""A cluster that its own auto-termination has stopped: no drift, told, and started when allowed."""

from typing import Any

import pytest

Json = dict[str, Any]


def stopped(world: Any, inputs: Json, limits: Json, hours: float) -> Any:
    made = world.create({**inputs, "auto_terminate": {"enabled": True, **limits}})
    if "idle_minutes" in limits:
        world.idle(made)
    world.advance(hours * 3600 + 60)
    world.writes()
    return made


@pytest.mark.parametrize(
    ("limits", "hours", "why"),
    [
        ({"idle_minutes": 60}, 1, "idle for 60 minutes"),
        ({"max_runtime_hours": 24}, 24, "running for 24 hours"),
        ({"cost_limit_usd": 85.0}, 10, "cost of 85 USD"),
    ],
)
def test_is_no_drift_and_the_plan_says_it(
    world: Any, inputs: Json, limits: Json, hours: float, why: str
) -> None:
    made = stopped(world, inputs, limits, hours)
    seen = world.refresh(made)
    assert (seen.outs["status"], seen.outs["ready"]) == ("stopped", True)
    assert seen.outs["stopped_by"] == f"auto-termination, {why}"
    because = f"stopped by auto-termination, {why}; --allow start-terminated starts it again"
    assert world.plan(seen) == {"state": ("stopped", "stays", because)}
    assert world.plan(seen, {**seen.inputs, "state": "running"})["state"][1] == "stays"


@pytest.mark.slow
def test_is_undone_when_it_is_allowed(
    world: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = world.refresh(stopped(world, inputs, {"idle_minutes": 60}, 1))
    monkeypatch.setenv("GPUFORM_ALLOW", "start-terminated")
    why = "stopped by auto-termination, idle for 60 minutes"
    assert world.plan(seen) == {"state": ("stopped", "running", why)}
    started = world.update(seen)
    assert world.writes() == [("POST start", {})]
    assert started.outs["status"] == "running"
    assert "stopped_by" not in started.outs
    assert world.plan(started) == {}


def test_other_changes_leave_it_stopped(world: Any, inputs: Json) -> None:
    """Whether a refresh has seen that it was stopped, or not."""
    made = stopped(world, inputs, {"idle_minutes": 60}, 1)
    for thing in (made, world.refresh(made)):
        tagged = {**made.inputs, "tags": {"seen": str(thing is not made)}}
        updated = world.update(thing, tagged)
        assert [verb for verb, _ in world.writes()] == ["PUT"]
        assert updated.outs["ready"] is True
        assert updated.outs["stopped_by"] == "auto-termination, idle for 60 minutes"


def test_a_change_that_takes_a_start_starts_it(world: Any, inputs: Json) -> None:
    seen = world.refresh(stopped(world, inputs, {"idle_minutes": 60}, 1))
    changed = {**seen.inputs, "gpu_count": 2}
    assert world.plan(seen, changed)["gpu_count"][2] == "starts the cluster"
    assert world.update(seen, changed).outs["status"] == "running"


def test_stopped_and_running_again_is_a_wish_of_its_own(world: Any, inputs: Json) -> None:
    seen = world.refresh(stopped(world, inputs, {"idle_minutes": 60}, 1))
    off = world.update(seen, {**seen.inputs, "state": "stopped"})
    assert world.writes() == []
    assert off.outs.get("stopped_by") is None
    on = world.update(off, {**seen.inputs, "state": "running"})
    assert on.outs["status"] == "running"


def test_while_it_stops_is_waited_out(world: Any, inputs: Json) -> None:
    made = world.create({**inputs, "auto_terminate": {"enabled": True, "idle_minutes": 60}})
    world.idle(made)
    world.advance(3610)
    seen = world.refresh(made)
    assert (seen.outs["status"], seen.outs["ready"]) == ("stopping", False)
    settled = world.update(seen)
    assert settled.outs["ready"] is True
    assert "stays" in world.plan(settled)["state"]


def test_a_stop_by_hand_is_not_taken_for_it(world: Any, inputs: Json) -> None:
    made = world.create({**inputs, "auto_terminate": {"enabled": True, "idle_minutes": 60}})
    world.send("POST", f"{made.id}/stop")
    world.advance(60)
    assert world.plan(world.refresh(made))["state"][1] == "running"
