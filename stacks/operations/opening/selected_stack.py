"""Select a stack, enter its environment, find its passphrase and open it.

Commands and the Python API call this module; it opens the stack with the engine's `Workspace`. The
environment is real platforms at given base URLs, or the emulator. The records of a stack name the
environment of its objects; a command in the other environment is refused.
"""

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from gpuform.providers.context import CLOCK_VARIABLE, RunContext, use_run_context
from gpuform.providers.environment import (
    StackEnvironment,
    WrongEnvironment,
    build_wrong_environment_error,
    find_address,
    is_emulated,
    merge_emulator,
    merge_environment,
    read_environment,
    refuse_foreign_clock,
)
from gpuform.providers.operations import Settings
from gpuform.providers.platform import platforms
from gpuform.providers.values import unwrap_secrets
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.executing import PlannedOutputs
from gpuform.stacks.engine.project import PROCESS_USE
from gpuform.stacks.engine.secrets import find_passphrase
from gpuform.stacks.engine.stack import Stack, StackNotFound, Workspace
from gpuform.stacks.engine.store import LockTimeout, SealedState, read_sealed
from gpuform.stacks.operations.opening.emulator import run_emulator
from gpuform.stacks.operations.opening.interpreter import refuse_other_interpreter
from gpuform.stacks.resource_rules import find_lifecycle

AskPassphrase = Callable[[str], str]
"""Asks a person for a passphrase: receives a prompt and returns the passphrase."""


def create_passphrase_finder(
    workspace: Workspace, ask_passphrase: AskPassphrase | None, *, twice: bool = False
) -> Callable[[], str]:
    """Return a function for the passphrase, which looks or asks only at the first call.

    `ask_passphrase` is None where nobody can answer. `twice` asks a second time, for a new
    passphrase. The function raises EngineError without a passphrase, or if the two answers differ.
    """

    def ask_twice(prompt: str) -> str:
        if ask_passphrase is None:
            raise AssertionError("a passphrase can be asked for on a terminal only")
        first = ask_passphrase(prompt)
        if ask_passphrase("Enter it again") != first:
            raise EngineError("the two passphrases differ", hint="run the command again")
        return first

    # Secrets of other stacks need the passphrase again; a person is asked once.
    @functools.cache
    def find_cached_passphrase() -> str:
        ask_person = ask_twice if twice and ask_passphrase is not None else ask_passphrase
        return find_passphrase(workspace.environ, workspace.project.directory, ask_person)

    return find_cached_passphrase


AdjustContext = Callable[[RunContext], RunContext]
"""Adds what the options of an operation ask to its context."""


@dataclass(frozen=True, slots=True)
class SelectedStack:
    """A stack of a project, and the settings with which operations open it.

    Attributes:
        env_vars: variables of the operations, in addition to those of this process.
        ask_passphrase: asks for the passphrase; None where nobody can answer: then the environment
            must hold the passphrase.
        lock_timeout: how many seconds an operation waits for the stack's lock.
        debug: debug messages are events, too.
        planned_outputs: returns the planned outputs of other stacks, in a multi-stack run.
        traceparent: the trace context of the multi-stack run; empty if nothing is traced.
        run_context: what the present operation was asked; None outside of operations.
    """

    workspace: Workspace
    name: str
    env_vars: Mapping[str, str] = field(default_factory=dict)
    ask_passphrase: AskPassphrase | None = None
    lock_timeout: float = 0.0
    debug: bool = False
    planned_outputs: PlannedOutputs | None = None
    traceparent: str = ""
    run_context: RunContext | None = None

    def open(self, *, exclusive: bool = False, with_journal: bool = True) -> Stack:
        """Open the stack: its settings, secrets and last state.

        `exclusive` is for the holder of the stack's lock. Without `with_journal` the entries of an
        interrupted run's journal are not added to the state.

        Raises:
            EngineError: the state is damaged, or has secrets and the passphrase is wrong or
                missing.
        """
        passphrase = create_passphrase_finder(self.workspace, self.ask_passphrase)
        stack = self.workspace.open(
            self.name, passphrase, exclusive=exclusive, with_journal=with_journal
        )
        stack.planned_outputs = self.planned_outputs
        stack.run_context = self.run_context or stack.run_context
        return stack

    def reopen(self, stack: Stack) -> Stack:
        """Return the locked stack, read again, with the run context of the open stack."""
        return self.with_context(stack).open(exclusive=True)

    def with_context(self, stack: Stack) -> Self:
        """Return a selection of the stack with the run context of the open `stack`."""
        return replace(self, run_context=stack.run_context)

    def build_lock_timeout(self, report: Callable[[str], None]) -> LockTimeout:
        """Return how long to wait for the stack's lock; `report` receives who holds the lock."""
        return LockTimeout(self.lock_timeout, report)

    @contextmanager
    def begin_operation(self, adjust: AdjustContext = lambda run: run) -> Iterator[Self]:
        """Begin an operation with the variables of this process at this moment, and `env_vars`.

        Yields the stack with the operation's context, as `adjust` returns the context.
        """
        environ = {**PROCESS_USE.read_environ(), **self.env_vars}
        with use_run_context(adjust(RunContext(environ))) as run_context:
            workspace = replace(self.workspace, environ=run_context.environ)
            yield replace(self, workspace=workspace, run_context=run_context)


