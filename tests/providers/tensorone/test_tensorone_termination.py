"""Test a cluster stopped by its auto-termination: no drift, reported, and started when allowed."""

from typing import Any

import pytest

Json = dict[str, Any]


def create_terminated_cluster(platform: Any, inputs: Json, limits: Json, hours: float) -> Any:
    cluster = platform.create({**inputs, "auto_terminate": {"enabled": True, **limits}})
    if "idle_minutes" in limits:
        platform.make_idle(cluster)
    platform.advance(hours * 3600 + 60)
    platform.take_writes()
    return cluster


@pytest.mark.parametrize(
    ("limits", "hours", "why"),
    [
        ({"idle_minutes": 60}, 1, "idle for 60 minutes"),
        ({"max_runtime_hours": 24}, 24, "running for 24 hours"),
        ({"cost_limit_usd": 85.0}, 10, "cost of 85 USD"),
    ],
)
def test_a_terminated_cluster_is_no_drift_and_the_plan_reports_it(
    platform: Any, inputs: Json, limits: Json, hours: float, why: str
) -> None:
    cluster = create_terminated_cluster(platform, inputs, limits, hours)
    refreshed = platform.refresh(cluster)
    assert (refreshed.outs["status"], refreshed.outs["ready"]) == ("stopped", True)
    assert refreshed.outs["stopped_by"] == f"auto-termination, {why}"
    because = f"stopped by auto-termination, {why}; --allow start-terminated starts it again"
    assert platform.plan(refreshed) == {"state": ("stopped", "stays", because)}
    assert platform.plan(refreshed, {**refreshed.inputs, "state": "running"})["state"][1] == "stays"


@pytest.mark.slow
def test_a_terminated_cluster_is_started_when_allowed(
    platform: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    refreshed = platform.refresh(
        create_terminated_cluster(platform, inputs, {"idle_minutes": 60}, 1)
    )
    monkeypatch.setenv("GPUFORM_ALLOW", "start-terminated")
    why = "stopped by auto-termination, idle for 60 minutes"
    assert platform.plan(refreshed) == {"state": ("stopped", "running", why)}
    started = platform.update(refreshed)
    assert platform.take_writes() == [("POST start", {})]
    assert started.outs["status"] == "running"
    assert "stopped_by" not in started.outs
    assert platform.plan(started) == {}


def test_other_changes_leave_a_terminated_cluster_stopped(platform: Any, inputs: Json) -> None:
    """Test with and without a refresh that has observed the stop."""
    cluster = create_terminated_cluster(platform, inputs, {"idle_minutes": 60}, 1)
    for refreshed in (cluster, platform.refresh(cluster)):
        tagged = {**cluster.inputs, "tags": {"seen": str(refreshed is not cluster)}}
        updated = platform.update(refreshed, tagged)
        assert [verb for verb, _ in platform.take_writes()] == ["PUT"]
        assert updated.outs["ready"] is True
        assert updated.outs["stopped_by"] == "auto-termination, idle for 60 minutes"


def test_a_restarting_change_starts_a_terminated_cluster(platform: Any, inputs: Json) -> None:
    refreshed = platform.refresh(
        create_terminated_cluster(platform, inputs, {"idle_minutes": 60}, 1)
    )
    changed = {**refreshed.inputs, "gpu_count": 2}
    assert platform.plan(refreshed, changed)["gpu_count"][2] == "starts the cluster"
    assert platform.update(refreshed, changed).outs["status"] == "running"


def test_declaring_stopped_and_then_running_starts_it(platform: Any, inputs: Json) -> None:
    refreshed = platform.refresh(
        create_terminated_cluster(platform, inputs, {"idle_minutes": 60}, 1)
    )
    off = platform.update(refreshed, {**refreshed.inputs, "state": "stopped"})
    assert platform.take_writes() == []
    assert off.outs.get("stopped_by") is None
    on = platform.update(off, {**refreshed.inputs, "state": "running"})
    assert on.outs["status"] == "running"


def test_an_update_waits_while_the_cluster_stops(platform: Any, inputs: Json) -> None:
    cluster = platform.create({**inputs, "auto_terminate": {"enabled": True, "idle_minutes": 60}})
    platform.make_idle(cluster)
    platform.advance(3610)
    refreshed = platform.refresh(cluster)
    assert (refreshed.outs["status"], refreshed.outs["ready"]) == ("stopping", False)
    settled = platform.update(refreshed)
    assert settled.outs["ready"] is True
    assert "stays" in platform.plan(settled)["state"]


def test_a_manual_stop_is_no_termination(platform: Any, inputs: Json) -> None:
    cluster = platform.create({**inputs, "auto_terminate": {"enabled": True, "idle_minutes": 60}})
    platform.send("POST", f"{cluster.id}/stop")
    platform.advance(60)
    assert platform.plan(platform.refresh(cluster))["state"][1] == "running"
