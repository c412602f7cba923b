"""Change nodes that exist, without HTTP.

A call is all or nothing: a broken rule is a 400 before anything changes.

Where the platform's document is silent the choice is ours and said at the place.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address

from gpuform.providers.emulator.routing import FaultEffects
from gpuform.providers.emulator.scp.access import Settings
from gpuform.providers.emulator.scp.catalogue import IMAGES, PRODUCTS, SUBNETS
from gpuform.providers.emulator.scp.errors import ApiError, Message, no_node, refused
from gpuform.providers.emulator.scp.nodes import Change, Estate, Fabric, GpuNode, Identity, Nat
from gpuform.providers.emulator.scp.requests import (
    PUBLIC_IP_ID,
    CreateGpuNodes,
    ModifyMembers,
    ServerDetails,
    no_public_ip,
)


@dataclass(frozen=True)
class Situation:
    """In which a request finds the platform."""

    estate: Estate
    settings: Settings
    trouble: FaultEffects

    @property
    def now(self) -> float:
        return self.estate.now

    def change(self) -> Change:
        return Change(
            now=self.now,
            since=self.now + self.settings.reaction_seconds,
            is_stuck=self.trouble.is_stuck,
        )


def chosen(estate: Estate, ids: Sequence[str]) -> list[GpuNode]:
    """The live nodes of `ids`. Raises `ApiError` 404 when one is missing, 400 for one twice."""
    live = (node for node in estate.live_nodes() if node.has_appeared(estate.now))
    nodes = {node.node_id: node for node in live}
    missing = [each for each in ids if each not in nodes]
    if missing:
        told = [message for each in missing for message in no_node(each).messages]
        raise ApiError(404, "GpuNodeNotFound", *told)
    twice = repeated(ids)
    if twice:
        told = [Message(f"{each}: 중복되었습니다.", f"{each} is given twice") for each in twice]
        raise refused("Duplicate", *told)
    return [nodes[each] for each in ids]


def check_all(
    nodes: Sequence[GpuNode],
    is_fine: Callable[[GpuNode], bool],
    code: str,
    problem: Callable[[GpuNode], Message],
) -> None:
    problems = [problem(node) for node in nodes if not is_fine(node)]
    if problems:
        raise refused(code, *problems)


def check_states(nodes: Sequence[GpuNode], now: float, *allowed: str) -> None:
    wanted = ", ".join(allowed)
    check_all(
        nodes,
        lambda node: node.state(now) in allowed,
        "InvalidState",
        lambda node: Message(
            f"{node.name}: 현재 상태({node.state(now)})에서는 수행할 수 없습니다(가능: {wanted}).",
            f"{node.name} is {node.state(now)}; this is possible when {wanted}",
        ),
    )


def check_unlocked(nodes: Sequence[GpuNode]) -> None:
    """That a lock refuses stop and delete, and how, is ours: the document only names locks."""
    check_all(
        nodes,
        lambda node: not node.lock_enabled,
        "GpuNodeLocked",
        lambda node: Message(
            f"{node.name}: 잠금(Lock) 상태입니다. 잠금을 해제한 후 다시 시도하십시오.",
            f"{node.name} is locked: unlock it first",
        ),
    )


def check_joinable(fabric: Fabric, situation: Situation) -> None:
    state = fabric.state(situation.now)
    if state != "RUNNING" and not situation.settings.joining_while_creating:
        raise refused(
            "ClusterFabricNotReady",
            Message(
                f"Cluster Fabric({fabric.name})의 상태가 {state}이므로 추가할 수 없습니다.",
                f"cluster fabric {fabric.name!r} is {state}: it takes members when it is RUNNING",
            ),
        )


def check_public_ips(estate: Estate, ids: Sequence[str]) -> None:
    """A public IP serves one node, from the request on that assigns it."""
    live = estate.live_nodes()
    held = {each for each in ids if any(node.holds_address(each, estate.now) for node in live)}
    problems = [
        Message(f"이미 사용 중인 Public IP({each})입니다.", f"public IP {each!r} is in use")
        for each in repeated(ids, held)
    ]
    if problems:
        raise refused("PublicIpInUse", *problems)


def repeated(wanted: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """What is wanted twice, or is taken already; each once."""
    found = (each for each in wanted if each in taken or wanted.count(each) > 1)
    return list(dict.fromkeys(found))


_PUBLIC = IPv4Address("198.18.0.0")  # of the block for tests, RFC 2544
_PUBLIC_SIZE = 2**17
_STORAGE = IPv4Address("10.252.128.0")  # of the document's examples
_STORAGE_BLOCK = 2**13


class Addresses:
    """The addresses of a create's subnet: those asked for, else the lowest that nobody has."""

    def __init__(self, body: CreateGpuNodes, live: Sequence[GpuNode]) -> None:
        taken = {
            node.identity.policy_ip for node in live if node.identity.network_id == body.subnet_id
        }
        taken |= {server.ip_address for server in body.server_details if server.ip_address}
        hosts = SUBNETS[body.subnet_id].network.hosts()
        self._free = (str(host) for host in hosts if str(host) not in taken)

    def next_for(self, server: ServerDetails) -> str:
        """Raises `ApiError` 400 when the subnet is full."""
        address = server.ip_address or next(self._free, None)
        if address is None:
            raise refused(
                "SubnetIsFull",
                Message(
                    "Subnet에 사용 가능한 IP가 없습니다.", "the subnet has no free IP address left"
                ),
            )
        return address


