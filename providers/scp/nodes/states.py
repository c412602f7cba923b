"""What a GPU node's state means for those who plan with it."""

from collections.abc import Mapping
from typing import Final

from gpuform.schemas.scp.statuses import NODE_LEAVING, NodeState

_POWER: Final[Mapping[str, str]] = {
    NodeState.RUNNING: "RUNNING",
    NodeState.CREATING: "RUNNING",
    NodeState.STARTING: "RUNNING",
    NodeState.RESTARTING: "RUNNING",
    NodeState.STOPPED: "STOPPED",
    NodeState.STOPPING: "STOPPED",
}


def is_leaving(state: str) -> bool:
    """Whether a node of this state is deleted, or about to be."""
    return state in NODE_LEAVING


def power_of(state: str) -> str | None:
    """RUNNING or STOPPED: what a node of this state is or becomes; None when that is open."""
    return _POWER.get(state)
