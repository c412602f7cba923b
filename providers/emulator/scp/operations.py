"""Change GPU nodes that exist, without HTTP: check the document's rules, then store the plan.

`routes` calls this module. A call is all or nothing: a broken rule is a 400 before anything
changes. Where the platform's document is silent the choice is ours and named at the place.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from gpuform.providers.emulator.routing import FaultEffects
from gpuform.providers.emulator.scp.access import ScpSettings
from gpuform.providers.emulator.scp.catalogue import (
    IMAGES,
    PRODUCTS,
    SUBNETS,
    ScpApiError,
    ScpMessage,
    make_bad_request,
    make_node_not_found,
    make_refusal,
)
from gpuform.providers.emulator.scp.nodes import (
    ChangeTiming,
    Fabric,
    GpuNode,
    Identity,
    Nat,
    ScpInventory,
)
from gpuform.providers.emulator.scp.requests import (
    PUBLIC_IP_ID_PATTERN,
    CreateGpuNodes,
    ModifyMembers,
    ServerDetails,
    make_public_ip_message,
)


@dataclass(frozen=True)
class ScpRequestContext:
    """What a request finds: objects, settings and the effects of an injected fault."""

    inventory: ScpInventory
    settings: ScpSettings
    effects: FaultEffects
    has_zones: bool = False
    """Whether the request is of an API version with zones."""

    @property
    def now(self) -> float:
        """Return the time of the request by the emulator's clock, in unix seconds."""
        return self.inventory.now

    def start_change(self) -> ChangeTiming:
        """Return the timing of a change that is accepted now.

        The setting `reaction_seconds` delays the first new state; a fault may keep the change from
        ending.
        """
        return ChangeTiming(
            now=self.now,
            since=self.now + self.settings.reaction_seconds,
            is_stuck=self.effects.is_stuck,
            is_rolled_back=self.effects.is_rolled_back,
        )


def require_nodes(inventory: ScpInventory, ids: Sequence[str]) -> list[GpuNode]:
    """Return the live, visible nodes of `ids` in their order.

    Raises `Refusal`: 404 naming all missing ones, 400 for repeated ids.
    """
    live_nodes = (node for node in inventory.list_live_nodes() if node.has_appeared(inventory.now))
    nodes = {node.node_id: node for node in live_nodes}
    missing = [node_id for node_id in ids if node_id not in nodes]
    # All missing ids in one answer, as one message each.
    if missing:
        messages = [
            message for node_id in missing for message in make_node_not_found(node_id).messages
        ]
        raise ScpApiError(404, "GpuNodeNotFound", *messages)
    duplicates = find_duplicates(ids)
    if duplicates:
        messages = [
            ScpMessage(f"{node_id}: 중복되었습니다.", f"{node_id} is given twice")
            for node_id in duplicates
        ]
        raise make_bad_request("Duplicate", *messages)
    return [nodes[node_id] for node_id in ids]


def check_each_node(
    nodes: Sequence[GpuNode],
    is_fine: Callable[[GpuNode], bool],
    code: str,
    problem: Callable[[GpuNode], ScpMessage],
) -> None:
    """Raise `Refusal` 400 with `problem(node)` for every node that is not fine."""
    problems = [problem(node) for node in nodes if not is_fine(node)]
    if problems:
        raise make_bad_request(code, *problems)


def check_states(nodes: Sequence[GpuNode], now: float, *allowed: str) -> None:
    """Raise `Refusal` 400 for nodes in another state at `now` than the `allowed` ones."""
    allowed_states = ", ".join(allowed)
    check_each_node(
        nodes,
        lambda node: node.get_state(now) in allowed,
        "InvalidState",
        lambda node: ScpMessage(
            f"{node.name}: 현재 상태({node.get_state(now)})에서는 수행할 수 없습니다"
            f"(가능: {allowed_states}).",
            f"{node.name} is {node.get_state(now)}; this is possible when {allowed_states}",
        ),
    )


def check_unlocked(nodes: Sequence[GpuNode]) -> None:
    """Raise `Refusal` 400 for locked nodes.

    The document does not say what a lock refuses; for start and stop Samsung's Terraform provider
    v6 says so (`gpunode_resource.go`), for a deletion it is ours.
    """
    check_each_node(
        nodes,
        lambda node: not node.lock_enabled,
        "GpuNodeLocked",
        lambda node: ScpMessage(
            f"{node.name}: 잠금(Lock) 상태입니다. 잠금을 해제한 후 다시 시도하십시오.",
            f"{node.name} is locked: unlock it first",
        ),
    )


def check_joinable(fabric: Fabric, context: ScpRequestContext) -> None:
    """Raise `Refusal` 400 unless nodes may join the fabric: the fabric is RUNNING.

    With the setting `joining_while_creating` nodes may join in any state.
    """
    state = fabric.get_state(context.now)
    if state != "RUNNING" and not context.settings.joining_while_creating:
        raise make_refusal(
            "ClusterFabricNotReady",
            f"Cluster Fabric({fabric.name})의 상태가 {state}이므로 추가할 수 없습니다.",
            f"cluster fabric {fabric.name!r} is {state}: it takes members when it is RUNNING",
        )


