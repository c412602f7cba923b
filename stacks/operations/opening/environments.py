"""Enter the environment of a command: real platforms at given base URLs, or the emulator.

Operations call this module. The records of a stack name the environment of its objects; a command
in the other environment is refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuform.providers.context import CLOCK_VARIABLE, use_run_context
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
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.operations.opening.emulator import run_emulator
from gpuform.stacks.resource_rules import find_lifecycle


@contextmanager
def enter_environment(
    stack: Stack, *, emulate: bool, root: Path | None = None, shows_state: bool = False
) -> Iterator[bool]:
    """Yield True if the stack's platforms are emulated; with `emulate` run the emulator meanwhile.

    The stack's run context leads to the emulator from then on. Without `emulate` the variables of
    the run and the configuration decide. `root` is the
    workspace's folder, as in `run_emulator`. With `shows_state` no platform is asked: any emulator
    is accepted.

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
    """Return True if the stack's records name the emulator as its environment."""
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
