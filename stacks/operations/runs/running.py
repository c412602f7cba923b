"""`preview`, `up`, `refresh`, `destroy`, `expire`, `repair`: plan, ask, do, say how it ended."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from gpuform.providers import permissions
from gpuform.providers.context import get_clock, write_trace
from gpuform.schemas.plan import Plan
from gpuform.stacks.config_keys import ConfigKeys
from gpuform.stacks.engine.deployment import (
    DEFAULT_PARALLEL,
    Deployment,
    EventLog,
    Options,
    Outcome,
)
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import require_version
from gpuform.stacks.engine.planning import EventBus, Listener, PlanConstraint
from gpuform.stacks.engine.project import Project, StackSettings
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.gates.evaluating import stopped_by
from gpuform.stacks.operations.config_setting import set_all
from gpuform.stacks.operations.opening.selecting import SelectedStack, at_work_on, warn_of_recovery
from gpuform.stacks.operations.opening.variables import set_variables
from gpuform.stacks.operations.opening.worlds import world_for
from gpuform.stacks.operations.plans.appraising import Appraiser
from gpuform.stacks.operations.plans.plan_file import write_plan
from gpuform.stacks.operations.plans.plan_masking import mask_plan
from gpuform.stacks.operations.plans.record import RunRecord
from gpuform.stacks.operations.runs.caller import Caller, Interrupted, RunEnded, RunStarted
from gpuform.stacks.operations.runs.expiring import Expiry
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.repairing import RepairRun, preview_permissions, reviewed
from gpuform.stacks.operations.runs.results import ExitReason, RunResult, output_values
from gpuform.stacks.operations.runs.run_log import LogKeeper, Stopwatch
from gpuform.stacks.operations.runs.saved_plans import (
    SavedPlan,
    bound_of,
    origin_of,
    require_digest,
    sealed_plan,
)
from gpuform.stacks.operations.runs.settling import (
    Rights,
    answers,
    forget_deleted,
    forget_pending_creates,
    settle_earlier_runs,
)
from gpuform.stacks.resource_rules import DELETION_RULES, RULES, deletes_first
from gpuform.stacks.schedule.noticing import is_out_of_credit, notices_of_entries
from gpuform.stacks.topology_runner import run_topology


def _with_refresh_of_project(options: RunOptions, project: Project) -> RunOptions:
    """Return the options with the project's `refresh: always`, where nothing was asked for."""
    is_refreshing = project.always_refreshes and options.operation in ("update", "destroy")
    return replace(options, refresh=is_refreshing) if options.refresh is None else options


def run(
    selected: SelectedStack, options: RunOptions, caller: Caller, saved: SavedPlan | None = None
) -> RunResult:
    """Does it. Raises what stops it before anything is done.

    `saved` is a plan that is a bound, as one is that the options name.
    """
    workspace, name = selected.workspace, selected.name
    if workspace.project.required_version:
        require_version(workspace.project.required_version, "Pulumi.yaml")
    options = _with_refresh_of_project(options, workspace.project)
    if options.plan is not None:
        project = workspace.project.name
        saved = SavedPlan.read(options.plan, project, name, options.operation)
    if options.digest is not None:
        require_digest(saved, options.digest)
    if saved is not None:
        options = saved.taken_over(options)
    with contextlib.ExitStack() as held:
        held.enter_context(selected.environment())
        held.enter_context(set_variables(_permissions(options)))
        if options.repair_nodes:
            asked = {permissions.REPAIR_VARIABLE: ",".join(options.repair_nodes)}
            held.enter_context(set_variables(asked))
        given = answers(options.adopt, create_anew=options.create_anew)
        held.enter_context(set_variables(given))
        lock = None
        if not options.preview_only:
            waiting = selected.patience(caller.warn)
            lock = held.enter_context(workspace.backend.lock(workspace.project.name, name, waiting))
        stack = selected.open(exclusive=lock is not None)
        at_work = "" if lock else at_work_on(workspace, name)
        _warn_of_runs(caller, at_work, stack.recovered)
        emulated = held.enter_context(world_for(stack, emulate=options.emulate))
        stack = _prepared(selected, options, stack, caller, lock, is_planned=saved is not None)
        if options.exclude_protected:
            kept = (each.urn for each in stack.snapshot.resources if each.protect)
            options = replace(options, exclude=(*options.exclude, *kept))
        log, restart_log = held.enter_context(_event_log(options.event_log))
        held.enter_context(_profile(options.profile))
        appraiser = Appraiser.of(stack, os.environ, _given(options))
        result = PlannedRun(
            selected,
            options,
            caller,
            stack,
            lock,
            appraiser,
            Expiry.of(stack, appraiser.clock),
            Rights.of(stack, os.environ),
            log,
            saved,
            emulated=emulated,
            at_work=at_work,
            restart_log=restart_log,
        ).go()
    if options.remove and not options.preview_only and result.succeeded:
        workspace.remove(name, force=False, patience=selected.patience(caller.warn))
        caller.tell(f"Stack {name} is removed.")
    return result


