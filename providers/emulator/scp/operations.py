"""What the API does to nodes that exist, without HTTP. A call is all or nothing.

Where the platform's document is silent the choice is ours and said at the place.
"""

import re
from collections.abc import Sequence

from gpuform.providers.emulator.scp.admission import PUBLIC_IP_ID, no_public_ip
from gpuform.providers.emulator.scp.errors import Message, refused
from gpuform.providers.emulator.scp.fabrics import Fabric
from gpuform.providers.emulator.scp.requests import ModifyMembers
from gpuform.providers.emulator.scp.rules import (
    Situation,
    check_all,
    check_joinable,
    check_public_ips,
    check_states,
    check_unlocked,
    chosen,
)
from gpuform.providers.emulator.scp.servers import nat_of

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
