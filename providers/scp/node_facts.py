"""Convert GPU nodes of SCP between their forms, and report facts from stored values.

The lifecycles of GPU nodes and pools call this module, which sends no request. The GPU type is the
declared `gpu_type`, else the id of the product.

Sources: SCP reference, 'Show GPU Node' (`cluster_fabric_id`, `cluster_fabric_name`, `node_pool_id`,
`policy_nat`) and 'Assign Public NAT IP'.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import ValidationError

from gpuform.providers.context import ProviderContext
from gpuform.providers.lifecycle.traits import (
    EXPIRES,
    find_text,
    list_member_names,
    list_unknown_fields,
)
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes.planning import DeclaredNode
from gpuform.providers.scp.pool.nodes import keep_stored_zones, node_to_outputs
from gpuform.schemas.access import Access, Host, is_valid_user
from gpuform.schemas.policies.drain import KubernetesInputs
from gpuform.schemas.policies.lifetime import has_expiry
from gpuform.schemas.policies.repair import NodeFault
from gpuform.schemas.resource_facts import (
    Billing,
    Expense,
    NodeHealth,
    NodePlacement,
    NodeRecord,
    ResourcePlacement,
    ResourceUsage,
)
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.outputs import (
    FAILED_NODE_STATES,
    GPUS_PER_SERVER,
    GpuNodeOutputs,
    NodeOutputs,
)
from gpuform.schemas.timeline import AgendaEntry
from gpuform.schemas.values import UNKNOWN, parse_count


def compute_pool_usage(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> ResourceUsage:
    """Compute the resource usage of a pool: servers declared as running, and as stopped.

    The number of GPUs is None while the number or the state of servers is unknown.
    """
    nodes, pool_state = inputs.get("nodes"), find_text(inputs, "state")
    if nodes is UNKNOWN or inputs.get("count") is UNKNOWN or inputs.get("state") is UNKNOWN:
        # How many servers run is unknown until all values are.
        return _build_usage(inputs, outputs, None)
    if isinstance(nodes, Mapping):
        server_counts = Counter(
            (isinstance(node, Mapping) and find_text(node, "state")) or pool_state
            for node in nodes.values()
        )
    else:
        server_counts = Counter({pool_state: parse_count(inputs.get("count")) or 0})
    return _build_usage(inputs, outputs, server_counts)


def compute_node_usage(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> ResourceUsage:
    """Compute the resource usage of one server, for costs."""
    return _build_usage(inputs, outputs, Counter([find_text(inputs, "state")]))


def _build_usage(
    inputs: Mapping[str, Any], outputs: Mapping[str, Any], server_counts: Mapping[str, int] | None
) -> ResourceUsage:
    """Build the resource usage from the number of servers by declared state, or None if unknown.

    The tag `expires` counts as an expiry.
    """
    gpu_property = "server_type_id" if inputs.get("gpu_type") is None else "gpu_type"
    tags, gpu_type = list_member_names(inputs, "tags"), find_text(inputs, gpu_property)
    region = find_text(inputs, "region_id")
    counts: Mapping[Billing, int | None] = {Billing.ON_DEMAND: None}
    if server_counts is not None:
        counter = Counter[Billing]()
        # Stopped servers are an expense of their own, with their own price.
        for state, count in server_counts.items():
            counter[Billing.STOPPED if state == "STOPPED" else Billing.ON_DEMAND] += count
        counts = {billing: count for billing, count in counter.items() if count}
    return ResourceUsage(
        region=region,
        gpu_types=(gpu_type,) if gpu_type else (),
        tags=tags,
        expires=has_expiry(inputs) or EXPIRES in tags,
        running=any(state == "RUNNING" for state in _list_observed_states(outputs)),
        unknown=list_unknown_fields(
            inputs, region="region_id", gpu_types=gpu_property, tags="tags", expires="tags"
        ),
        expenses=tuple(
            Expense(
                what="gpus",
                amount=None if count is None else count * GPUS_PER_SERVER,
                platform="scp",
                gpu_type=gpu_type,
                region=region,
                billing=billing,
            )
            for billing, count in counts.items()
        ),
    )


def _list_observed_states(outputs: Mapping[str, Any]) -> Iterable[str]:
    """Return the states of all nodes in a pool's outputs, or of the one node."""
    nodes = outputs.get("gpu_nodes")
    if isinstance(nodes, Mapping):
        return [find_text(node, "state") for node in nodes.values() if isinstance(node, Mapping)]
    return [find_text(outputs, "state")]


def describe_pool_placement(outputs: Mapping[str, Any]) -> ResourcePlacement:
    """Return the placement of a pool's nodes, each with the node's own fabric."""
    nodes = outputs.get("gpu_nodes")
    node_outputs = nodes.values() if isinstance(nodes, Mapping) else ()
    name = find_text(outputs, "gpu_node_name_prefix")
    return _build_placement(
        outputs, name, [node for node in node_outputs if isinstance(node, Mapping)]
    )


def describe_node_placement(outputs: Mapping[str, Any]) -> ResourcePlacement:
    """Return the placement of one node, for topology exports."""
    return _build_placement(outputs, find_text(outputs, "gpu_node_name"), [outputs])


def _build_placement(
    outputs: Mapping[str, Any], name: str, nodes: list[Mapping[str, Any]]
) -> ResourcePlacement:
    """Build the placement of a resource from the nodes in `nodes` that have a name."""
    return ResourcePlacement(
        name=name,
        region=find_text(outputs, "region_id"),
        pool=find_text(outputs, "node_pool_id"),
        nodes=tuple(_build_placed_node(node) for node in nodes if find_text(node, "gpu_node_name")),
        kubernetes=_parse_kubernetes(outputs.get("drain")),
        # The reference has nothing about switches.
        untold=("switches",),
    )


