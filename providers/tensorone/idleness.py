"""Decide whether a TensorOne cluster is idle, from metrics and all that may contradict idleness.

`gpuform expire` asks through the lifecycle (`cluster`). Any doubt means that the cluster is not
idle.

`metrics.current`, `metrics.historical`, `metrics_window`, `last_accessed`, `uptime_seconds`,
`status_details` and `auto_terminate` are fields of TensorOne's documentation ('Get Cluster
Details', document 000). The platform reports one figure for all GPUs, which gpuform takes for their
mean: one GPU may do all the work, so the figure counts times their number.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.providers.context import get_current_context
from gpuform.providers.lifetime import (
    IDLENESS_CAUSE,
    IdlenessVerdict,
    format_moment,
    format_remaining_time,
    is_idleness_cause,
)
from gpuform.providers.records import IdleStops
from gpuform.providers.tensorone.client import TensorOneClient
from gpuform.schemas.policies.lifetime import Idleness
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.outputs import ClusterStatus, to_unix_time

MAX_METRIC_AGE_S: Final = 900.0
"""Seconds after which a measurement says nothing about the present."""

MAX_CLOCK_SKEW_S: Final = 60.0
"""Seconds that the platform's clock may be ahead of ours."""

MAX_GPUS: Final = 8
"""Largest number of GPUs of a cluster ('Create Cluster'), assumed where the number is unknown."""

WINDOW_SECONDS: Final = {"1h": 3600.0, "6h": 6 * 3600.0, "24h": 24 * 3600.0, "7d": 7 * 86400.0}
"""Metrics window of the platform -> its seconds, from the shortest to the longest."""

MAX_STOP_DURATION_S: Final = 3600.0
"""Seconds within which the platform carries out a stop that gpuform requested."""


def evaluate_idleness(
    client: TensorOneClient, cluster_id: str, idleness: Idleness
) -> IdlenessVerdict:
    """Return whether a cluster is idle now and why, from one request.

    The mean use counts times the number of GPUs, for one GPU may do all the work. The required time
    is at most 7 days, the longest metrics window.

    Raises:
        GpuformError: the platform does not answer.
    """
    # the shortest window that covers the required time
    window = next(name for name, seconds in WINDOW_SECONDS.items() if seconds >= idleness.lasting)
    cluster = client.get_cluster(cluster_id, window).cluster
    now, _ = get_current_context().get_platform_time(client.clock_ahead)
    check = _IdlenessCheck(cluster, idleness, window, now)
    doubt = next(check.find_doubts(), None)
    if doubt is not None:
        return IdlenessVerdict(is_idle=False, because=doubt)
    within = "" if WINDOW_SECONDS[window] == idleness.lasting else f" (of its last {window})"
    reason = f"each GPU used {idleness.text}{within}, at {format_moment(now)}"
    return IdlenessVerdict(is_idle=True, because=reason)


def describe_idle_stop(idleness: Idleness, now: float) -> str:
    """Return the reason to record for a stop for idleness that is requested now."""
    return f"{IDLENESS_CAUSE}, each GPU used {idleness.text} up to {format_moment(now)}"


def find_idle_stop_reason(
    cluster: wire.Cluster, stops: IdleStops, outputs: Mapping[str, Any]
) -> str | None:
    """Return the reason of a stop by `gpuform expire`; None for any other stop, or no stop.

    A recorded stop counts if the status changed about then, or at an unknown time.

    Args:
        cluster: the cluster as the platform reports it.
        stops: the stops that this stack recorded.
        outputs: earlier outputs; their reason holds while the status has not changed since.
    """
    if cluster.status not in (ClusterStatus.STOPPED, ClusterStatus.STOPPING):
        return None
    changed, recorded_reason = cluster.status_details.last_status_change, outputs.get("stopped_by")
    if is_idleness_cause(recorded_reason) and changed == outputs.get("last_status_change"):
        return str(recorded_reason)
    stop, changed_at = stops.find(cluster.id), to_unix_time(changed)
    if stop is None:
        return None
    # a status that changed long before or after our request is somebody else's stop
    is_our_stop = (
        changed_at is None
        or stop.at - MAX_CLOCK_SKEW_S <= changed_at <= stop.at + MAX_STOP_DURATION_S
    )
    return stop.because if is_our_stop else None