def identity_of(body: CreateGpuNodes, server: ServerDetails, address: str) -> Identity:
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
        pfs_ip=_storage_addresses(body.subnet_id, address),
    )


def nat_of(public_ip_address_id: str) -> Nat:
    """The address behind an id is made up; the same for the same id."""
    digest = hashlib.sha256(public_ip_address_id.encode()).digest()
    offset = int.from_bytes(digest[:4]) % _PUBLIC_SIZE
    return Nat(public_ip_address_id=public_ip_address_id, address=str(_PUBLIC + offset))


def _storage_addresses(subnet_id: str, address: str) -> list[str]:
    """Two for each node, different for all nodes."""
    block = list(SUBNETS).index(subnet_id) * _STORAGE_BLOCK
    offset = int(IPv4Address(address)) - int(SUBNETS[subnet_id].network.network_address)
    return [str(_STORAGE + block + 2 * offset + at) for at in (0, 1)]


_AT_REST = ("RUNNING", "STOPPED")


def delete_nodes(situation: Situation, ids: Sequence[str]) -> None:
    """From any state; once more is no error (the platform's answer to that is unknown)."""
    nodes = chosen(situation.estate, ids)
    check_unlocked(nodes)
    for node in nodes:
        if node.gone_at is None:
            shown = situation.settings.terminated_seconds
            situation.estate.keep_node(node.terminated(situation.change(), shown))


def stop_nodes(situation: Situation, ids: Sequence[str]) -> None:
    nodes = chosen(situation.estate, ids)
    check_unlocked(nodes)
    check_states(nodes, situation.now, "RUNNING")
    for node in nodes:
        situation.estate.keep_node(node.stopped(situation.change()))


def start_nodes(situation: Situation, ids: Sequence[str]) -> None:
    nodes = chosen(situation.estate, ids)
    check_states(nodes, situation.now, "STOPPED")
    for node in nodes:
        situation.estate.keep_node(node.started(situation.change()))


def lock_node(situation: Situation, node_id: str, *, enabled: bool) -> None:
    """At once, in any state; a second time changes nothing."""
    (node,) = chosen(situation.estate, [node_id])
    situation.estate.keep_node(node.locked(situation.now, enabled=enabled))


def assign_nat(situation: Situation, node_id: str, public_ip_address_id: str) -> None:
    (node,) = chosen(situation.estate, [node_id])
    check_states([node], situation.now, *_AT_REST)
    if node.nat(situation.now) is not None:
        raise refused(
            "NatAlreadyAssigned",
            Message(
                f"{node.name}: 이미 Public NAT IP가 할당되어 있습니다.",
                f"{node.name} has a public NAT IP already",
            ),
        )
    if not re.fullmatch(PUBLIC_IP_ID, public_ip_address_id):
        raise refused("InvalidPublicIp", no_public_ip())
    check_public_ips(situation.estate, [public_ip_address_id])
    situation.estate.keep_node(node.with_nat(situation.change(), nat_of(public_ip_address_id)))


def release_nat(situation: Situation, node_id: str) -> None:
    (node,) = chosen(situation.estate, [node_id])
    check_states([node], situation.now, *_AT_REST)
    if node.nat(situation.now) is None:
        raise refused(
            "NatNotAssigned",
            Message(
                f"{node.name}: 할당된 Public NAT IP가 없습니다.",
                f"{node.name} has no public NAT IP",
            ),
        )
    situation.estate.keep_node(node.with_nat(situation.change(), None))


def modify_members(situation: Situation, body: ModifyMembers) -> None:
    """Only between fabrics of one node pool (user guide, 'Cluster fabric')."""
    estate, now = situation.estate, situation.now
    before = estate.fabric(body.before_cluster_fabric_id)
    after = estate.fabric(body.after_cluster_fabric_id)
    _check_one_pool(before, after)
    check_joinable(after, situation)
    nodes = chosen(estate, body.gpu_node_id_list)
    check_all(
        nodes,
        lambda node: node.membership(now).fabric_id == before.fabric_id,
        "NotAMember",
        lambda node: Message(
            f"{node.name}: Cluster Fabric({before.name})의 노드가 아닙니다.",
            f"{node.name} is not a member of cluster fabric {before.name!r}",
        ),
    )
    check_states(nodes, now, *_AT_REST)
    for node in nodes:
        estate.keep_node(node.moved(situation.change(), after.membership()))


def _check_one_pool(before: Fabric, after: Fabric) -> None:
    if before.fabric_id == after.fabric_id:
        raise refused(
            "SameClusterFabric",
            Message(
                "변경 전후의 Cluster Fabric이 같습니다.",
                "before_cluster_fabric_id and after_cluster_fabric_id are the same",
            ),
        )
    if before.node_pool_id != after.node_pool_id:
        raise refused(
            "OtherNodePool",
            Message(
                "같은 노드 풀의 Cluster Fabric으로만 변경할 수 있습니다.",
                f"cluster fabric {after.name!r} is in node pool {after.node_pool_id!r}, "
                f"{before.name!r} in {before.node_pool_id!r}: members move within one pool",
            ),
        )
