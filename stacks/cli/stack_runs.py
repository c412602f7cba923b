"""Run the operation of a command on one stack, or an import, show it, and return the exit code.

The commands that run operations call this module; it calls `operations/runs/runner.py` and
`operations/importing.py`. The command continues in the virtualenv of a project that has one.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import click

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.cli.failures import (
    CHANGES,
    FAILED,
    FOUND,
    INCOMPLETE,
    OUT_OF_CREDIT,
    POLICY_VIOLATION,
    SUCCESS,
    UNEXPECTED_CHANGES,
)
from gpuform.stacks.cli.flags import RunArguments
from gpuform.stacks.cli.opening import find_workspace, select_stack
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.prompts import confirm_plan, require_answerable
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.signals import INTERRUPTED_MESSAGE, Signals, raise_on_signals
from gpuform.stacks.cli.terminal.views import EventLines, HumanView, PreviewJson, View
from gpuform.stacks.engine.planning import Listener
from gpuform.stacks.engine.project import Project
from gpuform.stacks.operations.opening.interpreter import (
    MOVED,
    ProgramEnvironment,
    build_command_start,
    find_program_environment,
)
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.reporting import run_reported_operation
from gpuform.stacks.operations.runs.callbacks import (
    Interrupted,
    Message,
    OperationCallbacks,
    OperationEvent,
    RunEnded,
    RunStarted,
)
from gpuform.stacks.operations.runs.options import ExitReason, ImportOptions, RunOptions, RunResult
from gpuform.stacks.review.summary_text import format_gate
from gpuform.stacks.review.value_text import counted


def is_continued_in_virtualenv(project: Project) -> bool:
    """Return True if the command continues in the project's virtualenv when this process ends.

    The caller then returns at once. Returns False if this process already runs in the virtualenv,
    or if the project has no virtualenv.

    Raises:
        EngineError: the virtualenv is missing or has no gpuform.
    """
    # Removed: the variable is for this process, not for those that the program starts.
    if os.environ.pop(MOVED, None):
        return False
    environment = find_program_environment(project)
    if environment is None or environment.is_current:
        return False
    python = environment.find_python()
    # After --cwd is undone: the same arguments must mean the same in the other process.
    click.get_current_context().find_root().call_on_close(
        lambda: _replace_process(environment, python)
    )
    return True


def _replace_process(environment: ProgramEnvironment, python: Path) -> None:
    """Replace this process by the virtualenv's interpreter, with the command's arguments."""
    # exec drops what Python has buffered.
    sys.stdout.flush()
    sys.stderr.flush()
    command = [*build_command_start(python), *sys.argv[1:]]
    variables = {**environment.build_activated_variables(), MOVED: "1"}
    if os.name == "nt":  # exec there returns to the shell before the command has ended
        sys.exit(subprocess.run(command, check=False, env=variables).returncode)  # noqa: S603 - ours
    os.execve(python, command, variables)  # noqa: S606 - arguments need no shell


EXIT_CODES: Final[Mapping[ExitReason, int]] = {
    ExitReason.SUCCEEDED: SUCCESS,
    ExitReason.FAILED: FAILED,
    ExitReason.CANCELLED: FAILED,
    ExitReason.DECLINED: FAILED,
    ExitReason.POLICY_VIOLATION: POLICY_VIOLATION,
    ExitReason.UNCHECKED: INCOMPLETE,
    ExitReason.UNEXPECTED_CHANGES: UNEXPECTED_CHANGES,
    ExitReason.OUT_OF_CREDIT: OUT_OF_CREDIT,
    ExitReason.END_UNKNOWN: INCOMPLETE,
    ExitReason.DUE: FOUND,
}


def run_command(arguments: RunArguments, session: Session) -> int:
    """Run the command on one stack and return the exit code.

    A project with its own virtualenv continues there when this process ends; the code is 0 then.

    Raises:
        EngineError: the run cannot begin; nothing was changed.
    """
    # First of all: where nobody can answer, nothing is begun.
    require_answerable(arguments, session.screen)
    options = arguments.options
    # Without the program the state is enough, also of a project in another language.
    runs_program = options.run_program or options.operation == "update"
    workspace = find_workspace(session, runs_program=runs_program)
    if is_continued_in_virtualenv(workspace.project):
        return SUCCESS
    selected = select_stack(session, workspace)
    with raise_on_signals():
        result = run_reported_operation(
            selected, arguments.options, create_run_callbacks(arguments, session)
        )
    print_reason(result, session.screen, preview_only=arguments.options.preview_only)
    return choose_exit_code(arguments, result.reason, has_changes=result.has_changes)


def choose_exit_code(arguments: RunArguments, reason: ExitReason, *, has_changes: bool) -> int:
    """Return the exit code of a run; with --detailed-exitcode, CHANGES for a plan with changes."""
    if arguments.detailed_exitcode and has_changes and reason is ExitReason.SUCCEEDED:
        return CHANGES
    return EXIT_CODES[reason]


def create_run_callbacks(arguments: RunArguments, session: Session) -> OperationCallbacks:
    """Return callbacks which show events on the screen, and ask for confirmation without --yes.

    Ctrl-C at the question is a no.
    """
    screen, options = session.screen, arguments.options
    jobs = os.cpu_count() or 1
    event_printer = EventPrinter(
        create_view(arguments, session), screen, prints_messages=not arguments.json
    )

    def confirm(plan: Plan) -> bool:
        try:
            return confirm_plan(screen, plan)
        # Ctrl-C at the question is a no: the lock is given back as after any answer.
        except KeyboardInterrupt:
            screen.print()
            return False

    return OperationCallbacks(
        event_printer,
        None if arguments.yes else confirm,
        Signals(screen),
        partial(rehearse_plan, options, jobs, screen) if arguments.rehearse else None,
    )


def rehearse_plan(
    options: RunOptions, jobs: int, screen: Screen, selected: SelectedStack, plan: Plan
) -> Rehearsal:
    """Play the plan of a preview on the emulator under every hazard, and return the outcomes.

    `options` are those of the preview, `jobs` is the number of processes that play at a time.

    Raises:
        EngineError: the plan cannot be rehearsed, or the emulator is not installed.
    """
    from gpuform.stacks.operations.opening.emulator import require_emulator  # noqa: PLC0415 - few runs need it
    from gpuform.stacks.rehearsing import RehearsalOptions, rehearse  # noqa: PLC0415 - as above

    require_emulator()
    rehearsal_options = RehearsalOptions(
        jobs=jobs, run_options=options, on_progress=create_rehearsal_progress(screen)
    )
    return rehearse(selected, plan, rehearsal_options)


def create_rehearsal_progress(screen: Screen) -> Callable[[int, int], None]:
    """Return a function to show the progress on stderr: each hazard on a terminal, else few."""
    last_shares: list[int] = []

    def show(played: int, planned: int) -> None:
        message = f"rehearsed {played} of {planned} hazards"
        if screen.interactive:
            ending = "\n" if played == planned else ""
            screen.err.write(f"\r{message}{ending}")
            screen.err.flush()
            return
        # A log gets a line for each quarter.
        share = 4 * played // planned if planned else 0
        if share and share not in last_shares:
            last_shares.append(share)
            screen.warn(message)

    return show


def create_view(arguments: RunArguments, session: Session) -> View:
    """Return the view of the command: Pulumi's JSON of a preview or of events, or text."""
    if arguments.json:
        return (PreviewJson if arguments.options.preview_only else EventLines)(session.screen)
    return HumanView(session.screen, arguments.display)


