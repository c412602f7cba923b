"""Plan `gpuform expire` and `gpuform repair` runs, with the records and limits that any run keeps.

Every run creates an `Expiry`, because an update must not recreate an expired resource, and its
repairs are limited to those of its plan. Times and idle checks are those of `stacks/schedule`; the
lifecycle of a platform decides which nodes are broken.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from gpuform.providers import permissions
from gpuform.providers.context import Clock, RunContext, synchronize_clock
from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.providers.records import EphemeralRecords, Intents, Repairs
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan, ResourceChange
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.stacks.engine.deployment import Options, Outcome
from gpuform.stacks.engine.executing import DueChange
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.operations.opening.selected_stack import read_config
from gpuform.stacks.pricing import to_plain_properties
from gpuform.stacks.resource_rules import find_lifecycle
from gpuform.stacks.schedule.calendar import (
    ExpiredResources,
    IdleWatch,
    TimeTable,
    is_end_unknown,
    select_timed,
)
from gpuform.stacks.schedule.noticing import ExpiryObserver, ProvenCalendar


@dataclass(slots=True)
class Expiry:
    """The expiry times of a stack's resources, at one moment and as the preview showed them."""

    stack: Stack
    clock: Clock
    now: float
    expired: ExpiredResources
    idle: IdleWatch
    _refusals: dict[str, GpuformError] = field(default_factory=dict)
    _previewed_deletions: Mapping[str, bool] | None = None

    @classmethod
    def for_stack(cls, stack: Stack, clock: Clock) -> Self:
        """Build the expiry of a stack at the present moment of `clock`."""
        # Decrypted when a value is asked for: most runs need no configuration here.
        environ = stack.run_context.environ
        settings = Settings(config=lambda key: read_config(stack).get(key), environ=environ)
        watch = IdleWatch(settings, clock, Intents(EphemeralRecords(stack.get_intents().records)))
        return cls(stack, clock, clock.now(), ExpiredResources(stack), watch)

    def build_options(self, options: Options) -> Options:
        """Return the engine's options of an `expire` run.

        The run selects and refreshes the resources with an end, running hours or an idle limit;
        other targets of `options` are ignored. After a preview only the changes that it showed are
        due. Also sets where idle checks are recorded: nowhere in a preview.
        """
        urns = [entry.urn for entry in select_timed(self.stack.snapshot.resources)]
        dependents = options.selection.target_dependents
        intents = self.stack.get_intents()
        self.idle.intents = (
            # A preview's idle checks are not recorded: looking must not shorten the idle time.
            Intents(EphemeralRecords(intents.records)) if options.preview else intents
        )
        # A person may take hours to confirm: what is due must still be due now.
        synchronized_now = synchronize_clock(self.clock).now()
        table = TimeTable(
            self.now,
            self._previewed_deletions,
            self.idle,
            synchronized_now,
            is_emulated=self.clock.is_platforms,
        )
        observer = ExpiryObserver(self.idle.settings, self.clock)
        return replace(
            options,
            refresh=bool(urns),
            selection=Selection(targets=UrnPatterns(urns), target_dependents=dependents),
            calendar=ProvenCalendar(table, observer, self._refusals),
            on_clock_skew=observer.record_clock_skew,
        )

    def record_expired(self, outcome: Outcome) -> None:
        """Record the previewed deletions as expired, and limit the run to the preview.

        Recorded before the deletion, so that an interrupted run does not recreate them.
        """
        self._previewed_deletions = {
            change.urn: change.action == "delete" for change in outcome.planned
        }
        entries = [
            entry
            for entry in self.stack.snapshot.resources
            if self._previewed_deletions.get(entry.urn)
        ]
        self.expired.add(entries, self.now)

    @property
    def refusals(self) -> list[str]:
        """Return why due resources are left unchanged, one text each."""
        errors = self._refusals.values()
        return [
            f"{error.message}\n  {error.hint}" if error.hint else error.message for error in errors
        ]

    def list_names_with_unknown_end(self, outcome: Outcome) -> list[str]:
        """Return the names of resources with a time to live whose creation time is unknown."""
        return [
            name_of(entry.urn)
            for entry in select_timed(outcome.snapshot.resources)
            if is_end_unknown(entry, self.now, is_emulated=self.clock.is_platforms)
        ]

    def forget_existing(self, outcome: Outcome) -> None:
        """Remove the records of expired resources which exist after the run."""
        self.expired.forget_recreated(_list_urns(outcome))


def _list_urns(outcome: Outcome) -> Collection[str]:
    """Return the URNs of the resources in the state after a run, without old objects."""
    return {entry.urn for entry in outcome.snapshot.resources if not entry.delete}


_SHOWN_NODES = 10


