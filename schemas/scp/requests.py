"""Request bodies, in the platform's own names (SCP reference, 'Create GPU Nodes' and others)."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

Body = dict[str, Any]

SECRET_MEMBERS: Final = ("os_user_password", "init_script")
"""The members of bodies that nobody may see."""


@dataclass(frozen=True, kw_only=True)
class ClusterFabricDetails:
    """The fabric to join, or without an id the one that is made."""

    cluster_fabric_name: str
    node_pool_id: str
    cluster_fabric_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ServerDetails:
    """One server; `server_type_id` is the id of a product. NAT needs the id of a public IP."""

    gpu_node_name: str
    server_type_id: str
    ip_address: str | None = None
    nat_enabled: bool = False
    public_ip_address_id: str | None = None


@dataclass(frozen=True, kw_only=True)
class Tag:
    key: str
    value: str


@dataclass(frozen=True, kw_only=True)
class CreateGpuNodes:
    """`POST /v1/gpu-nodes`: 2 to 5 servers in a new fabric, or more servers for one that exists.

    What is optional here is nullable there (official Terraform provider).
    """

    cluster_fabric_details: ClusterFabricDetails
    image_id: str
    os_user_id: str
    os_user_password: str = field(repr=False)
    region_id: str
    server_details: tuple[ServerDetails, ...]
    subnet_id: str
    vpc_id: str
    init_script: str | None = field(default=None, repr=False)
    lock_enabled: bool = False
    tags: tuple[Tag, ...] = ()

    def body(self) -> Body:
        """The JSON object; password and init script are in the clear."""
        return asdict(self)


def chosen_nodes(node_ids: Sequence[str]) -> Body:
    """`POST /v1/gpu-nodes/start`, `/stop` and `DELETE /v1/gpu-nodes`."""
    return {"gpu_node_ids": list(node_ids)}


def public_nat_ip(public_ip_address_id: str) -> Body:
    """`POST /v1/gpu-nodes/{gpu_node_id}/public-nat-ip`."""
    return {"public_ip_address_id": public_ip_address_id}


def moved_members(before_fabric_id: str, after_fabric_id: str, node_ids: Sequence[str]) -> Body:
    """`POST /v1/cluster-fabrics/modify-members`."""
    return {
        "before_cluster_fabric_id": before_fabric_id,
        "after_cluster_fabric_id": after_fabric_id,
        "gpu_node_id_list": list(node_ids),
    }
