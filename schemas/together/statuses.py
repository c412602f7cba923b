"""List the statuses and phases of clusters and volumes, and the platform's form of times (RFC
3339).

A status that is in none of these sets is a newer one: it counts as pending.
"""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Final


class ClusterStatus(StrEnum):
    """The SDK's enumeration, and Scheduled, which the service sends first."""

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
    ON_DEMAND_COMPUTE_PAUSED = "OnDemandComputePaused"
    DELETING = "Deleting"


CLUSTER_READY: Final = frozenset({ClusterStatus.READY})

CLUSTER_FAILED: Final = frozenset(
    {
        ClusterStatus.DEGRADED,
        ClusterStatus.PAUSED,
        ClusterStatus.ON_DEMAND_COMPUTE_PAUSED,
        ClusterStatus.DELETING,
    }
)
"""There is no "Failed": these do not lead to Ready by themselves."""

CLUSTER_STUCK: Final[Mapping[str, str]] = {
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
"""Statuses that only somebody else can end: what happened, and what to do (Together reference,
'Credit Exhaustion'). None of them is a reason to make the cluster anew."""

CLUSTER_PENDING: Final = frozenset(ClusterStatus) - CLUSTER_READY - CLUSTER_FAILED

FAILED_CLUSTER_PHASES: Final = frozenset(
    {"CLUSTER_PHASE_ACCEPTANCE_TESTS_FAILED", "CLUSTER_PHASE_NCCL_TESTS_FAILED"}
)
PAUSED_PHASES: Final[Mapping[str, str]] = {
    ClusterStatus.PAUSED: "CLUSTER_PHASE_PAUSED",
    ClusterStatus.ON_DEMAND_COMPUTE_PAUSED: "CLUSTER_PHASE_ON_DEMAND_COMPUTE_PAUSED",
}
"""The phase whose beginning says since when a status holds."""
FAILED_NODE_PHASES: Final = frozenset({"NODE_PHASE_FAILED"})


class VolumeStatus(StrEnum):
    """The SDK's enumeration."""

    SCHEDULED = "scheduled"
    PROVISIONING = "provisioning"
    AVAILABLE = "available"
    BOUND = "bound"
    DELETING = "deleting"
    FAILED = "failed"
    ACCESS_REVOKED = "access_revoked"
    UNKNOWN = "unknown"


VOLUME_READY: Final = frozenset({VolumeStatus.AVAILABLE, VolumeStatus.BOUND})

VOLUME_FAILED: Final = frozenset(
    {VolumeStatus.FAILED, VolumeStatus.ACCESS_REVOKED, VolumeStatus.DELETING}
)

VOLUME_STUCK: Final[Mapping[str, str]] = {
    VolumeStatus.ACCESS_REVOKED: (
        "no credit is left, so Together has revoked access to its data (access_revoked): add "
        "credit to the account, then run up again; the volume is kept as it is"
    ),
}
"""As `CLUSTER_STUCK`."""

VOLUME_PENDING: Final = frozenset(VolumeStatus) - VOLUME_READY - VOLUME_FAILED


def checked_timestamp(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{value} is not a moment: write it like 2026-03-01T08:00:00Z")
    return value


def unix_time(text: str | None) -> float | None:
    """Unix time in seconds; None for text that names no moment."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return None


def is_same_moment(one: str, other: str) -> bool:
    """Whether two spellings name one moment; text that names none is compared as text."""
    try:
        return datetime.fromisoformat(one) == datetime.fromisoformat(other)
    except ValueError:
        return one == other


def is_before(one: str, other: str) -> bool:
    return datetime.fromisoformat(one) < datetime.fromisoformat(other)
