"""Test idleness by TensorOne's metrics: only complete, current and consistent ones count."""

import json
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from gpuform.providers.errors import GpuformError
from gpuform.providers.lifetime import IdlenessVerdict
from gpuform.providers.operations import Settings
from gpuform.providers.records import IdleStops
from gpuform.providers.tensorone.cluster import ClusterLifecycle
from gpuform.schemas.policies.lifetime import read_idleness

Json = dict[str, Any]
IDLE = {"below": "5%", "for": "6h"}
HOUR = 3600.0


@pytest.fixture
def idle_cluster(platform: Any, inputs: Json) -> Any:
    """Create a cluster without work for ten hours."""
    cluster = platform.create({**inputs, "idle": IDLE})
    platform.make_idle(cluster)
    platform.advance(10 * HOUR)
    platform.take_writes()
    return cluster


def judge_idleness(
    platform: Any, cluster: Any, idle_cluster: Json | None = None
) -> IdlenessVerdict:
    idleness = read_idleness({"idle": idle_cluster or IDLE})
    assert idleness is not None
    with platform.use_provider_context():
        result = ClusterLifecycle.hooks.judge_idleness(Settings(), cluster.id, idleness)
    assert result is not None
    return result


def replace_reported_value(platform: Any, cluster: Any, path: str, value: Any) -> None:
    """Make the platform report a value in place of the real one."""
    nested_value = value
    for name in reversed(path.split(".")):
        nested_value = {name: nested_value}
    body = json.dumps({"shown": nested_value})
    answer = platform.http.post(f"/_emulator/tensorone/clusters/{cluster.id}", content=body)
    answer.raise_for_status()


def format_time_ago(platform: Any, seconds: float) -> str:
    return datetime.fromtimestamp(platform.clock.now() - seconds, UTC).isoformat()


def test_a_cluster_without_work_is_idle(platform: Any, idle_cluster: Any) -> None:
    judgement = judge_idleness(platform, idle_cluster)
    assert judgement.is_idle
    assert judgement.because.startswith("each GPU used below 5% for 6h, at 20")
    assert (
        "(of its last 6h)"
        in judge_idleness(platform, idle_cluster, {"below": "5%", "for": "2h"}).because
    )


def test_a_busy_cluster_is_not_idle(platform: Any, inputs: Json) -> None:
    cluster = platform.create({**inputs, "idle": IDLE})
    platform.advance(10 * HOUR)
    assert judge_idleness(platform, cluster) == IdlenessVerdict(
        is_idle=False, because="used 87.3% now: one of its 4 GPUs up to 100%"
    )


def test_a_cluster_idle_for_too_short_a_time_reports_when_it_is_due(
    platform: Any, inputs: Json
) -> None:
    cluster = platform.create({**inputs, "idle": IDLE})
    platform.advance(10 * HOUR)
    platform.make_idle(cluster)
    platform.advance(HOUR + 100)
    judgement = judge_idleness(platform, cluster)
    assert not judgement.is_idle
    assert "within the last 6h" in judgement.because
    replace_reported_value(
        platform, cluster, "metrics.historical.gpu_utilization", {"avg": 0, "min": 0, "max": 0}
    )
    judgement = judge_idleness(platform, cluster)
    assert not judgement.is_idle
    assert judgement.because.startswith(
        "idle for 1h 1m by TensorOne's count, so that it may be due at"
    )


FIGURES = ["0", "none", False, True, -3, 400, float("nan"), float("inf"), [], {}]
MEASURED = [
    "metrics.current.gpu_utilization",
    "metrics.historical.gpu_utilization.avg",
    "metrics.historical.gpu_utilization.min",
    "metrics.historical.gpu_utilization.max",
]


@pytest.mark.parametrize("path", MEASURED)
@pytest.mark.parametrize("value", [*FIGURES, None], ids=repr)
def test_a_value_that_is_no_measurement_is_not_idle(
    platform: Any, idle_cluster: Any, path: str, value: Any
) -> None:
    replace_reported_value(platform, idle_cluster, path, value)
    assert not judge_idleness(platform, idle_cluster).is_idle


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
def test_a_missing_measurement_is_not_idle(platform: Any, idle_cluster: Any, path: str) -> None:
    platform.send_control("POST", f"tensorone/clusters/{idle_cluster.id}", {"hidden": [path]})
    assert not judge_idleness(platform, idle_cluster).is_idle


