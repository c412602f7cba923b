"""`--lock-timeout`, which every command takes that locks its stack."""

from typing import TYPE_CHECKING

import click

from gpuform.stacks.cli.flags import in_seconds
from gpuform.stacks.cli.session import flag, remember
from gpuform.stacks.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from gpuform.stacks.engine.store import Patience


def _remember_seconds(context: click.Context, parameter: click.Parameter, value: str) -> None:
    remember(context, parameter, in_seconds(context, parameter, value))


lock_flag = click.option(
    "--lock-timeout",
    metavar="DURATION",
    default="0",
    expose_value=False,
    callback=_remember_seconds,
    help="Wait that long (30s, 10m) while another command has the stack's lock.",
)


def patience(screen: Screen) -> "Patience":
    """How long this command waits for a lock. Whom it waits for is told on stderr."""
    from gpuform.stacks.engine.store import Patience  # noqa: PLC0415 - the engine, not for help

    return Patience(flag("lock_timeout", 0.0), screen.warn)