class EventPrinter:
    """Shows the events of an operation: its runs in a view, other messages beside them.

    With `prints_messages` messages of severity `info` are lines of the results. All others go to
    stderr, as do all messages where the results are JSON.
    """

    def __init__(self, view: View, screen: Screen, *, prints_messages: bool) -> None:
        self._view = view
        self._screen = screen
        self._prints_messages = prints_messages
        self._listen: Listener = lambda _event: None

    def __call__(self, event: OperationEvent) -> None:
        if isinstance(event, RunStarted):
            self._listen = self._view.begin(event)
        elif isinstance(event, RunEnded):
            # Closed before the results: a live display would be drawn over them.
            self._view.close()
            if event.outcome is not None:
                self._view.end(event, event.outcome)
        # Comes from any thread: the view prints the notice above its live rows.
        elif isinstance(event, Interrupted):
            self._view.show_notice(INTERRUPTED_MESSAGE)
        elif not isinstance(event, Message):
            self._listen(event)
        elif event.severity == "info" and self._prints_messages:
            self._screen.print(event.message)
        else:
            self._screen.warn(event.message)


def print_reason(result: RunResult, screen: Screen, *, preview_only: bool) -> None:
    """Print why the operation ended, where the view has not shown the reason."""
    for reason in _format_reasons(result, preview_only=preview_only):
        screen.warn(reason)
    if result.reason is ExitReason.DECLINED:
        screen.print("Nothing was changed.")


