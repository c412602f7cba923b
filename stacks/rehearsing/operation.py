"""Rehearse the plan of a stack, or of several stacks: start the processes, order the outcomes.

`rehearse` is called by the command and by previews; `sealed_states` writes what the processes read.
"""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import HazardKind, HazardOutcome, Rehearsal, UnplayedHazard
from gpuform.stacks.engine.urn import get_stack_and_project, is_urn
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.rehearsing.fleet import describe_drift
from gpuform.stacks.rehearsing.sealed_states import (
    PlannedStack,
    RehearsalOptions,
    build_specs,
    choose_changes,
)
from gpuform.stacks.rehearsing.worker import (
    UNDISTURBED,
    PlayProgress,
    RehearsalSpec,
    ShareReport,
    rehearse_share,
)
from gpuform.stacks.testing.processes import (
    ProcessRegistry,
    SealedProcess,
    send_result,
    start_fork_server,
)

TIME_LIMIT_S: Final = 3600.0
"""Real seconds after which a rehearsal counts as hanging."""
_OPERATIONS: Final = ("update", "destroy")


class RehearsalError(EngineError):
    """A plan that cannot be rehearsed."""

    help_page = "guides/rehearse"


def rehearse(
    stack: SelectedStack, plan: Plan, options: RehearsalOptions | None = None
) -> Rehearsal:
    """Play `plan` of the stack on the emulator under all hazards, and return the outcomes.

    Nothing is written to the stack, and no platform is asked. The processes that play end with this
    call, also at KeyboardInterrupt.

    Raises:
        RehearsalError: the plan or the state cannot be played on the emulator.
    """
    options = options or RehearsalOptions()
    _check_plan(stack, plan)
    if not plan.has_changes:
        # Nothing is sent, so that nothing can go wrong.
        undisturbed = HazardOutcome(hazard=UNDISTURBED)
        return _build_rehearsal(plan, options, [ShareReport({-1: undisturbed})])
    return _play_plans([PlannedStack(stack, plan)], plan, options, f"stack {plan.stack}")


def rehearse_together(
    stacks: Sequence[PlannedStack], options: RehearsalOptions | None = None
) -> Rehearsal:
    """Play the plans of several stacks in their order on one emulator, under all hazards.

    Each stack reads what those before it have made. The rehearsal has no project and no stack, and
    resources have the name of their stack. `stacks` have changes, and are in the order of an apply.

    Raises:
        RehearsalError: a plan or a state cannot be played on the emulator.
    """
    options = options or RehearsalOptions()
    for item in stacks:
        _check_plan(item.stack, item.plan)
    plans = [item.plan for item in stacks]
    changes = [change for plan in plans for change in plan.changes]
    drift = tuple(drift for plan in plans for drift in plan.drift)
    merged_plan = Plan.from_changes("", "", changes).model_copy(
        update={"operation": plans[0].operation, "drift": drift}
    )
    return _play_plans(stacks, merged_plan, options, "the stacks together")


def _check_plan(stack: SelectedStack, plan: Plan) -> None:
    """Raise RehearsalError for a plan which cannot be rehearsed with the stack's state."""
    full_name = f"{stack.workspace.project.name}/{stack.name}"
    if plan.project_stack != full_name:
        raise RehearsalError(
            f"the plan is one of stack {plan.project_stack}, and cannot be rehearsed with "
            f"the state of {full_name}",
            hint="name its stack with --stack, in the folder of its project",
        )
    for urn in (*(change.urn for change in plan.changes), *(drift.urn for drift in plan.drift)):
        # The seal of a plan needs the stack's key, which a rehearsal does not have.
        if not is_urn(urn) or get_stack_and_project(urn) != (plan.stack, plan.project):
            raise RehearsalError(
                f"the plan of stack {plan.stack} has a change of another stack, or of none: {urn}",
                hint="somebody has edited the plan: make it again with `gpuform preview`",
            )
    if plan.operation not in _OPERATIONS:
        raise RehearsalError(
            f"stack {plan.stack}: a plan of `{plan.operation}` cannot be rehearsed",
            hint="rehearse the plan of an update or a destroy",
        )
    if plan.errors:
        raise RehearsalError(
            f"the plan of stack {plan.stack} is incomplete: its preview failed",
            hint="mend the errors of the preview, and rehearse the new plan",
        )


