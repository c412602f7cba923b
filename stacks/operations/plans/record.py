"""What a run told, kept for the text that follows it."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from gpuform.schemas.plan import OutputChange, Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    Op,
    Prelude,
    Step,
    StepDone,
    Unchecked,
    place_of,
)
from gpuform.stacks.engine.urn import is_noise, name_of
from gpuform.stacks.review.value_text import list_output_changes

_REASONS = {
    Op.CREATE: PlanReason.NEW,
    Op.UPDATE: PlanReason.CHANGED,
    Op.DELETE: PlanReason.NOT_IN_PROGRAM,
}


@dataclass(slots=True)
class RunRecord:
    """Collects the events of one run; the stack itself and providers are left out."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    _operation: str = ""
    _done: dict[tuple[str, Op], Step] = field(default_factory=dict)
    _fallen: dict[str, Step] = field(default_factory=dict)

    def __call__(self, event: Event) -> None:
        if isinstance(event, Prelude):
            self._operation = event.operation
        elif isinstance(event, Diagnostic):
            self.diagnostics.append(event)
        elif isinstance(event, Unchecked):
            self.unchecked.append(event.text)
        elif isinstance(event, StepDone):
            self._keep(event.step)

    def _keep(self, step: Step) -> None:
        if step.op is Op.DELETE_REPLACED and step.change is not None:
            self._fallen[step.urn] = step
        elif step.op is Op.REMOVE_PENDING_REPLACE and step.urn in self._fallen:
            # It fell with another resource, and nothing comes in its place.
            gone = replace(self._fallen.pop(step.urn), op=Op.DELETE)
            self._done[step.urn, Op.DELETE] = gone
        elif self._is_counted(step):
            self._done[step.urn, step.op] = step

    def _is_counted(self, step: Step) -> bool:
        if is_noise(step.state.type) or not step.op.is_logical:
            return False
        return step.op is not Op.REFRESH or self._operation == "refresh"

    @property
    def steps(self) -> Collection[Step]:
        """The operations that count, unchanged resources among them."""
        return self._done.values()

    @property
    def counts(self) -> Mapping[str, int]:
        """How many resources by Pulumi's names of the operations."""
        return Counter(str(step.shown_op) for step in self._done.values())

    @property
    def errored(self) -> int:
        """How many resources failed."""
        return len({d.urn for d in self.diagnostics if d.severity == "error" and d.urn})

    def plan(self, project: str, stack: str, outcome: Outcome) -> Plan:
        """The plan that the run made, with the components, of which providers know nothing."""
        planned = [*outcome.planned, *self._components()]
        known = {(change.urn, change.action) for change in planned}
        planned += [c for c in self._deletions() if (c.urn, c.action) not in known]
        changes = [change for change in planned if not is_noise(change.type)]
        if self._operation == "destroy":
            reason = {"reason": PlanReason.DESTROYED}
            changes = [change.model_copy(update=reason) for change in changes]
        if self._operation == "expire":
            changes = [_expired(change) for change in changes]
        plan = Plan.from_changes(project, stack, changes, unchecked=self.unchecked)
        notices = tuple(Notice(kind=NoticeKind.SELECTION, text=text) for text in outcome.scope)
        outputs: tuple[OutputChange, ...] = ()
        if self._operation == "update":
            outputs = tuple(list_output_changes(outcome.outputs_before, outcome.outputs))
        told: dict[str, object] = {
            "operation": self._operation,
            "outputs": outputs,
            "notices": notices,
            "stack_references": outcome.stack_references,
        }
        if same := self.counts.get(str(Op.SAME)):
            told["summary"] = {**plan.summary, PlanAction.SAME: same}
        return plan.model_copy(update=told)

    def _deletions(self) -> list[ResourceChange]:
        return [s.change for (_, op), s in self._done.items() if op is Op.DELETE and s.change]

    def _components(self) -> list[ResourceChange]:
        return [
            ResourceChange(
                urn=step.urn,
                type=step.state.type,
                name=name_of(step.urn),
                action=PlanAction(str(step.op)),
                reason=_REASONS[step.op],
                gpus_added=0,
                gpus_removed=0,
                **place_of(step.state),
            )
            for step in self._done.values()
            if step.change is None and step.op in _REASONS
        ]


def _expired(change: ResourceChange) -> ResourceChange:
    if change.action is not PlanAction.DELETE or change.reason is PlanReason.GONE:
        return change
    return change.model_copy(update={"reason": PlanReason.EXPIRED})
