"""Decide what a plan shows of one GPU node: changes, repairs and permissions, by stored values.

`GpuNodeLifecycle` has these functions as hooks; `pool.changes` has those of a pool.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from gpuform.providers.operations import Guard
from gpuform.providers.permissions import Permission
from gpuform.providers.repairing import RepairDecision, parse_faults, parse_repair_policy
from gpuform.providers.scp.node_facts import parse_declared_node, parse_stored_node
from gpuform.providers.scp.nodes.planning import (
    TargetFabric,
    find_differences,
    format_locked_nodes,
    is_switched_while_locked,
)
from gpuform.providers.scp.nodes.repairs import decide_repairs
from gpuform.schemas.changes import KNOWN_AFTER_APPLY, Action, FieldChange, contains_unknown
from gpuform.schemas.changes import compute_changes as by_rules
from gpuform.schemas.policies.repair import MachineRepairInputs
from gpuform.schemas.scp.inputs import GpuNodeInputs
from gpuform.schemas.values import UNKNOWN

PLANNED_FIELDS: Final = (
    "cluster_fabric_id",
    "nat_enabled",
    "public_ip_address_id",
    "lock_enabled",
    "state",
)


def find_node_changes(
    old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> Iterable[FieldChange]:
    """Yield the differences between the stored node and the declaration.

    An unknown input gives a change. If no run has seen a node, the declarations are compared.
    """
    node = parse_stored_node(old_outputs)
    unknown_fields = [name for name in PLANNED_FIELDS if contains_unknown(declared.get(name))]
    for name in unknown_fields:
        before, reason = old_outputs.get(name), KNOWN_AFTER_APPLY
        yield FieldChange(name, Action.UPDATE, before, UNKNOWN, because=reason)
    # No run has seen the node: only the declarations can be compared.
    if node is None:
        known_fields = {name for name in PLANNED_FIELDS if name not in unknown_fields}
        compared_values = (
            {name: value for name, value in values.items() if name in known_fields}
            for values in (old_outputs, declared)
        )
        yield from by_rules(GpuNodeInputs, *compared_values)
        return
    known_values = {name: value for name, value in declared.items() if name not in unknown_fields}
    fabric = TargetFabric(id=known_values.get("cluster_fabric_id"))
    for difference in find_differences(node, parse_declared_node(known_values), fabric):
        yield FieldChange(difference.field, Action.UPDATE, difference.before, difference.after)


def decide_node_repairs(
    old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> RepairDecision:
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


def find_node_deletion_guard(old_outputs: Mapping[str, Any]) -> Guard | None:
    """Return the permission needed to delete a locked node, or None."""
    if not old_outputs.get("lock_enabled"):
        return None
    return Guard(Permission.UNLOCK, format_locked_nodes([str(old_outputs.get("gpu_node_name"))]))


def find_node_change_guard(
    old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> Guard | None:
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
