"""Refuse moves that would end a fabric, before anything is sent, and find fabrics.

Planning compares the names of nodes in a fabric, an update their ids: while planning, new nodes
have no id. A fabric exists from its first node to its last and cannot be created alone (SCP user
guide, 'Cluster fabric').

Resources know nothing of each other: `FabricOperations` records each fabric that it checks, so that
a move does not empty one of them. An engine's run has its own record; Pulumi's host, which serves
one run, has one for its process.
"""

import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import AmbiguousObject, GpuformError, NotFound
from gpuform.providers.records import Intents
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes.planning import MIN_FABRIC_SIZE, DeclaredPool, PoolPlan
from gpuform.schemas.models import Problem
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.scp.node_rules import NEEDS_NODE_POOL, get_node_name
from gpuform.schemas.values import contains_unknown

FabricKey = tuple[str, str]
"""Vendor pool and name of a fabric."""

_fabrics_by_run: WeakKeyDictionary[Intents, set[FabricKey]] = WeakKeyDictionary()
_fabrics_of_process: set[FabricKey] = set()
_lock = threading.Lock()


def record_declared_fabric(context: ProviderContext, node_pool_id: str, name: str) -> None:
    """Record a fabric, by vendor pool and name, as declared by the running program."""
    with _lock:
        _get_declared_fabrics(context).add((node_pool_id, name))


def is_fabric_declared(context: ProviderContext, node_pool_id: str, name: str) -> bool:
    """Return True if the running program has declared this fabric so far."""
    with _lock:
        return (node_pool_id, name) in _get_declared_fabrics(context)


def _get_declared_fabrics(context: ProviderContext) -> set[FabricKey]:
    """Return the set of fabrics declared so far in this run, to read or to extend under `_lock`."""
    # Pulumi's host serves one run and gives no answers to store: its process is the run.
    is_only_run = context.urn is None or context.is_pulumi_host
    return (
        _fabrics_of_process if is_only_run else _fabrics_by_run.setdefault(context.intents, set())
    )


def find_fabric(client: ScpClient, node_pool_id: str, name: str) -> wire.ClusterFabric | None:
    """Return the fabric of a name in a vendor pool; None as long as the fabric has no members.

    Raises:
        AmbiguousObject: the vendor pool has several fabrics of the name.
    """
    listed_fabrics = client.list_fabrics(cluster_fabric_name=name, node_pool_id=node_pool_id)
    # That the filters want whole names is not documented.
    matching_fabrics = [
        fabric
        for fabric in listed_fabrics
        if (fabric.cluster_name, fabric.node_pool_id) == (name, node_pool_id)
    ]
    if len(matching_fabrics) > 1:
        ids = ", ".join(fabric.id for fabric in matching_fabrics)
        raise AmbiguousObject(
            f"several fabrics of {node_pool_id} are named {name!r} ({ids})",
            hint="declare cluster_fabric_id, or rename one of them",
        )
    return matching_fabrics[0] if matching_fabrics else None


def find_fabric_by_id(client: ScpClient, fabric_id: str) -> wire.ClusterFabric | None:
    """Return the fabric with the id `fabric_id`, or None."""
    try:
        return client.get_fabric(fabric_id)
    except NotFound:
        return None


def describe_empty_fabric(name: str) -> str:
    """Return why no node can move to a fabric without members, for messages."""
    return (
        f"fabric {name} not found: it has no members, and nodes move only to a fabric that has "
        "members; create a node there first"
    )


def refuse_other_pool(fabric: wire.ClusterFabric, node_pool_id: str) -> None:
    """Raise GpuformError if the fabric belongs to another vendor pool."""
    if fabric.node_pool_id != node_pool_id:
        raise GpuformError(describe_other_pool(fabric, node_pool_id))


def describe_other_pool(fabric: wire.ClusterFabric, node_pool_id: str) -> str:
    """Return why nodes of a vendor pool cannot use a fabric of another one, for messages."""
    return (
        f"fabric {fabric.cluster_name} ({fabric.id}) is in the vendor pool {fabric.node_pool_id}, "
        f"and the nodes are in {node_pool_id}: use a fabric of {node_pool_id}"
    )


