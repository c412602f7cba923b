"""Repairs of a pool's nodes: which are due by what was last seen, and whether they are so yet."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.context import ProviderContext
from gpuform.providers.lifetime import written
from gpuform.providers.records import Repair, Repairs
from gpuform.providers.repairing import Decision, repair_of
from gpuform.providers.scp.nodes import (
    DeclaredPool,
    Inspection,
    Replacement,
    decided,
    uncertified,
)
from gpuform.schemas.policies.repair import Cause, NodeRepair, RepairInputs
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NODE_FAILED

AGAIN: Final = 3600.0
"""Seconds in which a run that was cut off is believed to be the one that is run again."""

Values = Mapping[str, Any]


def stored_nodes(old: Values) -> list[NodeOutputs] | None:
    """The nodes in a pool's outputs; None where a run ended before it saw any."""
    nodes = old.get("gpu_nodes")
    if not isinstance(nodes, Mapping):
        return None
    # States of older versions do not say what each node was made with: as all of them.
    made = {"image_id": old.get("image_id"), "product_type_id": old.get("server_type_id")}
    told = ({k: v for k, v in node.items() if v is not None} for node in nodes.values())
    return [NodeOutputs.model_validate({**made, **node}) for node in told]


def pool_repairs(old: Values, declared: Values) -> Decision:
    """What a run does about the broken nodes of these outputs, by this declaration."""
    return decided(repair_of(declared, RepairInputs), old, stored_nodes(old) or ())


def declared_pool(old: Values, declared: Values) -> DeclaredPool:
    """The declaration with the nodes whose repair is due: by what was last seen."""
    due = pool_repairs(old, declared).due
    return replace(DeclaredPool.of(declared), remade=frozenset(each.instance for each in due))


class PoolRepairs:
    """The repairs of one call."""

    def __init__(
        self, call: ProviderContext, inspection: Inspection, id_: str, declared: Values
    ) -> None:
        self._call = call
        self._inspection = inspection
        self._id = id_
        self._policy = repair_of(declared, RepairInputs)
        self._decision = pool_repairs(call.known, declared)
        self._due = {each.instance: each for each in self._decision.due}
        self._records = Repairs.beside(call.intents)

    @property
    def ids(self) -> frozenset[str]:
        """Those of the nodes that are made anew."""
        return frozenset(self._due)

    @property
    def parallel(self) -> int | None:
        """How many of them at a time; None where there are none."""
        return self._decision.parallel if self._decision.due else None

    @property
    def held(self) -> Mapping[str, str]:
        """By name, why a node that is broken is not made anew."""
        return {each.fault.node: each.why for each in self._decision.held}

    def is_due(self, each: Replacement) -> bool:
        """Whether a node is to go now as the plan says; it is looked at once more.

        Raises GpuformError when that cannot be told.
        """
        repair = self._due.get(each.node.id)
        if repair is None:
            return True
        left = self._asked_before(repair) if self._is_asked(repair) else self._healed(each, repair)
        if left:
            self._call.on_warning(f"node {each.name} {left}: it is left as it is")
            del self._due[each.node.id]
        return not left

    def end(self) -> None:
        """All is done: who asks for a node again from now on means another repair."""
        if permissions.repairs_asked():
            self._records.forget(self._id)

    def _is_asked(self, repair: NodeRepair) -> bool:
        return repair.node in permissions.repairs_asked()

    def _healed(self, each: Replacement, repair: NodeRepair) -> str:
        """Why what was wrong with it is no longer so; empty while it is."""
        policy = self._policy
        if repair.cause == Cause.NOT_READY:
            condition = self._inspection.conditions([each.node]).get(each.node.id)
            return "" if condition is None or condition.trouble else "can be used again"
        if repair.cause == Cause.OVERHEATED and policy and policy.max_temperature is not None:
            limit = policy.max_temperature
            found = self._inspection.measured([each.node], limit)
            return "" if each.name in found else "is no longer too hot"
        if repair.cause == Cause.FAILED_CERTIFICATION:
            failed = {
                fault.since for fault in uncertified([each.node], self._inspection.verdicts())
            }
            return "" if repair.since in failed else "was certified since"
        return "" if each.node.state in NODE_FAILED else "is no longer broken"

    def _asked_before(self, repair: NodeRepair) -> str:
        """What a run that was cut off has done of this already; records what is done now."""
        last, now = self._records.find(self._id, repair.node), self._call.clock.now()
        if last is not None and last.instance != repair.instance and now - last.at < AGAIN:
            return f"was made anew already, by the run of {written(last.at)} that was cut off"
        if last is None or last.instance != repair.instance:
            kept = Repair(self._id, repair.node, "", repair.instance, repair.mode, now)
            self._records.record(kept)
        return ""
