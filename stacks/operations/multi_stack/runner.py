"""Plan and apply several stacks as one run: one plan, one question, one order.

The command line calls `run_multi_stack`. A schedule runs a process for each stack; the plans are
combined and shown, gates are evaluated over all of them, and the stacks are applied in order.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.store import build_full_name
from gpuform.stacks.gates.evaluating import allow_gates
from gpuform.stacks.multi_stack import StackOrder, find_cycles, sort_by_dependencies
from gpuform.stacks.operations.multi_stack.combined_plan import (
    assign_permissions,
    evaluate_workspace_gates,
    run_emulators,
)
from gpuform.stacks.operations.multi_stack.schedule import Schedule
from gpuform.stacks.operations.multi_stack.stack_process import (
    Ended,
    Form,
    Interpreter,
    Line,
    ProcessPool,
    Task,
    find_interpreters,
)
from gpuform.stacks.operations.plans.plan_file import PlanRefused, read_stacks_plan, write_plan
from gpuform.stacks.operations.runs.callbacks import Interruptions
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.results import ExitReason

_APPLIED_AT_ONCE: Final = 8
"""How many stacks are applied at a time. Applying is mostly waiting for platforms."""

_FORWARDED_OPTIONS: Final = (
    *("operation", "parallel", "refresh", "continue_on_error", "message", "require_checks"),
    *("exclude_protected", "run_program", "clear_pending_creates"),
)
"""The options of the run that are passed on to each stack's process."""


@dataclass(frozen=True, slots=True)
class MultiStackOptions:
    """The options of a multi-stack run. `run` applies to each stack; its files hold all plans.

    `names` are the chosen stacks. With `drift` a refresh only looks. `jobs` is the number of stacks
    at a time; None means one per processor while planning, and more while applying. `form`,
    `color`, `showing`, `lock_timeout` and `debug` are passed on to the processes.
    """

    run: RunOptions
    names: Collection[str]
    jobs: int | None = None
    form: Form = "text"
    color: bool = False
    showing: Mapping[str, bool] = field(default_factory=dict)
    lock_timeout: float = 0.0
    debug: bool = False
    drift: bool = False


@dataclass(frozen=True, slots=True)
class MultiStackCallbacks:
    """The user of a multi-stack run: sees its events, confirms changes, and may interrupt it.

    `report_line` receives the lines of each stack, `on_stack_ended` the result of each stack and
    whether the run was a preview, `show_plan` the combined plan. Without `confirm` the plan is
    applied without a question. `ask_passphrase` asks for a passphrase.
    """

    report_line: Callable[[str, Line], None]
    on_stack_ended: Callable[[str, Ended, bool], None]
    show_plan: Callable[[StacksPlan], None]
    interruptions: Interruptions
    confirm: Callable[[StacksPlan], bool] | None = None
    ask_passphrase: Callable[[str, str], str | None] | None = None


@dataclass(frozen=True, slots=True)
class MultiStackResult:
    """How a multi-stack run ended; `stacks` has the result of each stack that was applied."""

    reason: ExitReason
    plan: StacksPlan | None = None
    stacks: Mapping[str, Ended] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        return self.reason is ExitReason.SUCCEEDED


def run_multi_stack(
    order: StackOrder, options: MultiStackOptions, callbacks: MultiStackCallbacks
) -> MultiStackResult:
    """Plan the chosen stacks, and apply the plan if it is confirmed.

    Raises:
        EngineError: the run cannot begin; nothing was changed.
    """
    names = [name for name in order.workspace.stacks if name in options.names]
    saved_plan = None if options.run.plan is None else read_stacks_plan(options.run.plan)
    if saved_plan is not None:
        names = _select_planned_names(saved_plan, order, options, names)
    interpreters = find_interpreters({name: order.workspace.stacks[name] for name in names})
    allowed = assign_permissions(order.workspace, _get_permissions(options.run))
    with run_emulators(order.workspace, names, wanted=options.run.emulate) as emulator_variables:
        variables = {
            name: {
                **emulator_variables.get(name, {}),
                permissions.VARIABLE: ",".join(allowed[name]),
            }
            for name in names
        }
        processes = ProcessPool()
        try:
            multi_stack_run = _MultiStackRun(
                order, options, callbacks, names, variables, interpreters, processes, saved_plan
            )
            return multi_stack_run.run()
        finally:
            processes.close()