def find_pool_problems(
    client: ScpClient, context: ProviderContext, values: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield problems of the fabrics a pool declares, joins, creates or leaves.

    That is: the declared fabric is missing or does not fit, one server alone cannot create a new
    fabric, or a declared fabric would lose its last node. Nothing is checked while vendor pool or
    fabric are unknown.
    """
    node_pool_id, name = values.get("node_pool_id"), values.get("cluster_fabric_name")
    fabric_id, stored = values.get("cluster_fabric_id"), context.stored_properties
    if (
        not isinstance(node_pool_id, str)
        or not isinstance(name, str)
        or contains_unknown(fabric_id)
    ):
        return
    # Another vendor pool replaces the whole pool: nothing moves then.
    old_name = (
        stored.get("cluster_fabric_name") if stored.get("node_pool_id") == node_pool_id else None
    )
    if fabric_id is not None:
        yield from _find_declared_fabric_problems(client, node_pool_id, name, fabric_id)
    elif old_name not in (None, name):
        if find_fabric(client, node_pool_id, name) is None:
            yield Problem("cluster_fabric_name", describe_empty_fabric(name))
    # A new pool creates the fabric, unless somebody else's nodes are in it already.
    elif old_name is None and _count_declared_nodes(values) < MIN_FABRIC_SIZE:
        fabric = find_fabric(client, node_pool_id, name)
        if fabric is None or not _has_other_members(fabric, _list_possible_names(values)):
            yield Problem(
                "nodes" if values.get("nodes") else "count",
                f"one server cannot create the fabric {name}: the platform creates 2 to 5 at a "
                "time; declare 2 or more, or the cluster_fabric_id of an existing fabric",
            )
    # The nodes leave a fabric, which may end with them.
    if isinstance(old_name, str) and old_name != name:
        yield from _find_emptied_fabric_problems(
            client, context, node_pool_id, old_name, _list_possible_names(stored)
        )


def find_node_problems(
    client: ScpClient, context: ProviderContext, values: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield problems of a node's fabrics: the one to join, and the one to leave.

    Nothing is checked if the fabric is unknown, or is the stored one.
    """
    fabric_id, name = values.get("cluster_fabric_id"), values.get("gpu_node_name")
    old_fabric_id = context.stored_properties.get("cluster_fabric_id")
    if not isinstance(fabric_id, str) or fabric_id == old_fabric_id:
        return
    fabric = find_fabric_by_id(client, fabric_id)
    if fabric is None:
        yield Problem("cluster_fabric_id", describe_missing_fabric(fabric_id))
        return
    reason = find_move_obstacle(client, context, old_fabric_id, fabric, {name})
    if reason:
        yield Problem("cluster_fabric_id", reason)


def find_move_obstacle(
    client: ScpClient,
    context: ProviderContext,
    source_id: str | None,
    fabric: wire.ClusterFabric,
    names: Collection[str | None],
) -> str | None:
    """Return why nodes cannot move from one fabric to another, or None.

    Obstacles are another vendor pool, and a source that the running program declares and that would
    lose its last node. `names` are the names of the nodes, `source_id` is the fabric that they
    leave; no obstacle if it is None, gone, or the target itself.
    """
    if source_id in (None, fabric.id):
        return None
    source = find_fabric_by_id(client, str(source_id))
    # The old fabric has ended already: nothing is left to empty.
    if source is None:
        return None
    if source.node_pool_id != fabric.node_pool_id:
        return describe_other_pool(fabric, source.node_pool_id)
    # A fabric that nobody declares may end with its last node: then that is meant.
    if is_fabric_declared(
        context, source.node_pool_id, source.cluster_name
    ) and not _has_other_members(source, names):
        return _describe_emptied_fabric(source.cluster_name)
    return None


def describe_missing_fabric(fabric_id: str) -> str:
    """Return why a node cannot join a missing fabric, for messages."""
    return (
        f"fabric {fabric_id} not found: a fabric exists only while it has nodes, and "
        f"{NEEDS_NODE_POOL}"
    )


def refuse_unsafe_changes(
    client: ScpClient, context: ProviderContext, inputs: NodePoolInputs, plan: PoolPlan
) -> None:
    """Raise GpuformError if a plan moves nodes wrongly, or ends a fabric still in use.

    That is: the target of moved nodes does not exist or fit, a move empties a fabric that the
    program declares, or the last node of a fabric is deleted and one new server cannot form it
    again.
    """
    fabric = DeclaredPool.from_inputs(inputs.dump_declared()).fabric
    moved_nodes = [node for node, _ in plan.keep if not fabric.contains(node)]
    if moved_nodes:
        _require_target_fabric(client, inputs)
    leaving_ids = {node.id for node in (*moved_nodes, *plan.deleted_nodes)}
    for source_id in sorted(
        {node.cluster_fabric_id or "" for node in (*moved_nodes, *plan.deleted_nodes)} - {""}
    ):
        source_fabric = find_fabric_by_id(client, source_id)
        # Somebody else's node stays in the fabric: it lives on.
        if source_fabric is None or any(
            member.gpu_node_id not in leaving_ids for member in source_fabric.gpu_node_details
        ):
            continue
        if moved_nodes and is_fabric_declared(
            context, inputs.node_pool_id, source_fabric.cluster_name
        ):
            raise GpuformError(_describe_emptied_fabric(source_fabric.cluster_name))
        # The fabric ends with its last node, and a new one needs two servers at once.
        new_count = len(plan.create) + len(plan.replace)
        if 0 < new_count < MIN_FABRIC_SIZE and not plan.keep:
            raise GpuformError(
                f"this change deletes the last node of fabric {source_fabric.cluster_name}, and "
                "the fabric with it; one server cannot create the fabric again",
                hint="first add a node, in a separate `up`",
            )


def _require_target_fabric(client: ScpClient, inputs: NodePoolInputs) -> None:
    """Raise GpuformError unless the declared fabric, the target of moved nodes, exists.

    A fabric declared by id has to be in the vendor pool and to have the declared name.
    """
    if inputs.cluster_fabric_id is not None:
        for problem in _find_declared_fabric_problems(
            client, inputs.node_pool_id, inputs.cluster_fabric_name, inputs.cluster_fabric_id
        ):
            raise GpuformError(str(problem))
    elif find_fabric(client, inputs.node_pool_id, inputs.cluster_fabric_name) is None:
        raise GpuformError(
            f"cluster_fabric_name: {describe_empty_fabric(inputs.cluster_fabric_name)}"
        )


def _find_declared_fabric_problems(
    client: ScpClient, node_pool_id: str, name: str, fabric_id: str
) -> Iterator[Problem]:
    """Yield why a fabric declared by id cannot be used: missing, other pool or other name."""
    fabric = find_fabric_by_id(client, fabric_id)
    if fabric is None:
        yield Problem(
            "cluster_fabric_id",
            f"fabric {fabric_id} not found: a fabric exists only while it has nodes; "
            "without cluster_fabric_id, the pool creates the fabric",
        )
    elif fabric.node_pool_id != node_pool_id:
        yield Problem("cluster_fabric_id", describe_other_pool(fabric, node_pool_id))
    elif fabric.cluster_name != name:
        yield Problem(
            "cluster_fabric_name",
            f"fabric {fabric_id} is named {fabric.cluster_name}: declare that name",
        )


def _find_emptied_fabric_problems(
    client: ScpClient,
    context: ProviderContext,
    node_pool_id: str,
    name: str,
    own_names: Collection[str],
) -> Iterator[Problem]:
    """Yield a problem if the nodes with `own_names` would leave a fabric without members.

    Only for a fabric that the running program declares: any other may end with its last node.
    """
    if is_fabric_declared(context, node_pool_id, name):
        fabric = find_fabric(client, node_pool_id, name)
        if fabric is not None and not _has_other_members(fabric, own_names):
            yield Problem("cluster_fabric_name", _describe_emptied_fabric(name))


def _describe_emptied_fabric(name: str) -> str:
    """Return why a move must not take the last node from a declared fabric, for messages."""
    return (
        f"the move removes the last node of fabric {name}, which this program declares, and the "
        "platform deletes the fabric with it: leave a node there, or remove the declaration of "
        "the fabric"
    )


def _has_other_members(fabric: wire.ClusterFabric, own_names: Collection[str | None]) -> bool:
    """Return True if a fabric has members with names outside of `own_names`."""
    return any(member.gpu_node_name not in own_names for member in fabric.gpu_node_details)


def _list_possible_names(values: Mapping[str, Any]) -> set[str]:
    """Return all possible names of a pool's nodes: declared, or PREFIX-001 to -999."""
    prefix, nodes = values.get("gpu_node_name_prefix"), values.get("nodes")
    if isinstance(nodes, Mapping):
        named_nodes = ((key, node) for key, node in nodes.items() if isinstance(node, Mapping))
        return {str(get_node_name(key, node, str(prefix))) for key, node in named_nodes}
    return {f"{prefix}-{number:03}" for number in range(1, 1000)}


def _count_declared_nodes(values: Mapping[str, Any]) -> int:
    """Return the number of declared nodes; enough for a fabric while the number is unknown."""
    count, nodes = values.get("count"), values.get("nodes")
    if isinstance(nodes, Mapping):
        return len(nodes)
    return int(count) if isinstance(count, int | float) else MIN_FABRIC_SIZE
