"""Move nodes between fabrics, and refuse moves that would end a fabric before anything is sent.

While planning the names tell whose nodes are in a fabric; before an update the ids do.

A fabric exists from its first node to its last and cannot be made alone (SCP user guide, 'Cluster
fabric').
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import AmbiguousObject, GpuformError, NotFound
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.declared import is_declared
from gpuform.providers.scp.nodes.planning import LEAST, DeclaredPool, Plan
from gpuform.schemas.models import Problem
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.scp.node_rules import ALONE, node_name
from gpuform.schemas.values import contains_unknown


def find_fabric(client: ScpClient, node_pool_id: str, name: str) -> wire.ClusterFabric | None:
    """The fabric of a name in a vendor pool; None as long as it has no members."""
    listed = client.list_fabrics(cluster_fabric_name=name, node_pool_id=node_pool_id)
    # That the filters want whole names is not documented.
    found = [
        each for each in listed if (each.cluster_name, each.node_pool_id) == (name, node_pool_id)
    ]
    if len(found) > 1:
        ids = ", ".join(each.id for each in found)
        raise AmbiguousObject(
            f"several fabrics of {node_pool_id} are named {name!r} ({ids})",
            hint="declare cluster_fabric_id, or rename one of them",
        )
    return found[0] if found else None


def fabric_of_id(client: ScpClient, fabric_id: str) -> wire.ClusterFabric | None:
    """The fabric of an id; None when there is none."""
    try:
        return client.get_fabric(fabric_id)
    except NotFound:
        return None


def no_members(name: str) -> str:
    """Why nothing can be moved to a fabric that does not exist."""
    return (
        f"fabric {name} has no members, so it does not exist: nodes move to a fabric that has "
        "members; make one there first"
    )


def refuse_other_pool(fabric: wire.ClusterFabric, node_pool_id: str) -> None:
    """Raises GpuformError for a fabric of another vendor pool."""
    if fabric.node_pool_id != node_pool_id:
        raise GpuformError(other_pool(fabric, node_pool_id))


def other_pool(fabric: wire.ClusterFabric, node_pool_id: str) -> str:
    """Why a fabric cannot be used by nodes of a vendor pool."""
    return (
        f"fabric {fabric.cluster_name} ({fabric.id}) is of vendor pool {fabric.node_pool_id}, the "
        f"nodes are of {node_pool_id}: use a fabric of that one"
    )


def pool_problems(
    client: ScpClient, call: ProviderContext, values: Mapping[str, Any]
) -> Iterator[Problem]:
    """What fabrics say against a pool: its declared one, one to move to, one to make."""
    pool, name = values.get("node_pool_id"), values.get("cluster_fabric_name")
    fabric_id, old = values.get("cluster_fabric_id"), call.known
    if not isinstance(pool, str) or not isinstance(name, str) or contains_unknown(fabric_id):
        return
    before = old.get("cluster_fabric_name") if old.get("node_pool_id") == pool else None
    if fabric_id is not None:
        yield from _declared_id(client, pool, name, fabric_id)
    elif before not in (None, name):
        if find_fabric(client, pool, name) is None:
            yield Problem("cluster_fabric_name", no_members(name))
    elif before is None and _number(values) < LEAST:
        fabric = find_fabric(client, pool, name)
        if fabric is None or not _others(fabric, _names(values)):
            yield Problem(
                "nodes" if values.get("nodes") else "count",
                f"one server cannot make the fabric {name}: the platform makes 2 to 5 at a time; "
                "declare 2 or more, or the cluster_fabric_id of a fabric that exists",
            )
    if isinstance(before, str) and before != name:
        yield from _emptied(client, call, pool, before, _names(old))


def node_problems(
    client: ScpClient, call: ProviderContext, values: Mapping[str, Any]
) -> Iterator[Problem]:
    """What fabrics say against a node: the one to join, and the one that it leaves."""
    fabric_id, name = values.get("cluster_fabric_id"), values.get("gpu_node_name")
    before = call.known.get("cluster_fabric_id")
    if not isinstance(fabric_id, str) or fabric_id == before:
        return
    fabric = fabric_of_id(client, fabric_id)
    if fabric is None:
        yield Problem("cluster_fabric_id", no_fabric(fabric_id))
        return
    reason = why_not_to(client, call, before, fabric, {name})
    if reason:
        yield Problem("cluster_fabric_id", reason)


def why_not_to(
    client: ScpClient,
    call: ProviderContext,
    source_id: str | None,
    fabric: wire.ClusterFabric,
    names: Collection[str | None],
) -> str | None:
    """Why the nodes of these names cannot move from one fabric to another one, if so."""
    if source_id in (None, fabric.id):
        return None
    source = fabric_of_id(client, str(source_id))
    if source is None:
        return None
    if source.node_pool_id != fabric.node_pool_id:
        return other_pool(fabric, source.node_pool_id)
    if is_declared(call, source.node_pool_id, source.cluster_name) and not _others(source, names):
        return _would_empty(source.cluster_name)
    return None


def no_fabric(fabric_id: str) -> str:
    """Why a node cannot join a fabric that does not exist."""
    return (
        f"there is no fabric {fabric_id}: a fabric exists from its first node to its last, and "
        f"{ALONE}"
    )


def refuse_moves(
    client: ScpClient, call: ProviderContext, want: NodePoolInputs, found: Plan
) -> None:
    """Before an update: raises GpuformError for a move or a replacement that would end wrongly."""
    fabric = DeclaredPool.of(want.dump_declared()).fabric
    moved = [node for node, _ in found.keep if not fabric.has(node)]
    if moved:
        _refuse_target(client, want)
    leaving = {node.id for node in (*moved, *found.ending)}
    for source in sorted({node.cluster_fabric_id or "" for node in (*moved, *found.ending)} - {""}):
        emptied = fabric_of_id(client, source)
        if emptied is None or any(m.gpu_node_id not in leaving for m in emptied.gpu_node_details):
            continue
        if moved and is_declared(call, want.node_pool_id, emptied.cluster_name):
            raise GpuformError(_would_empty(emptied.cluster_name))
        new = len(found.create) + len(found.replace)
        if 0 < new < LEAST and not found.keep:
            raise GpuformError(
                f"this change deletes the last node of fabric {emptied.cluster_name}, and with it "
                "the fabric, which one server cannot make anew",
                hint="add a node first, in an `up` of its own",
            )


def _refuse_target(client: ScpClient, want: NodePoolInputs) -> None:
    if want.cluster_fabric_id is not None:
        for problem in _declared_id(
            client, want.node_pool_id, want.cluster_fabric_name, want.cluster_fabric_id
        ):
            raise GpuformError(str(problem))
    elif find_fabric(client, want.node_pool_id, want.cluster_fabric_name) is None:
        raise GpuformError(f"cluster_fabric_name: {no_members(want.cluster_fabric_name)}")


def _declared_id(client: ScpClient, pool: str, name: str, fabric_id: str) -> Iterator[Problem]:
    fabric = fabric_of_id(client, fabric_id)
    if fabric is None:
        yield Problem(
            "cluster_fabric_id",
            f"there is no fabric {fabric_id}: a fabric exists from its first node to its last; "
            "without the id, the pool makes it",
        )
    elif fabric.node_pool_id != pool:
        yield Problem("cluster_fabric_id", other_pool(fabric, pool))
    elif fabric.cluster_name != name:
        yield Problem(
            "cluster_fabric_name",
            f"the fabric {fabric_id} is named {fabric.cluster_name}: declare that name",
        )


def _emptied(
    client: ScpClient, call: ProviderContext, pool: str, name: str, own: Collection[str]
) -> Iterator[Problem]:
    """A move of all members of a fabric that the program declares."""
    if is_declared(call, pool, name):
        fabric = find_fabric(client, pool, name)
        if fabric is not None and not _others(fabric, own):
            yield Problem("cluster_fabric_name", _would_empty(name))


def _would_empty(name: str) -> str:
    return (
        f"the move would take the last node from fabric {name}, which this program declares and "
        "which would be gone: leave a node there, or remove the declaration of the fabric"
    )


def _others(fabric: wire.ClusterFabric, own: Collection[str | None]) -> bool:
    """Whether a fabric has members that are not of these names."""
    return any(each.gpu_node_name not in own for each in fabric.gpu_node_details)


def _names(values: Mapping[str, Any]) -> set[str]:
    """The names that the nodes of a pool can have."""
    prefix, nodes = values.get("gpu_node_name_prefix"), values.get("nodes")
    if isinstance(nodes, Mapping):
        named = ((key, node) for key, node in nodes.items() if isinstance(node, Mapping))
        return {str(node_name(key, node, str(prefix))) for key, node in named}
    return {f"{prefix}-{number:03}" for number in range(1, 1000)}


def _number(values: Mapping[str, Any]) -> int:
    """How many nodes are declared; many while that is not known."""
    count, nodes = values.get("count"), values.get("nodes")
    if isinstance(nodes, Mapping):
        return len(nodes)
    return int(count) if isinstance(count, int | float) else LEAST