def _play_plans(
    stacks: Sequence[PlannedStack], plan: Plan, options: RehearsalOptions, subject: str
) -> Rehearsal:
    """Play the plans of the stacks, whose changes `plan` has together, and return the outcomes.

    Raises:
        RehearsalError: a process could not play; the message begins with `subject`.
    """
    chosen = choose_changes(plan)
    with tempfile.TemporaryDirectory(prefix="gpuform-rehearse-") as folder:
        specs = list(build_specs(stacks, plan, options, Path(folder), chosen))
        reports = _play_shares(specs, options.on_progress)
    failure = next((report.failure for report in reports if report.failure), "")
    if failure:
        raise RehearsalError(
            f"{subject}: the emulator cannot make the plan: {failure}",
            hint="the state or the program may need something that only the real platform has",
        )
    return _build_rehearsal(plan, options, reports)


class _ShareProcess(SealedProcess):
    """The process of one share, which reports its progress."""

    def __init__(
        self,
        spec: RehearsalSpec,
        processes: ProcessRegistry,
        on_progress: Callable[[PlayProgress], None],
    ) -> None:
        super().__init__(spec.case, processes, TIME_LIMIT_S)
        self._rehearsal_spec = spec
        self._on_progress = on_progress

    def handle_message(self, answer: Any) -> bool:
        if isinstance(answer, PlayProgress):
            self._on_progress(answer)
        return isinstance(answer, PlayProgress)

    def run(self) -> ShareReport:
        """Play the share, and return the report. Raises RehearsalError without a report."""
        report, code = self.run_in_process(_rehearse_in_process, self._rehearsal_spec)
        if isinstance(report, ShareReport):
            return report
        reason = self.error or f"a process of the rehearsal exited with {code}{self.read_output()}"
        raise RehearsalError(f"the rehearsal ended early: {reason}")


def _rehearse_in_process(spec: RehearsalSpec, sender: Connection) -> None:
    """Play a share in this new process, and send progress and report."""
    send_result(spec.case, sender, lambda: rehearse_share(spec, sender.send))


def _play_shares(
    specs: list[RehearsalSpec], on_progress: Callable[[int, int], None]
) -> list[ShareReport]:
    """Play all shares in parallel, and return the reports. An exception kills the processes."""
    start_fork_server()
    processes = ProcessRegistry()
    progress = [PlayProgress(0, 0)] * len(specs)
    lock = threading.Lock()

    def play(spec: RehearsalSpec) -> ShareReport:
        def report_progress(done: PlayProgress) -> None:
            with lock:
                progress[spec.share] = done
                played = sum(item.played for item in progress)
                on_progress(played, sum(item.planned for item in progress))

        return _ShareProcess(spec, processes, report_progress).run()

    pool = ThreadPoolExecutor(len(specs))
    try:
        return list(pool.map(play, specs))
    # Also Ctrl-C: the processes lead groups of their own, and do not receive it.
    except BaseException:
        processes.kill_all()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _build_rehearsal(
    plan: Plan, options: RehearsalOptions, reports: list[ShareReport]
) -> Rehearsal:
    """Return the outcomes of all shares, the worst first; equal ones in the order of the plan."""
    numbered: dict[int, HazardOutcome] = {}
    for report in reports:
        numbered.update(report.outcomes)
    # Equal outcomes stay in the order of their numbers, whichever process has played them.
    ordered = [numbered[number] for number in sorted(numbered)]
    ordered.sort(key=lambda outcome: outcome.severity, reverse=True)
    actions = {change.urn: str(change.action) for change in plan.changes if change.action.is_change}
    return Rehearsal(
        project=plan.project,
        stack=plan.stack,
        seed=options.seed,
        outcomes=tuple(ordered),
        not_played=tuple(_list_unplayed(options, numbered.values())),
        differences=reports[0].differences,
        changes=len(actions),
        actions=actions,
        drift=tuple(describe_drift(plan.drift)),
        played_changes=None if (chosen := choose_changes(plan)) is None else len(chosen),
    )


_REASONS_NOT_PLAYED: Final[Mapping[HazardKind, str]] = {
    HazardKind.NO_CAPACITY: "the plan asks for no GPUs",
    HazardKind.QUOTA: "the plan asks for no GPUs",
    HazardKind.NEVER_READY: "the plan creates no GPUs",
    HazardKind.NODE_FAILURE: "the plan updates no resource of which an emulated node stays",
    HazardKind.NO_CREDIT: "the plan changes nothing on a platform with prepaid credit",
    HazardKind.JOB_STARTS: "the plan removes no node with a scheduler that the emulator has",
}


def _list_unplayed(options: RehearsalOptions, outcomes: Any) -> Iterator[UnplayedHazard]:
    """Yield the hazards without an outcome, with the reason."""
    played = {outcome.hazard.kind for outcome in outcomes}
    for kind in HazardKind:
        if kind in played:
            continue
        is_chosen = kind in options.hazards
        reason = _REASONS_NOT_PLAYED.get(kind, "the plan sends no request that changes something")
        yield UnplayedHazard(kind=kind, reason=reason if is_chosen else "not chosen by --hazards")