def _format_reasons(result: RunResult, *, preview_only: bool) -> Iterator[str]:
    """Yield lines on gates, checks, credit, unexpected changes, refusals and ends of unknown time.

    The end of a resource is unknown if its `ttl` has no known beginning.
    """
    for gate in result.gates:
        yield escape_invisible(f"error: {gate.source}: gate {format_gate(gate)}")
    for reason in result.unchecked:
        yield escape_invisible(f"error: not checked: {reason}")
    if (result.gates or result.unchecked) and not preview_only:
        yield "Nothing was changed."
    if result.reason is ExitReason.OUT_OF_CREDIT:
        yield "error: no credit is left: add credit to the account"
    if result.reason is ExitReason.UNEXPECTED_CHANGES:
        expectation = (
            "no changes were expected for preview but changes were proposed"
            if preview_only
            else "no changes were expected but changes occurred"
        )
        yield f"error: {expectation}"
    for reason in result.refusals:
        yield "\n".join(map(escape_invisible, f"error: {reason}".splitlines()))
    # Without a creation time nobody can tell when a `ttl` is over.
    for name in result.unknown_ends:
        yield (
            f"error: {name}: its ttl counts from its creation time, which is unknown: "
            "declare expires instead"
        )


def import_and_show(options: ImportOptions, session: Session, *, yes: bool) -> int:
    """Import the chosen objects for `gpuform import`, show the results, and return the exit code.

    A project with its own virtualenv continues there when this process ends. If no object was
    imported, the files are unchanged.

    Raises:
        EngineError: nobody can answer the question, or the import cannot begin.
    """
    from gpuform.stacks.operations.importing import run_import  # noqa: PLC0415 - for imports alone

    screen = session.screen
    # Before the platform is asked: the question comes after the objects are listed.
    if not (yes or options.preview_only or screen.interactive):
        raise EngineError(
            "`gpuform import` requires a confirmation, and the command cannot ask for it here",
            hint="add --yes, or preview first with --preview-only",
        )
    workspace = find_workspace(session)
    if is_continued_in_virtualenv(workspace.project):
        return SUCCESS
    selected = select_stack(session, workspace)
    callbacks = create_run_callbacks(RunArguments(RunOptions("update"), yes=yes), session)
    with raise_on_signals():
        result = run_import(selected, options, callbacks)
    if result.entries:
        screen.write(result.entries)
    for run_result in result.runs:
        print_reason(run_result, screen, preview_only=run_result.preview)
    # Without a single import the error of the update says why.
    if result.remaining and result.imported:
        screen.warn(
            f"error: {counted(len(result.remaining), 'object')} not imported: run the command again"
        )
    return EXIT_CODES[result.reason]
