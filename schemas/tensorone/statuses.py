"""List the statuses of TensorOne's clusters, and convert the platform's times.

Statuses are from TensorOne's documentation ('List Clusters'); a status in none of these sets counts
as pending.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final


class ClusterStatus(StrEnum):
    """The documented statuses, and ``deleting``, which the answer to a delete has."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ERROR = "error"
    # Not in the list of statuses: a delete answers with it.
    DELETING = "deleting"


STABLE_STATUSES: Final = frozenset({ClusterStatus.RUNNING, ClusterStatus.STOPPED})
"""Statuses that do not change by themselves and are no failures."""

FAILED_STATUSES: Final = frozenset({ClusterStatus.ERROR, ClusterStatus.DELETING})
"""Statuses that do not become stable by themselves."""


def to_unix_time(text: str | None) -> float | None:
    """Return a time in Unix seconds, or None for other text and for times without a zone."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    # a time without a zone could be hours off
    return None if moment.tzinfo is None else moment.timestamp()


def is_before(earlier: str | None, later: str | None) -> bool:
    """Return True if both texts are times and the first is before the second."""
    first, second = to_unix_time(earlier), to_unix_time(later)
    return first is not None and second is not None and first < second
