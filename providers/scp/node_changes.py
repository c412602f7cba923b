"""Decide what a plan shows of a GPU node and of a pool: changes, repairs and permissions.

The lifecycles have these functions as hooks, which compare stored outputs with a declaration. Pure:
nothing is requested.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuform.providers.operations import Guard
from gpuform.providers.permissions import Permission
from gpuform.providers.repairing import RepairDecision, parse_faults, parse_repair_policy
from gpuform.providers.scp.node_facts import parse_declared_node, parse_stored_node
from gpuform.providers.scp.nodes.planning import (
    ROLLOUT_FIELDS,
    DeclaredPool,
    PoolPlan,
    TargetFabric,
    find_differences,
    format_locked_nodes,
    get_power_state,
    is_switched_while_locked,
    parse_stored_nodes,
    plan_pool,
)
from gpuform.providers.scp.nodes.repairs import build_declared_pool, decide_repairs
from gpuform.providers.scp.pool.rollout import describe_rollout
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange, contains_unknown
from gpuform.schemas.changes import compute_changes as by_rules
from gpuform.schemas.models import InputModel
from gpuform.schemas.policies.repair import MachineRepairInputs
from gpuform.schemas.scp.inputs import GpuNodeInputs, NodePoolInputs
from gpuform.schemas.values import UNKNOWN

Values = Mapping[str, Any]

PLANNED_FIELDS: Final = (
    "cluster_fabric_id",
    "nat_enabled",
    "public_ip_address_id",
    "lock_enabled",
    "state",
)


def find_node_changes(old_outputs: Values, declared: Values) -> Iterable[FieldChange]:
    """Yield the differences between the stored node and the declaration.

    An unknown input gives a change. If no run has seen a node, the declarations are compared.
    """
    node = parse_stored_node(old_outputs)
    unknown_fields = [name for name in PLANNED_FIELDS if contains_unknown(declared.get(name))]
    yield from _find_unknown_changes(old_outputs, unknown_fields)
    # No run has seen the node: only the declarations can be compared.
    if node is None:
        compared_fields = {*PLANNED_FIELDS} - {*unknown_fields}
        yield from _compare_inputs(GpuNodeInputs, old_outputs, declared, compared_fields)
        return
    known_values = {name: value for name, value in declared.items() if name not in unknown_fields}
    fabric = TargetFabric(id=known_values.get("cluster_fabric_id"))
    for difference in find_differences(node, parse_declared_node(known_values), fabric):
        yield FieldChange(difference.field, Action.UPDATE, difference.before, difference.after)


def decide_node_repairs(old_outputs: Values, declared: Values) -> RepairDecision:
    """Decide by the stored node whether a run deletes it as broken and creates another one.

    Without a declared `repair`, only a repair that a person requests by name is due.

    Raises:
        GpuformError: a person requests a mode of repair that SCP does not have.
    """
    node = parse_stored_node(old_outputs)
    faulty_ids = {fault.instance for fault in parse_faults(old_outputs)}
    # Stored outputs have no node id: the faults name it.
    nodes = [] if node is None else [node.model_copy(update={"id": next(iter(faulty_ids), "")})]
    return decide_repairs(parse_repair_policy(declared, MachineRepairInputs), old_outputs, nodes)


def find_node_deletion_guard(old_outputs: Values) -> Guard | None:
    """Return the permission needed to delete a locked node, or None."""
    if not old_outputs.get("lock_enabled"):
        return None
    return Guard(Permission.UNLOCK, format_locked_nodes([str(old_outputs.get("gpu_node_name"))]))


def find_node_change_guard(old_outputs: Values, declared: Values) -> Guard | None:
    """Return the permission needed if the change starts or stops a locked node, or None.

    None, too, if the change unlocks the node, or if no run has seen the node. An unknown
    `state` counts as RUNNING.
    """
    node = parse_stored_node(old_outputs)
    known_values = {name: value for name, value in declared.items() if value is not UNKNOWN}
    if node is None or not is_switched_while_locked(node, parse_declared_node(known_values)):
        return None
    reason = f"{format_locked_nodes([node.gpu_node_name])}, and this change starts or stops it"
    return Guard(Permission.UNLOCK, reason)


_POOL_FIELDS: Final = frozenset(
    {"count", "nodes", "cluster_fabric_name", "cluster_fabric_id", "zone", "lock_enabled", "state"}
)
_SHARED_FIELDS: Final = ("cluster_fabric_name", "cluster_fabric_id", "lock_enabled", "state")
"""The inputs that hold for every node that declares no value of its own."""


def list_planned_fields(declared: Values) -> frozenset[str]:
    """Return the inputs compared with a pool's nodes; with a rollout, image and type, too."""
    return _POOL_FIELDS | {*ROLLOUT_FIELDS} if declared.get("rollout") is not None else _POOL_FIELDS


