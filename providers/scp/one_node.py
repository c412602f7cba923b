"""Convert one GPU node of SCP between its forms: declared, requested, observed and stored.

`gpu_node` calls this module.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import NotFound
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes import DeclaredNode
from gpuform.providers.scp.pool import (
    build_server_details,
    build_tags,
    keep_stored_zones,
    node_to_outputs,
)
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import GpuNodeInputs
from gpuform.schemas.scp.outputs import GpuNodeOutputs, NodeOutputs
from gpuform.schemas.scp.statuses import FAILED_NODE_STATES


class SingleNode:
    """The node during one call; `last` is how the platform showed it at the last refresh."""

    def __init__(
        self,
        context: ProviderContext,
        client: ScpClient,
        id_: str,
        public_ip_address_id: str | None = None,
    ) -> None:
        self._context = context
        self._client = client
        self._id = id_
        self._public_ip = public_ip_address_id
        # An id that can be none is refused by the first look, with what to do.
        self.last = wire.GpuNode.model_construct(id=id_)

    def refresh(self) -> NodeOutputs | None:
        """Read and return the node, and keep SCP's answer in `last`; None if the node is gone.

        In both the node is in the zone that the state has, if the state has one.
        Many readers at a time share their requests.
        """
        try:
            node = self._client.get_node_listing().read_one(self._id)
        except NotFound:
            return None
        stored = self._context.stored_properties
        # Without "ready" no run has seen the node: the zone is that of a declaration to import.
        stored_zone = stored.get("zone") if "ready" in stored else None
        (self.last,) = keep_stored_zones(
            self._context, self._client, [node], {node.id: stored_zone}
        )
        return node_to_outputs(self.last, self._public_ip)

    def record_public_ip(self, node: NodeOutputs, public_ip_address_id: str | None) -> None:  # noqa: ARG002 - there is one
        """Record the public IP of this node for later refreshes; `node` is ignored."""
        self._public_ip = public_ip_address_id

    def expect_deletion(self, nodes: Sequence[NodeOutputs]) -> None:
        """Do nothing: a single node needs no ledger."""


def parse_declared_node(declared: Mapping[str, Any]) -> DeclaredNode:
    """Parse the declaration of the node from canonical inputs without unknown values.

    Image and server type are None, even if declared: a change of them replaces the resource.
    """
    name = str(declared.get("gpu_node_name"))
    return DeclaredNode(
        key=name,
        name=name,
        nat_enabled=declared.get("nat_enabled"),
        public_ip_address_id=declared.get("public_ip_address_id"),
        lock_enabled=declared.get("lock_enabled"),
        ip_address=declared.get("ip_address"),
        zone=declared.get("zone"),
        state=declared.get("state", "RUNNING"),
    )


def build_create_request(
    inputs: GpuNodeInputs, fabric: wire.ClusterFabric, server_type_id: str
) -> wire.CreateGpuNodes:
    """Build the request to create the node in an existing fabric.

    The node is created locked only if declared as RUNNING; a locked node cannot be stopped.
    """
    declared_node = parse_declared_node(inputs.dump_declared())
    return wire.CreateGpuNodes(
        cluster_fabric_details=wire.ClusterFabricDetails(
            cluster_fabric_name=fabric.cluster_name,
            node_pool_id=fabric.node_pool_id,
            cluster_fabric_id=fabric.id,
        ),
        image_id=inputs.image_id,
        os_user_id=inputs.os_user_id or "root",
        os_user_password=inputs.os_user_password,
        region_id=inputs.region_id,
        server_details=(build_server_details(declared_node, server_type_id),),
        subnet_id=inputs.subnet_id,
        vpc_id=inputs.vpc_id,
        init_script=inputs.init_script,
        # A node that has to be stopped first is locked afterwards.
        lock_enabled=bool(declared_node.lock_enabled) and declared_node.state == "RUNNING",
        tags=build_tags(inputs.tags),
    )


def find_failure(node: NodeOutputs) -> str | None:
    """Return why the node does not recover by itself, or None."""
    if node.state in FAILED_NODE_STATES:
        return f"its state is {node.state}: replace it (`gpuform up --replace URN`)"
    return None


def parse_stored_node(outputs: Mapping[str, Any]) -> NodeOutputs | None:
    """Parse the node of stored outputs, with an empty id; None if no run has seen a node yet."""
    if "policy_use_nat" not in outputs:
        return None
    field_names = (
        "gpu_node_name",
        "state",
        "policy_use_nat",
        "lock_enabled",
        "public_ip_address_id",
        "trouble",
    )
    values = {name: outputs.get(name) for name in (*field_names, "policy_ip", "cluster_fabric_id")}
    # The id of the node is the id of the resource: outputs have none.
    return NodeOutputs(id="", **values)


def build_node_outputs(
    node: wire.GpuNode,
    observed_node: NodeOutputs,
    reason: str | None,
    faults: Sequence[NodeFault] = (),
) -> GpuNodeOutputs:
    """Build the outputs of the node from SCP's answer and the node as inspected.

    `reason` says why the node is not ready, None if it is.
    """
    fields = observed_node.model_dump(exclude={"id", "gpu_node_name", "cluster_fabric_id"})
    return GpuNodeOutputs(
        ready=reason is None,
        not_ready_reason=reason,
        node_pool_id=node.node_pool_id or None,
        faults=[*faults],
        **fields,
    )


def build_observed_inputs(node: wire.GpuNode) -> dict[str, Any]:
    """Build the inputs from SCP's answer; an empty text counts as no value."""
    values = {
        "gpu_node_name": node.gpu_node_name,
        "cluster_fabric_id": node.cluster_fabric_id,
        "ip_address": node.policy_ip,
        "nat_enabled": node.policy_use_nat,
        "image_id": node.image_id,
        "region_id": node.region_id,
        "vpc_id": node.vpc_id,
        "subnet_id": node.network_id,
        "init_script": node.init_script.get_secret_value(),
        "zone": node.zone,
    }
    return {name: None if value == "" else value for name, value in values.items()}