def _get_permissions(run: RunOptions) -> frozenset[str]:
    return permissions.get_permissions() | permissions.parse_permissions(",".join(run.allow))


def _select_planned_names(
    saved_plan: StacksPlan,
    order: StackOrder,
    options: MultiStackOptions,
    chosen_names: Sequence[str],
) -> list[str]:
    """Return the stacks of the saved plan that the user chose.

    Raises:
        PlanRefused: the plan belongs to another workspace or to another operation.
    """
    names = [_format_stack_name(plan) for plan in saved_plan.plans]
    missing = [name for name in names if name not in order.workspace.stacks]
    if missing:
        raise PlanRefused(
            f"{options.run.plan} plans {', '.join(missing)}, which is none of the stacks here",
            hint="apply it where it was made: in the folder of stacks.yaml, or of the projects",
        )
    planned = saved_plan.plans[0].operation
    if options.run.operation not in ("update", planned):
        raise PlanRefused(
            f"{options.run.plan} is a plan of another operation: {planned}",
            hint=f"apply it with `gpuform up --all --plan {options.run.plan}`",
        )
    selected_names = [name for name in names if name in chosen_names]
    _require_planned_together(saved_plan, selected_names, options)
    return selected_names


def _require_planned_together(
    saved_plan: StacksPlan, selected_names: Collection[str], options: MultiStackOptions
) -> None:
    """Raise PlanRefused for a stack planned with outputs of a plan that is not applied now."""
    seals = {
        build_full_name(plan.project, plan.stack): plan.basis.seal if plan.basis else ""
        for plan in saved_plan.plans
        if _format_stack_name(plan) in selected_names
    }
    for plan in saved_plan.plans:
        if _format_stack_name(plan) not in selected_names:
            continue
        for stack, seal in plan.planned_with.items():
            if seals.get(stack) != seal:
                other = stack.removeprefix("organization/")
                raise PlanRefused(
                    f"{_format_stack_name(plan)} was planned with what {other} will give out, "
                    f"and {other} is not applied by the same plan",
                    hint=f"apply {options.run.plan} as it was made, or make a new plan with the "
                    "same --filter",
                )


def _format_stack_name(plan: Plan) -> str:
    return f"{plan.project}/{plan.stack}"