class _IdlenessCheck:
    """One answer about a cluster, and every reason in it not to call the cluster idle."""

    def __init__(self, cluster: wire.Cluster, idleness: Idleness, window: str, now: float) -> None:
        self._cluster, self._idleness, self._window, self._now = cluster, idleness, window, now
        self._metrics = cluster.metrics or wire.Metrics()

    def find_doubts(self) -> Iterator[str]:
        """Yield every reason against idleness: the cluster is busy, or a measurement is missing."""
        cluster = self._cluster
        if cluster.status != ClusterStatus.RUNNING:
            yield f"the cluster is {cluster.status or 'of unknown status'}"
        yield from self._find_current_doubts()
        yield from self._find_past_doubts()
        yield from self._find_activity_doubts()

    def _find_current_doubts(self) -> Iterator[str]:
        """Yield why current metrics prove no idleness: absent, old, or GPUs used or unhealthy.

        Running GPUs that draw no power are a reason, too.
        """
        current = self._metrics.current
        gpu_use, watts = current.gpu_utilization, current.power_usage_watts
        measured_at = to_unix_time(current.timestamp)
        if gpu_use is None or not 0 <= gpu_use <= 100:
            yield "the use of the GPUs is unknown"
        elif measured_at is None:
            yield "the use of the GPUs has no date"
        elif not -MAX_CLOCK_SKEW_S <= self._now - measured_at <= MAX_METRIC_AGE_S:
            yield f"the use of the GPUs was measured at {format_moment(measured_at)}, not now"
        # the GPUs of a running cluster take power: 0 W shows that the measurement is wrong
        elif watts is not None and watts <= 0:
            yield "the GPUs draw no power although the cluster runs"
        elif self._compute_max_gpu_use(gpu_use) >= self._idleness.below:
            yield self._format_use(gpu_use, "now")
        health = self._cluster.status_details.health_checks.gpu_health
        # the measurements of an unhealthy GPU prove nothing
        if health is not None and health != "healthy":
            yield f"the health of its GPUs is {health}"

    def _find_past_doubts(self) -> Iterator[str]:
        """Yield why the metrics of the whole window do not prove idleness.

        Metrics of another window than the requested one prove nothing.
        """
        historical = self._metrics.historical
        gpu_use = historical.gpu_utilization
        minimum, mean, maximum = gpu_use.min, gpu_use.avg, gpu_use.max
        # the platform may answer with another window than the requested one
        if historical.window != self._window or minimum is None or mean is None or maximum is None:
            yield f"the use of the last {self._window} is unknown"
        elif not 0 <= minimum <= mean <= maximum <= 100:
            yield f"the use of the last {self._window} has impossible numbers"
        elif self._compute_max_gpu_use(maximum) >= self._idleness.below:
            yield self._format_use(maximum, f"within the last {self._window}")

    def _find_activity_doubts(self) -> Iterator[str]:
        """Yield activity within the required idle time: a start, an access, or a short idle count.

        A cluster that reports neither uptime nor its last change of status is a doubt, too.
        """
        cluster, required_s = self._cluster, self._idleness.lasting
        changed, uptime = cluster.status_details.last_status_change, cluster.uptime_seconds
        # without either, the cluster may have been started a minute ago
        if changed is None and uptime is None:
            yield "the start of the cluster is unknown"
        if uptime is not None and not required_s <= uptime < float("inf"):
            yield f"the cluster has run for only {format_remaining_time(max(uptime, 0))}"
        limits = cluster.auto_terminate
        # TensorOne counts idle minutes for its own auto-termination
        idle_minutes = None if limits is None else limits.current_idle_minutes
        if idle_minutes is not None and idle_minutes * 60 < required_s:
            yield self._format_idle_count(idle_minutes * 60)
        timestamp_by_event = {
            "was started or stopped": changed,
            "was created": cluster.created_at,
            "was accessed": cluster.last_accessed,
        }
        for event, timestamp in timestamp_by_event.items():
            happened_at = to_unix_time(timestamp)
            if timestamp is not None and happened_at is None:
                yield f"the cluster {event} at an unknown time"
            elif happened_at is not None and self._now - happened_at < required_s:
                yield f"the cluster {event} at {format_moment(happened_at)}"

    def _format_idle_count(self, idle_s: float) -> str:
        """Return TensorOne's idle time in words, and when the required time would be reached."""
        idle_s = max(idle_s, 0)
        due = format_moment(self._now + self._idleness.lasting - idle_s)
        return (
            f"idle for {format_remaining_time(idle_s)} by TensorOne's count, so that it may be "
            f"due at {due}"
        )

    def _format_use(self, gpu_use: float, when: str) -> str:
        """Return the GPU use in words, with the highest possible use of one of several GPUs."""
        count = self._gpu_count
        single_gpu_text = (
            f": one of its {count} GPUs up to {self._compute_max_gpu_use(gpu_use):g}%"
            if count > 1
            else ""
        )
        return f"used {gpu_use:g}% {when}{single_gpu_text}"

    def _compute_max_gpu_use(self, gpu_use: float) -> float:
        """Return the highest possible use of a single GPU, in percent."""
        return min(100.0, gpu_use * self._gpu_count)

    @property
    def _gpu_count(self) -> int:
        """Return the reported number of GPUs; `MAX_GPUS` if unknown or impossible."""
        configuration = self._cluster.configuration
        reported_count = configuration.gpu_count if configuration else None
        return reported_count if reported_count and 0 < reported_count <= MAX_GPUS else MAX_GPUS