@dataclass(frozen=True, slots=True)
class RepairRun:
    """A run from the state alone that repairs broken nodes, or the nodes of `node_arguments`."""

    stack: Stack
    node_arguments: tuple[str, ...] = ()

    def build_options(self, options: Options) -> Options:
        """Return the engine's options of a `repair` run, which refreshes resources with nodes.

        With requested nodes only their resources are selected.

        Raises:
            EngineError: the stack has no node of a requested name.
        """
        nodes = {
            entry.urn: _list_nodes(entry) | self._find_interrupted_repairs(entry)
            for entry in self.stack.snapshot.resources
        }
        requested_nodes = self._requested_nodes
        missing = sorted(requested_nodes - {name for names in nodes.values() for name in names})
        if missing:
            node_names = sorted(name for names in nodes.values() for name in names)
            raise EngineError(
                f"node {', '.join(missing)} not found in stack {self.stack.name}",
                hint=f"its nodes are {', '.join(node_names[:_SHOWN_NODES]) or 'none'}"
                f"{', ...' if len(node_names) > _SHOWN_NODES else ''}; `gpuform refresh` looks for "
                "new ones",
            )
        urns = [
            urn
            for urn, names in nodes.items()
            if names and (not requested_nodes or requested_nodes & names)
        ]
        return replace(
            options,
            refresh=bool(urns),
            selection=Selection(targets=UrnPatterns(urns)),
            calendar=self._find_due_repair,
            should_resume=self._is_resumed,
        )

    def _is_resumed(self, entry: ResourceState) -> bool:
        """Return True if the entry has a requested node whose repair replaces the object itself.

        Then a missing object was deleted by an interrupted repair, or outside of gpuform, and the
        repair continues by creating a new one.
        """
        lifecycle = find_lifecycle(entry.type)
        is_recreated = lifecycle is not None and lifecycle.is_recreated_by_repair
        return is_recreated and bool(self._requested_nodes & _list_nodes(entry))

    def _find_due_repair(self, entry: ResourceState) -> DueChange | None:
        """Return the repair which is due for the resource, or None.

        Interrupted repairs of requested nodes are due as well, and refused ones, whose step fails.
        """
        lifecycle = find_lifecycle(entry.type)
        if lifecycle is None:
            return None
        decision = lifecycle.hooks.decide_repairs(
            to_plain_properties(entry.outputs), to_plain_properties(entry.inputs)
        )
        # A refusal needs a step that can fail: the diff of the step raises it.
        is_due = bool(
            decision.due_repairs or decision.refusal or self._find_interrupted_repairs(entry)
        )
        return DueChange("a node is repaired", entry.inputs) if is_due else None

    @property
    def _requested_nodes(self) -> set[str]:
        """Return the node names in `node_arguments`: the part before an `=`."""
        return {argument.partition("=")[0] for argument in self.node_arguments}

    def _find_interrupted_repairs(self, entry: ResourceState) -> set[str]:
        """Return the requested nodes deleted by an interrupted repair."""
        missing = self._requested_nodes - _list_nodes(entry) if entry.custom and entry.id else set()
        repairs = Repairs.from_intents(self.stack.get_intents()) if missing else None
        return {name for name in missing if repairs and repairs.find(entry.id, name)}


def limit_repairs(run_context: RunContext, plan: Plan) -> RunContext:
    """Return the context of a run limited to the reviewed repairs in `plan`."""
    keys = (
        permissions.compute_repair_key(node_repair)
        for change in plan.changes
        for node_repair in change.repairs
        # Who rejects a repair has not approved one of the same fault.
        if not node_repair.is_withdrawal
    )
    return run_context.with_variables({permissions.REVIEWED_VARIABLE: ",".join(sorted(keys))})


def describe_unplanned_repairs(
    saved_plan: Plan, new_changes: Iterable[ResourceChange]
) -> list[str]:
    """Describe each repair of a new preview missing in the saved plan or planned differently."""
    planned_repairs = {
        (change.urn, node_repair.node): node_repair
        for change in saved_plan.changes
        for node_repair in change.repairs
    }
    differences = []
    for change in new_changes:
        for node_repair in change.repairs:
            planned_repair = planned_repairs.get((change.urn, node_repair.node))
            if planned_repair is None or _get_compared_fields(
                planned_repair
            ) != _get_compared_fields(node_repair):
                difference = "not in the plan"
                if planned_repair is not None:
                    planned = f"{planned_repair.mode} ({planned_repair.evidence})"
                    difference = f"different from the plan: {planned}"
                differences.append(
                    f"{name_of(change.urn)}: the repair of node {node_repair.node} by "
                    f"{node_repair.mode} ({node_repair.evidence}) is {difference}"
                )
    return differences


def _get_compared_fields(node_repair: NodeRepair) -> tuple[str, ...]:
    """Return the fields of a repair which must be as planned."""
    return (
        # Without `because` and `since`, which describe the fault and not the repair.
        node_repair.mode,
        node_repair.cause,
        node_repair.id,
        node_repair.instance,
        node_repair.proposed,
    )


def _list_nodes(entry: ResourceState) -> set[str]:
    """Return the names of the resource's nodes; empty for external resources and other kinds."""
    lifecycle = find_lifecycle(entry.type)
    # An external resource was only looked up: whoever created the object repairs it.
    if lifecycle is None or not entry.custom or entry.delete or entry.external:
        return set()
    return {
        *lifecycle.hooks.decide_repairs(
            to_plain_properties(entry.outputs), to_plain_properties(entry.inputs)
        ).node_names
    }
