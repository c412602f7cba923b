"""Several stacks planned and applied as one: one plan, one answer, one order."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.schemas.plan import Plan
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.store import build_full_name
from gpuform.stacks.gates.evaluating import lifted
from gpuform.stacks.multi_stack import Order, circles, sequence
from gpuform.stacks.operations.plans.plan_file import PlanRefused, read_stacks_plan, write_plan
from gpuform.stacks.operations.runs.caller import Interruptions
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.results import ExitReason
from gpuform.stacks.operations.several.process import (
    Ended,
    Form,
    Interpreter,
    Line,
    Processes,
    Task,
    interpreters,
)
from gpuform.stacks.operations.several.schedule import Schedule
from gpuform.stacks.operations.several.whole_plan import allowed_in, emulated, judged

_APPLIED_AT_ONCE: Final = 8
"""Stacks that are applied at a time: most of that is waiting."""

_TOLD: Final = (
    *("operation", "parallel", "refresh", "continue_on_error", "message", "require_checks"),
    *("exclude_protected", "run_program", "clear_pending_creates"),
)
"""The options of a run that hold for each of its stacks."""


@dataclass(frozen=True, slots=True)
class SeveralOptions:
    """`run` says what is done with each stack; its `plan` and `save_plan` are files of all plans.

    `names` are the stacks that it is about; with `drift` a refresh only looks. `jobs` is how many
    work at a time; None: as many as there are processors while planning, more while applying.
    `form`, `color`, `showing`, `lock_timeout` and `debug` are for the processes.
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
class SeveralCaller:
    """Who wants it: is told what happens, is asked before a change, and may interrupt it.

    `tell` gets the lines of each stack, `ended` how each ended and whether that was a preview;
    `show` gets the plan of all. Without `confirm` nobody is asked. `answer` asks for a passphrase.
    """

    tell: Callable[[str, Line], None]
    ended: Callable[[str, Ended, bool], None]
    show: Callable[[StacksPlan], None]
    interruptions: Interruptions
    confirm: Callable[[StacksPlan], bool] | None = None
    answer: Callable[[str, str], str | None] | None = None


@dataclass(frozen=True, slots=True)
class SeveralResult:
    """How it ended: `reason` of all, and how each stack ended, where any was applied."""

    reason: ExitReason
    plan: StacksPlan | None = None
    stacks: Mapping[str, Ended] = field(default_factory=dict)

    @property
    def succeeded(self) -> bool:
        return self.reason is ExitReason.SUCCEEDED


def run_several(order: Order, options: SeveralOptions, caller: SeveralCaller) -> SeveralResult:
    """Does it. Raises EngineError for what stops it before anything is done."""
    chosen = [name for name in order.estate.members if name in options.names]
    saved = None if options.run.plan is None else read_stacks_plan(options.run.plan)
    if saved is not None:
        chosen = _planned_names(saved, order, options, chosen)
    found = interpreters({name: order.estate.members[name] for name in chosen})
    allowed = allowed_in(order.estate, _allowed(options.run))
    with emulated(order.estate, chosen, wanted=options.run.emulate) as worlds:
        variables = {
            name: {**worlds.get(name, {}), permissions.VARIABLE: ",".join(allowed[name])}
            for name in chosen
        }
        processes = Processes()
        try:
            several = _Several(order, options, caller, chosen, variables, found, processes, saved)
            return several.go()
        finally:
            processes.close()


def _allowed(run: RunOptions) -> frozenset[str]:
    return permissions.get_permissions() | permissions.parse_permissions(",".join(run.allow))


def _planned_names(
    saved: StacksPlan, order: Order, options: SeveralOptions, chosen: Sequence[str]
) -> list[str]:
    """The stacks of a saved plan that are wanted."""
    names = [_name(plan) for plan in saved.plans]
    missing = [name for name in names if name not in order.estate.members]
    if missing:
        raise PlanRefused(
            f"{options.run.plan} plans {', '.join(missing)}, which is none of the stacks here",
            hint="apply it where it was made: in the folder of stacks.yaml, or of the projects",
        )
    planned = saved.plans[0].operation
    if options.run.operation not in ("update", planned):
        raise PlanRefused(
            f"{options.run.plan} is a plan of another operation: {planned}",
            hint=f"apply it with `gpuform up --all --plan {options.run.plan}`",
        )
    kept = [name for name in names if name in chosen]
    _refuse_apart(saved, kept, options)
    return kept


