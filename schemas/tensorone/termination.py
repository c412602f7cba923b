"""Determine why a TensorOne cluster has stopped: auto-termination, lack of credit or neither.

Called by TensorOne's lifecycle. The platform reports no reason. A cluster was stopped by a limit of
its ``auto_terminate`` if it has reached the limit, or if the text of its status says so.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.schemas.resource_facts import Credit, CreditState
from gpuform.schemas.tensorone.statuses import ClusterStatus
from gpuform.schemas.tensorone.wire import AutoTerminate, Cluster, Cost

_AUTO_TERMINATION: Final = re.compile(r"auto[- _]?terminat", re.IGNORECASE)
_NO_CREDIT: Final = re.compile(r"insufficient[ _]credit|(no|out of) credit", re.IGNORECASE)
_ROUNDING_HOURS: Final = 0.01
"""The platform rounds durations to two decimals."""


def find_stopping_limit(cluster: Cluster) -> str | None:
    """Return in words that auto-termination has stopped a cluster, and by which limit.

    Such as `auto-termination, idle for 60 minutes`; only `auto-termination` if no limit was reached
    and the text of the status says so. None for a cluster that is not stopped, was stopped
    otherwise, or has no auto-termination.
    """
    limits = cluster.auto_terminate
    if cluster.status != ClusterStatus.STOPPED or limits is None or not limits.enabled:
        return None
    # numbers first: the text of the status is not documented
    reached_limit = next(_find_reached_limits(limits, cluster.cost or Cost()), None)
    if reached_limit:
        return f"auto-termination, {reached_limit}"
    is_reported = _AUTO_TERMINATION.search(cluster.status_details.message or "")
    return "auto-termination" if is_reported else None


def read_credit(outputs: Mapping[str, Any]) -> Credit | None:
    """Return whether a cluster runs, or was stopped for lack of credit; None without a status.

    The lack of credit is found in `status_message`. TensorOne documents the error code
    INSUFFICIENT_CREDITS, but not the text of this message: the reading is gpuform's.
    """
    status, message = outputs.get("status"), str(outputs.get("status_message") or "")
    if status not in (ClusterStatus.STOPPED, ClusterStatus.ERROR) or not _NO_CREDIT.search(message):
        return Credit(state=CreditState.RUNS) if status else None
    since = str(outputs.get("updated_at") or "")
    since_text = f", since {since} at the latest" if since else ""
    return Credit(
        state=CreditState.STOPPED, text=f"no credit is left: it is {status}{since_text}", at=since
    )


def _find_reached_limits(limits: AutoTerminate, cost: Cost) -> Iterator[str]:
    """Yield each auto-termination limit that a cluster has reached, in words."""
    idle, hours_run, spent = (
        limits.current_idle_minutes,
        cost.billing_period.duration_hours,
        cost.session_cost,
    )
    if limits.idle_minutes and idle is not None and idle >= limits.idle_minutes:
        yield f"idle for {_format_count(limits.idle_minutes, 'minute')}"
    max_hours = limits.max_runtime_hours
    # the platform rounds to two decimals
    if max_hours and hours_run is not None and hours_run >= max_hours - _ROUNDING_HOURS:
        yield f"running for {_format_count(max_hours, 'hour')}"
    if limits.cost_limit_usd and spent is not None and spent >= limits.cost_limit_usd:
        yield f"cost of {limits.cost_limit_usd:g} USD"


def _format_count(number: float, unit: str) -> str:
    """Return a number with its unit in words: `1 hour`, `60 minutes`."""
    return f"{number:g} {unit}" + ("" if number == 1 else "s")
