"""Decide which repairs of a pool's nodes are due, and check each again before the node is deleted.

`PoolReconciler` and plans call this module, which calls `nodes.repairs`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.lifetime import format_moment
from gpuform.providers.records import Repair, Repairs
from gpuform.providers.repairing import RepairDecision, parse_repair_policy
from gpuform.providers.scp.nodes.planning import DeclaredPool, Replacement, parse_stored_nodes
from gpuform.providers.scp.nodes.repairs import (
    NodeInspection,
    decide_repairs,
    find_uncertified_nodes,
)
from gpuform.schemas.policies.repair import FaultCause, NodeRepair, RepairInputs
from gpuform.schemas.scp.outputs import FAILED_NODE_STATES

RERUN_WINDOW_S: Final = 3600.0
"""For how many seconds a repair that was cut off counts as the one that is run again."""

Values = Mapping[str, Any]


def decide_pool_repairs(outputs: Values, declared: Values) -> RepairDecision:
    """Decide which broken nodes of the outputs a run recreates, by the declaration."""
    return decide_repairs(
        parse_repair_policy(declared, RepairInputs), outputs, parse_stored_nodes(outputs) or ()
    )


def build_declared_pool(outputs: Values, declared: Values) -> DeclaredPool:
    """Build the declaration, with the ids of the stored nodes whose repair is due."""
    due_repairs = decide_pool_repairs(outputs, declared).due_repairs
    return replace(
        DeclaredPool.from_inputs(declared),
        recreated_ids=frozenset(repair.instance for repair in due_repairs),
    )


class PoolRepairs:
    """The repairs of one pool during one call."""

    def __init__(
        self, context: ProviderContext, inspection: NodeInspection, id_: str, declared: Values
    ) -> None:
        self._context = context
        self._inspection = inspection
        self._id = id_
        self._policy = parse_repair_policy(declared, RepairInputs)
        self._decision = decide_pool_repairs(context.stored_properties, declared)
        self._due_repairs = {repair.instance: repair for repair in self._decision.due_repairs}
        self._records = Repairs.from_intents(context.intents)

    @property
    def node_ids(self) -> frozenset[str]:
        """Return the ids of the nodes whose repair is due in this call."""
        return frozenset(self._due_repairs)

    @property
    def max_parallel(self) -> int | None:
        """Return how many nodes may be recreated at a time; None if no repair is due."""
        return self._decision.max_parallel if self._decision.due_repairs else None

    @property
    def unrepaired_reasons(self) -> Mapping[str, str]:
        """Return by name why a broken node is not recreated."""
        return {
            held_fault.fault.node: held_fault.reason for held_fault in self._decision.unrepaired
        }

    def is_due(self, replacement: Replacement) -> bool:
        """Return True if a node should be replaced now, after another look at its fault.

        Always True for a replacement that is not a repair. Records a repair that people have
        requested by name. A repair that is no longer needed is dropped with a warning.

        Raises:
            GpuformError: the scheduler or Lens cannot be asked.
        """
        repair = self._due_repairs.get(replacement.node.id)
        if repair is None:
            return True
        # A person's request holds whatever the node's health; only a repetition of it is ignored.
        reason = (
            self._record_request(repair)
            if self._is_requested(repair)
            else self._find_recovery(replacement, repair)
        )
        if reason:
            self._context.on_warning(f"node {replacement.name} {reason}: it stays as it is")
            del self._due_repairs[replacement.node.id]
        return not reason

    def forget_requests(self) -> None:
        """Delete the records of the pool's repairs if this run was asked to repair nodes by name.

        A later request then means another repair.
        """
        if self._context.run.requested_repairs:
            self._records.forget(self._id)

    def _is_requested(self, repair: NodeRepair) -> bool:
        """Return True if people have asked this run to repair the node by name."""
        return repair.node in self._context.run.requested_repairs

    def _find_recovery(self, replacement: Replacement, repair: NodeRepair) -> str:
        """Return why a node needs no repair any more; empty while the fault persists.

        A node that its scheduler does not know counts as unusable still.

        Raises:
            GpuformError: the scheduler or Lens cannot be asked.
        """
        policy = self._policy
        if repair.cause == FaultCause.NOT_READY:
            condition = self._inspection.get_conditions([replacement.node]).get(replacement.node.id)
            return "" if condition is None or condition.problem else "is usable again"
        if repair.cause == FaultCause.OVERHEATED and policy and policy.max_temperature is not None:
            max_temperature = policy.max_temperature
            reasons = self._inspection.measure_overheated_nodes([replacement.node], max_temperature)
            return "" if replacement.name in reasons else "is no longer too hot"
        if repair.cause == FaultCause.FAILED_CERTIFICATION:
            failure_times = {
                fault.since
                for fault in find_uncertified_nodes(
                    [replacement.node], self._inspection.list_verdicts()
                )
            }
            return "" if repair.since in failure_times else "was certified since"
        return "" if replacement.node.state in FAILED_NODE_STATES else "is no longer broken"

    def _record_request(self, repair: NodeRepair) -> str:
        """Record a requested repair; return why it is not needed if an interrupted run has done it.

        Only a repair recorded within `RERUN_WINDOW_S` counts as done. Empty if the repair is still
        to be done.
        """
        last_repair, now = self._records.find(self._id, repair.node), self._context.clock.now()
        # The name has another server than the recorded one: the earlier run has recreated it.
        if (
            last_repair is not None
            and last_repair.instance != repair.instance
            and now - last_repair.at < RERUN_WINDOW_S
        ):
            finished_at = format_moment(last_repair.at)
            return f"was recreated already, by the interrupted run of {finished_at}"
        if last_repair is None or last_repair.instance != repair.instance:
            new_repair = Repair(self._id, repair.node, "", repair.instance, repair.mode, now)
            self._records.record(new_repair)
        return ""
