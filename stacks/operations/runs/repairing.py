"""What `gpuform repair` adds to a run, and which repairs a run may do: what its plan shows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from gpuform.providers import permissions
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Repairs
from gpuform.schemas.plan import Plan, ResourceChange
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.stacks.engine.deployment import Options
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing import DueChange
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.pricing.footprints import told
from gpuform.stacks.resource_rules import lifecycle_of

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class RepairRun:
    """A run from the state alone that repairs broken nodes, or those that are `asked` for."""

    stack: Stack
    asked: tuple[str, ...] = ()

    def options(self, options: Options) -> Options:
        """Those of a run that looks at what has nodes, and repairs what is due of them.

        Raises EngineError for a node that there is not.
        """
        nodes = {
            each.urn: _nodes_of(each) | self._begun(each) for each in self.stack.snapshot.resources
        }
        wanted = self._wanted
        missing = sorted(wanted - {name for names in nodes.values() for name in names})
        if missing:
            known = sorted(name for names in nodes.values() for name in names)
            raise EngineError(
                f"{', '.join(missing)}: there is no such node in stack {self.stack.name}",
                hint=f"its nodes are {', '.join(known[:_SHOWN]) or 'none'}"
                f"{', ...' if len(known) > _SHOWN else ''}; `gpuform refresh` looks for new ones",
            )
        urns = [urn for urn, names in nodes.items() if names and (not wanted or wanted & names)]
        return replace(
            options,
            refresh=bool(urns),
            selection=Selection(targets=UrnPatterns(urns)),
            calendar=self._due,
            resumed=self._is_resumed,
        )

    def _is_resumed(self, entry: ResourceState) -> bool:
        """Return whether the object is a node asked for, whose repair makes another one.

        One that is gone was deleted by a repair that was interrupted, or by somebody else: what was
        asked for is another one in its place.
        """
        lifecycle = lifecycle_of(entry.type)
        is_remade = lifecycle is not None and lifecycle.is_recreated_by_repair
        return is_remade and bool(self._wanted & _nodes_of(entry))

    def _due(self, entry: ResourceState) -> DueChange | None:
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None:
            return None
        decided = lifecycle.decide_repairs(told(entry.outputs), told(entry.inputs))
        is_due = bool(decided.due_repairs) or bool(self._begun(entry))
        return DueChange("a node is repaired", entry.inputs) if is_due else None

    @property
    def _wanted(self) -> set[str]:
        return {each.partition("=")[0] for each in self.asked}

    def _begun(self, entry: ResourceState) -> set[str]:
        """Return the nodes asked for whose repair has deleted them, and was then interrupted."""
        missing = self._wanted - _nodes_of(entry) if entry.custom and entry.id else set()
        repairs = Repairs.beside(self.stack.intents()) if missing else None
        return {name for name in missing if repairs and repairs.find(entry.id, name)}


def preview_permissions(*, is_reviewed: bool) -> Mapping[str, str]:
    """The variable with which a preview shows what a person could let be repaired."""
    if not is_reviewed:
        return {}
    given = {*permissions.get_permissions(), Permission.REPAIR}
    return {permissions.VARIABLE: ",".join(sorted(given))}


def reviewed(plan: Plan) -> Mapping[str, str]:
    """The variable with which a run does the repairs that a plan shows, and no others."""
    keys = (
        permissions.compute_repair_key(each) for change in plan.changes for each in change.repairs
    )
    return {permissions.REVIEWED_VARIABLE: ",".join(sorted(keys))}


def other_repairs(planned: Plan, found: Iterable[ResourceChange]) -> list[str]:
    """The repairs that a new preview finds and a saved plan has not, or has otherwise."""
    known = {(change.urn, each.node): each for change in planned.changes for each in change.repairs}
    texts = []
    for change in found:
        for each in change.repairs:
            before = known.get((change.urn, each.node))
            if before is None or _facts(before) != _facts(each):
                how = (
                    "not planned" if before is None else f"another one than planned: {_was(before)}"
                )
                texts.append(
                    f"{name_of(change.urn)}: the repair of node {each.node} by {each.mode} "
                    f"({each.evidence}) is {how}"
                )
    return texts


def _facts(each: NodeRepair) -> tuple[str, ...]:
    return (each.mode, each.cause, each.id, each.instance, each.proposed)


def _was(each: NodeRepair) -> str:
    return f"{each.mode} ({each.evidence})"


def _nodes_of(entry: ResourceState) -> set[str]:
    lifecycle = lifecycle_of(entry.type)
    if lifecycle is None or not entry.custom or entry.delete or entry.external:
        return set()
    return {*lifecycle.decide_repairs(told(entry.outputs), told(entry.inputs)).node_names}
