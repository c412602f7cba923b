"""Plan and apply several stacks as one run: one plan, one question, one order.

The command line calls `run_multi_stack`. A schedule runs a process for each stack; the plans are
combined and shown, gates are evaluated over all of them, and the stacks are applied in order.
"""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.context import get_run_context
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.schemas.stacks_plan import StacksPlan, compute_stacks_digest
from gpuform.stacks.engine.ci_job import read_commit
from gpuform.stacks.gates.evaluating import allow_gates
from gpuform.stacks.multi_stack import StackOrder, find_cycles, sort_stacks
from gpuform.stacks.operations.multi_stack.applied_parts import (
    find_apply_order,
    list_applied_names,
    require_upstream_applied,
    select_planned_names,
)
from gpuform.stacks.operations.multi_stack.combined_plan import (
    assign_permissions,
    evaluate_workspace_gates,
    run_emulators,
)
from gpuform.stacks.operations.multi_stack.schedule import Schedule
from gpuform.stacks.operations.multi_stack.stack_process import (
    WAS_APPLIED,
    Form,
    Interpreter,
    OutputLine,
    ProcessPool,
    Task,
    TaskResult,
    find_interpreters,
)
from gpuform.stacks.operations.runs.callbacks import Interruptions
from gpuform.stacks.operations.runs.options import ExitReason, ReportSubject, RunOptions
from gpuform.stacks.operations.runs.stacks_plan_file import (
    StacksPlanFile,
    require_stacks_digest,
    write_stacks_plan,
)

_APPLIED_AT_ONCE: Final = 8
"""How many stacks are applied at a time. Applying is mostly waiting for platforms."""

_FORWARDED_OPTIONS: Final = (
    *("operation", "parallel", "refresh", "continue_on_error", "message", "require_checks"),
    *("exclude_protected", "run_program", "clear_pending_creates", "gates_from"),
)
"""The options of the run that are passed on to each stack's process."""


@dataclass(frozen=True, slots=True)
class MultiStackOptions:
    """The options of a multi-stack run.

    Attributes:
        run: the options of each stack's run; `plan` and `save_plan` are files with the plans of all
            stacks.
        names: the chosen stacks.
        worker_module: the dotted name of the main module of each stack's process.
        jobs: how many stacks run at a time; None for one per processor while planning, and more
            while applying.
        form: the format of the output, passed on to the processes, as are `color`, `view_options`,
            `lock_timeout` and `debug`.
        drift: a refresh only looks for changes made outside of Pulumi.
        is_part: the user has chosen stacks: of a saved plan, the stacks that were applied are left
            out, and those that a lost run has begun are continued.
        traceparent: the trace context of this run, for the processes; empty without a trace.
        rehearses: the plan of each stack is rehearsed.
        planned: the plans of other machines, which are not made again.
        planned_elsewhere: the names of all stacks that this and other machines plan; empty where
            one machine plans all of them.
        part_facts: the fields that name the schedule of parts; empty where one machine plans all.
        load_planned: returns the complete plan of another machine, of which `planned` has no more
            than people see; None where `planned` is complete.
    """

    run: RunOptions
    names: Collection[str]
    worker_module: str
    jobs: int | None = None
    form: Form = "text"
    color: bool = False
    view_options: Mapping[str, bool] = field(default_factory=dict)
    lock_timeout: float = 0.0
    debug: bool = False
    drift: bool = False
    is_part: bool = False
    traceparent: str = ""
    rehearses: bool = False
    planned: Mapping[str, TaskResult] = field(default_factory=dict)
    planned_elsewhere: Collection[str] = ()
    part_facts: Mapping[str, str] = field(default_factory=dict)
    load_planned: Callable[[str], Plan] | None = None


@dataclass(frozen=True, slots=True)
class MultiStackCallbacks:
    """The callbacks of a multi-stack run, which show the run, confirm it and interrupt it.

    `report_line` receives the lines of each stack, `on_stack_ended` the result of each stack and
    whether the run was a preview. `show_plan` receives the combined plan and the digest of its
    file, which is empty for a new plan. Without `confirm` the plan is applied without a question.
    `ask_passphrase` receives a stack and a prompt, and returns the passphrase. `rehearse` receives
    the combined plan of a preview, and returns the rehearsal of all its stacks together; None for
    plans that are not rehearsed together.
    """

    report_line: Callable[[str, OutputLine], None]
    on_stack_ended: Callable[[str, TaskResult, bool], None]
    show_plan: Callable[[StacksPlan, str], None]
    interruptions: Interruptions
    confirm: Callable[[StacksPlan], bool] | None = None
    ask_passphrase: Callable[[str, str], str | None] | None = None
    rehearse: Callable[[StacksPlan], Rehearsal | None] = lambda _plan: None