def has_stopped_nodes(outputs: Values) -> bool:
    """Return True if a node without a separately declared state is stopped or stopping."""
    declared_nodes = outputs.get("nodes")
    declared_nodes = declared_nodes if isinstance(declared_nodes, Mapping) else {}
    keys_by_name = {
        node["gpu_node_name"]: key for key, node in (outputs.get("gpu_nodes") or {}).items()
    }
    return any(
        get_power_state(node.state) == "STOPPED"
        and "state" not in declared_nodes.get(keys_by_name[node.gpu_node_name], {})
        for node in parse_stored_nodes(outputs) or ()
    )


def find_pool_changes(stored: Values, declared: Values) -> Iterator[FieldChange]:
    """Yield the changes of the planned inputs and of single nodes, without repairs.

    The stored nodes are compared with the declaration. While a planned input is unknown, or before
    a run has seen a node, only stored and declared inputs are.
    """
    nodes, planned_fields = parse_stored_nodes(stored), list_planned_fields(declared)
    unknown_fields = [
        name for name in sorted(planned_fields) if contains_unknown(declared.get(name))
    ]
    if unknown_fields or nodes is None:
        yield from _find_unknown_changes(stored, unknown_fields)
        # Unknown values, or no nodes seen yet: only the declarations can be compared.
        compared_fields = planned_fields - {"cluster_fabric_id", *unknown_fields}
        yield from _compare_inputs(NodePoolInputs, stored, declared, compared_fields)
        return
    pool = build_declared_pool(stored, declared)
    plan = plan_pool(pool, nodes)
    live_count = len(plan.keep) + len(plan.replace) + len(plan.delete)
    # Repairs are no change of the declaration: plans show them on their own.
    plan = replace(
        plan, replace=[replacement for replacement in plan.replace if not replacement.is_repair]
    )
    rollout_note = describe_rollout(declared, plan, live_count)
    shared_changes = {change.path: change for change in _find_shared_changes(stored, declared)}
    shared_changes |= {
        change.path: change for change in _find_fixed_changes(stored, declared, plan, rollout_note)
    }
    yield from shared_changes.values()
    # Compared with the observed nodes, not with the old count: nodes may have been deleted outside.
    if pool.count is not None and pool.count != live_count:
        yield FieldChange("count", Action.UPDATE, live_count, pool.count)
    keys_by_name = {node["gpu_node_name"]: key for key, node in stored["gpu_nodes"].items()}
    yield from _find_node_changes(
        pool,
        plan,
        shared_changes,
        keys_by_name,
        "" if shared_changes.keys() & {*ROLLOUT_FIELDS} else rollout_note,
    )


def find_deletion_guard(outputs: Values) -> Guard | None:
    """Return the permission needed to delete a pool with locked nodes, or None."""
    locked_names = [
        node.gpu_node_name for node in parse_stored_nodes(outputs) or () if node.lock_enabled
    ]
    return Guard(Permission.UNLOCK, format_locked_nodes(locked_names)) if locked_names else None


def find_change_guard(stored: Values, declared: Values) -> Guard | None:
    """Return the permission needed if a change deletes, starts or stops locked nodes, or None.

    While values are unknown, or before a run has seen a node, the answer is None: the update checks
    again.
    """
    nodes = parse_stored_nodes(stored)
    planned_fields = list_planned_fields(declared)
    # Without known values the update asks again, before it sends anything.
    if nodes is None or any(contains_unknown(declared.get(name)) for name in planned_fields):
        return None
    plan = plan_pool(build_declared_pool(stored, declared), nodes)
    locked_names = list_locked_nodes(plan)
    if not locked_names:
        return None
    effect = "this change deletes, starts or stops locked nodes"
    return Guard(Permission.UNLOCK, f"{format_locked_nodes(locked_names)}, and {effect}")


def list_locked_nodes(plan: PoolPlan) -> list[str]:
    """Return the names of locked nodes to be deleted, started or stopped by the plan."""
    deleted_names = [node.gpu_node_name for node in plan.deleted_nodes if node.lock_enabled]
    switched_names = [
        node.gpu_node_name
        for node, declared_node in plan.keep
        if is_switched_while_locked(node, declared_node)
    ]
    return sorted({*deleted_names, *switched_names})


