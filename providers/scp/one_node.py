"""One GPU node of SCP in its forms: as it is declared, asked for, shown and stored."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.errors import NotFound
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes import DeclaredNode
from gpuform.providers.scp.pool import server_of, shown, tags_of
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import GpuNodeInputs
from gpuform.schemas.scp.outputs import GpuNodeOutputs, NodeOutputs
from gpuform.schemas.scp.statuses import NODE_FAILED


class OneNode:
    """The node during one call; `last` is how the platform showed it."""

    def __init__(self, client: ScpClient, id_: str, public_ip_address_id: str | None) -> None:
        self._client = client
        self._id = id_
        self._public_ip = public_ip_address_id
        # An id that can be none is refused by the first look, with what to do.
        self.last = wire.GpuNode.model_construct(id=id_)

    def look(self) -> NodeOutputs | None:
        """The node now; None when it is gone. Many who look share their requests."""
        try:
            self.last = self._client.get_node_listing().one(self._id)
        except NotFound:
            return None
        return shown(self.last, self._public_ip)

    def assigned(self, node: NodeOutputs, public_ip_address_id: str | None) -> None:  # noqa: ARG002 - there is one
        self._public_ip = public_ip_address_id

    def expect_end(self, nodes: Sequence[NodeOutputs]) -> None:
        """One node has no books to keep."""


def wanted_node(declared: Mapping[str, Any]) -> DeclaredNode:
    """As canonical inputs declare it."""
    name = str(declared.get("gpu_node_name"))
    return DeclaredNode(
        key=name,
        name=name,
        nat_enabled=declared.get("nat_enabled"),
        public_ip_address_id=declared.get("public_ip_address_id"),
        lock_enabled=declared.get("lock_enabled"),
        ip_address=declared.get("ip_address"),
        state=declared.get("state", "RUNNING"),
    )


def create_request(
    want: GpuNodeInputs, fabric: wire.ClusterFabric, server_type_id: str
) -> wire.CreateGpuNodes:
    """What makes it, in a fabric that exists."""
    wanted = wanted_node(want.dump_declared())
    return wire.CreateGpuNodes(
        cluster_fabric_details=wire.ClusterFabricDetails(
            cluster_fabric_name=fabric.cluster_name,
            node_pool_id=fabric.node_pool_id,
            cluster_fabric_id=fabric.id,
        ),
        image_id=want.image_id,
        os_user_id=want.os_user_id or "root",
        os_user_password=want.os_user_password,
        region_id=want.region_id,
        server_details=(server_of(wanted, server_type_id),),
        subnet_id=want.subnet_id,
        vpc_id=want.vpc_id,
        init_script=want.init_script,
        lock_enabled=bool(wanted.lock_enabled) and wanted.state == "RUNNING",
        tags=tags_of(want.tags),
    )


def failure(node: NodeOutputs) -> str | None:
    """Why it does not get better by itself, if so."""
    if node.state in NODE_FAILED:
        return f"its state is {node.state}: replace it (`gpuform up --replace URN`)"
    return None


def stored_node(old: Mapping[str, Any]) -> NodeOutputs | None:
    """The node of stored outputs; None where none was seen yet."""
    if "policy_use_nat" not in old:
        return None
    names = (
        "gpu_node_name",
        "state",
        "policy_use_nat",
        "lock_enabled",
        "public_ip_address_id",
        "trouble",
    )
    known = {name: old.get(name) for name in (*names, "policy_ip", "cluster_fabric_id")}
    return NodeOutputs(id="", **known)


def outputs_of(
    node: wire.GpuNode, seen: NodeOutputs, reason: str | None, faults: Sequence[NodeFault] = ()
) -> GpuNodeOutputs:
    """The outputs, with `reason` why it is not ready."""
    fields = seen.model_dump(exclude={"id", "gpu_node_name", "cluster_fabric_id"})
    return GpuNodeOutputs(
        ready=reason is None,
        not_ready_reason=reason,
        node_pool_id=node.node_pool_id or None,
        faults=[*faults],
        **fields,
    )


def inputs_of(node: wire.GpuNode) -> dict[str, Any]:
    """What the platform returns of a declaration; "" is what it does not say."""
    found = {
        "gpu_node_name": node.gpu_node_name,
        "cluster_fabric_id": node.cluster_fabric_id,
        "ip_address": node.policy_ip,
        "nat_enabled": node.policy_use_nat,
        "image_id": node.image_id,
        "region_id": node.region_id,
        "vpc_id": node.vpc_id,
        "subnet_id": node.network_id,
        "init_script": node.init_script.get_secret_value(),
    }
    return {name: None if value == "" else value for name, value in found.items()}
