"""Idle by TensorOne's word: only what is told whole, of now, and without contradiction."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuform.providers.errors import GpuformError
from gpuform.providers.lifetime import Verdict
from gpuform.providers.operations import Settings
from gpuform.providers.records import IdleStops
from gpuform.providers.tensorone.cluster import ClusterLifecycle
from gpuform.schemas.policies.lifetime import read_idleness

Json = dict[str, Any]
IDLE = {"below": "5%", "for": "6h"}
HOUR = 3600.0


@pytest.fixture
def idle(world: Any, inputs: Json) -> Any:
    """A cluster that has had no work for ten hours."""
    made = world.create({**inputs, "idle": IDLE})
    world.idle(made)
    world.advance(10 * HOUR)
    world.writes()
    return made


def verdict(world: Any, thing: Any, idle: Json | None = None) -> Verdict:
    idleness = read_idleness({"idle": idle or IDLE})
    assert idleness is not None
    with world.serving():
        found = ClusterLifecycle.judge_idleness(Settings(), thing.id, idleness)
    assert found is not None
    return found


def shows(world: Any, thing: Any, path: str, value: Any) -> None:
    """The answers have a value in place of what is so."""
    shown = value
    for name in reversed(path.split(".")):
        shown = {name: shown}
    body = json.dumps({"shown": shown})
    answer = world.http.post(f"/_emulator/tensorone/clusters/{thing.id}", content=body)
    answer.raise_for_status()


def ago(world: Any, seconds: float) -> str:
    return datetime.fromtimestamp(world.clock.now() - seconds, UTC).isoformat()


def test_what_has_no_work_is_idle(world: Any, idle: Any) -> None:
    found = verdict(world, idle)
    assert found.is_idle
    assert found.because.startswith("each GPU used below 5% for 6h, at 20")
    assert "(of its last 6h)" in verdict(world, idle, {"below": "5%", "for": "2h"}).because


def test_what_works_is_not(world: Any, inputs: Json) -> None:
    made = world.create({**inputs, "idle": IDLE})
    world.advance(10 * HOUR)
    assert verdict(world, made) == Verdict(
        is_idle=False, because="used 87.3% now: one of its 4 GPUs up to 100%"
    )


def test_what_is_idle_for_a_shorter_time_says_when(world: Any, inputs: Json) -> None:
    made = world.create({**inputs, "idle": IDLE})
    world.advance(10 * HOUR)
    world.idle(made)
    world.advance(HOUR + 100)
    told = verdict(world, made)
    assert not told.is_idle
    assert "within the last 6h" in told.because
    shows(world, made, "metrics.historical.gpu_utilization", {"avg": 0, "min": 0, "max": 0})
    told = verdict(world, made)
    assert not told.is_idle
    assert told.because.startswith("idle for 1h 1m by TensorOne's count, so that it may be due at")


FIGURES = ["0", "none", False, True, -3, 400, float("nan"), float("inf"), [], {}]
MEASURED = [
    "metrics.current.gpu_utilization",
    "metrics.historical.gpu_utilization.avg",
    "metrics.historical.gpu_utilization.min",
    "metrics.historical.gpu_utilization.max",
]


@pytest.mark.parametrize("path", MEASURED)
@pytest.mark.parametrize("value", [*FIGURES, None], ids=repr)
def test_what_is_no_measurement_is_not_idle(world: Any, idle: Any, path: str, value: Any) -> None:
    shows(world, idle, path, value)
    assert not verdict(world, idle).is_idle


@pytest.mark.parametrize(
    "path",
    [
        *MEASURED,
        "metrics",
        "metrics.current",
        "metrics.current.timestamp",
        "metrics.historical",
        "metrics.historical.window",
        "metrics.historical.gpu_utilization",
    ],
)
def test_what_is_missing_is_not_idle(world: Any, idle: Any, path: str) -> None:
    world.control("POST", f"tensorone/clusters/{idle.id}", {"hidden": [path]})
    assert not verdict(world, idle).is_idle


def test_one_busy_gpu_of_many_is_work(world: Any, idle: Any) -> None:
    """Four GPUs: a mean of 2 % may be one GPU at 8 %."""
    shows(world, idle, "metrics.current.gpu_utilization", 2)
    assert "one of its 4 GPUs up to 8%" in verdict(world, idle).because
    assert verdict(world, idle, {"below": "10%", "for": "6h"}).is_idle
    body: Json = {"shown": {"metrics": {"current": {"gpu_utilization": 2}}}}
    body["hidden"] = ["configuration.gpu_count"]
    world.control("POST", f"tensorone/clusters/{idle.id}", body)
    assert not verdict(world, idle, {"below": "10%", "for": "6h"}).is_idle, "there may be 8"


@pytest.mark.parametrize(
    ("path", "seconds"),
    [
        ("metrics.current.timestamp", 901),
        ("metrics.current.timestamp", -120),
        ("last_accessed", HOUR),
        ("last_accessed", -HOUR),
        ("created_at", HOUR),
        ("status_details.last_status_change", HOUR),
    ],
)
def test_what_is_old_or_recent_or_to_come(world: Any, idle: Any, path: str, seconds: float) -> None:
    shows(world, idle, path, ago(world, seconds))
    assert not verdict(world, idle).is_idle


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("status", "stopped"),
        ("status", "on-fire"),
        ("metrics.current.timestamp", "yesterday"),
        ("metrics.current.timestamp", "2026-01-01T00:00:00"),
        ("metrics.current.power_usage_watts", 0),
        ("metrics.historical.window", "1h"),
        ("metrics.historical.gpu_utilization", {"avg": 1, "min": 0, "max": 0.5}),
        ("metrics.historical.gpu_utilization", {"avg": 0, "min": 0.1, "max": 0.5}),
        ("uptime_seconds", 3600),
        ("uptime_seconds", -1),
        ("auto_terminate.current_idle_minutes", 0),
        ("auto_terminate.current_idle_minutes", 359),
        ("auto_terminate.current_idle_minutes", -5),
        ("last_accessed", "just now"),
        ("status_details.health_checks.gpu_health", "unknown"),
        ("status_details.last_status_change", "lately"),
    ],
)
def test_a_contradiction_is_not_idle(world: Any, idle: Any, path: str, value: Any) -> None:
    shows(world, idle, path, value)
    assert not verdict(world, idle).is_idle


def test_nobody_tells_since_when_it_runs(world: Any, idle: Any) -> None:
    gone = ["uptime_seconds", "status_details.last_status_change"]
    world.control("POST", f"tensorone/clusters/{idle.id}", {"hidden": gone})
    assert verdict(world, idle).because == "the time since when it runs is unknown"
    world.control("POST", f"tensorone/clusters/{idle.id}", {"hidden": gone[:1]})
    assert verdict(world, idle).is_idle


def test_what_was_started_within_the_time_is_not_idle(world: Any, inputs: Json) -> None:
    made = world.create({**inputs, "idle": IDLE})
    world.idle(made)
    world.advance(5 * HOUR)
    assert not verdict(world, made).is_idle


def stop(world: Any, thing: Any) -> Any:
    """As `gpuform expire` does it."""
    return world.update(thing, {**thing.inputs, "state": "stopped"})


class TestStopped:
    def test_stays_so_and_the_plan_says_why(self, world: Any, idle: Any) -> None:
        off = stop(world, idle)
        assert off.outs["status"] == "stopped"
        by = off.outs["stopped_by"]
        assert by.startswith("idleness, each GPU used below 5% for 6h up to ")
        because = f"stopped by {by}; --allow start-terminated starts it again"
        for seen in (off, world.refresh(off)):
            assert seen.outs["stopped_by"] == by
            assert world.plan(seen, idle.inputs) == {"state": ("stopped", "stays", because)}
        world.writes()
        tagged = world.update(off, {**idle.inputs, "tags": {"seen": "yes"}})
        assert [verb for verb, _ in world.writes()] == ["PUT"]
        assert tagged.outs["stopped_by"] == by

    def test_is_started_where_that_is_allowed(
        self, world: Any, idle: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        off = stop(world, idle)
        monkeypatch.setenv("GPUFORM_ALLOW", "start-terminated")
        on = world.update(off, idle.inputs)
        assert on.outs["status"] == "running"
        assert "stopped_by" not in on.outs
        assert world.plan(on, idle.inputs) == {}
        assert IdleStops.from_intents(world.intents).find(idle.id) is None

    def test_is_started_without_idle(self, world: Any, idle: Any) -> None:
        off = stop(world, idle)
        free = {name: value for name, value in idle.inputs.items() if name != "idle"}
        assert world.plan(off, free)["state"][:2] == ("stopped", "running")
        assert world.update(off, free).outs["status"] == "running"

    def test_is_known_after_a_run_that_was_killed(self, world: Any, idle: Any) -> None:
        """The state has the outputs of before."""
        off = stop(world, idle)
        seen = world.refresh(idle)
        assert seen.outs["stopped_by"] == off.outs["stopped_by"]
        assert world.plan(seen, idle.inputs)["state"][1] == "stays"

    @pytest.mark.parametrize(("drop", "status"), [("after", "stopped"), ("before", "running")])
    def test_an_answer_to_the_stop_that_is_lost(
        self, world: Any, idle: Any, drop: str, status: str
    ) -> None:
        """The next one goes on, and knows who has stopped it."""
        world.fault("POST", "/stop$", drop=drop, count=None)
        with suppress(GpuformError):
            stop(world, idle)
        world.heal()
        world.advance(60)
        seen = world.refresh(idle)
        assert seen.outs["status"] == status
        if status == "running":
            assert "stopped_by" not in seen.outs
            assert verdict(world, seen).is_idle
            seen = stop(world, seen)
        assert seen.outs["stopped_by"].startswith("idleness, ")
        assert world.plan(seen, idle.inputs)["state"][1] == "stays"

    def test_is_forgotten_with_the_cluster(self, world: Any, idle: Any) -> None:
        off = stop(world, idle)
        assert IdleStops.from_intents(world.intents).find(idle.id) is not None
        world.delete(off)
        assert IdleStops.from_intents(world.intents).find(idle.id) is None

    def test_a_change_that_takes_a_start_starts_it(self, world: Any, idle: Any) -> None:
        changed = world.update(stop(world, idle), {**idle.inputs, "gpu_count": 2})
        assert changed.outs["status"] == "running"
        assert "stopped_by" not in changed.outs

    def test_a_stop_by_hand_is_not_taken_for_it(self, world: Any, idle: Any) -> None:
        world.send("POST", f"{idle.id}/stop")
        world.advance(60)
        seen = world.refresh(idle)
        assert seen.outs.get("stopped_by") is None
        assert world.plan(seen, idle.inputs)["state"][1] == "running"

    def test_nor_is_one_after_somebody_has_started_it(self, world: Any, idle: Any) -> None:
        off = stop(world, idle)
        world.advance(60)
        world.send("POST", f"{idle.id}/start")
        world.advance(5 * HOUR)
        on = world.refresh(off)
        assert on.outs.get("stopped_by") is None
        world.send("POST", f"{idle.id}/stop")
        world.advance(60)
        assert world.refresh(on).outs.get("stopped_by") is None


@pytest.mark.parametrize("value", ["0", True, -3, 400, float("nan")], ids=repr)
def test_the_use_that_a_plan_tells_is_measured_too(world: Any, idle: Any, value: Any) -> None:
    shows(world, idle, "metrics.current.gpu_utilization", value)
    with world.serving(), pytest.raises(Exception, match="reports no use of its GPUs"):
        ClusterLifecycle.measure_gpu_usage(Settings(), idle.id)


@pytest.mark.parametrize(
    ("more", "path"),
    [
        ({"idle": {"below": "0%", "for": "6h"}}, "idle.below"),
        ({"idle": {"below": "60%", "for": "6h"}}, "idle.below"),
        ({"idle": {"below": "five", "for": "6h"}}, "idle.below"),
        ({"idle": {"below": "5%", "for": "8d"}}, "idle.for"),
        ({"idle": {"below": "5%", "for": "10m"}}, "idle.for"),
        ({"idle": {"below": "5%", "for": "soon"}}, "idle.for"),
        ({"idle": {"below": "5%"}}, "idle.for"),
        ({"idle": {**IDLE, "then": "delete"}}, "idle.then"),
        ({"idle": IDLE, "state": "stopped"}, "idle"),
        (
            {
                "idle": IDLE,
                "schedule": {"start": "08:00", "stop": "20:00", "time_zone": "Europe/Berlin"},
            },
            "idle",
        ),
    ],
)
def test_what_cannot_be_declared(world: Any, inputs: Json, more: Json, path: str) -> None:
    assert list(world.problems({**inputs, **more})) == [path]
