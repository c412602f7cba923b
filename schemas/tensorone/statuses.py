"""The statuses of clusters, and what they mean to somebody who waits.

From TensorOne's documentation ('List Clusters'); a status that is not here counts as pending.
"""

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
