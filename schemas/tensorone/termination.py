"""What has stopped a cluster: its own auto-termination, or somebody.

The platform does not say. A cluster was stopped by a limit of its ``auto_terminate`` when it has
reached the limit, or when the text of its status says so.
"""

import re
from collections.abc import Iterator
from typing import Final

from gpuform.schemas.tensorone.statuses import ClusterStatus
from gpuform.schemas.tensorone.wire import AutoTerminate, Cluster, Cost

_TOLD: Final = re.compile(r"auto[- _]?terminat", re.IGNORECASE)
_ROUNDING: Final = 0.01
"""Hours: durations come with two decimals."""


def stopped_by(cluster: Cluster) -> str | None:
    """Which limit has stopped a cluster, such as ``auto-termination, idle for 60 minutes``.

    None for one that is not stopped, or was stopped otherwise.
    """
    limits = cluster.auto_terminate
    if cluster.status != ClusterStatus.STOPPED or limits is None or not limits.enabled:
        return None
    reached = next(_reached(limits, cluster.cost or Cost()), None)
    if reached:
        return f"auto-termination, {reached}"
    is_told = _TOLD.search(cluster.status_details.message or "")
    return "auto-termination" if is_told else None


def _reached(limits: AutoTerminate, cost: Cost) -> Iterator[str]:
    idle, ran, spent = (
        limits.current_idle_minutes,
        cost.billing_period.duration_hours,
        cost.session_cost,
    )
    if limits.idle_minutes and idle is not None and idle >= limits.idle_minutes:
        yield f"idle for {_counted(limits.idle_minutes, 'minute')}"
    hours = limits.max_runtime_hours
    if hours and ran is not None and ran >= hours - _ROUNDING:
        yield f"running for {_counted(hours, 'hour')}"
    if limits.cost_limit_usd and spent is not None and spent >= limits.cost_limit_usd:
        yield f"cost of {limits.cost_limit_usd:g} USD"


def _counted(number: float, unit: str) -> str:
    return f"{number:g} {unit}" + ("" if number == 1 else "s")
