"""List the states of nodes and fabrics, and the platform's times, versions and GPUs per server.

A state that is in none of these sets is a newer one: it counts as pending.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import StrEnum
from types import MappingProxyType
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


def unix_time(text: str | None) -> float | None:
    """Unix seconds of `2024-05-17T00:23:17Z` or `2024-07-11 08:56:59`; None for anything else.

    A time without a zone is taken as UTC.
    """
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


GPUS_OF_A_SERVER: Final = 8


HEADER: Final = "Scp-Api-Version"
CURRENT: Final = "1.2"

DEPRECATED: Final[Mapping[str, date]] = MappingProxyType(
    {"1.1": date(2026, 3, 31), "1.0": date(2025, 12, 31)}
)
"""Version -> the day from which it may end ('Not Before')."""


def header_value(version: str) -> str:
    """What the header says to choose a version."""
    return f"multinodegpucluster {version}"