def select_stack(
    stack_name: str,
    *,
    work_dir: str | Path = ".",
    env_vars: Mapping[str, str] | None = None,
    ask_passphrase: AskPassphrase | None = None,
    lock_timeout: float = 0.0,
) -> SelectedStack:
    """Return the stack of this name, in the project of `work_dir`.

    Nothing is written: the stack that `gpuform stack select` chose stays selected.

    Raises:
        StackNotFound: the project has no such stack.
        EngineError: the project is wrong, or its program needs another Python interpreter.
    """
    workspace = _find_workspace(work_dir, env_vars)
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
    """Create an empty stack and select it, as `gpuform stack init` does.

    `secrets_provider` is `passphrase`, the default, or the URL of a key.

    Raises:
        EngineError: the stack exists, or the project is wrong or needs another Python interpreter.
    """
    workspace = _find_workspace(work_dir, env_vars)
    passphrase = create_passphrase_finder(workspace, ask_passphrase, twice=True)
    workspace.create_stack(stack_name, passphrase, secrets_provider)
    return SelectedStack(workspace, stack_name, dict(env_vars or {}), ask_passphrase, lock_timeout)


def create_or_select_stack(
    stack_name: str,
    *,
    work_dir: str | Path = ".",
    env_vars: Mapping[str, str] | None = None,
    ask_passphrase: AskPassphrase | None = None,
    lock_timeout: float = 0.0,
) -> SelectedStack:
    """Return the stack of this name, or create an empty one if none exists.

    Only a created stack becomes the selected one.

    Raises:
        EngineError: the project is wrong, or its program needs another Python interpreter.
    """
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


def _find_workspace(work_dir: str | Path, env_vars: Mapping[str, str] | None) -> Workspace:
    """Find the project's workspace, with `env_vars` over this process's variables.

    Raises EngineError if the project names the interpreter of another virtualenv.
    """
    workspace = Workspace.find(
        Path(work_dir).resolve(), {**PROCESS_USE.read_environ(), **(env_vars or {})}
    )
    # The command line starts the project's interpreter; a library cannot change its own process.
    refuse_other_interpreter(workspace.project)
    return workspace


def describe_lock_holder(workspace: Workspace, name: str) -> str:
    """Return who holds the stack's lock, and since when; empty if nobody does."""
    return workspace.backend.create_lock(workspace.project.name, name).describe_worker()


def warn_of_recovery(changes: int, report: Callable[[str], None]) -> None:
    """Report how many changes of an interrupted run were recovered from the journal, if any."""
    if changes:
        report(
            f"warning: the last run was interrupted; recovered {changes} changes of it from "
            "its journal"
        )


def read_sealed_state(
    workspace: Workspace, name: str, report: Callable[[str], None]
) -> SealedState:
    """Return the stack's state with sealed secrets, and warn of a doubtful journal.

    The state includes the changes in an interrupted run's journal. No passphrase is needed.
    """
    backend, project = workspace.backend, workspace.project.name
    state = read_sealed(backend, project, name)
    uncertainty = state.describe_uncertainty(backend.open_journal(project, name).where)
    if uncertainty:
        report(f"warning: {uncertainty}")
    return state