def test_one_busy_gpu_of_many_is_not_idle(platform: Any, idle_cluster: Any) -> None:
    """Of four GPUs, a mean of 2 % may be one GPU at 8 %."""
    replace_reported_value(platform, idle_cluster, "metrics.current.gpu_utilization", 2)
    assert "one of its 4 GPUs up to 8%" in judge_idleness(platform, idle_cluster).because
    assert judge_idleness(platform, idle_cluster, {"below": "10%", "for": "6h"}).is_idle
    body: Json = {"shown": {"metrics": {"current": {"gpu_utilization": 2}}}}
    body["hidden"] = ["configuration.gpu_count"]
    platform.send_control("POST", f"tensorone/clusters/{idle_cluster.id}", body)
    assert not judge_idleness(platform, idle_cluster, {"below": "10%", "for": "6h"}).is_idle, (
        "there may be 8"
    )


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
def test_old_recent_and_future_measurements(
    platform: Any, idle_cluster: Any, path: str, seconds: float
) -> None:
    replace_reported_value(platform, idle_cluster, path, format_time_ago(platform, seconds))
    assert not judge_idleness(platform, idle_cluster).is_idle


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
def test_contradictory_metrics_are_not_idle(
    platform: Any, idle_cluster: Any, path: str, value: Any
) -> None:
    replace_reported_value(platform, idle_cluster, path, value)
    assert not judge_idleness(platform, idle_cluster).is_idle


def test_an_unknown_start_time_is_not_idle(platform: Any, idle_cluster: Any) -> None:
    removed = ["uptime_seconds", "status_details.last_status_change"]
    platform.send_control("POST", f"tensorone/clusters/{idle_cluster.id}", {"hidden": removed})
    assert judge_idleness(platform, idle_cluster).because == "the start of the cluster is unknown"
    platform.send_control("POST", f"tensorone/clusters/{idle_cluster.id}", {"hidden": removed[:1]})
    assert judge_idleness(platform, idle_cluster).is_idle


def test_a_recently_started_cluster_is_not_idle(platform: Any, inputs: Json) -> None:
    cluster = platform.create({**inputs, "idle": IDLE})
    platform.make_idle(cluster)
    platform.advance(5 * HOUR)
    assert not judge_idleness(platform, cluster).is_idle


def stop_idle_cluster(platform: Any, cluster: Any) -> Any:
    """Stop the cluster as `gpuform expire` does."""
    return platform.update(cluster, {**cluster.inputs, "state": "stopped"})