def _find_unknown_changes(stored: Values, unknown_fields: Iterable[str]) -> Iterator[FieldChange]:
    """Yield a change of each input whose value is known only after apply."""
    for name in unknown_fields:
        before, reason = stored.get(name), KNOWN_AFTER_APPLY
        yield FieldChange(name, Action.UPDATE, before, UNKNOWN, because=reason)


def _compare_inputs(
    model: type[InputModel], stored: Values, declared: Values, names: Collection[str]
) -> Iterable[FieldChange]:
    """Return the changes of the inputs in `names` by the rules of the model."""
    compared_values = (
        {name: value for name, value in values.items() if name in names}
        for values in (stored, declared)
    )
    return by_rules(model, *compared_values)


def _find_shared_changes(stored: Values, declared: Values) -> Iterator[FieldChange]:
    """Yield the changes of the inputs shared by all nodes: fabric, lock and power state.

    A lock that is no longer declared is kept. A state that is no longer declared becomes RUNNING.
    """
    for name in _SHARED_FIELDS:
        before, after = stored.get(name), declared.get(name)
        if name == "state":
            before = before or "RUNNING"
        if after is not None and before != after:
            action = Action.ADD if before is None else Action.UPDATE
            yield FieldChange(name, action, before, after)
        elif after is None and before is not None and name == "lock_enabled":
            reason = "no longer declared: the platform keeps its value"
            yield FieldChange(name, Action.KEEP, before, before, because=reason)
        elif after is None and name == "state" and before == "STOPPED":
            reason = "no longer declared: the platform resets it to the default"
            yield FieldChange(name, Action.UPDATE, before, "RUNNING", because=reason)


def _find_fixed_changes(
    stored: Values, declared: Values, plan: PoolPlan, rollout_note: str
) -> Iterator[FieldChange]:
    """Yield the changes of inputs fixed at creation, compared node by node.

    These are the zone, and with a `rollout` image and type. A change that no node needs is for the
    state alone: a node whose zone is unknown (API 1.2) needs none.
    """
    for name in ("zone", *(ROLLOUT_FIELDS if declared.get("rollout") is not None else ())):
        before, after = stored.get(name), declared.get(name)
        if before == after or after is None:
            continue
        action = Action.ADD if before is None else Action.UPDATE
        replacements = [replacement for replacement in plan.replace if replacement.field == name]
        if replacements:
            reason = rollout_note or replacements[0].reason
            yield FieldChange(name, action, before, after, because=reason)
        else:
            reason = "recorded in the state: the nodes already have the value"
            if name == "zone" and not all(node.zone for node, _ in plan.keep):
                reason = "recorded in the state: the update compares it with the nodes' zones"
            yield FieldChange(name, action, before, after, because=reason, state_only=True)


def _find_node_changes(
    pool: DeclaredPool,
    plan: PoolPlan,
    shared_changes: Mapping[str, FieldChange],
    keys_by_name: Mapping[str, str],
    rollout_note: str,
) -> Iterator[FieldChange]:
    """Yield the changes of single nodes; the first replacement has `rollout_note`, if not empty.

    Left out are changes that `shared_changes` has, new nodes of a `count`, and deleted nodes of a
    pool whose scheduler chooses them.
    """
    for declared_node in plan.create:
        if pool.count is None:
            yield FieldChange(
                _format_node_path(declared_node.key), Action.ADD, None, declared_node.name
            )
    # Which nodes of a count are removed is open until the scheduler has been asked.
    for node in () if pool.is_chosen_by_scheduler else plan.delete:
        path = _format_node_path(keys_by_name[node.gpu_node_name])
        yield FieldChange(path, Action.DELETE, node.id, None, because="the node is deleted")
    for replacement in plan.replace:
        shared_change = shared_changes.get(replacement.field)
        # The change of the input for all nodes says the same already.
        if shared_change is not None and (shared_change.before, shared_change.after) == (
            replacement.before,
            replacement.after,
        ):
            continue
        path = f"{_format_node_path(replacement.declared_node.key)}.{replacement.field}"
        reason = f"{replacement.reason}, {rollout_note}" if rollout_note else replacement.reason
        rollout_note = ""
        yield FieldChange(
            path, Action.UPDATE, replacement.before, replacement.after, because=reason
        )
    for node, declared_node in plan.keep:
        for difference in find_differences(node, declared_node, pool.fabric):
            shared_change = shared_changes.get(difference.field)
            if shared_change is None or shared_change.after != difference.after:
                path = f"{_format_node_path(declared_node.key)}.{difference.field}"
                yield FieldChange(path, Action.UPDATE, difference.before, difference.after)


def _format_node_path(key: str) -> str:
    """Return the path of a declared node, as `nodes["a"]`."""
    return f'nodes["{key}"]'