def check_public_ips(inventory: ScpInventory, ids: Sequence[str]) -> None:
    """Raise `Refusal` 400 for public IPs that are repeated or in use by a node.

    A public IP is in use from the request on that assigns it.
    """
    live_nodes = inventory.list_live_nodes()
    used_ids = {
        public_ip_id
        for public_ip_id in ids
        if any(node.has_address(public_ip_id, inventory.now) for node in live_nodes)
    }
    problems = [
        ScpMessage(
            f"이미 사용 중인 Public IP({public_ip_id})입니다.",
            f"public IP {public_ip_id!r} is in use",
        )
        for public_ip_id in find_duplicates(ids, used_ids)
    ]
    if problems:
        raise make_bad_request("PublicIpInUse", *problems)


def find_duplicates(values: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """Return the values that are repeated or in `taken`, each once."""
    duplicates = (value for value in values if value in taken or values.count(value) > 1)
    return list(dict.fromkeys(duplicates))


_FIRST_PUBLIC_ADDRESS = IPv4Address("198.18.0.0")  # of the block for tests, RFC 2544
_PUBLIC_ADDRESS_COUNT = 2**17
_FIRST_STORAGE_ADDRESS = IPv4Address("10.252.128.0")  # of the document's examples
_STORAGE_BLOCK_SIZE = 2**13


class AddressAllocator:
    """Chooses the addresses of a create's subnet: requested ones, else the lowest free ones."""

    def __init__(self, body: CreateGpuNodes, live_nodes: Sequence[GpuNode]) -> None:
        taken = {
            node.identity.policy_ip
            for node in live_nodes
            if node.identity.network_id == body.subnet_id
        }
        taken |= {server.ip_address for server in body.server_details if server.ip_address}
        hosts = SUBNETS[body.subnet_id].network.hosts()
        # A generator: a subnet may have thousands of hosts, and a create needs five at most.
        self._free_addresses = (str(host) for host in hosts if str(host) not in taken)

    def allocate(self, server: ServerDetails) -> str:
        """Return the requested address of a server, or the lowest free one, never the same twice.

        Raises `Refusal` 400 when the subnet is full.
        """
        address = server.ip_address or next(self._free_addresses, None)
        if address is None:
            raise make_refusal(
                "SubnetIsFull",
                "Subnet에 사용 가능한 IP가 없습니다.",
                "the subnet has no free IP address left",
            )
        return address


def build_identity(body: CreateGpuNodes, server: ServerDetails, address: str) -> Identity:
    """Return the unchanging part of a node for `server`, with `address` in the body's subnet."""
    product = PRODUCTS[server.server_type_id]
    return Identity(
        gpu_node_name=server.gpu_node_name,
        image_id=body.image_id,
        image_version=IMAGES[body.image_id].name,
        init_script=body.init_script or "",
        root_account=body.os_user_id,
        product_type_id=product.product_id,
        server_type=product.name,
        region_id=body.region_id,
        vpc_id=body.vpc_id,
        network_id=body.subnet_id,
        node_pool_id=body.cluster_fabric_details.node_pool_id,
        policy_ip=address,
        pfs_ip=_compute_storage_addresses(body.subnet_id, address),
    )


def build_nat(public_ip_address_id: str) -> Nat:
    """Return the NAT of a public IP, with an address that is made up from the id."""
    digest = hashlib.sha256(public_ip_address_id.encode()).digest()
    offset = int.from_bytes(digest[:4]) % _PUBLIC_ADDRESS_COUNT
    return Nat(
        public_ip_address_id=public_ip_address_id, address=str(_FIRST_PUBLIC_ADDRESS + offset)
    )


def _compute_storage_addresses(subnet_id: str, address: str) -> list[str]:
    """Return two storage network addresses for a node with `address` in a subnet.

    No other node gets one of them.
    """
    # Each subnet has a block of its own; a node's place in its subnet gives its place in the block.
    block = list(SUBNETS).index(subnet_id) * _STORAGE_BLOCK_SIZE
    offset = int(IPv4Address(address)) - int(SUBNETS[subnet_id].network.network_address)
    return [str(_FIRST_STORAGE_ADDRESS + block + 2 * offset + index) for index in (0, 1)]


_STABLE_STATES = ("RUNNING", "STOPPED")


def delete_nodes(context: ScpRequestContext, ids: Sequence[str]) -> None:
    """Begin to terminate unlocked nodes, in any state.

    A second delete of a TERMINATING node changes nothing (ours). Raises `Refusal`: 404 for a
    missing node, 400 for a locked or repeated one; then no node changes.
    """
    nodes = require_nodes(context.inventory, ids)
    check_unlocked(nodes)
    for node in nodes:
        # A second delete must not prolong the first one.
        if node.gone_at is None:
            visible_seconds = context.settings.terminated_seconds
            context.inventory.save_node(
                node.plan_termination(context.start_change(), visible_seconds)
            )


def stop_nodes(context: ScpRequestContext, ids: Sequence[str]) -> None:
    """Begin to stop RUNNING and unlocked nodes.

    Raises `Refusal`: 404 for a missing node, 400 for a locked one, one in another state or one
    given twice; then nothing changes.
    """
    nodes = require_nodes(context.inventory, ids)
    check_unlocked(nodes)
    check_states(nodes, context.now, "RUNNING")
    for node in nodes:
        context.inventory.save_node(node.plan_stop(context.start_change()))


def start_nodes(context: ScpRequestContext, ids: Sequence[str]) -> None:
    """Begin to start STOPPED and unlocked nodes.

    Raises `Refusal`: 404 for a missing node, 400 for a locked one, one in another state or one
    given twice; then nothing changes.
    """
    nodes = require_nodes(context.inventory, ids)
    check_unlocked(nodes)
    check_states(nodes, context.now, "STOPPED")
    for node in nodes:
        context.inventory.save_node(node.plan_start(context.start_change()))


def lock_node(context: ScpRequestContext, node_id: str, *, enabled: bool) -> None:
    """Lock or unlock a node at once, in any state; a second time changes nothing.

    Raises `Refusal` 404.
    """
    (node,) = require_nodes(context.inventory, [node_id])
    context.inventory.save_node(node.set_lock(context.now, enabled=enabled))


def assign_nat(context: ScpRequestContext, node_id: str, public_ip_address_id: str) -> None:
    """Begin to assign a public IP to a RUNNING or STOPPED node without one.

    Raises `Refusal`: 404 without the node, 400 for another state, a node with a public IP, a
    malformed id or an IP in use.
    """
    (node,) = require_nodes(context.inventory, [node_id])
    check_states([node], context.now, *_STABLE_STATES)
    if node.get_nat(context.now) is not None:
        raise make_refusal(
            "NatAlreadyAssigned",
            f"{node.name}: 이미 Public NAT IP가 할당되어 있습니다.",
            f"{node.name} has a public NAT IP already",
        )
    if not re.fullmatch(PUBLIC_IP_ID_PATTERN, public_ip_address_id):
        raise make_bad_request("InvalidPublicIp", make_public_ip_message())
    check_public_ips(context.inventory, [public_ip_address_id])
    context.inventory.save_node(
        node.plan_nat(context.start_change(), build_nat(public_ip_address_id))
    )


def release_nat(context: ScpRequestContext, node_id: str) -> None:
    """Begin to release the public IP of a RUNNING or STOPPED node.

    Raises `Refusal`: 404 without the node, 400 for another state or a node without a public IP.
    """
    (node,) = require_nodes(context.inventory, [node_id])
    check_states([node], context.now, *_STABLE_STATES)
    if node.get_nat(context.now) is None:
        raise make_refusal(
            "NatNotAssigned",
            f"{node.name}: 할당된 Public NAT IP가 없습니다.",
            f"{node.name} has no public NAT IP",
        )
    context.inventory.save_node(node.plan_nat(context.start_change(), None))


def modify_members(context: ScpRequestContext, body: ModifyMembers) -> None:
    """Begin to move nodes from one fabric to another of the pool (user guide, 'Cluster fabric').

    Raises `Refusal`: 404 for a missing node or fabric, 400 if the fabrics are the same or in
    different pools, the second one takes no nodes now, or a node is repeated, not in the first
    fabric or neither RUNNING nor STOPPED; then no node moves.
    """
    inventory, now = context.inventory, context.now
    before = inventory.get_fabric(body.before_cluster_fabric_id)
    after = inventory.get_fabric(body.after_cluster_fabric_id)
    _check_same_pool(before, after)
    check_joinable(after, context)
    nodes = require_nodes(inventory, body.gpu_node_id_list)
    check_each_node(
        nodes,
        lambda node: node.get_membership(now).fabric_id == before.fabric_id,
        "NotAMember",
        lambda node: ScpMessage(
            f"{node.name}: Cluster Fabric({before.name})의 노드가 아닙니다.",
            f"{node.name} is not a member of cluster fabric {before.name!r}",
        ),
    )
    # The states are ours: the document has none for a move.
    check_states(nodes, now, *_STABLE_STATES)
    for node in nodes:
        inventory.save_node(node.plan_move(context.start_change(), after.to_membership()))


def _check_same_pool(before: Fabric, after: Fabric) -> None:
    """Raise `Refusal` 400 for a move within one fabric, or to a fabric of another pool."""
    if before.fabric_id == after.fabric_id:
        raise make_refusal(
            "SameClusterFabric",
            "변경 전후의 Cluster Fabric이 같습니다.",
            "before_cluster_fabric_id and after_cluster_fabric_id are the same",
        )
    if before.node_pool_id != after.node_pool_id:
        raise make_refusal(
            "OtherNodePool",
            "같은 노드 풀의 Cluster Fabric으로만 변경할 수 있습니다.",
            f"cluster fabric {after.name!r} is in node pool {after.node_pool_id!r}, "
            f"{before.name!r} in {before.node_pool_id!r}: members move within one pool",
        )
