"""Create servers in a new fabric, or in a fabric that exists.

`routes` calls `create_nodes`. All rules but a full subnet are checked before anything is stored.
"""

import re

from gpuform.providers.emulator.clock import Timeline
from gpuform.providers.emulator.scp.catalogue import (
    POOLS,
    PRODUCTS,
    Pool,
    ScpMessage,
    make_bad_request,
    make_refusal,
)
from gpuform.providers.emulator.scp.nodes import (
    FABRIC_APPEARS_SECONDS,
    FABRIC_CREATION_SECONDS,
    Fabric,
    GpuNode,
    Membership,
    ScpInventory,
    plan_creation,
)
from gpuform.providers.emulator.scp.operations import (
    AddressAllocator,
    ScpRequestContext,
    build_identity,
    build_nat,
    check_joinable,
    check_public_ips,
    find_duplicates,
)
from gpuform.providers.emulator.scp.requests import (
    MIN_SERVERS,
    CreateGpuNodes,
    check_count,
    check_new_nodes,
)


def create_nodes(context: ScpRequestContext, body: CreateGpuNodes) -> list[GpuNode]:
    """Create a node for each server of a request and return the nodes in this order.

    Without a fabric id, a new fabric is created, too. Call this function within a transaction,
    which an error undoes. Raises `Refusal` 404 for an unknown fabric, 400 for everything else.
    """
    check_new_nodes(body, has_zones=context.has_zones)
    fabric_details = body.cluster_fabric_details
    joined_fabric = None
    if fabric_details.cluster_fabric_id:
        joined_fabric = _require_joinable_fabric(context, body, fabric_details.cluster_fabric_id)
    # A new fabric needs two servers; whether one may join an old fabric is a setting.
    is_one_enough = joined_fabric is not None and context.settings.joining_one_allowed
    check_count(len(body.server_details), 1 if is_one_enough else MIN_SERVERS)
    _check_names_and_addresses(context.inventory, body)
    _check_capacity(context, POOLS[fabric_details.node_pool_id], len(body.server_details))
    # From here on the store changes, which the view's transaction undoes if the subnet is full.
    fabric = joined_fabric or _create_fabric(context, body)
    memberships = [(context.now, fabric.to_membership())]
    if joined_fabric is None:
        # A new fabric gets its id only when it appears, two minutes after its nodes.
        hidden_membership = Membership(fabric_id=None, fabric_name=fabric.name)
        memberships = [
            (context.now, hidden_membership),
            (fabric.appears_at, fabric.to_membership()),
        ]
    return _store_nodes(context, body, memberships)


def _require_joinable_fabric(
    context: ScpRequestContext, body: CreateGpuNodes, fabric_id: str
) -> Fabric:
    """Return the fabric of `fabric_id`, to which the request adds nodes.

    Raises `Refusal`: 404 if missing, 400 if the body's name or pool differs or nodes cannot join
    now.
    """
    fabric_details = body.cluster_fabric_details
    fabric = context.inventory.get_fabric(fabric_id)
    for name, requested_value, fabric_value in (
        ("cluster_fabric_name", fabric_details.cluster_fabric_name, fabric.name),
        ("node_pool_id", fabric_details.node_pool_id, fabric.node_pool_id),
    ):
        if requested_value != fabric_value:
            raise make_refusal(
                "OtherClusterFabric",
                f"{name}({requested_value})이 Cluster Fabric의 값({fabric_value})과 다릅니다.",
                f"{name} {requested_value!r} is not that of the cluster fabric ({fabric_value!r})",
            )
    check_joinable(fabric, context)
    return fabric


