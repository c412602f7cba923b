"""List the statuses of clusters, what they mean to somebody who waits, and the platform's form of
times.

From TensorOne's documentation ('List Clusters'); a status that is not here counts as pending.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final


class ClusterStatus(StrEnum):
    """The documented statuses, and ``deleting``, which a delete answers."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ERROR = "error"
    DELETING = "deleting"


AT_REST: Final = frozenset({ClusterStatus.RUNNING, ClusterStatus.STOPPED})
"""What does not change by itself, and is no failure."""

FAILED: Final = frozenset({ClusterStatus.ERROR, ClusterStatus.DELETING})
"""What does not lead to rest by itself."""


def unix_time(text: str | None) -> float | None:
    """Unix time in seconds; None for text that names no moment."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()


def is_before(one: str | None, other: str | None) -> bool:
    """Whether both name a moment, and the first one is the earlier."""
    first, second = unix_time(one), unix_time(other)
    return first is not None and second is not None and first < second
