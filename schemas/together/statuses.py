"""List the statuses and phases of Together's clusters and volumes; compare times (RFC 3339).

Used by Together's lifecycles. A status in none of these sets is a newer one and counts as pending.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final


class ClusterStatus(StrEnum):
    """The statuses of clusters: the SDK's enumeration, and Scheduled, which is sent first."""

    # Absent from the SDK's enumeration; a new cluster begins with it.
    SCHEDULED = "Scheduled"
    WAITING_FOR_CONTROL_PLANE_NODES = "WaitingForControlPlaneNodes"
    WAITING_FOR_DATA_PLANE_NODES = "WaitingForDataPlaneNodes"
    WAITING_FOR_SUBNET = "WaitingForSubnet"
    WAITING_FOR_SHARED_VOLUME = "WaitingForSharedVolume"
    INSTALLING_DRIVERS = "InstallingDrivers"
    RUNNING_ACCEPTANCE_TESTS = "RunningAcceptanceTests"
    READY = "Ready"
    DEGRADED = "Degraded"
    PAUSED = "Paused"
    # Credit is exhausted: the cluster is decommissioned next ('Credit Exhaustion').
    ON_DEMAND_COMPUTE_PAUSED = "OnDemandComputePaused"
    DELETING = "Deleting"


READY_CLUSTER_STATUSES: Final = frozenset({ClusterStatus.READY})

FAILED_CLUSTER_STATUSES: Final = frozenset(
    {
        ClusterStatus.DEGRADED,
        ClusterStatus.PAUSED,
        ClusterStatus.ON_DEMAND_COMPUTE_PAUSED,
        ClusterStatus.DELETING,
    }
)
"""Statuses that do not lead to Ready by themselves. Together has no status "Failed"."""

STUCK_CLUSTER_MESSAGES: Final[Mapping[str, str]] = {
    ClusterStatus.ON_DEMAND_COMPUTE_PAUSED: (
        "no credit is left, so Together has paused its on-demand compute (OnDemandComputePaused) "
        "and will take it away: add credit to the account, then run up again"
    ),
    ClusterStatus.PAUSED: (
        "Together has paused it (Paused), as it does when no credit is left: add credit to the "
        "account, or ask Together's support, then run up again"
    ),
    ClusterStatus.DEGRADED: (
        "some of it does not work (Degraded): look at its nodes and their remediations, then run "
        "up again; gpuform does not replace it"
    ),
}
"""Statuses that only somebody else can end, with what happened and what to do.

From the Together reference, 'Credit Exhaustion'. None of them is a reason to recreate the cluster.
"""

PENDING_CLUSTER_STATUSES: Final = (
    frozenset(ClusterStatus) - READY_CLUSTER_STATUSES - FAILED_CLUSTER_STATUSES
)

FAILED_CLUSTER_PHASES: Final = frozenset(
    {"CLUSTER_PHASE_ACCEPTANCE_TESTS_FAILED", "CLUSTER_PHASE_NCCL_TESTS_FAILED"}
)
PAUSED_PHASES: Final[Mapping[str, str]] = {
    ClusterStatus.PAUSED: "CLUSTER_PHASE_PAUSED",
    ClusterStatus.ON_DEMAND_COMPUTE_PAUSED: "CLUSTER_PHASE_ON_DEMAND_COMPUTE_PAUSED",
}
"""The phase whose beginning says since when a cluster has the status."""
FAILED_NODE_PHASES: Final = frozenset({"NODE_PHASE_FAILED"})


class VolumeStatus(StrEnum):
    """The statuses of volumes: the SDK's enumeration."""

    SCHEDULED = "scheduled"
    PROVISIONING = "provisioning"
    AVAILABLE = "available"
    BOUND = "bound"
    DELETING = "deleting"
    FAILED = "failed"
    # Credit is exhausted: storage is the last thing that the platform revokes.
    ACCESS_REVOKED = "access_revoked"
    UNKNOWN = "unknown"


USABLE_VOLUME_STATUSES: Final = frozenset({VolumeStatus.AVAILABLE, VolumeStatus.BOUND})

FAILED_VOLUME_STATUSES: Final = frozenset(
    {VolumeStatus.FAILED, VolumeStatus.ACCESS_REVOKED, VolumeStatus.DELETING}
)

STUCK_VOLUME_MESSAGES: Final[Mapping[str, str]] = {
    VolumeStatus.ACCESS_REVOKED: (
        "no credit is left, so Together has revoked access to its data (access_revoked): add "
        "credit to the account, then run up again; the volume is kept as it is"
    ),
}
"""Statuses that only somebody else can end, with what happened and what to do."""

PENDING_VOLUME_STATUSES: Final = (
    frozenset(VolumeStatus) - USABLE_VOLUME_STATUSES - FAILED_VOLUME_STATUSES
)


def validate_timestamp(value: str) -> str:
    """Return ``value`` if valid as a moment with an offset. Raises ValueError otherwise."""
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{value} is not a moment: write it like 2026-03-01T08:00:00Z")
    return value


def to_unix_time(text: str | None) -> float | None:
    """Return a time in Unix seconds, or None for other text.

    The platform sends a zone; a time without one would count as this machine's local time.
    """
    try:
        # the platform sends RFC 3339 with a zone
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return None


def is_same_moment(left: str, right: str) -> bool:
    """Return True if two texts name one moment.

    Texts that are not times are compared as texts.
    """
    try:
        # servers answer in UTC whatever offset was declared
        return datetime.fromisoformat(left) == datetime.fromisoformat(right)
    except ValueError:
        return left == right


def is_before(earlier: str, later: str) -> bool:
    """Return True if the first time is before the second.

    Raises ValueError for text that is not a time.
    """
    return datetime.fromisoformat(earlier) < datetime.fromisoformat(later)
