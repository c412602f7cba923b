"""How a node differs from its declaration in what can be changed in place. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.providers.scp.nodes.planning import DeclaredNode, Fabric
from gpuform.providers.scp.nodes.states import power_of
from gpuform.schemas.scp.outputs import NodeOutputs


@dataclass(frozen=True)
class Difference:
    """One declared value that a node does not have."""

    field: str
    before: Any
    after: Any


def differences(node: NodeOutputs, wanted: DeclaredNode, fabric: Fabric) -> Iterator[Difference]:
    """In the order in which they are shown. A state that is open differs from nothing."""
    if not fabric.has(node):
        if fabric.id is not None:
            yield Difference("cluster_fabric_id", node.cluster_fabric_id, fabric.id)
        else:
            yield Difference("cluster_fabric_name", node.cluster_fabric_name, fabric.name)
    if wanted.nat_enabled is not None and wanted.nat_enabled != node.policy_use_nat:
        yield Difference("nat_enabled", node.policy_use_nat, wanted.nat_enabled)
    elif wanted.nat_enabled and has_other_public_ip(node, wanted):
        yield Difference(
            "public_ip_address_id", node.public_ip_address_id, wanted.public_ip_address_id
        )
    if wanted.lock_enabled is not None and wanted.lock_enabled != node.lock_enabled:
        yield Difference("lock_enabled", node.lock_enabled, wanted.lock_enabled)
    power = power_of(node.state)
    if power is not None and power != wanted.state:
        yield Difference("state", power, wanted.state)


def has_other_public_ip(node: NodeOutputs, wanted: DeclaredNode) -> bool:
    """Whether its public IP is known not to be the wanted one: the platform does not tell."""
    ids = (node.public_ip_address_id, wanted.public_ip_address_id)
    return None not in ids and ids[0] != ids[1]


def locked(names: Sequence[str]) -> str:
    """What to say of locked nodes."""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"GPU node {shown} is locked" if len(names) == 1 else f"GPU nodes {shown} are locked"


def is_stopped_by_force(node: NodeOutputs, wanted: DeclaredNode) -> bool:
    """Whether it is to be stopped while it is locked, and stays so."""
    is_stopped = wanted.state == "STOPPED" and power_of(node.state) == "RUNNING"
    return is_stopped and node.lock_enabled and wanted.lock_enabled is not False