def _create_fabric(context: ScpRequestContext, body: CreateGpuNodes) -> Fabric:
    """Store a new fabric, which appears after two minutes, and return the fabric.

    A stuck one stays CREATING; the first server decides the fabric's server type. Raises `Refusal`
    400 for a name in use within the pool.
    """
    fabric_details, inventory = body.cluster_fabric_details, context.inventory
    if inventory.has_fabric_named(fabric_details.cluster_fabric_name, fabric_details.node_pool_id):
        raise make_refusal(
            "DuplicateClusterFabricName",
            f"이미 사용 중인 Cluster Fabric 이름({fabric_details.cluster_fabric_name})입니다.",
            f"cluster fabric name {fabric_details.cluster_fabric_name!r} is in use "
            f"in node pool {fabric_details.node_pool_id!r}",
        )
    product = PRODUCTS[body.server_details[0].server_type_id]
    appears_at = context.now + FABRIC_APPEARS_SECONDS
    states = [(appears_at, "CREATING")]
    # A stuck create stays CREATING: no second state is planned.
    if not context.effects.is_stuck:
        states.append((appears_at + FABRIC_CREATION_SECONDS, "RUNNING"))
    fabric = Fabric(
        fabric_id=inventory.create_id(),
        name=fabric_details.cluster_fabric_name,
        node_pool_id=fabric_details.node_pool_id,
        region_id=body.region_id,
        product_id=product.product_id,
        server_type=product.name,
        states=states,
    )
    inventory.save_fabric(fabric)
    return fabric


def _check_names_and_addresses(inventory: ScpInventory, body: CreateGpuNodes) -> None:
    """Raise `Refusal` 400 for node names, addresses and public IPs in use or repeated.

    Addresses are compared within the subnet, and public IPs only for servers with NAT. That names
    are unique is ours.
    """
    live_nodes, servers = inventory.list_live_nodes(), body.server_details
    used_addresses = {
        node.identity.policy_ip for node in live_nodes if node.identity.network_id == body.subnet_id
    }
    names = {node.name for node in live_nodes}
    conflicts = {
        "gpu_node_name": find_duplicates([server.gpu_node_name for server in servers], names),
        "ip_address": find_duplicates(
            [server.ip_address for server in servers if server.ip_address], used_addresses
        ),
    }
    problems = [
        ScpMessage(f"{name}({value}): 이미 사용 중입니다.", f"{name} {value!r} is in use")
        for name, values in conflicts.items()
        for value in values
    ]
    if problems:
        raise make_bad_request("Duplicate", *problems)
    check_public_ips(
        inventory, [server.public_ip_address_id or "" for server in servers if server.nat_enabled]
    )


def _check_capacity(context: ScpRequestContext, pool: Pool, count: int) -> None:
    """Raise `Refusal` 400 (the code is ours) for more servers than the pool has free.

    With an injected fault of capacity the pool has none free.
    """
    limit = context.settings.capacity.get(pool.pool_id, pool.capacity)
    live_nodes = context.inventory.list_live_nodes()
    used = sum(node.identity.node_pool_id == pool.pool_id for node in live_nodes)
    free = 0 if context.effects.is_out_of_stock else max(0, limit - used)
    if count > free:
        raise make_refusal(
            "InsufficientCapacity",
            f"노드 풀({pool.pool_id})의 가용 자원이 부족합니다(요청: {count}대, 가용: {free}대).",
            f"Insufficient capacity in node pool {pool.pool_id}: "
            f"{count} requested, {free} available.",
        )


def _store_nodes(
    context: ScpRequestContext, body: CreateGpuNodes, memberships: Timeline[Membership]
) -> list[GpuNode]:
    """Store and return the nodes of all servers of the request.

    Raises `Refusal` 400 when the subnet has no free address left.
    """
    inventory, now = context.inventory, context.now
    addresses = AddressAllocator(body, inventory.list_live_nodes())
    nodes = [
        GpuNode(
            node_id=inventory.create_id(),
            identity=build_identity(body, server, addresses.allocate(server)),
            lock_enabled=bool(body.lock_enabled),
            created_at=now,
            modified_at=now,
            appears_at=now + context.settings.appears_seconds,
            states=plan_creation(
                context.start_change(),
                is_failing=_is_failing(context.effects.failing_pattern, server.gpu_node_name),
            ),
            memberships=memberships,
            nats=[
                (now, build_nat(server.public_ip_address_id or "") if server.nat_enabled else None)
            ],
        )
        for server in body.server_details
    ]
    for node in nodes:
        inventory.save_node(node)
    return nodes


def _is_failing(pattern: str | None, name: str) -> bool:
    """Return whether an injected fault's pattern matches a node's name; without a pattern False."""
    return pattern is not None and re.search(pattern, name) is not None