def _build_placed_node(node: Mapping[str, Any]) -> NodePlacement:
    """Build the placement of one node: the fabric, and the public or else the private address."""
    return NodePlacement(
        name=find_text(node, "gpu_node_name"),
        address=find_text(node, "policy_nat") or find_text(node, "policy_ip"),
        fabric_id=find_text(node, "cluster_fabric_id"),
        fabric=find_text(node, "cluster_fabric_name"),
        zone=find_text(node, "zone"),
    )


def _parse_kubernetes(drain: Any) -> KubernetesInputs | None:
    """Return the Kubernetes access declared in `drain`, or None if absent or invalid."""
    declared = drain.get("kubernetes") if isinstance(drain, Mapping) else None
    try:
        return None if declared is None else KubernetesInputs.model_validate(declared)
    except ValidationError:  # of another version's state
        return None


_NO_KUBERNETES: Final = "SCP's GPU nodes are servers, without a Kubernetes of the platform"
_DEFAULT_USER: Final = "root"
_RUNNING: Final = "RUNNING"


def describe_pool_access(outputs: Mapping[str, Any]) -> Access:
    """Return how people reach a pool's nodes: one SSH host for each, and no kubeconfig."""
    nodes = (outputs.get("gpu_nodes") or {}).values()
    hosts = sorted((_build_host(node, outputs) for node in nodes), key=lambda host: host.node)
    return Access(
        name=find_text(outputs, "cluster_fabric_name"),
        no_kubeconfig=_NO_KUBERNETES,
        hosts=tuple(hosts),
        no_hosts="it has no nodes yet",
    )


def describe_node_access(outputs: Mapping[str, Any]) -> Access:
    """Return how people reach one node by SSH, with the reason if nobody can now."""
    return Access(
        name=find_text(outputs, "gpu_node_name"),
        no_kubeconfig=_NO_KUBERNETES,
        hosts=(_build_host(outputs, outputs),),
    )


def _build_host(node: Mapping[str, Any], declared: Mapping[str, Any]) -> Host:
    """Return the SSH host of a node, with the reason if people cannot reach the node now.

    A malformed user name is replaced by the default user.
    """
    name, address = find_text(node, "gpu_node_name"), find_text(node, "policy_nat")
    state = find_text(node, "state")
    user = find_text(declared, "os_user_id")
    reason = ""
    if not address:
        private_address = find_text(node, "policy_ip") or "an address"
        reason = (
            f"it has no public address, only {private_address} in its subnet: declare nat_enabled"
        )
    elif state != _RUNNING:
        reason = f"it is {state or 'in no known state'}"
    # A value that is no user name must not become part of an ssh command.
    return Host.from_address(
        name, address, user=user if is_valid_user(user) else _DEFAULT_USER, because=reason
    )


def list_pool_nodes(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[NodeRecord]:
    """Return the nodes of a pool for an inventory."""
    nodes = outputs.get("gpu_nodes")
    return [
        build_node_record(node, find_text(node, "id"), inputs, outputs)
        for node in (nodes.values() if isinstance(nodes, Mapping) else ())
        if isinstance(node, Mapping) and find_text(node, "id")
    ]


def build_node_record(
    node: Mapping[str, Any], node_id: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> NodeRecord:
    """Return one server for an inventory. SCP has no projects below an account.

    Args:
        node: the node's own outputs.
        node_id: the platform's id of the node.
        inputs: those of the node's resource, with the declared type and region.
        outputs: those of the node's resource, with the faults.
    """
    faulty_nodes = {find_text(fault, "node") for fault in outputs.get("faults") or ()}
    state, name = find_text(node, "state"), find_text(node, "gpu_node_name")
    is_broken = state in FAILED_NODE_STATES or name in faulty_nodes or bool(node.get("trouble"))
    health = NodeHealth.HEALTHY if state == _RUNNING else NodeHealth.UNKNOWN
    return NodeRecord(
        node_id=node_id,
        health_state=NodeHealth.UNHEALTHY if is_broken else health,
        instance_id=node_id,
        created_at=find_text(node, "created_at"),
        hardware_type=find_text(node, "server_type")
        or find_text(inputs, "gpu_type", "server_type_id"),
        gpu_count=GPUS_PER_SERVER,
        account_id=find_text(node, "account_id"),
        in_use=state == _RUNNING if state else None,
        region=find_text({**inputs, **outputs}, "region_id"),
        name=name,
    )


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

        A zone in the state takes the place of the zone that SCP reports. Concurrent readers share
        their requests.
        """
        node = self._client.get_node_listing().find_one(self._id)
        if node is None:
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
        """Do nothing: only the nodes of a pool have a ledger."""


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


def list_open_rollouts(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> list[AgendaEntry]:
    """Return the line of a rollout in the calendar: some nodes still have another image.

    Nodes of unknown image do not count.
    """
    image, nodes = find_text(inputs, "image_id"), outputs.get("gpu_nodes")
    images = [
        find_text(node, "image_id")
        for node in (nodes.values() if isinstance(nodes, Mapping) else ())
        if isinstance(node, Mapping)
    ]
    old_count = sum(node_image not in ("", image) for node_image in images) if image else 0
    if not old_count:
        return []
    done = f"{len(images) - old_count} of {len(images)} nodes have the declared image"
    return [AgendaEntry(kind="rollout", text=f"rollout in progress: {done}")]