@dataclass(frozen=True, slots=True)
class MultiStackResult:
    """The result of a multi-stack run.

    `stacks` has the result of each stack: of the apply, or of the plan where nothing was applied
    because planning failed. `digest` is that of the saved file; empty where no plan was saved.
    """

    reason: ExitReason
    plan: StacksPlan | None = None
    stacks: Mapping[str, TaskResult] = field(default_factory=dict)
    digest: str = ""

    @property
    def succeeded(self) -> bool:
        return self.reason is ExitReason.SUCCEEDED


def run_multi_stack(
    order: StackOrder, options: MultiStackOptions, callbacks: MultiStackCallbacks
) -> MultiStackResult:
    """Plan the chosen stacks, and apply the plan once confirmed; without a confirmer at once.

    With `options.run.plan` the saved plan is applied instead of a new one. Nothing is applied if a
    stack cannot be planned or a gate stops the plan (see the result's reason), nor with
    `preview_only` or `drift`.

    Raises:
        EngineError: the run cannot begin; nothing was changed.
    """
    names = [name for name in order.workspace.stacks if name in options.names]
    plan_file = None if options.run.plan is None else StacksPlanFile.open(options.run.plan)
    if options.run.digest is not None:
        require_stacks_digest(plan_file, options.run.digest)
    if plan_file is not None:
        path, environ = plan_file.path, get_run_context().environ
        names = select_planned_names(
            path, plan_file.outline, order.workspace, options.run.operation, names
        )
        require_upstream_applied(path, plan_file.outline, order.workspace, names, environ)
    with _open_run(order, options, callbacks, names, plan_file) as multi_stack_run:
        return multi_stack_run.run()


def plan_stacks(
    order: StackOrder, options: MultiStackOptions, callbacks: MultiStackCallbacks
) -> tuple[dict[str, TaskResult], bool]:
    """Plan the chosen stacks as a part of a larger plan.

    Returns:
        The results of the chosen stacks by name, and whether the run was cancelled. Gates over all
        stacks are not evaluated.

    Raises:
        EngineError: the run cannot begin.
    """
    names = [name for name in order.workspace.stacks if name in options.names]
    with _open_run(order, options, callbacks, names, None) as multi_stack_run:
        return multi_stack_run.preview()


@contextmanager
def _open_run(
    order: StackOrder,
    options: MultiStackOptions,
    callbacks: MultiStackCallbacks,
    names: Sequence[str],
    plan_file: StacksPlanFile | None,
) -> "Iterator[_MultiStackRun]":
    """Start emulators and open the processes of a run; yield the run, and close all at the end."""
    started_names = [name for name in names if name not in options.planned]
    # Found before the first process starts: a missing virtualenv must not stop the run halfway.
    interpreters = find_interpreters({name: order.workspace.stacks[name] for name in started_names})
    allowed = assign_permissions(
        order.workspace,
        _get_permissions(options.run),
        options.run.gates_from,
        is_complete=set(options.planned_elsewhere) <= order.workspace.stacks.keys(),
    )
    with run_emulators(
        order.workspace, started_names, emulate=options.run.emulate
    ) as emulator_variables:
        variables = {
            name: {
                **emulator_variables.get(name, {}),
                # A process refuses permissions for gates that its project lacks.
                permissions.VARIABLE: ",".join(allowed[name]),
            }
            for name in names
        }
        processes = ProcessPool(options.worker_module)
        try:
            yield _MultiStackRun(
                order, options, callbacks, names, variables, interpreters, processes, plan_file
            )
        finally:
            processes.close()


def _get_permissions(options: RunOptions) -> frozenset[str]:
    """Return the permissions of the environment and of the options."""
    return get_run_context().with_permissions(options.allow).permissions


