"""Run the operation of a command, show it, and return its exit code, in the project's own
interpreter.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from gpuform.schemas.plan import Plan
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.cli.arguments import RunArguments
from gpuform.stacks.cli.failures import (
    FAILED,
    FOUND,
    INCOMPLETE,
    OUT_OF_CREDIT,
    POLICY_VIOLATION,
    SUCCESS,
    UNEXPECTED_CHANGES,
)
from gpuform.stacks.cli.opening import chosen_stack, workspace_of
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.asking import confirmed, refuse_what_nobody_can_answer
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.stopping import FIRST, Signals, unwinding
from gpuform.stacks.cli.terminal.views import EventLines, HumanView, PreviewJson, View
from gpuform.stacks.engine.planning import Listener
from gpuform.stacks.engine.project import Project
from gpuform.stacks.operations.opening.interpreter import (
    MOVED,
    ProgramEnvironment,
    find_program_environment,
)
from gpuform.stacks.operations.runs.caller import (
    Interrupted,
    Message,
    OperationCallbacks,
    OperationEvent,
    RunEnded,
    RunStarted,
)
from gpuform.stacks.operations.runs.results import ExitReason, RunResult
from gpuform.stacks.operations.runs.running import run as run_operation
from gpuform.stacks.review.summary_text import format_gate

_MODULE = "gpuform.stacks.cli"


def goes_on_elsewhere(project: Project) -> bool:
    """Whether the command goes on in the project's virtualenv, once this process has let go of all.

    The caller then ends at once, with nothing done. False where that virtualenv is the one that
    runs already, or the project has none. Raises EngineError when it is missing or has no gpuform.
    """
    if os.environ.pop(MOVED, None):
        return False
    environment = find_program_environment(project)
    if environment is None or environment.is_running:
        return False
    python = environment.find_python()
    # Once the command's folder is given back, its arguments mean what they meant at first.
    click.get_current_context().find_root().call_on_close(lambda: _go_on(environment, python))
    return True


def _go_on(environment: ProgramEnvironment, python: Path) -> None:
    """Ends this process: the interpreter takes its place."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = [str(python), "-P", "-m", _MODULE, *sys.argv[1:]]
    variables = {**environment.activate(), MOVED: "1"}
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


def run(arguments: RunArguments, session: Session) -> int:
    """Does the command; the exit code. Raises what stops it before anything is done."""
    refuse_what_nobody_can_answer(arguments, session.screen)
    options = arguments.options
    runs_program = options.run_program or options.operation == "update"
    workspace = workspace_of(session, runs_program=runs_program)
    if goes_on_elsewhere(workspace.project):
        return SUCCESS
    selected = chosen_stack(session, workspace)
    with unwinding():
        result = run_operation(selected, arguments.options, caller_of(arguments, session))
    tell_reason(result, session.screen, preview_only=arguments.options.preview_only)
    return EXIT_CODES[result.reason]


def caller_of(arguments: RunArguments, session: Session) -> OperationCallbacks:
    """The person at the screen: sees what happens, is asked without --yes, and may interrupt."""
    screen = session.screen
    shown = Shown(view_of(arguments, session), screen, tells=not arguments.json)

    def confirm(plan: Plan) -> bool:
        try:
            return confirmed(screen, plan)
        except KeyboardInterrupt:
            screen.print()
            return False

    return OperationCallbacks(shown, None if arguments.yes else confirm, Signals(screen))


def view_of(arguments: RunArguments, session: Session) -> View:
    if arguments.json:
        return (PreviewJson if arguments.options.preview_only else EventLines)(session.screen)
    return HumanView(session.screen, arguments.showing)


class Shown:
    """Shows the events of an operation: those of its runs by a view, the others beside it.

    What it tells is a line of the results, unless these are JSON (`tells`).
    """

    def __init__(self, view: View, screen: Screen, *, tells: bool) -> None:
        self._view = view
        self._screen = screen
        self._tells = tells
        self._listen: Listener = lambda _event: None

    def __call__(self, event: OperationEvent) -> None:
        if isinstance(event, RunStarted):
            self._listen = self._view.begin(event)
        elif isinstance(event, RunEnded):
            self._view.close()
            if event.outcome is not None:
                self._view.end(event, event.outcome)
        elif isinstance(event, Interrupted):
            self._view.notice(FIRST)
        elif not isinstance(event, Message):
            self._listen(event)
        elif event.severity == "info" and self._tells:
            self._screen.print(event.text)
        else:
            self._screen.warn(event.text)


def tell_reason(result: RunResult, screen: Screen, *, preview_only: bool) -> None:
    """Says why it ended as it did, where the view has not."""
    for text in _reasons(result, preview_only=preview_only):
        screen.warn(text)
    if result.reason is ExitReason.DECLINED:
        screen.print("Nothing was changed.")


def _reasons(result: RunResult, *, preview_only: bool) -> Iterator[str]:
    for gate in result.gates:
        yield escape_invisible(f"error: {gate.source}: gate {format_gate(gate)}")
    for text in result.unchecked:
        yield escape_invisible(f"error: not checked: {text}")
    if (result.gates or result.unchecked) and not preview_only:
        yield "Nothing was changed."
    if result.reason is ExitReason.OUT_OF_CREDIT:
        yield "error: no credit is left: add credit to the account"
    if result.reason is ExitReason.UNEXPECTED_CHANGES:
        happened = (
            "no changes were expected for preview but changes were proposed"
            if preview_only
            else "no changes were expected but changes occurred"
        )
        yield f"error: {happened}"
    for text in result.refusals:
        yield "\n".join(map(escape_invisible, f"error: {text}".splitlines()))
    for name in result.unknown_ends:
        yield (
            f"error: {name}: nobody tells when it was made, which its ttl counts from: "
            "declare expires instead"
        )
