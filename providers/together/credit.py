"""What becomes of clusters and volumes without credit (Together reference, 'Credit Exhaustion').

Reserved compute runs until its end; compute on demand is paused, then decommissioned; access to
storage is revoked in the end.
"""

from collections.abc import Mapping
from typing import Any, Final

from gpuform.schemas.notices import Credit, CreditState
from gpuform.schemas.together.statuses import ClusterStatus, VolumeStatus

_PAUSED: Final = (ClusterStatus.ON_DEMAND_COMPUTE_PAUSED, ClusterStatus.PAUSED)


def cluster_credit(values: Mapping[str, Any], seen: Mapping[str, Any]) -> Credit | None:
    """Of a cluster of these inputs and outputs; None where nothing is known of it."""
    status, until = seen.get("status"), str(seen.get("reserved_until") or "")
    is_reserved = values.get("billing_type") in ("RESERVED", "SCHEDULED_CAPACITY")
    end = f"until {until}" if until else "until the end of its reservation"
    if status not in _PAUSED:
        if is_reserved:
            return Credit(state=CreditState.RUNS, text=f"is reserved and runs {end}", at=until)
        return Credit(state=CreditState.RUNS, next="is paused") if status else None
    since = str(seen.get("paused_at") or "")
    told = f"since {since}" if since else "since a moment that Together does not tell"
    if status == ClusterStatus.PAUSED:
        text = f"no credit is left: it has been paused {told}"
    else:
        text = f"no credit is left: its on-demand compute has been paused {told}"
        text += f"; what is reserved of it runs {end}" if is_reserved else ""
    what = "its on-demand compute is decommissioned"
    return Credit(state=CreditState.STOPPED, text=text, at=since, next=what)


def volume_credit(seen: Mapping[str, Any]) -> Credit | None:
    """Of a volume of these outputs."""
    status = seen.get("status")
    if status == VolumeStatus.ACCESS_REVOKED:
        text = "no credit is left: access to its data has been revoked"
        return Credit(state=CreditState.REVOKED, text=text)
    return Credit(state=CreditState.RUNS, next="access to its data is revoked") if status else None
