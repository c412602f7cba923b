"""Whether a TensorOne cluster is idle: by its metrics, and by all that may contradict them.

`metrics.current`, `metrics.historical`, `metrics_window`, `last_accessed`, `uptime_seconds`,
`status_details` and `auto_terminate` are of TensorOne's document ('Get Cluster Details'). It tells
one figure for all GPUs, which we take for their mean: one of them may do all the work, so the
figure counts times their number.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.providers.context import get_current_context
from gpuform.providers.lifetime import CAUSE, Verdict, is_for_idleness, left, written
from gpuform.providers.records import IdleStops
from gpuform.providers.tensorone.client import TensorOneClient
from gpuform.schemas.policies.lifetime import Idleness
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.statuses import ClusterStatus, unix_time

STALE: Final = 900.0
"""Seconds after which a figure no longer tells what is so now."""

AHEAD: Final = 60.0
"""Seconds that the platform's clock may be ahead of ours."""

MOST_GPUS: Final = 8
"""Of a cluster ('Create Cluster'): as many as it may have whose number is not told."""

WINDOWS: Final = {"1h": 3600.0, "6h": 6 * 3600.0, "24h": 24 * 3600.0, "7d": 7 * 86400.0}

STOPPING: Final = 3600.0
"""Seconds within which a stop is done that was asked for."""


def judged(client: TensorOneClient, id_: str, idleness: Idleness) -> Verdict:
    """One look at the cluster, now. Raises GpuformError when the platform does not answer."""
    window = next(name for name, seconds in WINDOWS.items() if seconds >= idleness.lasting)
    cluster = client.cluster(id_, window).cluster
    now, _ = get_current_context().platform_time(client.clock_ahead)
    look = _Look(cluster, idleness, window, now)
    doubt = next(look.doubts(), None)
    if doubt is not None:
        return Verdict(is_idle=False, because=doubt)
    within = "" if WINDOWS[window] == idleness.lasting else f" (of its last {window})"
    because = f"each GPU used {idleness.text}{within}, at {written(now)}"
    return Verdict(is_idle=True, because=because)


def because_of(idleness: Idleness, now: float) -> str:
    """The words for a stop that is asked for now."""
    return f"{CAUSE}, each GPU used {idleness.text} up to {written(now)}"


def stopped_for(cluster: wire.Cluster, stops: IdleStops, known: Mapping[str, Any]) -> str | None:
    """Why `gpuform expire` has stopped a cluster; None where that has not, or somebody since.

    `known` are the outputs of a look before: what they say holds while the status is of then.
    """
    if cluster.status not in (ClusterStatus.STOPPED, ClusterStatus.STOPPING):
        return None
    changed, said = cluster.status_details.last_status_change, known.get("stopped_by")
    if is_for_idleness(said) and changed == known.get("last_status_change"):
        return str(said)
    stop, at = stops.find(cluster.id), unix_time(changed)
    if stop is None:
        return None
    is_of_it = at is None or stop.at - AHEAD <= at <= stop.at + STOPPING
    return stop.because if is_of_it else None


class _Look:
    """One answer, and all that keeps it from being idle."""

    def __init__(self, cluster: wire.Cluster, idleness: Idleness, window: str, now: float) -> None:
        self._cluster, self._idleness, self._window, self._now = cluster, idleness, window, now
        self._metrics = cluster.metrics or wire.Metrics()

    def doubts(self) -> Iterator[str]:
        """Why it is not idle, or nobody knows; the first one is enough."""
        cluster = self._cluster
        if cluster.status != ClusterStatus.RUNNING:
            yield f"it is {cluster.status or 'of unknown status'}"
        yield from self._of_now()
        yield from self._of_before()
        yield from self._of_others()

    def _of_now(self) -> Iterator[str]:
        current = self._metrics.current
        used, watts = current.gpu_utilization, current.power_usage_watts
        at = unix_time(current.timestamp)
        if used is None or not 0 <= used <= 100:
            yield "its use is not told"
        elif at is None:
            yield "its use is told without a date"
        elif not -AHEAD <= self._now - at <= STALE:
            yield f"its use is told of {written(at)}, which is not now"
        elif watts is not None and watts <= 0:
            yield "its GPUs are told to take no power while it runs"
        elif self._of_one(used) >= self._idleness.below:
            yield self._too_much(used, "now")
        health = self._cluster.status_details.health_checks.gpu_health
        if health is not None and health != "healthy":
            yield f"the health of its GPUs is {health}"

    def _of_before(self) -> Iterator[str]:
        historical = self._metrics.historical
        course = historical.gpu_utilization
        least, mean, most = course.min, course.avg, course.max
        if historical.window != self._window or least is None or mean is None or most is None:
            yield f"its use of the last {self._window} is not told"
        elif not 0 <= least <= mean <= most <= 100:
            yield f"its use of the last {self._window} is told in figures that cannot be"
        elif self._of_one(most) >= self._idleness.below:
            yield self._too_much(most, f"within the last {self._window}")

    def _of_others(self) -> Iterator[str]:
        """What the platform says beside its metrics. Of its start it has to say something."""
        cluster, lasting = self._cluster, self._idleness.lasting
        changed, uptime = cluster.status_details.last_status_change, cluster.uptime_seconds
        if changed is None and uptime is None:
            yield "nobody tells since when it runs"
        if uptime is not None and not lasting <= uptime < float("inf"):
            yield f"it runs for {left(max(uptime, 0))} only"
        limits = cluster.auto_terminate
        idle = None if limits is None else limits.current_idle_minutes
        if idle is not None and idle * 60 < lasting:
            yield self._not_yet(idle * 60)
        moments = {
            "was started or stopped": changed,
            "was made": cluster.created_at,
            "was accessed": cluster.last_accessed,
        }
        for what, text in moments.items():
            at = unix_time(text)
            if text is not None and at is None:
                yield f"it {what} nobody knows when"
            elif at is not None and self._now - at < lasting:
                yield f"it {what} at {written(at)}"

    def _not_yet(self, idle: float) -> str:
        idle = max(idle, 0)
        due = written(self._now + self._idleness.lasting - idle)
        return f"idle for {left(idle)} by TensorOne's count, so that it may be due at {due}"

    def _too_much(self, used: float, when: str) -> str:
        count = self._gpus
        of_one = f": one of its {count} GPUs up to {self._of_one(used):g}%" if count > 1 else ""
        return f"used {used:g}% {when}{of_one}"

    def _of_one(self, used: float) -> float:
        """The most that one of its GPUs can be used."""
        return min(100.0, used * self._gpus)

    @property
    def _gpus(self) -> int:
        place = self._cluster.configuration
        number = place.gpu_count if place else None
        return number if number and 0 < number <= MOST_GPUS else MOST_GPUS