def _refuse_apart(saved: StacksPlan, kept: Collection[str], options: SeveralOptions) -> None:
    """Raises PlanRefused for a part without the very plans that it was made with."""
    seals = {
        build_full_name(each.project, each.stack): each.basis.seal if each.basis else ""
        for each in saved.plans
        if _name(each) in kept
    }
    for plan in saved.plans:
        if _name(plan) not in kept:
            continue
        for stack, seal in plan.planned_with.items():
            if seals.get(stack) != seal:
                other = stack.removeprefix("organization/")
                raise PlanRefused(
                    f"{_name(plan)} was planned with what {other} will give out, and {other} is "
                    f"not applied by the same plan",
                    hint=f"apply {options.run.plan} as it was made, or make a new plan with the "
                    "same --filter",
                )


def _name(plan: Plan) -> str:
    return f"{plan.project}/{plan.stack}"


@dataclass(slots=True)
class _Several:
    order: Order
    options: SeveralOptions
    caller: SeveralCaller
    names: Sequence[str]
    variables: Mapping[str, Mapping[str, str]]
    interpreters: Mapping[str, Interpreter]
    processes: Processes
    saved: StacksPlan | None

    def go(self) -> SeveralResult:
        run = self.options.run
        plan = self.saved
        if plan is None:
            ended, is_cancelled = self._preview()
            plan = self._plan(ended)
            if self.options.drift:
                return self._looked(plan, ended, is_cancelled=is_cancelled)
            if plan is None or plan.has_failed or is_cancelled:
                if plan is not None:
                    self.caller.show(plan)
                reason = ExitReason.CANCELLED if is_cancelled else ExitReason.FAILED
                return SeveralResult(reason, plan, ended)
        else:
            plan = self._narrowed(plan)
        plan = judged(plan, self.order.estate, _allowed(run), os.environ)
        self.caller.show(plan)
        stopped = self._stopped(plan)
        if run.preview_only:
            if run.save_plan is not None:
                write_plan(run.save_plan, plan)
            unexpected = run.expect_no_changes and plan.has_changes
            done = ExitReason.UNEXPECTED_CHANGES if unexpected else ExitReason.SUCCEEDED
            return SeveralResult(stopped or done, plan)
        if stopped is not None:
            return SeveralResult(stopped, plan)
        confirm = self.caller.confirm
        if confirm is not None and plan.has_changes and not confirm(plan):
            return SeveralResult(ExitReason.DECLINED, plan)
        return self._apply(plan)

    def _preview(self) -> tuple[dict[str, Ended], bool]:
        """Plans every stack with what those before it will give out."""
        run = self.options.run
        foresees = run.operation == "update"
        needs = self._needs({}) if foresees else {name: set[str]() for name in self.names}
        reviewed = run.preview_only or self.caller.confirm is not None

        def task(name: str) -> Task:
            return self._task(name, {"preview_only": True, "reviewed": reviewed}, foresees=foresees)

        return self._scheduled(needs, os.cpu_count() or 1, task, preview=True)

    def _plan(self, ended: Mapping[str, Ended]) -> StacksPlan | None:
        """The plan of all, in the order in which it is applied; None where nothing was planned."""
        plans = {name: each.plan for name, each in ended.items() if each.plan is not None}
        if not plans:
            return None
        root = self.order.estate.root.name
        found = sequence(self._applied_after(plans))
        for name, each in ended.items():
            if name not in plans:  # a plan that is not whole is not applied: it says why
                project, _, stack = name.rpartition("/")
                told = {"errors": (each.text,), "operation": self.options.run.operation}
                plans[name] = Plan.from_changes(project, stack, ()).model_copy(update=told)
                found.append(name)
        return StacksPlan(name=root, plans=tuple(plans[name] for name in found))

    def _looked(
        self, plan: StacksPlan | None, ended: Mapping[str, Ended], *, is_cancelled: bool
    ) -> SeveralResult:
        """What was found is told, also where not all of it could be read."""
        if plan is not None:
            self.caller.show(plan)
        if is_cancelled:
            return SeveralResult(ExitReason.CANCELLED, plan, ended)
        is_whole = all(each.code == 0 for each in ended.values())
        reason = ExitReason.SUCCEEDED if is_whole else ExitReason.FAILED
        return SeveralResult(reason, plan, ended)

    def _narrowed(self, plan: StacksPlan) -> StacksPlan:
        kept = tuple(each for each in plan.plans if _name(each) in self.names)
        if not kept:
            raise PlanRefused(
                f"{self.options.run.plan} plans none of the stacks that --filter leaves"
            )
        return plan.model_copy(update={"plans": kept, "gates": None})

    def _stopped(self, plan: StacksPlan) -> ExitReason | None:
        if self.options.run.operation == "refresh":
            return None
        gates = [*(plan.gates or ()), *(gate for each in plan.plans for gate in each.gates or ())]
        if any(gate.is_blocking for gate in lifted(gates, _allowed(self.options.run))):
            return ExitReason.POLICY_VIOLATION
        is_unchecked = self.options.run.require_checks and any(p.unchecked for p in plan.plans)
        return ExitReason.UNCHECKED if is_unchecked else None

    def _apply(self, plan: StacksPlan) -> SeveralResult:
        plans = {_name(each): each for each in plan.plans}
        run = self.options.run
        reviewed = run.plan is not None or self.caller.confirm is not None
        source = str(run.plan or "of all stacks")

        def task(name: str) -> Task:
            part = plans[name]
            more: dict[str, Any] = {"operation": part.operation, "reviewed": reviewed}
            return self._task(name, more, plan=part, source=source)

        needs = self._applied_after(plans)
        for circle in circles(needs):
            way = " -> ".join(circle)
            raise EngineError(
                f"these stacks need each other by their states: {way}",
                hint="do one of them by itself first, in its folder",
            )
        ended, is_cancelled = self._scheduled(needs, _APPLIED_AT_ONCE, task, preview=False)
        return SeveralResult(self._reason(ended, is_cancelled, plan), plan, ended)

    def _reason(
        self, ended: Mapping[str, Ended], is_cancelled: bool, plan: StacksPlan
    ) -> ExitReason:
        reasons = {each.reason for each in ended.values()}
        if is_cancelled and any(each.code != 0 for each in ended.values()):
            return ExitReason.CANCELLED
        if ExitReason.OUT_OF_CREDIT in reasons:
            return ExitReason.OUT_OF_CREDIT
        if any(each.code != 0 for each in ended.values()):
            return ExitReason.FAILED
        unexpected = self.options.run.expect_no_changes and plan.has_changes
        return ExitReason.UNEXPECTED_CHANGES if unexpected else ExitReason.SUCCEEDED

    def _applied_after(self, plans: Mapping[str, Plan]) -> dict[str, set[str]]:
        """What is applied before each: what it reads, or for a destroy what reads it."""
        needs = self._needs(plans)
        if all(plan.operation != "destroy" for plan in plans.values()):
            return needs
        turned: dict[str, set[str]] = {name: set() for name in needs}
        for name, needed in needs.items():
            for other in needed:
                turned[other].add(name)
        return turned

    def _needs(self, plans: Mapping[str, Plan]) -> dict[str, set[str]]:
        """By stack, those that come before: by the files, and by what was read when planning."""
        members = self.order.estate.members
        wanted = [name for name in self.names if not plans or name in plans]
        needs: dict[str, set[str]] = {}
        for name in wanted:
            # What runs no program goes by the states: the files may be of later.
            is_run = self.options.run.operation == "update" and not plans
            found = set(self.order.needs[name] if is_run else members[name].after)
            for stack in plans[name].stack_references if plans else ():
                other = self.order.estate.find(members[name].backend, stack)
                found |= {other.name} if other is not None else set()
            needs[name] = (found - {name}) & set(wanted)
        return needs

    def _scheduled(
        self,
        needs: Mapping[str, set[str]],
        jobs: int,
        task: Callable[[str], Task],
        *,
        preview: bool,
    ) -> tuple[dict[str, Ended], bool]:
        caller = self.caller
        schedule = Schedule(
            self.order,
            needs,
            self.options.jobs or jobs,
            task,
            self.interpreters,
            self.processes,
            caller.tell,
            lambda name, ended: caller.ended(name, ended, preview),
            caller.answer or (lambda _name, _prompt: None),
        )
        with caller.interruptions.around(schedule.cancel, schedule.leave):
            return schedule.run(), schedule.is_cancelled

    def _task(
        self,
        name: str,
        more: Mapping[str, Any],
        *,
        plan: Plan | None = None,
        source: str = "",
        foresees: bool = False,
    ) -> Task:
        options = self.options
        member = self.order.estate.members[name]
        return Task(
            folder=member.project.directory,
            stack=member.stack,
            variables=dict(self.variables[name]),
            options={**_told(options.run), **more},
            plan=plan,
            source=source,
            foresees=foresees,
            asks=self.caller.answer is not None,
            form=options.form,
            color=options.color,
            showing=dict(options.showing),
            lock_timeout=options.lock_timeout,
            debug=options.debug,
            drift=options.drift,
        )


def _told(run: RunOptions) -> dict[str, Any]:
    """The options that are given to each stack's process; the others are its defaults."""
    defaults = {each.name: each.default for each in fields(RunOptions)}
    found = {name: getattr(run, name) for name in _TOLD}
    return {name: value for name, value in found.items() if value != defaults[name]}