@dataclass(slots=True)
class _MultiStackRun:
    order: StackOrder
    options: MultiStackOptions
    callbacks: MultiStackCallbacks
    names: Sequence[str]
    variables: Mapping[str, Mapping[str, str]]
    interpreters: Mapping[str, Interpreter]
    processes: ProcessPool
    saved_plan: StacksPlan | None

    def run(self) -> MultiStackResult:
        options = self.options.run
        plan = self.saved_plan
        if plan is None:
            ended, is_cancelled = self._preview()
            plan = self._combine_plans(ended)
            if self.options.drift:
                return self._report_drift(plan, ended, is_cancelled=is_cancelled)
            if plan is None or plan.has_failed or is_cancelled:
                if plan is not None:
                    self.callbacks.show_plan(plan)
                reason = ExitReason.CANCELLED if is_cancelled else ExitReason.FAILED
                return MultiStackResult(reason, plan, ended)
        else:
            plan = self._select_plans(plan)
        plan = evaluate_workspace_gates(
            plan, self.order.workspace, _get_permissions(options), os.environ
        )
        self.callbacks.show_plan(plan)
        stop_reason = self._find_stop_reason(plan)
        if options.preview_only:
            if options.save_plan is not None:
                write_plan(options.save_plan, plan)
            unexpected = options.expect_no_changes and plan.has_changes
            end_reason = ExitReason.UNEXPECTED_CHANGES if unexpected else ExitReason.SUCCEEDED
            return MultiStackResult(stop_reason or end_reason, plan)
        if stop_reason is not None:
            return MultiStackResult(stop_reason, plan)
        confirm = self.callbacks.confirm
        if confirm is not None and plan.has_changes and not confirm(plan):
            return MultiStackResult(ExitReason.DECLINED, plan)
        return self._apply(plan)

    def _preview(self) -> tuple[dict[str, Ended], bool]:
        """Plan every stack with the planned outputs of the stacks that it reads.

        Returns the results, and whether the run was cancelled.
        """
        run = self.options.run
        foresees = run.operation == "update"
        dependencies = (
            self._find_dependencies({}) if foresees else {name: set[str]() for name in self.names}
        )
        reviewed = run.preview_only or self.callbacks.confirm is not None

        def task(name: str) -> Task:
            return self._build_task(
                name, {"preview_only": True, "reviewed": reviewed}, foresees=foresees
            )

        return self._run_schedule(dependencies, os.cpu_count() or 1, task, preview=True)

    def _combine_plans(self, ended: Mapping[str, Ended]) -> StacksPlan | None:
        """Return the combined plan, in the order of application; None without any plan."""
        plans = {name: result.plan for name, result in ended.items() if result.plan is not None}
        if not plans:
            return None
        root = self.order.workspace.root.name
        names = sort_by_dependencies(self._find_apply_order(plans))
        for name, result in ended.items():
            if name not in plans:  # a plan that is not whole is not applied: it says why
                project, _, stack = name.rpartition("/")
                updates = {"errors": (result.text,), "operation": self.options.run.operation}
                plans[name] = Plan.from_changes(project, stack, ()).model_copy(update=updates)
                names.append(name)
        return StacksPlan(name=root, plans=tuple(plans[name] for name in names))

    def _report_drift(
        self, plan: StacksPlan | None, ended: Mapping[str, Ended], *, is_cancelled: bool
    ) -> MultiStackResult:
        """Show the changes made outside of Pulumi, also where a stack could not be read."""
        if plan is not None:
            self.callbacks.show_plan(plan)
        if is_cancelled:
            return MultiStackResult(ExitReason.CANCELLED, plan, ended)
        is_complete = all(result.code == 0 for result in ended.values())
        reason = ExitReason.SUCCEEDED if is_complete else ExitReason.FAILED
        return MultiStackResult(reason, plan, ended)

    def _select_plans(self, plan: StacksPlan) -> StacksPlan:
        selected_plans = tuple(
            stack_plan for stack_plan in plan.plans if _format_stack_name(stack_plan) in self.names
        )
        if not selected_plans:
            raise PlanRefused(
                f"{self.options.run.plan} plans none of the stacks that --filter leaves"
            )
        return plan.model_copy(update={"plans": selected_plans, "gates": None})

    def _find_stop_reason(self, plan: StacksPlan) -> ExitReason | None:
        if self.options.run.operation == "refresh":
            return None
        gates = [
            *(plan.gates or ()),
            *(gate for stack_plan in plan.plans for gate in stack_plan.gates or ()),
        ]
        if any(gate.is_blocking for gate in allow_gates(gates, _get_permissions(self.options.run))):
            return ExitReason.POLICY_VIOLATION
        is_unchecked = self.options.run.require_checks and any(
            stack_plan.unchecked for stack_plan in plan.plans
        )
        return ExitReason.UNCHECKED if is_unchecked else None

    def _apply(self, plan: StacksPlan) -> MultiStackResult:
        plans = {_format_stack_name(stack_plan): stack_plan for stack_plan in plan.plans}
        run = self.options.run
        reviewed = run.plan is not None or self.callbacks.confirm is not None
        source = str(run.plan or "of all stacks")

        def task(name: str) -> Task:
            stack_plan = plans[name]
            task_options: dict[str, Any] = {"operation": stack_plan.operation, "reviewed": reviewed}
            return self._build_task(name, task_options, plan=stack_plan, source=source)

        dependencies = self._find_apply_order(plans)
        for cycle in find_cycles(dependencies):
            path = " -> ".join(cycle)
            raise EngineError(
                f"these stacks need each other by their states: {path}",
                hint="do one of them by itself first, in its folder",
            )
        ended, is_cancelled = self._run_schedule(
            dependencies, _APPLIED_AT_ONCE, task, preview=False
        )
        return MultiStackResult(self._choose_reason(ended, is_cancelled, plan), plan, ended)

    def _choose_reason(
        self, ended: Mapping[str, Ended], is_cancelled: bool, plan: StacksPlan
    ) -> ExitReason:
        reasons = {result.reason for result in ended.values()}
        if is_cancelled and any(result.code != 0 for result in ended.values()):
            return ExitReason.CANCELLED
        if ExitReason.OUT_OF_CREDIT in reasons:
            return ExitReason.OUT_OF_CREDIT
        if any(result.code != 0 for result in ended.values()):
            return ExitReason.FAILED
        unexpected = self.options.run.expect_no_changes and plan.has_changes
        return ExitReason.UNEXPECTED_CHANGES if unexpected else ExitReason.SUCCEEDED

    def _find_apply_order(self, plans: Mapping[str, Plan]) -> dict[str, set[str]]:
        """Return the stacks that are applied before each stack.

        These are the stacks that the stack reads. Where a stack is destroyed the order is reversed.
        """
        dependencies = self._find_dependencies(plans)
        if all(plan.operation != "destroy" for plan in plans.values()):
            return dependencies
        dependents: dict[str, set[str]] = {name: set() for name in dependencies}
        for name, required_names in dependencies.items():
            for other in required_names:
                dependents[other].add(name)
        return dependents

    def _find_dependencies(self, plans: Mapping[str, Plan]) -> dict[str, set[str]]:
        """Return the stacks that each stack reads, by its files and by its plan's references."""
        members = self.order.workspace.stacks
        names = [name for name in self.names if not plans or name in plans]
        dependencies: dict[str, set[str]] = {}
        for name in names:
            # What runs no program goes by the states: the files may be of later.
            is_run = self.options.run.operation == "update" and not plans
            required_names = set(self.order.dependencies[name] if is_run else members[name].after)
            for stack in plans[name].stack_references if plans else ():
                other = self.order.workspace.find(members[name].backend, stack)
                required_names |= {other.name} if other is not None else set()
            dependencies[name] = (required_names - {name}) & set(names)
        return dependencies

    def _run_schedule(
        self,
        dependencies: Mapping[str, set[str]],
        jobs: int,
        task: Callable[[str], Task],
        *,
        preview: bool,
    ) -> tuple[dict[str, Ended], bool]:
        callbacks = self.callbacks
        schedule = Schedule(
            self.order,
            dependencies,
            self.options.jobs or jobs,
            task,
            self.interpreters,
            self.processes,
            callbacks.report_line,
            lambda name, ended: callbacks.on_stack_ended(name, ended, preview),
            callbacks.ask_passphrase or (lambda _name, _prompt: None),
        )
        with callbacks.interruptions.register(schedule.cancel, schedule.terminate):
            return schedule.run(), schedule.is_cancelled

    def _build_task(
        self,
        name: str,
        task_options: Mapping[str, Any],
        *,
        plan: Plan | None = None,
        source: str = "",
        foresees: bool = False,
    ) -> Task:
        options = self.options
        member = self.order.workspace.stacks[name]
        return Task(
            folder=member.project.directory,
            stack=member.stack,
            variables=dict(self.variables[name]),
            options={**_collect_forwarded_options(options.run), **task_options},
            plan=plan,
            source=source,
            foresees=foresees,
            asks=self.callbacks.ask_passphrase is not None,
            form=options.form,
            color=options.color,
            showing=dict(options.showing),
            lock_timeout=options.lock_timeout,
            debug=options.debug,
            drift=options.drift,
        )


def _collect_forwarded_options(run: RunOptions) -> dict[str, Any]:
    """Return the options of the run that each stack's process gets, without defaults."""
    defaults = {option.name: option.default for option in fields(RunOptions)}
    values = {name: getattr(run, name) for name in _FORWARDED_OPTIONS}
    return {name: value for name, value in values.items() if value != defaults[name]}
