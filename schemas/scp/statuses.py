"""List the states of SCP's nodes and fabrics, and convert its times and API versions.

Used by the client and the lifecycles of SCP. A state in none of these sets is a newer one and
counts as pending.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class NodeState(StrEnum):
    """The states of GPU nodes, from the official Terraform provider (common.go)."""

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
    # Counts as pending.
    UNKNOWN = "UNKNOWN"


STABLE_NODE_STATES: Final = frozenset({NodeState.RUNNING, NodeState.STOPPED})
"""States that do not change by themselves, in which the node accepts requests."""

FAILED_NODE_STATES: Final = frozenset({NodeState.ERROR})
"""States that do not improve by themselves."""

DELETING_NODE_STATES: Final = frozenset({NodeState.TERMINATING, NodeState.TERMINATED})
"""States of a node that is being deleted, or was deleted."""

PENDING_NODE_STATES: Final = (
    frozenset(NodeState) - STABLE_NODE_STATES - FAILED_NODE_STATES - DELETING_NODE_STATES
)

READY_FABRIC_STATES: Final = frozenset({"RUNNING"})
"""The only state of fabrics that the reference shows."""


def to_unix_time(text: str | None) -> float | None:
    """Return a time (`2024-05-17T00:23:17Z`, `2024-07-11 08:56:59`) in Unix seconds.

    A time without a zone counts as UTC. None for text that is not a time.
    """
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    # the reference shows times without a zone, too
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()


# The platform's products are servers with 8 GPUs.
GPUS_PER_SERVER: Final = 8


VERSION_HEADER: Final = "Scp-Api-Version"
CURRENT_VERSION: Final = "1.2"
ZONE_VERSION: Final = "1.3"
"""The version whose requests and answers have availability zones.

It is newer than the reference. Source: Samsung's Terraform provider v6, which uses no other one
(`client/multinodegpucluster/multinodegpucluster.go`).
"""

SELECTABLE_VERSIONS: Final = (CURRENT_VERSION, ZONE_VERSION)
"""The versions that a user can choose."""

DEPRECATED_VERSIONS: Final[Mapping[str, date]] = MappingProxyType(
    {"1.1": date(2026, 3, 31), "1.0": date(2025, 12, 31)}
)
"""The day from which each deprecated version may be switched off ('Not Before')."""


def format_version_header(version: str) -> str:
    """Return the value of the header `Scp-Api-Version` for an API version such as `1.2`."""
    return f"multinodegpucluster {version}"
