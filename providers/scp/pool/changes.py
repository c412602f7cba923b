"""What a plan of a pool has to show, and what it needs to be allowed: from stored outputs. Pure."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuform.providers.operations import Guard
from gpuform.providers.permissions import Permission
from gpuform.providers.scp.nodes import (
    ROLLED,
    DeclaredPool,
    Plan,
    differences,
    is_stopped_by_force,
    locked,
    plan,
    power_of,
)
from gpuform.providers.scp.pool.repairs import declared_pool, stored_nodes
from gpuform.providers.scp.pool.rollout import rollout_text
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange, contains_unknown
from gpuform.schemas.changes import compute_changes as by_rules
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.values import UNKNOWN

_PLANNED: Final = frozenset(
    {"count", "nodes", "cluster_fabric_name", "cluster_fabric_id", "lock_enabled", "state"}
)
_OF_ALL: Final = ("cluster_fabric_name", "cluster_fabric_id", "lock_enabled", "state")
"""Those that hold for every node which declares nothing else."""

Values = Mapping[str, Any]


def planned_names(declared: Values) -> frozenset[str]:
    """The inputs of a pool that are compared with its nodes."""
    return _PLANNED | {*ROLLED} if declared.get("rollout") is not None else _PLANNED


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
    nodes, planned = stored_nodes(old), planned_names(declared)
    unknown = [name for name in sorted(planned) if contains_unknown(declared.get(name))]
    if unknown or nodes is None:
        for name in unknown:
            before, because = old.get(name), KNOWN_AFTER_APPLY
            yield FieldChange(name, Action.UPDATE, before, UNKNOWN, because=because)
        whole = planned - {"cluster_fabric_id", *unknown}
        yield from by_rules(NodePoolInputs, *(_only(each, whole) for each in (old, declared)))
        return
    pool = declared_pool(old, declared)
    found = plan(pool, nodes)
    live = len(found.keep) + len(found.replace) + len(found.delete)
    found = replace(found, replace=[each for each in found.replace if not each.is_repair])
    how = rollout_text(declared, found, live)
    of_all = {change.path: change for change in _of_all(old, declared)}
    of_all |= {change.path: change for change in _rolled(old, declared, found, how)}
    yield from of_all.values()
    if pool.count is not None and pool.count != live:
        yield FieldChange("count", Action.UPDATE, live, pool.count)
    keys = {node["gpu_node_name"]: key for key, node in old["gpu_nodes"].items()}
    yield from _nodes(pool, found, of_all, keys, "" if of_all.keys() & {*ROLLED} else how)


def deleting_guard(old: Values) -> Guard | None:
    """What deleting a pool of these outputs needs."""
    names = [node.gpu_node_name for node in stored_nodes(old) or () if node.lock_enabled]
    return Guard(Permission.UNLOCK, locked(names)) if names else None


def change_guard(old: Values, declared: Values) -> Guard | None:
    """What changing a pool of these outputs in place needs."""
    nodes = stored_nodes(old)
    planned = planned_names(declared)
    if nodes is None or any(contains_unknown(declared.get(name)) for name in planned):
        return None
    found = plan(declared_pool(old, declared), nodes)
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


def _only(values: Values, names: Collection[str]) -> dict[str, Any]:
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


def _rolled(old: Values, declared: Values, found: Plan, how: str) -> Iterator[FieldChange]:
    """Of what each node is made with, what is declared otherwise than before."""
    for name in ROLLED if declared.get("rollout") is not None else ():
        before, after = old.get(name), declared.get(name)
        if before == after or after is None:
            continue
        action = Action.ADD if before is None else Action.UPDATE
        if any(each.field == name for each in found.replace):
            yield FieldChange(name, action, before, after, because=how)
        else:
            because = "recorded: the nodes have it already"
            yield FieldChange(name, action, before, after, because=because, state_only=True)


def _nodes(
    pool: DeclaredPool,
    found: Plan,
    of_all: Mapping[str, FieldChange],
    keys: Mapping[str, str],
    how: str,
) -> Iterator[FieldChange]:
    """`how` tells once how the nodes are replaced, if that is anything to tell."""
    for wanted in found.create:
        if pool.count is None:
            yield FieldChange(_at(wanted.key), Action.ADD, None, wanted.name)
    for node in () if pool.is_asked else found.delete:
        path = _at(keys[node.gpu_node_name])
        yield FieldChange(path, Action.DELETE, node.id, None, because="the node is deleted")
    for each in found.replace:
        told = of_all.get(each.field)
        if told is not None and (told.before, told.after) == (each.before, each.after):
            continue
        path = f"{_at(each.wanted.key)}.{each.field}"
        because = f"{each.because}, {how}" if how else each.because
        how = ""
        yield FieldChange(path, Action.UPDATE, each.before, each.after, because=because)
    for node, wanted in found.keep:
        for other in differences(node, wanted, pool.fabric):
            told = of_all.get(other.field)
            if told is None or told.after != other.after:
                path = f"{_at(wanted.key)}.{other.field}"
                yield FieldChange(path, Action.UPDATE, other.before, other.after)


def _at(key: str) -> str:
    return f'nodes["{key}"]'
