"""What has stopped a cluster: its own auto-termination, or somebody.

The platform does not say. A cluster was stopped by a limit of its ``auto_terminate`` when it has
reached the limit, or when the text of its status says so.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.schemas.resource_facts import Credit, CreditState
from gpuform.schemas.tensorone.statuses import ClusterStatus
from gpuform.schemas.tensorone.wire import AutoTerminate, Cluster, Cost

_TOLD: Final = re.compile(r"auto[- _]?terminat", re.IGNORECASE)
_CREDIT: Final = re.compile(r"insufficient[ _]credit|(no|out of) credit", re.IGNORECASE)
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


def credit_of(seen: Mapping[str, Any]) -> Credit | None:
    """Whether lack of credit has stopped a cluster of these outputs, by the text of its status.

    The error code INSUFFICIENT_CREDITS is documented; what the status says then is our reading.
    """
    status, message = seen.get("status"), str(seen.get("status_message") or "")
    if status not in (ClusterStatus.STOPPED, ClusterStatus.ERROR) or not _CREDIT.search(message):
        return Credit(state=CreditState.RUNS) if status else None
    since = str(seen.get("updated_at") or "")
    told = f", since {since} at the latest" if since else ""
    return Credit(
        state=CreditState.STOPPED, text=f"no credit is left: it is {status}{told}", at=since
    )


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
