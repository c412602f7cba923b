"""Define the outputs and states of SCP's fabrics, pools and nodes, and convert its times.

An output with the name of an input is the platform's value, not the declared one.

A state in none of these sets is a newer one and counts as pending.
"""

from collections.abc import Mapping
from datetime import UTC, date
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from pydantic import Field

from gpuform.schemas import values
from gpuform.schemas.models import OutputModel, OutputPart, optional_field
from gpuform.schemas.policies.repair import NodeFault


class _ReportedNode(OutputPart):
    """What SCP and a scheduler report of a node, alone or in a pool."""

    state: str = Field(description="State of the node, as the platform reports it.")
    policy_ip: str | None = optional_field("Address of the node in the subnet.")
    policy_use_nat: bool = Field(
        default=False, description="Whether the node has a public address."
    )
    policy_nat: str | None = optional_field("The public address.")
    public_ip_address_id: str | None = optional_field(
        "Id of the public IP, if gpuform assigned it."
    )
    lock_enabled: bool = Field(default=False, description="Whether the node is locked.")
    cluster_fabric_name: str | None = optional_field("Name of the node's fabric.")
    pfs_ip: list[str] = Field(
        default=[], description="Addresses of the node in the storage network."
    )
    server_type: str | None = optional_field("Name of the server type.")
    image_version: str | None = optional_field("Operating system of the node.")
    os_type: str | None = optional_field("Kind of the operating system, such as LINUX.")
    time_zone: str | None = optional_field("Time zone, such as Asia/Seoul.")
    account_id: str | None = optional_field("Id of the account that owns the node.")
    created_at: str | None = optional_field("When the node was created.")
    created_by: str | None = optional_field("Id of the user who created the node.")
    modified_at: str | None = optional_field("When the node was last changed.")
    modified_by: str | None = optional_field("Id of the user who changed the node last.")
    trouble: str | None = optional_field(
        "Why the scheduler cannot use the node, if `repair` asks the scheduler."
    )
    unusable_since: str | None = optional_field(
        "Since when the scheduler cannot use the node, in UTC."
    )


class _NodeIdentity(OutputPart):
    """The id and name of a node. A base class of its own, so that they come first."""

    id: str = Field(description="Id of the node.")
    gpu_node_name: str = Field(description="Name of the node.")


class NodeOutputs(_ReportedNode, _NodeIdentity):
    """A node of a pool as the platform reports it."""

    cluster_fabric_id: str | None = optional_field(
        "Fabric of the node; absent until the platform has created it."
    )
    zone: str | None = optional_field("Availability zone of the node; absent with API version 1.2.")
    product_type_id: str | None = optional_field("Id of the server type.")
    image_id: str | None = optional_field("Id of the node's image.")


class NewerImageOutputs(OutputPart):
    """An image that is newer than the declared one."""

    id: str = Field(description="Id of the image, as image_id takes it.")
    name: str = Field(default="", description="Name of the image.")


class NodePoolOutputs(OutputModel):
    """A pool of nodes."""

    gpu_nodes: dict[str, NodeOutputs] = Field(
        default={},
        description="The existing nodes, each under its key, or under its name without a key.",
    )
    node_ids: list[str] = Field(default=[], description="Ids of the nodes.")
    cluster_fabric_id: str | None = optional_field(
        "Fabric of the nodes; absent until the platform has created it."
    )
    newer_image: NewerImageOutputs | None = optional_field(
        "A newer image of the same distribution and kind, if the platform lists one."
    )
    stopped_by: str | None = optional_field("Why `gpuform expire` stopped the pool, if it did.")
    faults: list[NodeFault] = Field(default=[], description="The broken nodes, as last observed.")


class GpuNodeOutputs(_ReportedNode, OutputModel):
    """One node as the platform reports it."""

    stopped_by: str | None = optional_field("Why `gpuform expire` stopped the node, if it did.")
    node_pool_id: str | None = optional_field("The platform's node pool.")
    faults: list[NodeFault] = Field(default=[], description="Faults of the node, as last observed.")
    newer_image: NewerImageOutputs | None = optional_field(
        "A newer image of the same distribution and kind, if the platform lists one."
    )


class MemberOutputs(OutputPart):
    """A node in a fabric."""

    gpu_node_id: str = Field(description="Id of the node.")
    gpu_node_name: str = Field(description="Name of the node.")
    state: str = Field(description="State of the node, as the platform reports it.")


class FabricOutputs(OutputModel):
    """A fabric as the platform reports it. Without members it does not exist there."""

    cluster_fabric_id: str = Field(
        default="",
        description="Id of the fabric; empty until the first node of the fabric is created.",
    )
    state: str | None = optional_field(
        "State of the fabric, as the platform reports it; absent without members."
    )
    gpu_node_details: list[MemberOutputs] = Field(default=[], description="Nodes of the fabric.")
    server_type: str | None = optional_field("Type of the fabric's servers.")
    used_server_count: int | None = optional_field(
        "Number of servers that the platform counts in the fabric."
    )
    description: str | None = optional_field("The platform's message about the fabric.")
    product_id: str | None = optional_field("Id of the product of the fabric's servers.")
    pirp_id: str | None = optional_field(
        "The platform's `pirp_id`, which SCP's reference does not explain."
    )
    account_id: str | None = optional_field("Id of the account that owns the fabric.")
    created_at: str | None = optional_field("When the fabric was created.")
    created_by: str | None = optional_field("Id of the user who created the fabric.")
    modified_at: str | None = optional_field("When the fabric was last changed.")
    modified_by: str | None = optional_field("Id of the user who changed the fabric last.")


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

    A time without a zone counts as UTC: the reference shows such times, too. None for text that is
    not a time.
    """
    return values.to_unix_time(text, UTC)


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
    """Return the value of SCP's header `Scp-Api-Version` for an API version such as `1.2`."""
    return f"multinodegpucluster {version}"
