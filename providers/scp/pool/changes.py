"""What a plan of a pool has to show, and what it needs to be allowed: from stored outputs. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuform.providers.actions import Guard
from gpuform.providers.permissions import Permission
from gpuform.providers.scp.nodes import (
    DeclaredPool,
    Plan,
    differences,
    is_stopped_by_force,
    locked,
    plan,
    power_of,
)
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange, contains_unknown
from gpuform.schemas.changes import changes as by_rules
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NODE_FAILED
from gpuform.schemas.values import UNKNOWN

PLANNED: Final = frozenset(
    {"count", "nodes", "cluster_fabric_name", "cluster_fabric_id", "lock_enabled", "state"}
)
"""The inputs of a pool that are compared with its nodes."""

_OF_ALL: Final = ("cluster_fabric_name", "cluster_fabric_id", "lock_enabled", "state")
"""Those that hold for every node which declares nothing else."""

Values = Mapping[str, Any]


def stored_nodes(old: Values) -> list[NodeOutputs] | None:
    """The nodes in a pool's outputs; None where a run ended before it saw any."""
    nodes = old.get("gpu_nodes")
    if not isinstance(nodes, Mapping):
        return None
    return [NodeOutputs.model_validate(node) for node in nodes.values()]


def is_off(old: Values) -> bool:
    """Whether one of the nodes is stopped that have no state of their own."""
    own = old.get("nodes")
    own = own if isinstance(own, Mapping) else {}
    keys = {node["gpu_node_name"]: key for key, node in (old.get("gpu_nodes") or {}).items()}
    return any(
        power_of(node.state) == "STOPPED" and "state" not in own.get(keys[node.gpu_node_name], {})
        for node in stored_nodes(old) or ()
    )


def pool_changes(old: Values, declared: Values) -> Iterator[FieldChange]:
    """The changes of the planned inputs, and of each node that is not as declared."""
    nodes = stored_nodes(old)
    unknown = [name for name in sorted(PLANNED) if contains_unknown(declared.get(name))]
    if unknown or nodes is None:
        for name in unknown:
            before, because = old.get(name), KNOWN_AFTER_APPLY
            yield FieldChange(name, Action.UPDATE, before, UNKNOWN, because=because)
        yield from by_rules(NodePoolInputs, *(_whole(each, unknown) for each in (old, declared)))
        return
    pool = DeclaredPool.of(declared)
    of_all = {change.path: change for change in _of_all(old, declared)}
    yield from of_all.values()
    found = plan(pool, nodes)
    live = len(found.keep) + len(found.replace) + len(found.delete)
    if pool.count is not None and pool.count != live:
        yield FieldChange("count", Action.UPDATE, live, pool.count)
    keys = {node["gpu_node_name"]: key for key, node in old["gpu_nodes"].items()}
    yield from _nodes(pool, found, of_all, keys)


def deleting_guard(old: Values) -> Guard | None:
    """What deleting a pool of these outputs needs."""
    names = [node.gpu_node_name for node in stored_nodes(old) or () if node.lock_enabled]
    return Guard(Permission.UNLOCK, locked(names)) if names else None


def change_guard(old: Values, declared: Values) -> Guard | None:
    """What changing a pool of these outputs in place needs."""
    nodes = stored_nodes(old)
    if nodes is None or any(contains_unknown(declared.get(name)) for name in PLANNED):
        return None
    found = plan(DeclaredPool.of(declared), nodes)
    names = locked_names(found)
    if not names:
        return None
    because = f"{locked(names)}, and this change deletes or stops what is locked"
    return Guard(Permission.UNLOCK, because)


def locked_names(found: Plan) -> list[str]:
    """The nodes that the plan deletes or stops although they are locked."""
    ended = [node.gpu_node_name for node in found.ending if node.lock_enabled]
    stopped = [
        node.gpu_node_name for node, wanted in found.keep if is_stopped_by_force(node, wanted)
    ]
    return sorted({*ended, *stopped})


def _whole(values: Values, unknown: list[str]) -> dict[str, Any]:
    """The planned inputs that can be compared as they are."""
    names = PLANNED - {"cluster_fabric_id", *unknown}
    return {name: value for name, value in values.items() if name in names}


def _of_all(old: Values, declared: Values) -> Iterator[FieldChange]:
    for name in _OF_ALL:
        before, after = old.get(name), declared.get(name)
        if name == "state":
            before = before or "RUNNING"
        if after is not None and before != after:
            action = Action.ADD if before is None else Action.UPDATE
            yield FieldChange(name, action, before, after)
        elif after is None and before is not None and name == "lock_enabled":
            because = "no longer declared: the platform keeps its value"
            yield FieldChange(name, Action.KEEP, before, before, because=because)
        elif after is None and name == "state" and before == "STOPPED":
            because = "no longer declared: back to the default"
            yield FieldChange(name, Action.UPDATE, before, "RUNNING", because=because)


def _nodes(
    pool: DeclaredPool, found: Plan, of_all: Mapping[str, FieldChange], keys: Mapping[str, str]
) -> Iterator[FieldChange]:
    for wanted in found.create:
        if pool.count is None:
            yield FieldChange(_at(wanted.key), Action.ADD, None, wanted.name)
    for node in () if pool.is_asked else found.delete:
        path = _at(keys[node.gpu_node_name])
        yield FieldChange(path, Action.DELETE, node.id, None, because="the node is deleted")
    for node, wanted, because in found.replace:
        field, before, after = "ip_address", node.policy_ip, wanted.ip_address
        if node.state in NODE_FAILED:
            field, before, after = "state", node.state, wanted.state
        path = f"{_at(wanted.key)}.{field}"
        yield FieldChange(path, Action.UPDATE, before, after, because=because)
    for node, wanted in found.keep:
        for each in differences(node, wanted, pool.fabric):
            told = of_all.get(each.field)
            if told is None or told.after != each.after:
                path = f"{_at(wanted.key)}.{each.field}"
                yield FieldChange(path, Action.UPDATE, each.before, each.after)


def _at(key: str) -> str:
    return f'nodes["{key}"]'
