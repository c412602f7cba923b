"""A create: servers in a new fabric, or joining one that exists."""

import re

from gpuform.providers.emulator.clock import Timeline
from gpuform.providers.emulator.scp.catalogue import POOLS, PRODUCTS, Pool
from gpuform.providers.emulator.scp.errors import Message, refused
from gpuform.providers.emulator.scp.nodes import (
    CREATION_SECONDS,
    FABRIC_APPEARS_SECONDS,
    Estate,
    Fabric,
    GpuNode,
    Membership,
    creation,
)
from gpuform.providers.emulator.scp.operations import (
    Addresses,
    Situation,
    check_joinable,
    check_public_ips,
    identity_of,
    nat_of,
    repeated,
)
from gpuform.providers.emulator.scp.requests import (
    LEAST_SERVERS,
    CreateGpuNodes,
    check_count,
    check_new_nodes,
)


def create_nodes(situation: Situation, body: CreateGpuNodes) -> list[GpuNode]:
    """In the order of the servers. Raises `ApiError`."""
    check_new_nodes(body)
    asked = body.cluster_fabric_details
    joined = None
    if asked.cluster_fabric_id:
        joined = _joined(situation, body, asked.cluster_fabric_id)
    is_one_enough = joined is not None and situation.settings.joining_one_allowed
    check_count(len(body.server_details), 1 if is_one_enough else LEAST_SERVERS)
    _check_free(situation.estate, body)
    _check_capacity(situation, POOLS[asked.node_pool_id], len(body.server_details))
    fabric = joined or _new_fabric(situation, body)
    memberships = [(situation.now, fabric.membership())]
    if joined is None:
        unseen = Membership(fabric_id=None, fabric_name=fabric.name)
        memberships = [(situation.now, unseen), (fabric.appears_at, fabric.membership())]
    return _made(situation, body, memberships)


def _joined(situation: Situation, body: CreateGpuNodes, fabric_id: str) -> Fabric:
    asked = body.cluster_fabric_details
    fabric = situation.estate.fabric(fabric_id)
    for name, given, own in (
        ("cluster_fabric_name", asked.cluster_fabric_name, fabric.name),
        ("node_pool_id", asked.node_pool_id, fabric.node_pool_id),
    ):
        if given != own:
            raise refused(
                "OtherClusterFabric",
                Message(
                    f"{name}({given})이 Cluster Fabric의 값({own})과 다릅니다.",
                    f"{name} {given!r} is not that of the cluster fabric ({own!r})",
                ),
            )
    check_joinable(fabric, situation)
    return fabric


def _new_fabric(situation: Situation, body: CreateGpuNodes) -> Fabric:
    asked, estate = body.cluster_fabric_details, situation.estate
    if estate.has_fabric_named(asked.cluster_fabric_name, asked.node_pool_id):
        raise refused(
            "DuplicateClusterFabricName",
            Message(
                f"이미 사용 중인 Cluster Fabric 이름({asked.cluster_fabric_name})입니다.",
                f"cluster fabric name {asked.cluster_fabric_name!r} is in use in node pool "
                f"{asked.node_pool_id!r}",
            ),
        )
    product = PRODUCTS[body.server_details[0].server_type_id]
    appears = situation.now + FABRIC_APPEARS_SECONDS
    states = [(appears, "CREATING")]
    if not situation.trouble.is_stuck:
        states.append((appears + CREATION_SECONDS, "RUNNING"))
    fabric = Fabric(
        fabric_id=estate.new_id(),
        name=asked.cluster_fabric_name,
        node_pool_id=asked.node_pool_id,
        region_id=body.region_id,
        product_id=product.product_id,
        server_type=product.name,
        states=states,
    )
    estate.keep_fabric(fabric)
    return fabric


def _check_free(estate: Estate, body: CreateGpuNodes) -> None:
    """A name and an address are those of one live node (that names are is ours)."""
    live, servers = estate.live_nodes(), body.server_details
    beside = {
        node.identity.policy_ip for node in live if node.identity.network_id == body.subnet_id
    }
    names = {node.name for node in live}
    taken = {
        "gpu_node_name": repeated([each.gpu_node_name for each in servers], names),
        "ip_address": repeated([each.ip_address for each in servers if each.ip_address], beside),
    }
    problems = [
        Message(f"{name}({value}): 이미 사용 중입니다.", f"{name} {value!r} is in use")
        for name, values in taken.items()
        for value in values
    ]
    if problems:
        raise refused("Duplicate", *problems)
    check_public_ips(
        estate, [each.public_ip_address_id or "" for each in servers if each.nat_enabled]
    )


def _check_capacity(situation: Situation, pool: Pool, wanted: int) -> None:
    """A pool without room: the document names no code, so 400 and a text (ours)."""
    limit = situation.settings.capacity.get(pool.pool_id, pool.capacity)
    live = situation.estate.live_nodes()
    used = sum(node.identity.node_pool_id == pool.pool_id for node in live)
    free = 0 if situation.trouble.is_out_of_stock else max(0, limit - used)
    if wanted > free:
        raise refused(
            "InsufficientCapacity",
            Message(
                f"노드 풀({pool.pool_id})의 가용 자원이 부족합니다"
                f"(요청: {wanted}대, 가용: {free}대).",
                f"Insufficient capacity in node pool {pool.pool_id}: "
                f"{wanted} requested, {free} available.",
            ),
        )


def _made(
    situation: Situation, body: CreateGpuNodes, memberships: Timeline[Membership]
) -> list[GpuNode]:
    estate, now = situation.estate, situation.now
    addresses = Addresses(body, estate.live_nodes())
    made = [
        GpuNode(
            node_id=estate.new_id(),
            identity=identity_of(body, server, addresses.next_for(server)),
            lock_enabled=bool(body.lock_enabled),
            created_at=now,
            modified_at=now,
            appears_at=now + situation.settings.appears_seconds,
            states=creation(
                situation.change(),
                is_failing=_is_failing(situation.trouble.failing_pattern, server.gpu_node_name),
            ),
            memberships=memberships,
            nats=[(now, nat_of(server.public_ip_address_id or "") if server.nat_enabled else None)],
        )
        for server in body.server_details
    ]
    for node in made:
        estate.keep_node(node)
    return made


def _is_failing(pattern: str | None, name: str) -> bool:
    return pattern is not None and re.search(pattern, name) is not None
