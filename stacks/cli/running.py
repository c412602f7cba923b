"""`preview`, `up`, `refresh` and `destroy`: plan, ask, do, and say how it ended."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from gpuform.providers import permissions
from gpuform.providers.calls import clock_from, tracing
from gpuform.schemas.visible import visible
from gpuform.stacks.cli.arguments import RunArguments
from gpuform.stacks.cli.config_setting import set_all
from gpuform.stacks.cli.failures import (
    FAILED,
    FOUND,
    INCOMPLETE,
    OUT_OF_CREDIT,
    POLICY_VIOLATION,
    SUCCESS,
    UNEXPECTED_CHANGES,
)
from gpuform.stacks.cli.forgetting import forget_deleted
from gpuform.stacks.cli.interpreter import goes_on_elsewhere
from gpuform.stacks.cli.locking import patience
from gpuform.stacks.cli.opening import at_work_on, warn_of_recovery
from gpuform.stacks.cli.passphrase import passphrase_of
from gpuform.stacks.cli.saved_plans import SavedPlan, bound_of, origin_of, save
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.settling import answers, cleared, settled
from gpuform.stacks.cli.terminal.asking import confirmed, refuse_what_nobody_can_answer
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.stopping import FIRST, stopping, unwinding
from gpuform.stacks.cli.terminal.views import EventLines, HumanView, PreviewJson, Title, View
from gpuform.stacks.config_keys import ConfigKeys
from gpuform.stacks.engine.deployment import (
    DEFAULT_PARALLEL,
    Deployment,
    EventLog,
    Options,
    Outcome,
)
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import EventBus, Listener, PlanConstraint
from gpuform.stacks.engine.project import StackSettings
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.store import StackLock
from gpuform.stacks.expiry.noticing import is_out_of_credit, notices_of_entries
from gpuform.stacks.gates.evaluating import stopped_by
from gpuform.stacks.operations.opening.variables import set_variables
from gpuform.stacks.operations.opening.worlds import world_for
from gpuform.stacks.operations.plans.appraising import Appraiser
from gpuform.stacks.operations.runs.expiring import Expiry, untold
from gpuform.stacks.operations.runs.rights import Rights
from gpuform.stacks.operations.runs.run_log import LogKeeper
from gpuform.stacks.operations.runs.stopwatch import Stopwatch
from gpuform.stacks.resource_rules import DELETION_RULES, RULES, deletes_first
from gpuform.stacks.review.gates_text import gate_text


def run(arguments: RunArguments, session: Session) -> int:
    """Does the command; the exit code. Raises what stops it before anything is done."""
    refuse_what_nobody_can_answer(arguments, session.screen)
    workspace = Workspace.find(Path.cwd(), session.environ)
    if goes_on_elsewhere(workspace.project):
        return SUCCESS
    name = workspace.resolve(session.stack)
    saved = None
    if arguments.plan is not None:
        project = workspace.project.name
        saved = SavedPlan.read(arguments.plan, project, name, arguments.operation)
        arguments = saved.taken_over(arguments)
    with contextlib.ExitStack() as held:
        held.enter_context(unwinding())
        held.enter_context(set_variables(_permissions(arguments)))
        given = answers(arguments.adopt, create_anew=arguments.create_anew)
        held.enter_context(set_variables(given))
        lock = None
        if not arguments.preview_only:
            waiting = patience(session.screen)
            lock = held.enter_context(workspace.backend.lock(workspace.project.name, name, waiting))
        stack = workspace.open(
            name, passphrase_of(workspace, session.screen), exclusive=lock is not None
        )
        at_work = "" if lock else at_work_on(workspace, name)
        _warn_of_runs(session.screen, at_work, stack.recovered)
        emulated = held.enter_context(world_for(stack, emulate=arguments.emulate))
        stack = _prepared(arguments, workspace, stack, session, lock, is_planned=saved is not None)
        if arguments.exclude_protected:
            kept = (each.urn for each in stack.snapshot.resources if each.protect)
            arguments = replace(arguments, exclude=(*arguments.exclude, *kept))
        log = held.enter_context(_event_log(arguments.event_log))
        held.enter_context(_profile(arguments.profile))
        appraiser = Appraiser.of(stack, session.environ, _given(arguments))
        view = view_of(arguments, session, appraiser)
        ends, rights = Expiry.of(stack, appraiser.clock), Rights.of(stack, session.environ)
        gated = appraiser.has_gates
        run = Run(
            arguments,
            session,
            stack,
            lock,
            log,
            view,
            ends,
            rights,
            saved,
            has_gates=gated,
            emulated=emulated,
            at_work=at_work,
        )
        code = run.go()
    if arguments.remove and not arguments.preview_only and code == SUCCESS:
        workspace.remove(name, force=False, patience=patience(session.screen))
        _teller(arguments, session)(f"Stack {name} is removed.")
    return code


def _prepared(
    arguments: RunArguments,
    workspace: Workspace,
    stack: Stack,
    session: Session,
    lock: StackLock | None,
    *,
    is_planned: bool,
) -> Stack:
    """The stack as the run finds it: with its configuration set, and nothing left of other runs.

    Raises EngineError where something is selected that it does not have.
    """
    if arguments.config:
        tell, by_path = _teller(arguments, session), arguments.config_path
        set_all(workspace, stack.name, arguments.config, session, by_path=by_path, tell=tell)
        stack.settings = StackSettings.load(workspace.project, stack.name)
    makes = arguments.operation == "update"
    if makes:
        _warn_of_clear_secrets(stack, session)
    stack = settled(workspace, stack, session, lock, makes=makes)
    if arguments.clear_pending_creates and lock is not None:
        stack = cleared(workspace, stack, session)
    if not makes and not is_planned:  # a plan says better what moved
        arguments.selection.require(entry.urn for entry in stack.snapshot.resources)
    return stack


def _teller(arguments: RunArguments, session: Session) -> Callable[[str], None]:
    """Where to tell what is none of the results."""
    return session.screen.warn if arguments.json else session.screen.print


def _warn_of_runs(screen: Screen, at_work: str, recovered: int) -> None:
    """Tells of the run that goes on now, else of one that was interrupted."""
    if at_work:
        screen.warn(f"{at_work}: what is shown may be overtaken")
    else:
        warn_of_recovery(screen, recovered)


def _warn_of_clear_secrets(stack: Stack, session: Session) -> None:
    """A topology tells of those that it declares itself, also under the Pulumi CLI."""
    for each in ConfigKeys.without_topology(stack.project).in_the_clear(stack.settings):
        session.screen.warn(f"warning: {each.text}\n  {each.remedy}")


def _permissions(arguments: RunArguments) -> dict[str, str]:
    """The variable by which both engines take permissions, with those of the command line added."""
    given = _given(arguments)
    return {permissions.VARIABLE: ",".join(sorted(given))} if given else {}


def _given(arguments: RunArguments) -> frozenset[str]:
    return permissions.given() | permissions.parsed(",".join(arguments.allow))


def view_of(arguments: RunArguments, session: Session, appraiser: Appraiser) -> View:
    if arguments.json:
        kind = PreviewJson if arguments.preview_only else EventLines
        return kind(session.screen, appraiser)
    watch = Stopwatch(clock_from(os.environ))
    return HumanView(session.screen, appraiser, watch, arguments.showing)


@contextlib.contextmanager
def _event_log(path: Path | None) -> Iterator[list[Listener]]:
    """A listener that writes Pulumi's event log to the file, if one is wanted."""
    if path is None:
        yield []
        return
    with _opened_file(path, "event log") as file:
        yield [EventLog(file.write)]


