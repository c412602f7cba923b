"""The states of nodes and fabrics, and what they mean to somebody who waits.

A state that is in none of these sets is a newer one: it counts as pending.
"""

from enum import StrEnum
from typing import Final


class NodeState(StrEnum):
    """The names of the official Terraform provider (common.go); the document shows RUNNING."""

    CREATING = "CREATING"
    RUNNING = "RUNNING"
    STARTING = "STARTING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    EDITING = "EDITING"
    RESTARTING = "RESTARTING"
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"
    ERROR = "ERROR"
    UNKNOWN = "UNKNOWN"


NODE_AT_REST: Final = frozenset({NodeState.RUNNING, NodeState.STOPPED})
"""It stays so, and takes requests."""

NODE_FAILED: Final = frozenset({NodeState.ERROR})
"""It does not get better by itself."""

NODE_LEAVING: Final = frozenset({NodeState.TERMINATING, NodeState.TERMINATED})
"""It is being deleted, or was."""

NODE_PENDING: Final = frozenset(NodeState) - NODE_AT_REST - NODE_FAILED - NODE_LEAVING

FABRIC_READY: Final = frozenset({"RUNNING"})
"""The one state of fabrics that is documented."""
