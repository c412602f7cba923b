"""The world that a command works in: the platforms that the environment names, or the emulator."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuform.providers.context import CLOCK_VARIABLE
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
from gpuform.stacks.engine.records import errors_of_engine
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.values import unwrap_secrets
from gpuform.stacks.operations.opening.emulating import emulator_for
from gpuform.stacks.resource_rules import lifecycle_of


@contextmanager
def world_for(
    stack: Stack, *, emulate: bool, root: Path | None = None, shows_state: bool = False
) -> Iterator[bool]:
    """Around whatever asks the platforms about a stack; whether that is on the emulator.

    `root` is as `emulator_for` has it. Raises EngineError, before anything is asked, when the stack
    lives in the other world, or on another emulator. With `shows_state` nothing is asked: any
    emulator will do.
    """
    with errors_of_engine():
        known = read_environment(stack.intents().records)
        if emulate:
            _require_emulated(stack, known)
    with emulator_for(stack.project.directory, wanted=emulate, root=root):
        with errors_of_engine():
            emulated = emulate or _entered(stack, known)
            if emulated and known is not None and not shows_state:
                merge_emulator(known, os.environ)
        yield emulated


def lives_emulated(stack: Stack) -> bool:
    """Whether the stack is recorded to live on the emulator."""
    with errors_of_engine():
        known = read_environment(stack.intents().records)
    return known is not None and known.emulated


def _require_emulated(stack: Stack, known: StackEnvironment | None) -> None:
    """A state that does not say where its objects are may be that of real ones."""
    if known is not None and not known.emulated:
        raise build_wrong_environment_error(known, "this run would be on the emulator")
    if known is None and any(lifecycle_of(each.type) for each in stack.snapshot.resources):
        raise WrongEnvironment(
            f"nothing says that the resources of stack {stack.name} are on the emulator, and this "
            "run would be on it",
            hint="if they are there: `gpuform stack export` them, and `gpuform stack import` them "
            "into a stack that `gpuform stack init NAME --emulate` has made",
        )


def _entered(stack: Stack, known: StackEnvironment | None) -> bool:
    """Whether the environment leads to an emulator. Raises WrongEnvironment."""
    settings = Settings(config=lambda key: config_of(stack).get(key))
    follows_emulator = bool(os.environ.get(CLOCK_VARIABLE))
    if known is not None and known.emulated and not follows_emulator:
        raise build_wrong_environment_error(known, "this run would ask real platforms")
    if known is not None and not known.emulated:
        refuse_foreign_clock(os.environ, "the stack lives on real platforms")
    for platform in known.addresses if known else ():
        if (address := find_address(platform, settings)) is not None:
            merge_environment(known, platform, address, settings)
    if known is not None or not follows_emulator:
        return known is not None and known.emulated
    addresses = [find_address(platform, settings) for platform in platforms()]
    if not any(is_emulated(address) for address in addresses if address):
        refuse_foreign_clock(os.environ, "no platform's address is an emulator's")
    _require_emulated(stack, known)
    return True


def config_of(stack: Stack) -> dict[str, str]:
    """The stack's configuration in plain text, by full keys."""
    inputs = unwrap_secrets(stack.settings.provider_inputs(stack.crypter))
    return {key: str(value) for key, value in inputs.items()} if isinstance(inputs, dict) else {}