@contextlib.contextmanager
def _profile(path: Path | None) -> Iterator[None]:
    """Traces into the file, if one is wanted."""
    if path is None:
        yield
        return
    with _opened_file(path, "profile") as file, tracing(file):
        yield


def _opened_file(path: Path, what: str) -> TextIO:
    try:
        return path.open("w", encoding="utf-8")
    except OSError as error:
        raise EngineError(f"the {what} {path} cannot be written: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Run:
    """A command's work on a stack that is open, and locked if anything is to be changed.

    `judge` looks at what the preview found, and raises what is to stop the command.
    """

    arguments: RunArguments
    session: Session
    stack: Stack
    lock: StackLock | None
    log: list[Listener]
    view: View
    expiry: Expiry
    rights: Rights
    saved: SavedPlan | None = None
    judge: Callable[[Outcome], None] = lambda _outcome: None
    has_gates: bool = False
    emulated: bool = False
    at_work: str = ""

    def go(self) -> int:
        """The exit code."""
        arguments, saved = self.arguments, self.saved
        bound = saved.bound(arguments, self.stack) if saved else None
        if not arguments.skip_preview or saved or self._must_be_planned:
            outcome = self._deploy(preview=True)
            if not outcome.succeeded:
                return self._judged(outcome)
            self.judge(outcome)
            if saved and bound:
                saved.refuse_more(bound, self.view.plan(outcome), outcome)
            if arguments.preview_only:
                self._save_plan(outcome)
                return self._stopped(outcome) or self._judged(outcome)
            if stopped := self._stopped(outcome):
                return stopped
            if self._must_be_judged and bound is None and arguments.operation == "update":
                # What is only known later must not be more than what the gates have seen.
                bound = bound_of(self.view.plan(outcome), arguments, self.stack, outcome)
            if arguments.operation != "refresh":
                self.rights.require(outcome)
            if not self._may_go_on(outcome):
                self.session.screen.print("Nothing was changed.")
                return FAILED
            if arguments.operation == "expire":
                self.expiry.begin(outcome)
        origin = origin_of(self.stack, self.session.environ, arguments.message, saved)
        run = self.stack.begin(arguments.operation, origin)
        keeper = LogKeeper(Stopwatch(clock_from(os.environ)))
        outcome = self._deploy(preview=False, bound=bound, keeper=keeper)
        log = keeper.log(self.view.plan(outcome), self.stack, outcome)
        self.stack.finish(run, outcome, log.model_dump_json(exclude_defaults=True).encode())
        forget_deleted(self.session, self.stack, outcome.snapshot)
        self.expiry.settle(outcome)
        return self._judged(outcome)

    @property
    def _must_be_planned(self) -> bool:
        """Whether something has to look at the plan, whatever the flags say."""
        if self.arguments.operation == "refresh":
            return False
        urns = [entry.urn for entry in self.stack.snapshot.resources]
        is_open = self.arguments.operation == "update" and any(
            self.arguments.selection.unmatched(urns)
        )
        is_wanted = self._must_be_judged or self.arguments.require_checks
        return is_open or is_wanted or self.rights.are_limited

    @property
    def _must_be_judged(self) -> bool:
        """Whether there are gates, which no flag goes round."""
        return self.has_gates and self.arguments.operation != "refresh"

    def _stopped(self, outcome: Outcome) -> int:
        """Tells what stops the plan: its exit code, or 0 where nothing does."""
        if self.arguments.operation == "refresh":
            return SUCCESS
        plan, screen = self.view.plan(outcome), self.session.screen
        stopping = stopped_by(plan)
        unchecked = plan.unchecked if self.arguments.require_checks else ()
        for gate in stopping:
            screen.warn(visible(f"error: {gate.source}: gate {gate_text(gate)}"))
        for text in unchecked:
            screen.warn(visible(f"error: not checked: {text}"))
        if (stopping or unchecked) and not self.arguments.preview_only:
            screen.warn("Nothing was changed.")
        if stopping:
            return POLICY_VIOLATION
        return INCOMPLETE if unchecked else SUCCESS

    def _may_go_on(self, outcome: Outcome) -> bool:
        """Without changes nothing is asked: only the state learns what the program says now."""
        arguments = self.arguments
        if arguments.yes or arguments.skip_preview or not outcome.has_changes:
            return True
        screen = self.session.screen
        try:
            return confirmed(screen, self.view.plan(outcome), self.arguments.operation)
        except KeyboardInterrupt:
            screen.print()
            return False

    def _save_plan(self, outcome: Outcome) -> None:
        path, screen = self.arguments.save_plan, self.session.screen
        if path is not None:
            save(path, self.view.plan(outcome), self.arguments, self.stack, outcome)
            tell = screen.warn if self.arguments.json else screen.print
            command = "up" if self.arguments.operation == "update" else self.arguments.operation
            tell(f"Plan saved to {path}: `gpuform {command} --plan {path}` applies it.")

    def _judged(self, outcome: Outcome) -> int:
        if self._is_out_of_credit(outcome):
            self.session.screen.warn("error: no credit is left: add credit to the account")
            return OUT_OF_CREDIT
        if not outcome.succeeded:
            return FAILED
        if self.arguments.expect_no_changes and outcome.has_changes:
            happened = (
                "no changes were expected for preview but changes were proposed"
                if self.arguments.preview_only
                else "no changes were expected but changes occurred"
            )
            self.session.screen.warn(f"error: {happened}")
            return UNEXPECTED_CHANGES
        if self.arguments.operation == "expire":
            return self._expired(outcome)
        return SUCCESS

    def _is_out_of_credit(self, outcome: Outcome) -> bool:
        """Whether a platform has refused something for it, or something has stopped for it."""
        if self.arguments.operation not in ("update", "refresh"):
            return outcome.out_of_credit
        there = [each for each in outcome.snapshot.resources if not each.delete]
        return outcome.out_of_credit or is_out_of_credit(notices_of_entries(there, self.expiry.now))

    def _expired(self, outcome: Outcome) -> int:
        names = untold(outcome)
        for name in names:
            self.session.screen.warn(
                f"error: {name}: nobody tells when it was made, which its ttl counts from: "
                "declare expires instead"
            )
        if names:
            return INCOMPLETE
        return FOUND if self.arguments.preview_only and outcome.has_changes else SUCCESS

    def _deploy(
        self, *, preview: bool, bound: PlanConstraint | None = None, keeper: LogKeeper | None = None
    ) -> Outcome:
        arguments, stack = self.arguments, self.stack
        subject = stack.subject(arguments.parallel or DEFAULT_PARALLEL)
        title = Title(
            arguments.operation, preview, stack.project.name, stack.name, emulated=self.emulated
        )
        options = Options(
            operation=arguments.operation,
            preview=preview,
            refresh=arguments.refresh,
            parallel=arguments.parallel or DEFAULT_PARALLEL,
            rules=(*RULES, self.expiry.expired.refused),
            deletion_rules=DELETION_RULES,
            deletes_first=deletes_first,
            run_program=arguments.run_program,
            selection=arguments.selection,
            continue_on_error=arguments.continue_on_error,
            bound=bound,
            at_work=self.at_work,
        )
        if arguments.operation == "expire":
            options = self.expiry.options(options)
        listeners = [self.view.begin(title), *self.log]
        events = EventBus([*listeners, keeper] if keeper else listeners, self.session.verbose)
        deployment = Deployment(subject, options, events)

        def cancel() -> None:
            deployment.cancel()
            self.view.notice(FIRST)

        try:
            with stopping(cancel, self._leave):
                outcome = deployment.run()
        finally:
            self.view.close()
        self.view.end(outcome)
        return outcome

    def _leave(self) -> None:
        """What is left undone stands in the state as pending."""
        if self.lock is not None:
            self.lock.release()
        screen = self.session.screen
        if screen.interactive:
            os.write(screen.out.fileno(), b"\x1b[?25h\n")  # the cursor, which a live display hides
