"""Select a stack and open it: backend and passphrase."""

import functools
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing import PlannedOutputs
from gpuform.stacks.engine.secrets import find_passphrase
from gpuform.stacks.engine.stack import Stack, StackNotFound, Workspace
from gpuform.stacks.engine.store import LockTimeout, SealedState, read_sealed
from gpuform.stacks.operations.opening.interpreter import refuse_other_interpreter
from gpuform.stacks.operations.opening.variables import set_variables

AskPassphrase = Callable[[str], str]
"""Asks a person for a passphrase: a prompt in, the passphrase out."""


def passphrase_of(
    workspace: Workspace, ask: AskPassphrase | None, *, twice: bool = False
) -> Callable[[], str]:
    """Finds it when it is first needed, and once; `twice` asks again, for a new one.

    `ask` is None where nobody can answer.
    """

    def ask_twice(prompt: str) -> str:
        if ask is None:
            raise AssertionError("somebody is asked only where somebody can answer")
        first = ask(prompt)
        if ask("Enter it again") != first:
            raise EngineError("the two passphrases differ", hint="run the command again")
        return first

    @functools.cache
    def find() -> str:
        asked = ask_twice if twice and ask is not None else ask
        return find_passphrase(workspace.environ, workspace.project.directory, asked)

    return find


_AT_WORK = threading.Lock()


@dataclass(frozen=True, slots=True)
class SelectedStack:
    """A stack of a project, and how operations get at it.

    `env_vars` are added to the environment while an operation runs. `ask_passphrase` is None where
    nobody can answer: then the environment has to have it. `lock_timeout` is how many seconds an
    operation waits while another has the stack's lock. With `debug` debug messages are events, too.
    `foreseen` tells what other stacks will give out, where a plan of several stacks is made.
    """

    workspace: Workspace
    name: str
    env_vars: Mapping[str, str] = field(default_factory=dict)
    ask_passphrase: AskPassphrase | None = None
    lock_timeout: float = 0.0
    debug: bool = False
    foreseen: PlannedOutputs | None = None

    def open(self, *, exclusive: bool = False, with_journal: bool = True) -> Stack:
        """Its settings, secrets and last state. `exclusive` is for who has its lock.

        Without `with_journal` what an interrupted run has left is not part of the state.
        """
        passphrase = passphrase_of(self.workspace, self.ask_passphrase)
        stack = self.workspace.open(
            self.name, passphrase, exclusive=exclusive, with_journal=with_journal
        )
        stack.foreseen = self.foreseen
        return stack

    def patience(self, tell: Callable[[str], None]) -> LockTimeout:
        """How long to wait for the lock; who has it is told."""
        return LockTimeout(self.lock_timeout, tell)

    @contextmanager
    def environment(self) -> Iterator[None]:
        """Around an operation: with the stack's variables in the environment of this process.

        Raises EngineError while another one is at work here, which would go by them, too.
        """
        if not _AT_WORK.acquire(blocking=False):
            raise EngineError(
                "another operation is at work in this process",
                hint="One runs at a time: begin this one after it, or in a process of its own.",
            )
        try:
            with set_variables(self.env_vars):
                yield
        finally:
            _AT_WORK.release()


def select_stack(
    stack_name: str,
    *,
    work_dir: str | Path = ".",
    env_vars: Mapping[str, str] | None = None,
    ask_passphrase: AskPassphrase | None = None,
    lock_timeout: float = 0.0,
) -> SelectedStack:
    """The stack of that name, in the project that `work_dir` is in. Raises StackNotFound.

    Nothing is written: what `gpuform stack select` has chosen stays chosen.
    """
    workspace = _workspace(work_dir, env_vars)
    name = workspace.resolve(stack_name)
    return SelectedStack(workspace, name, dict(env_vars or {}), ask_passphrase, lock_timeout)


def create_stack(
    stack_name: str,
    *,
    work_dir: str | Path = ".",
    env_vars: Mapping[str, str] | None = None,
    secrets_provider: str = "",
    ask_passphrase: AskPassphrase | None = None,
    lock_timeout: float = 0.0,
) -> SelectedStack:
    """A new, empty stack, as `gpuform stack init` makes it. Raises EngineError if it exists.

    `secrets_provider` is `passphrase`, which is the default, or the URL of a key.
    """
    workspace = _workspace(work_dir, env_vars)
    passphrase = passphrase_of(workspace, ask_passphrase, twice=True)
    workspace.init(stack_name, passphrase, secrets_provider)
    return SelectedStack(workspace, stack_name, dict(env_vars or {}), ask_passphrase, lock_timeout)


def create_or_select_stack(
    stack_name: str,
    *,
    work_dir: str | Path = ".",
    env_vars: Mapping[str, str] | None = None,
    ask_passphrase: AskPassphrase | None = None,
    lock_timeout: float = 0.0,
) -> SelectedStack:
    """The stack of that name, which is made if there is none."""
    try:
        return select_stack(
            stack_name,
            work_dir=work_dir,
            env_vars=env_vars,
            ask_passphrase=ask_passphrase,
            lock_timeout=lock_timeout,
        )
    except StackNotFound:
        return create_stack(
            stack_name,
            work_dir=work_dir,
            env_vars=env_vars,
            ask_passphrase=ask_passphrase,
            lock_timeout=lock_timeout,
        )


def _workspace(work_dir: str | Path, env_vars: Mapping[str, str] | None) -> Workspace:
    workspace = Workspace.find(Path(work_dir).resolve(), {**os.environ, **(env_vars or {})})
    refuse_other_interpreter(workspace.project)
    return workspace


def at_work_on(workspace: Workspace, name: str) -> str:
    """Who has the stack's lock, and since when; empty where nobody has."""
    return workspace.backend.lock(workspace.project.name, name).describe_worker()


def warn_of_recovery(changes: int, tell: Callable[[str], None]) -> None:
    """Tells that an interrupted run's changes were found, if there were any."""
    if changes:
        tell(
            f"warning: the last run was interrupted; {changes} changes that it made were "
            "recovered from its journal"
        )


def read_for_showing(workspace: Workspace, name: str, tell: Callable[[str], None]) -> SealedState:
    """The stack's state without its secrets; what its journal may tell beside it is warned of."""
    backend, project = workspace.backend, workspace.project.name
    found = read_sealed(backend, project, name)
    told = found.describe_uncertainty(backend.journal(project, name).where)
    if told:
        tell(f"warning: {told}")
    return found