def _prepared(
    selected: SelectedStack,
    options: RunOptions,
    stack: Stack,
    caller: Caller,
    lock: StackLock | None,
    *,
    is_planned: bool,
) -> Stack:
    """The stack as the run finds it: with its configuration set, and nothing left of other runs.

    Raises EngineError where something is selected that it does not have.
    """
    if options.config:
        set_all(selected, options.config, by_path=options.config_path, tell=caller.tell)
        stack.settings = StackSettings.load(stack.project, stack.name)
    makes = options.operation == "update"
    if makes:
        _warn_of_clear_secrets(stack, caller)
    stack = settle_earlier_runs(selected, stack, caller, lock, makes=makes)
    if options.clear_pending_creates and lock is not None:
        stack = forget_pending_creates(selected, stack, caller)
    if not makes and not is_planned:  # a plan says better what moved
        options.selection.require_matches(entry.urn for entry in stack.snapshot.resources)
    return stack


def _warn_of_runs(caller: Caller, at_work: str, recovered: int) -> None:
    """Tells of the run that goes on now, else of one that was interrupted."""
    if at_work:
        caller.warn(f"{at_work}: what is shown may be overtaken")
    else:
        warn_of_recovery(recovered, caller.warn)


def _warn_of_clear_secrets(stack: Stack, caller: Caller) -> None:
    """A topology tells of those that it declares itself, also under the Pulumi CLI."""
    for each in ConfigKeys.without_topology(stack.project).in_the_clear(stack.settings):
        caller.warn(f"warning: {each.text}\n  {each.remedy}")


def _permissions(options: RunOptions) -> dict[str, str]:
    """The variable by which both engines take permissions, with those of the options added."""
    given = _given(options)
    return {permissions.VARIABLE: ",".join(sorted(given))} if given else {}


def _given(options: RunOptions) -> frozenset[str]:
    return permissions.get_permissions() | permissions.parse_permissions(",".join(options.allow))


@contextlib.contextmanager
def _event_log(path: Path | None) -> Iterator[tuple[tuple[Listener, ...], Callable[[], None]]]:
    """Yield a listener that writes Pulumi's event log to the file, if one is wanted.

    With it what empties the file: as under the Pulumi CLI it holds the last run alone, the update
    and not the preview before it.
    """
    if path is None:
        yield (), lambda: None
        return
    with _opened_file(path, "event log") as file:

        def restart() -> None:
            file.seek(0)
            file.truncate()

        yield (EventLog(file.write),), restart


@contextlib.contextmanager
def _profile(path: Path | None) -> Iterator[None]:
    """Traces into the file, if one is wanted."""
    if path is None:
        yield
        return
    with _opened_file(path, "profile") as file, write_trace(file):
        yield