class TestStoppedForIdleness:
    def test_it_stays_stopped_and_the_plan_gives_the_reason(
        self, platform: Any, idle_cluster: Any
    ) -> None:
        off = stop_idle_cluster(platform, idle_cluster)
        assert off.outs["status"] == "stopped"
        by = off.outs["stopped_by"]
        assert by.startswith("idleness, each GPU used below 5% for 6h up to ")
        because = f"stopped by {by}; --allow start-terminated starts it again"
        for refreshed in (off, platform.refresh(off)):
            assert refreshed.outs["stopped_by"] == by
            assert platform.plan(refreshed, idle_cluster.inputs) == {
                "state": ("stopped", "stays", because)
            }
        platform.take_writes()
        tagged = platform.update(off, {**idle_cluster.inputs, "tags": {"seen": "yes"}})
        assert [verb for verb, _ in platform.take_writes()] == ["PUT"]
        assert tagged.outs["stopped_by"] == by

    def test_it_is_started_if_the_permission_is_given(
        self, platform: Any, idle_cluster: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        off = stop_idle_cluster(platform, idle_cluster)
        monkeypatch.setenv("GPUFORM_ALLOW", "start-terminated")
        on = platform.update(off, idle_cluster.inputs)
        assert on.outs["status"] == "running"
        assert "stopped_by" not in on.outs
        assert platform.plan(on, idle_cluster.inputs) == {}
        assert IdleStops.from_intents(platform.intents).find(idle_cluster.id) is None

    def test_it_is_started_when_idle_is_no_longer_declared(
        self, platform: Any, idle_cluster: Any
    ) -> None:
        off = stop_idle_cluster(platform, idle_cluster)
        free = {name: value for name, value in idle_cluster.inputs.items() if name != "idle"}
        assert platform.plan(off, free)["state"][:2] == ("stopped", "running")
        assert platform.update(off, free).outs["status"] == "running"

    def test_the_reason_survives_a_killed_run(self, platform: Any, idle_cluster: Any) -> None:
        """The state has the outputs from before the stop."""
        off = stop_idle_cluster(platform, idle_cluster)
        refreshed = platform.refresh(idle_cluster)
        assert refreshed.outs["stopped_by"] == off.outs["stopped_by"]
        assert platform.plan(refreshed, idle_cluster.inputs)["state"][1] == "stays"

    @pytest.mark.parametrize(("drop", "status"), [("after", "stopped"), ("before", "running")])
    def test_a_lost_answer_to_the_stop_is_recovered(
        self, platform: Any, idle_cluster: Any, drop: str, status: str
    ) -> None:
        """The next run continues, and knows who stopped the cluster."""
        platform.add_fault("POST", "/stop$", drop=drop, count=None)
        with suppress(GpuformError):
            stop_idle_cluster(platform, idle_cluster)
        platform.remove_faults()
        platform.advance(60)
        refreshed = platform.refresh(idle_cluster)
        assert refreshed.outs["status"] == status
        if status == "running":
            assert "stopped_by" not in refreshed.outs
            assert judge_idleness(platform, refreshed).is_idle
            refreshed = stop_idle_cluster(platform, refreshed)
        assert refreshed.outs["stopped_by"].startswith("idleness, ")
        assert platform.plan(refreshed, idle_cluster.inputs)["state"][1] == "stays"

    def test_the_reason_is_forgotten_with_the_cluster(
        self, platform: Any, idle_cluster: Any
    ) -> None:
        off = stop_idle_cluster(platform, idle_cluster)
        assert IdleStops.from_intents(platform.intents).find(idle_cluster.id) is not None
        platform.delete(off)
        assert IdleStops.from_intents(platform.intents).find(idle_cluster.id) is None

    def test_a_restarting_change_starts_it(self, platform: Any, idle_cluster: Any) -> None:
        changed = platform.update(
            stop_idle_cluster(platform, idle_cluster), {**idle_cluster.inputs, "gpu_count": 2}
        )
        assert changed.outs["status"] == "running"
        assert "stopped_by" not in changed.outs

    def test_a_manual_stop_is_not_taken_for_it(self, platform: Any, idle_cluster: Any) -> None:
        platform.send("POST", f"{idle_cluster.id}/stop")
        platform.advance(60)
        refreshed = platform.refresh(idle_cluster)
        assert refreshed.outs.get("stopped_by") is None
        assert platform.plan(refreshed, idle_cluster.inputs)["state"][1] == "running"

    def test_a_manual_stop_after_a_manual_start_is_not_taken_for_it(
        self, platform: Any, idle_cluster: Any
    ) -> None:
        off = stop_idle_cluster(platform, idle_cluster)
        platform.advance(60)
        platform.send("POST", f"{idle_cluster.id}/start")
        platform.advance(5 * HOUR)
        on = platform.refresh(off)
        assert on.outs.get("stopped_by") is None
        platform.send("POST", f"{idle_cluster.id}/stop")
        platform.advance(60)
        assert platform.refresh(on).outs.get("stopped_by") is None


@pytest.mark.parametrize("value", ["0", True, -3, 400, float("nan")], ids=repr)
def test_the_utilization_in_a_plan_is_measured_too(
    platform: Any, idle_cluster: Any, value: Any
) -> None:
    replace_reported_value(platform, idle_cluster, "metrics.current.gpu_utilization", value)
    with (
        platform.use_provider_context(),
        pytest.raises(Exception, match="reports no use of its GPUs"),
    ):
        ClusterLifecycle.hooks.measure_gpu_usage(Settings(), idle_cluster.id)


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
def test_invalid_idle_inputs_are_refused(
    platform: Any, inputs: Json, more: Json, path: str
) -> None:
    assert list(platform.find_problems({**inputs, **more})) == [path]
