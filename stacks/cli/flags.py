"""Flags that several commands have, in the same words."""

from pathlib import Path

import click

from gpuform.stacks.engine.values import seconds

output_flag = click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of stdout.",
)
emulate_flag = click.option(
    "--emulate",
    is_flag=True,
    help="Run an emulator of the platforms meanwhile; its objects stay in .gpuform/.",
)
adopt_flag = click.option(
    "--adopt",
    multiple=True,
    metavar="ID",
    help="Take this object for the one that an interrupted create of the stack has made.",
)
anew_flag = click.option(
    "--create-anew",
    is_flag=True,
    help="Nothing that is there was made by an interrupted create of the stack: make it anew.",
)
require_checks_flag = click.option(
    "--require-checks",
    is_flag=True,
    help="Fail when a check could not be made: no key, no answer, stock or a price not told.",
)
offline_flag = click.option(
    "--offline",
    is_flag=True,
    help="Ask no platform: take what the state has, which may be out of date.",
)
parallel_flag = click.option(
    "--parallel",
    "-p",
    type=click.INT,
    envvar="PULUMI_PARALLEL",
    callback=lambda _context, _option, value: None if value is None else max(1, value),
    metavar="N",
    help="Most resource operations at a time, one with 0 and less; 256 when not given.",
)
yes_flag = click.option("--yes", "-y", is_flag=True, help="Do not ask; the preview is still shown.")


def in_seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """A callback of click for durations: 30s, 10m, 12h."""
    try:
        return seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error