def _opened_file(path: Path, what: str) -> TextIO:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise EngineError(f"the {what} {path} cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """An operation's work on a stack that is open, and locked if anything is to be changed.

    `judge` looks at what the preview found, and raises what is to stop the operation.
    """

    selected: SelectedStack
    options: RunOptions
    caller: Caller
    stack: Stack
    lock: StackLock | None
    appraiser: Appraiser
    expiry: Expiry
    rights: Rights
    log: tuple[Listener, ...] = ()
    saved: SavedPlan | None = None
    judge: Callable[[Outcome], None] = lambda _outcome: None
    emulated: bool = False
    at_work: str = ""
    restart_log: Callable[[], None] = lambda: None

    def go(self) -> RunResult:
        options, saved = self.options, self.saved
        shown: Mapping[str, str] = {}
        bound = saved.bound(options, self.stack) if saved else None
        if options.preview_only or not options.skip_preview or saved or self._must_be_planned:
            with set_variables(preview_permissions(is_reviewed=self._is_reviewed)):
                ended, outcome = self._deploy(preview=True)
            if not outcome.succeeded:
                return self._result(ended, outcome)
            self.judge(outcome)
            if saved and bound:
                saved.refuse_more(bound, ended.plan, outcome)
            if options.preview_only:
                self._save_plan(ended, outcome)
                return self._result(ended, outcome, self._stopped(ended))
            if stopped := self._stopped(ended):
                return self._result(ended, outcome, stopped)
            if self._must_be_judged and bound is None and options.operation == "update":
                # What is only known later must not be more than what the gates have seen.
                bound = bound_of(ended.plan, options, self.stack, outcome)
            if options.operation != "refresh":
                self.rights.require(outcome)
            if not self._may_go_on(ended, outcome):
                return self._result(ended, outcome, ExitReason.DECLINED)
            if options.operation == "expire":
                self.expiry.begin(outcome)
            shown = reviewed(ended.plan) if self._is_reviewed else {}
        with set_variables(shown):
            return self._apply(bound)

    def _apply(self, bound: PlanConstraint | None) -> RunResult:
        options = self.options
        if options.preview_only or self.lock is None:
            raise AssertionError("a run that only previews, or holds no lock, applies nothing")
        origin = origin_of(self.stack, os.environ, options.message, self.saved)
        run = self.stack.begin(options.operation, origin)
        keeper = LogKeeper(Stopwatch(get_clock(os.environ)))
        ended, outcome = self._deploy(preview=False, bound=bound, keeper=keeper)
        log = keeper.log(ended.plan, self.stack, outcome)
        self.stack.finish(run, outcome, log.model_dump_json(exclude_defaults=True).encode())
        forget_deleted(self.stack, outcome.snapshot, self.caller.warn)
        self.expiry.settle(outcome)
        return self._result(ended, outcome)

    @property
    def _is_reviewed(self) -> bool:
        """Whether a person sees the plan before it is applied, if it ever is."""
        options = self.options
        if options.reviewed is not None:
            return options.reviewed
        is_asked = self.caller.confirm is not None and not options.skip_preview
        return options.preview_only or self.saved is not None or is_asked

    @property
    def _must_be_planned(self) -> bool:
        """Whether something has to look at the plan, whatever the options say."""
        if self.options.operation == "refresh":
            return False
        urns = [entry.urn for entry in self.stack.snapshot.resources]
        is_open = self.options.operation == "update" and any(
            self.options.selection.find_unmatched_errors(urns)
        )
        is_wanted = self._must_be_judged or self.options.require_checks
        return is_open or is_wanted or self.rights.are_limited

    @property
    def _must_be_judged(self) -> bool:
        """Whether there are gates, which no option goes round."""
        return self.appraiser.has_gates and self.options.operation != "refresh"

    def _stopped(self, ended: RunEnded) -> ExitReason | None:
        """What stops the plan."""
        if self.options.operation == "refresh":
            return None
        if stopped_by(ended.plan):
            return ExitReason.POLICY_VIOLATION
        is_unchecked = self.options.require_checks and ended.plan.unchecked
        return ExitReason.UNCHECKED if is_unchecked else None

    def _may_go_on(self, ended: RunEnded, outcome: Outcome) -> bool:
        """Without changes nothing is asked: only the state learns what the program says now."""
        confirm = self.caller.confirm
        if confirm is None or self.options.skip_preview or not outcome.has_changes:
            return True
        return confirm(ended.plan)

    def _save_plan(self, ended: RunEnded, outcome: Outcome) -> None:
        path = self.options.save_plan
        if path is not None:
            write_plan(path, self._sealed(ended, outcome, {}))
            command = "up" if self.options.operation == "update" else self.options.operation
            self.caller.tell(f"Plan saved to {path}: `gpuform {command} --plan {path}` applies it.")

    def _sealed(self, ended: RunEnded, outcome: Outcome, planned_with: Mapping[str, str]) -> Plan:
        plan = ended.plan.model_copy(update={"planned_with": dict(planned_with)})
        return sealed_plan(plan, self.options, self.stack, outcome)

    def _result(
        self, ended: RunEnded, outcome: Outcome, reason: ExitReason | None = None
    ) -> RunResult:
        """What a run has found, or done."""
        for line in self.expiry.idle.lines():
            self.caller.tell(line)
        is_stopped = reason in (ExitReason.POLICY_VIOLATION, ExitReason.UNCHECKED)
        reason = reason or self._reason(outcome)
        unknown = self.expiry.names_without_end(outcome) if reason is ExitReason.END_UNKNOWN else ()
        secrets = self.stack.subject().program.secrets
        plan = ended.plan if outcome.succeeded or not ended.started.preview else None
        return RunResult(
            reason,
            ended.started.preview,
            outputs=output_values(outcome.outputs),
            changes=dict(outcome.changes),
            has_changes=outcome.has_changes,
            diagnostics=ended.record.diagnostics,
            gates=stopped_by(ended.plan) if is_stopped else (),
            unchecked=ended.plan.unchecked if is_stopped and self.options.require_checks else (),
            unknown_ends=unknown,
            refusals=self.expiry.refusals,
            seconds=outcome.seconds,
            make_plan=None if plan is None else lambda: mask_plan(plan, secrets()),
            foreseen=outcome.outputs,
            seal=lambda planned_with: self._sealed(ended, outcome, planned_with),
        )

    def _reason(self, outcome: Outcome) -> ExitReason:
        if self._is_out_of_credit(outcome):
            return ExitReason.OUT_OF_CREDIT
        if not outcome.succeeded:
            return ExitReason.CANCELLED if outcome.cancelled else ExitReason.FAILED
        if self.options.expect_no_changes and outcome.has_changes:
            return ExitReason.UNEXPECTED_CHANGES
        if self.expiry.refusals:
            return ExitReason.FAILED
        if self.options.operation == "expire" and self.expiry.names_without_end(outcome):
            return ExitReason.END_UNKNOWN
        does_what_is_due = self.options.operation in ("expire", "repair")
        if does_what_is_due and self.options.preview_only and outcome.has_changes:
            return ExitReason.DUE
        return ExitReason.SUCCEEDED

    def _is_out_of_credit(self, outcome: Outcome) -> bool:
        """Whether a platform has refused something for it, or something has stopped for it."""
        if self.options.operation not in ("update", "refresh"):
            return outcome.out_of_credit
        there = [each for each in outcome.snapshot.resources if not each.delete]
        return outcome.out_of_credit or is_out_of_credit(notices_of_entries(there, self.expiry.now))

    def _deploy(
        self, *, preview: bool, bound: PlanConstraint | None = None, keeper: LogKeeper | None = None
    ) -> tuple[RunEnded, Outcome]:
        asked, stack, caller = self.options, self.stack, self.caller
        parallel = asked.parallel or DEFAULT_PARALLEL
        subject = stack.subject(parallel)
        options = Options(
            operation=asked.operation,
            preview=preview,
            refresh=bool(asked.refresh),
            parallel=parallel,
            rules=(*RULES, self.expiry.expired.refused),
            deletion_rules=DELETION_RULES,
            deletes_first=deletes_first,
            run_program=asked.run_program,
            run_topology=run_topology,
            selection=asked.selection,
            continue_on_error=asked.continue_on_error,
            constraint=bound,
            at_work=self.at_work,
        )
        if asked.operation == "expire":
            options = self.expiry.options(options)
        if asked.operation == "repair":
            options = RepairRun(stack, asked.repair_nodes).options(options)
        self.restart_log()
        started = RunStarted(
            asked.operation, preview, stack.project.name, stack.name, emulated=self.emulated
        )
        ended = RunEnded(started, RunRecord(), self.appraiser)
        caller.on_event(started)
        listeners: list[Listener] = [ended.record, caller.on_event, *self.log]
        events = EventBus([*listeners, keeper] if keeper else listeners, self.selected.debug)
        deployment = Deployment(subject, options, events)

        def cancel() -> None:
            deployment.cancel()
            caller.on_event(Interrupted())

        try:
            with caller.interruptions.around(cancel, self._leave):
                ended.outcome = outcome = deployment.run()
        finally:
            caller.on_event(ended)
        return ended, outcome

    def _leave(self) -> None:
        """What is left undone stands in the state as pending."""
        if self.lock is not None:
            self.lock.release()
