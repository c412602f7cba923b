"""A stack opened by a command that changes it: locked, and brought up to date."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from gpuform.stacks.cli.flags import patience
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.stopping import FIRST, Signals, unwinding
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.engine.store import add_backup_hint, describe_orphaned_journals
from gpuform.stacks.operations.opening.selecting import (
    SelectedStack,
    create_passphrase_finder,
    read_sealed_state,
    warn_of_recovery,
)
from gpuform.stacks.operations.runs.caller import (
    Interrupted,
    Message,
    OperationCallbacks,
    OperationEvent,
)


def workspace_of(session: Session, *, runs_program: bool = True) -> Workspace:
    """The project of the folder that the command works in, with its backend.

    A command that works from the state alone, and never `runs_program`, takes one of any runtime.
    """
    return Workspace.find(Path.cwd(), session.environ, runs_program=runs_program)


def chosen_stack(session: Session, workspace: Workspace, name: str | None = None) -> SelectedStack:
    """The stack that is named, else selected, for an operation on it. Raises StackNotFound."""
    return SelectedStack(
        workspace,
        workspace.resolve(name or session.stack),
        ask_passphrase=session.screen.passphrase(),
        lock_timeout=patience(session.screen).seconds,
        debug=session.verbose,
    )


def told_on(screen: Screen) -> OperationCallbacks:
    """For operations that only tell something, on stderr, and may be interrupted."""

    def tell(event: OperationEvent) -> None:
        if isinstance(event, Message):
            screen.warn(event.text)
        elif isinstance(event, Interrupted):
            screen.warn(FIRST)

    return OperationCallbacks(tell, interruptions=Signals(screen))


@contextlib.contextmanager
def locked(session: Session, workspace: Workspace, name: str) -> Iterator[None]:
    """Around the work on a stack that nobody else may do meanwhile."""
    lock = workspace.backend.lock(workspace.project.name, name, patience(session.screen))
    with unwinding(), lock:
        yield


@contextlib.contextmanager
def opened_for_change(session: Session, name: str | None = None) -> Iterator[Stack]:
    """The stack, under its lock; what an interrupted run's journal tells is in its state.

    Raises WrongPassphrase before anything is done.
    """
    workspace = workspace_of(session, runs_program=False)
    name = workspace.resolve(name or session.stack)
    with locked(session, workspace, name):
        passphrase = create_passphrase_finder(workspace, session.screen.passphrase())
        stack = workspace.open(name, passphrase, exclusive=True)
        stack.crypter.check()
        warn_of_recovery(stack.recovered, session.screen.warn)
        where = workspace.backend.journal(workspace.project.name, name).where
        told = describe_orphaned_journals(where, stack.snapshot, stack.overtaken)
        if told:
            session.screen.warn(f"warning: {told}")
        yield stack


def sealed_snapshot(session: Session, workspace: Workspace | None = None) -> Snapshot:
    """The stack's state without its secrets, which needs no passphrase."""
    workspace = workspace or workspace_of(session, runs_program=False)
    name = workspace.resolve(session.stack)
    with add_backup_hint(workspace.backend, workspace.project.name, name):
        return read_sealed_state(workspace, name, session.screen.warn).snapshot