@contextmanager
def enter_environment(
    stack: Stack, *, emulate: bool, root: Path | None = None, shows_state: bool = False
) -> Iterator[bool]:
    """Yield True if the stack's platforms are emulated; with `emulate` run the emulator meanwhile.

    The stack's run context leads to the emulator from then on. Without `emulate` the variables of
    the run and the configuration decide. `root` is the workspace's folder, as in `run_emulator`.
    With `shows_state` no platform is asked: any emulator is accepted.

    Raises:
        WrongEnvironment: the stack lives in the other environment, or on another emulator.
    """
    recorded = read_environment(stack.get_intents().records)
    # Checked before the emulator starts: an emulator started for a refused command would leave
    # a file.
    if emulate:
        _require_emulated(stack, recorded)
    with (
        use_run_context(stack.run_context),
        run_emulator(stack.project.directory, emulate=emulate, root=root) as stack.run_context,
    ):
        emulated = emulate or _check_environment(stack, recorded)
        if emulated and recorded is not None and not shows_state:
            merge_emulator(recorded, stack.run_context.environ)
        yield emulated


def is_recorded_emulated(stack: Stack) -> bool:
    """Return True if the emulator is the recorded environment of the stack."""
    recorded = read_environment(stack.get_intents().records)
    return recorded is not None and recorded.emulated


def _require_emulated(stack: Stack, recorded: StackEnvironment | None) -> None:
    """Raise WrongEnvironment for a stack of real platforms. The caller is about to use an emulator.

    A stack without a record is refused too if its state has platform resources: their objects may
    be real.
    """
    if recorded is not None and not recorded.emulated:
        raise build_wrong_environment_error(recorded, "this run would use the emulator")
    if recorded is None and any(
        find_lifecycle(resource.type) for resource in stack.snapshot.resources
    ):
        raise WrongEnvironment(
            "this run would use the emulator, but it is unknown whether the resources of "
            f"stack {stack.name} are there",
            hint="if the resources are there, export the state with `gpuform stack export`, and "
            "import it with `gpuform stack import` into a stack created by `gpuform stack "
            "init NAME --emulate`",
        )


def _check_environment(stack: Stack, recorded: StackEnvironment | None) -> bool:
    """Return True if the environment leads to an emulator.

    `recorded` is the stack's, None before its first run: then GPUFORM_CLOCK and the platforms'
    addresses decide.

    Raises:
        WrongEnvironment: the stack's records name another environment, or the emulator's clock is
            set without its addresses.
    """
    environ = stack.run_context.environ
    settings = Settings(config=lambda key: read_config(stack).get(key), environ=environ)
    # GPUFORM_CLOCK is among the variables of `gpuform emulator env`.
    has_emulator_clock = bool(environ.get(CLOCK_VARIABLE))
    if recorded is not None and recorded.emulated and not has_emulator_clock:
        raise build_wrong_environment_error(recorded, "this run would use real platforms")
    if recorded is not None and not recorded.emulated:
        refuse_foreign_clock(environ, "the stack lives on real platforms")
    # An address may have been set since: a platform at another address is another environment.
    for platform in recorded.addresses if recorded else ():
        if (address := find_address(platform, settings)) is not None:
            merge_environment(recorded, platform, address, settings)
    if recorded is not None or not has_emulator_clock:
        return recorded is not None and recorded.emulated
    addresses = [find_address(platform, settings) for platform in platforms()]
    if not any(is_emulated(address, environ) for address in addresses if address):
        refuse_foreign_clock(environ, "no platform is emulated")
    _require_emulated(stack, recorded)
    return True


def read_config(stack: Stack) -> dict[str, str]:
    """Return the stack's configuration in plain text, by full keys."""
    inputs = unwrap_secrets(stack.settings.build_provider_inputs(stack.crypter))
    return {key: str(value) for key, value in inputs.items()} if isinstance(inputs, dict) else {}
