"""Add costs, notices and the results of gates to the plan of a run.

Every run with a plan creates a `PlanEvaluator`; it calls pricing, schedules and gates.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from gpuform.providers.context import Clock, synchronize_clock
from gpuform.providers.operations import Settings
from gpuform.schemas.plan import (
    OutputChange,
    Plan,
    PlanAction,
    PlanReason,
    ResourceChange,
    ResourceDrift,
)
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.schemas.resource_facts import NodeHealth, Notice, NoticeKind
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    Op,
    Prelude,
    SkippedCheck,
    Step,
    StepDone,
    build_relations,
)
from gpuform.stacks.engine.records import read_moved_resources
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.urn import is_noise, name_of
from gpuform.stacks.gates.base_branch import ProjectGates
from gpuform.stacks.gates.evaluating import GateEvaluator
from gpuform.stacks.gates.facts import (
    UsageMonitor,
    add_unreachable_platforms,
    add_usage,
    check_certifications,
)
from gpuform.stacks.gates.file import read_project_gates
from gpuform.stacks.operations.opening.selected_stack import read_config
from gpuform.stacks.pricing import PriceBook, add_costs, list_entry_nodes
from gpuform.stacks.review.differences import (
    find_moved_resources,
    find_option_changes,
    find_renames,
)
from gpuform.stacks.review.value_text import list_output_changes
from gpuform.stacks.schedule.calendar import list_agenda_notices
from gpuform.stacks.schedule.noticing import list_step_exposures, list_step_notices


@dataclass(frozen=True, slots=True)
class PlanEvaluator:
    """The price book and the gates of a project, read once for a run."""

    book: PriceBook
    gate_evaluator: GateEvaluator
    clock: Clock
    rehearse: Callable[[Plan], Rehearsal | None] = lambda _plan: None
    weakened_gates: tuple[str, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)
    """The stack to which `state move` took a resource, by its URN in this stack."""

    @classmethod
    def load(
        cls,
        stack: Stack,
        allowed: Collection[str],
        rehearse: Callable[[Plan], Rehearsal | None] = lambda _plan: None,
        project_gates: ProjectGates | None = None,
    ) -> Self:
        """Read the project's price book and gates, or take the gates of `project_gates`.

        `allowed` names the permissions of the run; a permission `gate:NAME` lets the plan pass that
        gate. `rehearse` returns the rehearsal of a plan with changes, or None.

        Raises:
            EngineError: a file is wrong, and the error names the line; or a permission `gate:NAME`
                names no gate of the project.
        """
        project = stack.project
        if project_gates is None:
            gates = read_project_gates(project.directory)
            project_gates = ProjectGates(gates, project.directory, project.program)
        run_context = stack.run_context
        settings = Settings(config=read_config(stack).get, environ=run_context.environ)
        # A replaced object that waits for its deletion has the URN of its successor.
        ids = {entry.urn: entry.id for entry in stack.snapshot.resources if not entry.delete}
        monitoring = UsageMonitor(settings, ids)
        gate_evaluator = GateEvaluator(
            project_gates.gates, allowed, project_gates.program, monitoring
        )
        clock = synchronize_clock(run_context.clock)
        book = PriceBook.read(project_gates.directory)
        moved = read_moved_resources(stack.get_intents().records)
        return cls(book, gate_evaluator, clock, rehearse, project_gates.weakened, moved)

    @classmethod
    def load_prices(cls, stack: Stack) -> Self:
        """Read the price book without gates, for a run which changes nothing on a platform."""
        gate_evaluator = GateEvaluator((), (), stack.project.program)
        return cls(
            PriceBook.read(stack.project.directory),
            gate_evaluator,
            synchronize_clock(stack.run_context.clock),
        )

    @property
    def has_gates(self) -> bool:
        return bool(self.gate_evaluator.gates)

    def evaluate(self, plan: Plan, steps: Iterable[Step]) -> Plan:
        """Return the plan with costs, notices and the results of the gates.

        `steps` are all steps of the run that made the plan, including steps of unchanged resources.
        Requests go to the platforms: for gates about usage, and to find unreachable platforms.
        """
        steps = list(steps)
        schedule_notices = list_step_notices(
            steps, self.clock.now(), is_emulated=self.clock.is_platforms
        )
        notices = (
            *plan.notices,
            *schedule_notices,
            *list_agenda_notices(steps, self.clock.now(), is_emulated=self.clock.is_platforms),
            *find_option_changes(steps),
            *find_renames(steps),
            *find_moved_resources(steps, self.moved),
        )
        # Proofs are part of the plan only where a gate asks for them.
        proofs = check_certifications(steps) if self.gate_evaluator.has_rule("certified") else None
        evidence = {"exposures": list_step_exposures(steps), "proofs": proofs}
        # Costs and notices come first: gates judge the plan by them.
        plan = add_costs(plan, steps, self.book).model_copy(update={"notices": notices, **evidence})
        if plan.has_changes and not plan.errors:
            plan = plan.model_copy(update={"rehearsal": self.rehearse(plan)})
        plan = plan.model_copy(update={"weakened_gates": self.weakened_gates})
        plan = self.gate_evaluator.evaluate(plan)
        monitoring = self.gate_evaluator.monitoring
        if monitoring is None:
            return plan
        return add_unreachable_platforms(add_usage(plan, monitoring), steps, monitoring.settings)


_REASONS = {
    Op.CREATE: PlanReason.NEW,
    Op.UPDATE: PlanReason.CHANGED,
    Op.DELETE: PlanReason.NOT_IN_PROGRAM,
}


@dataclass(slots=True)
class RunRecord:
    """The events of one run. The stack itself and providers are not counted as resources."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    _operation: str = ""
    _counted_steps: dict[tuple[str, Op], Step] = field(default_factory=dict)
    _deleted_for_replacements: dict[str, Step] = field(default_factory=dict)
    _drift: dict[str, ResourceDrift] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Prelude):
            self._operation = event.operation
        elif isinstance(event, Diagnostic):
            self.diagnostics.append(event)
        elif isinstance(event, SkippedCheck):
            self.unchecked.append(event.text)
        elif isinstance(event, StepDone):
            self._record_step(event.step)

    def _record_step(self, step: Step) -> None:
        """Count the step by resource and operation.

        Physical steps, the refresh before an update, and types of Pulumi's own are not counted. A
        deletion for a replacement that does not follow counts as a deletion.
        """
        if step.op is Op.DELETE_REPLACED and step.change is not None and not step.state.delete:
            self._deleted_for_replacements[step.urn] = step
        elif step.op is Op.REMOVE_PENDING_REPLACE and step.urn in self._deleted_for_replacements:
            # A resource that depends on a replaced one, and is not created again: a deletion.
            deletion = replace(self._deleted_for_replacements.pop(step.urn), op=Op.DELETE)
            self._counted_steps[step.urn, Op.DELETE] = deletion
        elif self._is_counted(step):
            self._counted_steps[step.urn, step.op] = step
        elif step.op is Op.REFRESH and step.result_op is not Op.SAME and step.change is not None:
            self._drift[step.urn] = _build_drift(step, step.change)

    def _is_counted(self, step: Step) -> bool:
        """Return False for Pulumi's own types, physical steps and a refresh before an update."""
        if is_noise(step.state.type) or not step.op.is_logical:
            return False
        # A refresh before an update is no change of its own: its differences are in the update.
        return step.op is not Op.REFRESH or self._operation == "refresh"

    @property
    def steps(self) -> Collection[Step]:
        """Return the counted steps, including steps of unchanged resources."""
        return self._counted_steps.values()

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the number of resources by Pulumi's name of the operation."""
        return Counter(str(step.shown_op) for step in self._counted_steps.values())

    @property
    def error_count(self) -> int:
        """Return the number of resources with an error in the run."""
        return len({d.urn for d in self.diagnostics if d.severity == "error" and d.urn})

    def build_plan(self, project: str, stack: str, outcome: Outcome) -> Plan:
        """Return the plan of the run, including components, which no provider reports.

        `outcome` is the engine's result of the same run.
        """
        planned = [*outcome.planned, *self._list_component_changes()]
        planned_actions = {(change.urn, change.action) for change in planned}
        # Among these are resources that fell with a replaced one and do not come back.
        planned += [c for c in self._list_deletions() if (c.urn, c.action) not in planned_actions]
        changes = [change for change in planned if not is_noise(change.type)]
        if self._operation == "destroy":
            reason = {"reason": PlanReason.DESTROYED}
            changes = [change.model_copy(update=reason) for change in changes]
        if self._operation == "expire":
            changes = [_set_expired_reason(change) for change in changes]
        plan = Plan.from_changes(project, stack, changes, unchecked=self.unchecked)
        notices = tuple(Notice(kind=NoticeKind.SELECTION, text=line) for line in outcome.scope)
        outputs: tuple[OutputChange, ...] = ()
        if self._operation == "update":
            outputs = tuple(list_output_changes(outcome.outputs_before, outcome.outputs))
        updates: dict[str, object] = {
            "operation": self._operation,
            "outputs": outputs,
            "notices": notices,
            "stack_references": outcome.stack_references,
            # Objects are read side by side: equal plans have one order.
            "drift": tuple(self._drift[urn] for urn in sorted(self._drift)),
        }
        if unchanged_count := self.counts.get(str(Op.SAME)):
            updates["summary"] = {**plan.summary, PlanAction.SAME: unchanged_count}
        return plan.model_copy(update=updates)

    def _list_deletions(self) -> list[ResourceChange]:
        """List the planned changes of the run's deletions."""
        return [
            step.change
            for (_, op), step in self._counted_steps.items()
            if op is Op.DELETE and step.change
        ]

    def _list_component_changes(self) -> list[ResourceChange]:
        """List the changes of components, which have no provider to describe a change."""
        return [
            ResourceChange(
                urn=step.urn,
                type=step.state.type,
                name=name_of(step.urn),
                action=PlanAction(str(step.op)),
                reason=_REASONS[step.op],
                gpus_added=0,
                gpus_removed=0,
                **build_relations(step.state),
            )
            for step in self._counted_steps.values()
            # A step without a change of a provider is that of a component.
            if step.change is None and step.op in _REASONS
        ]


def _build_drift(step: Step, change: ResourceChange) -> ResourceDrift:
    """Return the drift found by a refresh in a resource, which is gone or changed."""
    if step.new is None:
        return ResourceDrift(urn=step.urn, is_gone=True)
    nodes = list_entry_nodes(step.new)
    return ResourceDrift(
        urn=step.urn,
        changes=change.changes,
        nodes=len(nodes) if nodes or (step.old and list_entry_nodes(step.old)) else None,
        failed_nodes=tuple(
            node.name for node in nodes if node.health_state is NodeHealth.UNHEALTHY
        ),
    )


def _set_expired_reason(change: ResourceChange) -> ResourceChange:
    """Return the change with the reason EXPIRED if the change deletes an existing object."""
    # What is gone from its platform did not expire, nor did what an earlier run has replaced.
    has_other_reason = change.reason in (PlanReason.GONE, PlanReason.REPLACED_EARLIER)
    if change.action is not PlanAction.DELETE or has_other_reason:
        return change
    return change.model_copy(update={"reason": PlanReason.EXPIRED})
