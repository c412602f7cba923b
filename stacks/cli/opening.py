"""Open stacks for commands: select, lock and open them, and report recovered changes.

Commands call this module; it calls the engine's `Workspace` and `operations/opening`.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from gpuform.stacks.cli.flags import build_lock_timeout
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.signals import INTERRUPTED_MESSAGE, Signals, raise_on_signals
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.engine.store import add_backup_hint, describe_orphaned_journals
from gpuform.stacks.operations.opening.selected_stack import (
    SelectedStack,
    create_passphrase_finder,
    read_sealed_state,
    warn_of_recovery,
)
from gpuform.stacks.operations.runs.callbacks import (
    Interrupted,
    Message,
    OperationCallbacks,
    OperationEvent,
)


def find_workspace(session: Session, *, runs_program: bool = True) -> Workspace:
    """Return the project of the command's folder, opened with the backend.

    Without `runs_program` a project of any runtime is accepted: the command needs the state alone.

    Raises:
        EngineError: there is no project, or it cannot be used.
    """
    return Workspace.find(Path.cwd(), session.environ, runs_program=runs_program)


def select_stack(session: Session, workspace: Workspace, name: str | None = None) -> SelectedStack:
    """Return the stack named `name`, else the stack of --stack, else the selected one.

    Raises:
        StackNotFound: there is no such stack, or none is selected.
    """
    return SelectedStack(
        workspace,
        workspace.resolve(name or session.stack),
        ask_passphrase=session.screen.create_passphrase_prompt(),
        lock_timeout=build_lock_timeout(session.screen).seconds,
        debug=session.verbose,
    )


def create_message_callbacks(screen: Screen) -> OperationCallbacks:
    """Return callbacks which print messages on stderr, for an operation without a run."""

    def print_message(event: OperationEvent) -> None:
        if isinstance(event, Message):
            screen.warn(event.message)
        elif isinstance(event, Interrupted):
            screen.warn(INTERRUPTED_MESSAGE)

    return OperationCallbacks(print_message, interruptions=Signals(screen))


@contextlib.contextmanager
def lock_stack(session: Session, workspace: Workspace, name: str) -> Iterator[None]:
    """Hold the stack's lock until the context ends; SIGTERM raises KeyboardInterrupt meanwhile.

    Raises:
        EngineError: another command holds the lock for longer than --lock-timeout.
    """
    lock = workspace.backend.create_lock(
        workspace.project.name, name, build_lock_timeout(session.screen)
    )
    with raise_on_signals(), lock:
        yield


@contextlib.contextmanager
def open_for_change(session: Session) -> Iterator[Stack]:
    """Yield the locked stack, with the changes of an interrupted run's journal.

    The stack is that of --stack, else the selected one. Nothing is saved at the end.

    Raises:
        EngineError: there is no such stack, or another command holds the lock.
        WrongPassphrase: nothing was changed.
    """
    workspace = find_workspace(session, runs_program=False)
    name = workspace.resolve(session.stack)
    # Locked before the state is read: an edit must start from the latest one.
    with lock_stack(session, workspace, name):
        passphrase = create_passphrase_finder(workspace, session.screen.create_passphrase_prompt())
        stack = workspace.open(name, passphrase, exclusive=True)
        # Checked before the command asks or changes anything.
        stack.crypter.check()
        warn_of_recovery(stack.recovered, session.screen.warn)
        journal = workspace.backend.open_journal(workspace.project.name, name).where
        warning = describe_orphaned_journals(journal, stack.snapshot, stack.orphaned_journals)
        if warning:
            session.screen.warn(f"warning: {warning}")
        yield stack


def read_sealed_snapshot(session: Session, workspace: Workspace | None = None) -> Snapshot:
    """Return the stack's state with secrets sealed, which needs no passphrase."""
    workspace = workspace or find_workspace(session, runs_program=False)
    name = workspace.resolve(session.stack)
    # The error about a damaged state names the last good one.
    with add_backup_hint(workspace.backend, workspace.project.name, name):
        return read_sealed_state(workspace, name, session.screen.warn).snapshot