@dataclass(slots=True)
class _MultiStackRun:
    order: StackOrder
    options: MultiStackOptions
    callbacks: MultiStackCallbacks
    names: Sequence[str]
    variables: Mapping[str, Mapping[str, str]]
    interpreters: Mapping[str, Interpreter]
    processes: ProcessPool
    plan_file: StacksPlanFile | None

    def run(self) -> MultiStackResult:
        """Plan the stacks or take the saved plan, show the plan, ask for confirmation, and apply.

        A result without an apply has the reason: a failed or cancelled preview, gates, or a
        refusal. With `preview_only` the plan is saved if asked, even if gates block it, and a saved
        plan is only compared with a new one. With `drift` the run only shows what was changed
        outside of gpuform.
        """
        options = self.options.run
        plan_file = None if options.preview_only else self.plan_file
        plan = plan_file.outline if plan_file is not None else None
        if plan is None:
            results, is_cancelled = self.preview()
            plan = self._combine_plans(results)
            if self.options.drift:
                return self._report_drift(plan, results, is_cancelled=is_cancelled)
            # Nothing is applied unless every stack could be planned.
            if plan is None or plan.has_failed or is_cancelled:
                if plan is not None:
                    self.callbacks.show_plan(plan, "")
                reason = ExitReason.CANCELLED if is_cancelled else ExitReason.FAILED
                return MultiStackResult(reason, plan, results)
            plan = plan.model_copy(update={"rehearsal": self.callbacks.rehearse(plan)})
        # Also for a saved plan: gates of today judge it, and all of it: else one stack after the
        # other would pass them.
        plan = evaluate_workspace_gates(
            plan.model_copy(update={"gates": None}),
            self.order.workspace,
            _get_permissions(options),
            get_run_context().environ,
            options.gates_from,
            load_changes=None if plan_file is None else plan_file.load_changes,
        )
        if plan_file is not None:
            names = [item.project_stack for item in plan.plans if item.project_stack in self.names]
            selected_plans = plan_file.load_changes(names).plans
            plan = plan.model_copy(update={"plans": selected_plans})
        self.callbacks.show_plan(plan, "" if plan_file is None else plan_file.digest)
        stop_reason = self._find_stop_reason(plan)
        if options.preview_only:
            digest = ""
            if options.save_plan is not None:
                digest = write_stacks_plan(options.save_plan, plan, self.options.load_planned)
            unexpected = options.expect_no_changes and plan.has_changes
            end_reason = ExitReason.UNEXPECTED_CHANGES if unexpected else ExitReason.SUCCEEDED
            return MultiStackResult(stop_reason or end_reason, plan, digest=digest)
        if stop_reason is not None:
            return MultiStackResult(stop_reason, plan)
        confirm = self.callbacks.confirm
        if confirm is not None and plan.has_changes and not confirm(plan):
            return MultiStackResult(ExitReason.DECLINED, plan)
        return self._apply(plan)

    def preview(self) -> tuple[dict[str, TaskResult], bool]:
        """Plan every stack; an update uses the planned outputs of the stacks read by the program.

        A stack with a saved plan fails if that plan is out of date. The plans of other machines are
        used as they are.

        Returns the results of the chosen stacks, and whether the run was cancelled.
        """
        run = self.options.run
        plan_file = self.plan_file
        saved_plans = plan_file.outline.plans if plan_file is not None else ()
        operation = saved_plans[0].operation if saved_plans else run.operation
        uses_planned_outputs = operation == "update"
        dependencies = (
            self._find_dependencies()
            if uses_planned_outputs
            else {name: set[str]() for name in self.names}
        )
        # The processes show no plan of their own: the person reviews the combined one.
        reviewed = run.preview_only or self.callbacks.confirm is not None
        # The plan is saved here, for all stacks. A failed plan ends a run that would change them.
        subject: ReportSubject = "approval" if run.save_plan is not None else ""
        if not run.preview_only:
            subject = "failure"

        processors = os.cpu_count() or 1
        at_once = min(self.options.jobs or processors, len(self.names))
        rehearsal_jobs = max(1, processors // at_once) if self.options.rehearses else 0
        stacks_digest = compute_stacks_digest(
            read_commit(self.order.workspace.root), self.options.planned_elsewhere or self.names
        )

        def build_task(name: str) -> Task:
            task = self._build_task(
                name,
                {"preview_only": True, "reviewed": reviewed, "operation": operation},
                plan=None if plan_file is None else plan_file.load_content(name).decode(),
                source=str(run.plan or ""),
                uses_planned_outputs=uses_planned_outputs,
                subject=subject,
            )
            updates = {
                "rehearsal_jobs": rehearsal_jobs,
                "part_facts": dict(self.options.part_facts),
                "stacks_digest": stacks_digest,
            }
            return task.model_copy(update=updates)

        results, is_cancelled = self._run_schedule(
            dependencies, processors, build_task, self.options.planned, preview=True
        )
        return {name: results[name] for name in self.names}, is_cancelled

    def _combine_plans(self, results: Mapping[str, TaskResult]) -> StacksPlan | None:
        """Return the plans of all stacks as one, in the order of the coming apply.

        A stack whose preview failed comes at the end, with an empty plan that has the error.
        Returns None if no stack has a plan.
        """
        plans = {name: result.plan for name, result in results.items() if result.plan is not None}
        if not plans:
            return None
        workspace_name = self.order.workspace.root.name
        names = sort_stacks(self._find_apply_order(plans))
        for name, result in results.items():
            if (
                name not in plans
            ):  # a stack without a complete plan is not applied: its errors are shown
                project, _, stack = name.rpartition("/")
                updates = {"errors": (result.summary,), "operation": self.options.run.operation}
                plans[name] = Plan.from_changes(project, stack, ()).model_copy(update=updates)
                names.append(name)
        return StacksPlan(
            name=workspace_name,
            commit=read_commit(self.order.workspace.root),
            plans=tuple(plans[name] for name in names),
        )

    def _report_drift(
        self, plan: StacksPlan | None, results: Mapping[str, TaskResult], *, is_cancelled: bool
    ) -> MultiStackResult:
        """Show the changes made outside of Pulumi, also where a stack could not be read.

        Changes are a success; the reason is FAILED if a stack could not be read.
        """
        if plan is not None:
            self.callbacks.show_plan(plan, "")
        if is_cancelled:
            return MultiStackResult(ExitReason.CANCELLED, plan, results)
        is_complete = all(result.code == 0 for result in results.values())
        reason = ExitReason.SUCCEEDED if is_complete else ExitReason.FAILED
        return MultiStackResult(reason, plan, results)

    def _find_stop_reason(self, plan: StacksPlan) -> ExitReason | None:
        """Return POLICY_VIOLATION or UNCHECKED if gates or skipped checks stop the plan.

        A refresh is never stopped. Skipped checks count with `require_checks` only.
        """
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
        """Apply the plans in order of dependencies.

        Of a part of a saved plan, the plans that were applied already are left out, and those that
        a lost run has begun are continued.

        Raises:
            EngineError: the stacks depend on each other in a cycle; nothing was changed.
        """
        plans = {stack_plan.project_stack: stack_plan for stack_plan in plan.plans}
        run = self.options.run
        reviewed = run.plan is not None or self.callbacks.confirm is not None
        source = str(run.plan or "of all stacks")

        def build_task(name: str) -> Task:
            # Only now: the plans of all stacks together may not fit into memory.
            if plan_file is None:
                stack_plan = plans[name].model_dump_json()
            else:
                stack_plan = plan_file.load_content(name).decode()
            operation = plans[name].operation
            task_options: dict[str, Any] = {"operation": operation, "reviewed": reviewed}
            task = self._build_task(name, task_options, plan=stack_plan, source=source)
            return task.model_copy(update={"continues_plan": is_part})

        plan_file = self.plan_file
        is_part = plan_file is not None and (
            self.options.is_part or len(plans) < len(plan_file.outline.plans)
        )
        applied = {
            name: TaskResult(code=0, reason=ExitReason.SUCCEEDED, summary=WAS_APPLIED)
            for name in self._list_applied_names(is_part=is_part)
        }
        dependencies = self._find_apply_order(plans)
        # References found by the plans may close a cycle that the files do not show.
        for cycle in find_cycles(dependencies):
            path = " -> ".join(cycle)
            raise EngineError(
                f"these stacks depend on each other in a cycle: {path}",
                hint="run one of these stacks alone first, in its folder",
            )
        results, is_cancelled = self._run_schedule(
            dependencies, _APPLIED_AT_ONCE, build_task, applied, preview=False
        )
        results = {name: results[name] for name in plans}
        return MultiStackResult(self._choose_reason(results, is_cancelled, plan), plan, results)

    def _choose_reason(
        self, results: Mapping[str, TaskResult], is_cancelled: bool, plan: StacksPlan
    ) -> ExitReason:
        """Return the reason of an applied run: the worst of its stacks.

        If a stack failed: CANCELLED after an interruption, else OUT_OF_CREDIT, else FAILED.
        UNEXPECTED_CHANGES for changes where the user expects none.
        """
        reasons = {result.reason for result in results.values()}
        if is_cancelled and any(result.code != 0 for result in results.values()):
            return ExitReason.CANCELLED
        if ExitReason.OUT_OF_CREDIT in reasons:
            return ExitReason.OUT_OF_CREDIT
        if any(result.code != 0 for result in results.values()):
            return ExitReason.FAILED
        unexpected = self.options.run.expect_no_changes and plan.has_changes
        return ExitReason.UNEXPECTED_CHANGES if unexpected else ExitReason.SUCCEEDED

    def _list_applied_names(self, *, is_part: bool) -> list[str]:
        """Return the chosen stacks which an earlier run of an equal part has applied."""
        if self.plan_file is None or not is_part:
            return []
        environ = get_run_context().environ
        return list_applied_names(self.plan_file.outline, self.order.workspace, self.names, environ)

    def _find_apply_order(self, plans: Mapping[str, Plan]) -> dict[str, set[str]]:
        """Return, for each chosen stack with a plan, the stacks to apply before."""
        chosen_plans = {name: plans[name] for name in self.names if name in plans}
        return find_apply_order(self.order.workspace, chosen_plans)

    def _find_dependencies(self) -> dict[str, set[str]]:
        """Return, by stack, the chosen stacks read by the stack's files or listed in `after`."""
        names = set(self.names)
        return {name: (set(self.order.dependencies[name]) - {name}) & names for name in self.names}

    def _run_schedule(
        self,
        dependencies: Mapping[str, set[str]],
        jobs: int,
        build_task: Callable[[str], Task],
        known_results: Mapping[str, TaskResult],
        *,
        preview: bool,
    ) -> tuple[dict[str, TaskResult], bool]:
        """Run the task of each stack after all dependencies; return also if the run was cancelled.

        Stacks with one of the `known_results` are not run. At most `jobs` tasks run at a time,
        unless the options set another number.
        """
        callbacks = self.callbacks
        schedule = Schedule(
            self.order,
            dependencies,
            self.options.jobs or jobs,
            build_task,
            self.interpreters,
            self.processes,
            callbacks.report_line,
            lambda name, result: callbacks.on_stack_ended(name, result, preview),
            callbacks.ask_passphrase or (lambda _name, _prompt: None),
            dict(known_results),
            self.options.planned_elsewhere,
        )
        with callbacks.interruptions.register(schedule.cancel, schedule.terminate):
            return schedule.run(), schedule.is_cancelled

    def _build_task(
        self,
        name: str,
        task_options: Mapping[str, Any],
        *,
        plan: str | None = None,
        source: str = "",
        uses_planned_outputs: bool = False,
        subject: ReportSubject = "",
    ) -> Task:
        """Build a stack's task from the run's options, overridden by `task_options`."""
        options = self.options
        workspace_stack = self.order.workspace.stacks[name]
        return Task(
            folder=workspace_stack.project.directory,
            stack=workspace_stack.stack,
            variables=dict(self.variables[name]),
            options={**_collect_forwarded_options(options.run), **task_options},
            plan=plan,
            source=source,
            uses_planned_outputs=uses_planned_outputs,
            can_ask_passphrase=self.callbacks.ask_passphrase is not None,
            form=options.form,
            color=options.color,
            view_options=dict(options.view_options),
            lock_timeout=options.lock_timeout,
            debug=options.debug,
            drift=options.drift,
            subject=subject,
            traceparent=options.traceparent,
        )


def _collect_forwarded_options(options: RunOptions) -> dict[str, Any]:
    """Return the options passed on to each stack's process, without defaults."""
    defaults = {option.name: option.default for option in fields(RunOptions)}
    values = {name: getattr(options, name) for name in _FORWARDED_OPTIONS}
    return {name: value for name, value in values.items() if value != defaults[name]}
