"""Define the outputs of SCP's fabrics, pools and nodes.

An output with the name of an input is the platform's value, not the declared one.
"""

from pydantic import BaseModel, ConfigDict, Field

from gpuform.schemas.models import OutputModel
from gpuform.schemas.policies.repair import NodeFault


class NodeOutputs(BaseModel):
    """A node of a pool as the platform reports it."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="Id of the node.")
    gpu_node_name: str = Field(description="Its name.")
    state: str = Field(description="State of the node, as the platform reports it.")
    policy_ip: str | None = Field(default=None, description="Its address in the subnet.")
    policy_use_nat: bool = Field(default=False, description="Whether it has a public address.")
    policy_nat: str | None = Field(default=None, description="That address.")
    public_ip_address_id: str | None = Field(
        default=None, description="Id of its public IP, if gpuform assigned it."
    )
    lock_enabled: bool = Field(default=False, description="Whether it is locked.")
    cluster_fabric_id: str | None = Field(
        default=None, description="Its fabric; absent until the platform has created it."
    )
    cluster_fabric_name: str | None = Field(default=None, description="Name of its fabric.")
    pfs_ip: list[str] = Field(default=[], description="Its addresses in the storage network.")
    server_type: str | None = Field(default=None, description="Name of its type of server.")
    product_type_id: str | None = Field(default=None, description="Id of that type.")
    image_id: str | None = Field(default=None, description="Id of its image.")
    image_version: str | None = Field(default=None, description="Its operating system.")
    os_type: str | None = Field(default=None, description="Kind of that system, such as LINUX.")
    time_zone: str | None = Field(default=None, description="Time zone, such as Asia/Seoul.")
    account_id: str | None = Field(default=None, description="Id of the account that has it.")
    created_at: str | None = Field(default=None, description="When it was created.")
    created_by: str | None = Field(default=None, description="Id of the user who created it.")
    modified_at: str | None = Field(default=None, description="When it was last changed.")
    modified_by: str | None = Field(default=None, description="Id of the user who changed it last.")
    trouble: str | None = Field(
        default=None,
        description="Why its scheduler cannot use it, if `repair` asks the scheduler.",
    )
    unusable_since: str | None = Field(
        default=None, description="Since when its scheduler cannot use it, in UTC, if so."
    )


class NewerImageOutputs(BaseModel):
    """An image that is newer than the declared one."""

    model_config = ConfigDict(frozen=True)

    id: str = Field(description="Its id: what image_id would be.")
    name: str = Field(default="", description="Its name.")


class NodePoolOutputs(OutputModel):
    """A pool of nodes."""

    gpu_nodes: dict[str, NodeOutputs] = Field(
        default={},
        description="The existing nodes, each under its key, or under its name without a key.",
    )
    node_ids: list[str] = Field(default=[], description="Ids of the nodes.")
    cluster_fabric_id: str | None = Field(
        default=None, description="Fabric of the nodes; absent until the platform has created it."
    )
    newer_image: NewerImageOutputs | None = Field(
        default=None,
        description="A newer image of the same distribution and kind, if the platform lists one.",
    )
    stopped_by: str | None = Field(
        default=None, description="Why `gpuform expire` has stopped it, if so."
    )
    faults: list[NodeFault] = Field(default=[], description="The broken nodes, as last observed.")


class GpuNodeOutputs(OutputModel):
    """One node as the platform reports it."""

    stopped_by: str | None = Field(
        default=None, description="Why `gpuform expire` has stopped it, if so."
    )
    state: str = Field(description="State, as the platform reports it.")
    policy_ip: str | None = Field(default=None, description="Address in the subnet.")
    policy_use_nat: bool = Field(default=False, description="Whether it has a public address.")
    policy_nat: str | None = Field(default=None, description="That address.")
    public_ip_address_id: str | None = Field(
        default=None, description="Id of the public IP, if gpuform assigned it."
    )
    lock_enabled: bool = Field(default=False, description="Whether it is locked.")
    node_pool_id: str | None = Field(default=None, description="The platform's node pool.")
    cluster_fabric_name: str | None = Field(default=None, description="Name of the fabric.")
    pfs_ip: list[str] = Field(default=[], description="Addresses in the storage network.")
    server_type: str | None = Field(default=None, description="Name of the type of server.")
    image_version: str | None = Field(default=None, description="The operating system.")
    os_type: str | None = Field(default=None, description="Kind of that system, such as LINUX.")
    time_zone: str | None = Field(default=None, description="Time zone, such as Asia/Seoul.")
    account_id: str | None = Field(default=None, description="Id of the account that has it.")
    created_at: str | None = Field(default=None, description="When it was created.")
    created_by: str | None = Field(default=None, description="Id of the user who created it.")
    modified_at: str | None = Field(default=None, description="When it was last changed.")
    modified_by: str | None = Field(default=None, description="Id of the user who changed it last.")
    trouble: str | None = Field(
        default=None,
        description="Why its scheduler cannot use it, if `repair` asks the scheduler.",
    )
    unusable_since: str | None = Field(
        default=None, description="Since when its scheduler cannot use it, in UTC, if so."
    )
    faults: list[NodeFault] = Field(default=[], description="Its faults, as last observed.")
    newer_image: NewerImageOutputs | None = Field(
        default=None,
        description="A newer image of the same distribution and kind, if the platform lists one.",
    )


class MemberOutputs(BaseModel):
    """A node in a fabric."""

    model_config = ConfigDict(frozen=True)

    gpu_node_id: str = Field(description="Id of the node.")
    gpu_node_name: str = Field(description="Its name.")
    state: str = Field(description="State of the node, as the platform reports it.")


class FabricOutputs(OutputModel):
    """A fabric as the platform reports it. Without members it does not exist there."""

    cluster_fabric_id: str = Field(
        default="", description="Id of the fabric; empty until its first node is created."
    )
    state: str | None = Field(
        default=None, description="State, as the platform reports it; absent without members."
    )
    gpu_node_details: list[MemberOutputs] = Field(default=[], description="The nodes in it.")
    server_type: str | None = Field(default=None, description="Type of its servers.")
    used_server_count: int | None = Field(
        default=None, description="How many servers the platform counts in it."
    )
    description: str | None = Field(default=None, description="The platform's message about it.")
    product_id: str | None = Field(default=None, description="Id of the product of its servers.")
    pirp_id: str | None = Field(
        default=None, description="The platform's `pirp_id`, which its reference does not explain."
    )
    account_id: str | None = Field(default=None, description="Id of the account that has it.")
    created_at: str | None = Field(default=None, description="When it was created.")
    created_by: str | None = Field(default=None, description="Id of the user who created it.")
    modified_at: str | None = Field(default=None, description="When it was last changed.")
    modified_by: str | None = Field(default=None, description="Id of the user who changed it last.")
