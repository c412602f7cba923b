"""A stack opened by a command that changes it: locked, and brought up to date."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from gpuform.stacks.cli.locking import patience
from gpuform.stacks.cli.passphrase import passphrase_of
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.stopping import unwinding
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.engine.store import SealedState, doubt, name_the_last_good, read_sealed


def workspace_of(session: Session) -> Workspace:
    """The project of the folder that the command works in, with its backend."""
    return Workspace.find(Path.cwd(), session.environ)


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
    workspace = workspace_of(session)
    name = workspace.resolve(name or session.stack)
    with locked(session, workspace, name):
        passphrase = passphrase_of(workspace, session.screen)
        stack = workspace.open(name, passphrase, exclusive=True)
        stack.crypter.check()
        warn_of_recovery(session.screen, stack.recovered)
        where = workspace.backend.journal(workspace.project.name, name).where
        told = doubt(where, stack.snapshot, stack.overtaken)
        if told:
            session.screen.warn(f"warning: {told}")
        yield stack


def sealed_snapshot(session: Session, workspace: Workspace | None = None) -> Snapshot:
    """The stack's state without its secrets, which needs no passphrase."""
    workspace = workspace or workspace_of(session)
    name = workspace.resolve(session.stack)
    with name_the_last_good(workspace.backend, workspace.project.name, name):
        return read_for_showing(session.screen, workspace, name).snapshot


def read_for_showing(screen: Screen, workspace: Workspace, name: str) -> SealedState:
    """The stack's state without its secrets; what its journal may tell beside it is warned of."""
    backend, project = workspace.backend, workspace.project.name
    found = read_sealed(backend, project, name)
    told = found.doubt(backend.journal(project, name).where)
    if told:
        screen.warn(f"warning: {told}")
    return found


def at_work_on(workspace: Workspace, name: str) -> str:
    """Who has the stack's lock, and since when; empty where nobody has."""
    return workspace.backend.lock(workspace.project.name, name).worker()


def warn_of_recovery(screen: Screen, changes: int) -> None:
    """Tells that an interrupted run's changes were found, if there were any."""
    if changes:
        screen.warn(
            f"warning: the last run was interrupted; {changes} changes that it made were "
            "recovered from its journal"
        )
