"""Add costs, notices and the results of gates to the plan of a run.

Every run with a plan creates a `PlanEvaluator`; it calls pricing, schedules and gates.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from gpuform.providers.context import Clock, synchronize_clock
from gpuform.providers.operations import Settings
from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.stacks.engine.planning import Step
from gpuform.stacks.engine.records import read_moved_resources
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.gates.base_branch import ProjectGates
from gpuform.stacks.gates.certifications import add_unreachable_platforms, check_certifications
from gpuform.stacks.gates.evaluating import GateEvaluator
from gpuform.stacks.gates.file import read_project_gates
from gpuform.stacks.gates.usage import UsageMonitor, add_usage
from gpuform.stacks.operations.opening.selected_stack import read_config
from gpuform.stacks.price_book import PriceBook
from gpuform.stacks.pricing import add_costs
from gpuform.stacks.review.differences import (
    find_moved_resources,
    find_option_changes,
    find_renames,
)
from gpuform.stacks.schedule.agenda import list_agenda_notices
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
        """Read the project's price book and gates, or those of `project_gates`.

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
