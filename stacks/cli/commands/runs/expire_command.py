"""`gpuform expire`: destroys what has ended, and stops and starts what has running hours."""

from typing import Any

import click

from gpuform.stacks.cli.arguments import RunArguments
from gpuform.stacks.cli.flags import (
    adopt_flag,
    anew_flag,
    emulate_flag,
    lock_flag,
    parallel_flag,
    require_checks_flag,
    yes_flag,
)
from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.operations.runs.options import RunOptions


@click.command()
@yes_flag
@click.option(
    "--dry-run",
    "preview_only",
    is_flag=True,
    help="Only show what is due; exits with 3 if anything is.",
)
@click.option(
    "--target-dependents",
    is_flag=True,
    help="Destroy what depends on something that has expired along with it.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Permit what is refused otherwise, such as destroy-reserved; for this run only.",
)
@click.option(
    "--message",
    "-m",
    default="",
    metavar="TEXT",
    help="What it is for, kept in the history; the commit's title when not given.",
)
@click.option("--json", "-j", is_flag=True, help="Pulumi's JSON on stdout, and nothing else there.")
@require_checks_flag
@adopt_flag
@anew_flag
@parallel_flag
@lock_flag
@emulate_flag
@stack_flags
def expire(**flags: Any) -> int:
    """Destroy what has expired, and stop or start what has running hours.

    Works from the state, without the program: reads the resources that declare expires, ttl or
    schedule, and does what is due by them, no more. What is protected, needs a permission or is
    needed by something else is refused as in `destroy`. For a scheduled job: exits with 0 when all
    that was due is done or nothing is, 1 when something failed or was refused, 4 when an end could
    not be told, or --require-checks misses a check; with --dry-run with 3 when something is due.

    \b
    Examples:
      gpuform expire --dry-run
      gpuform expire --yes --stack prod
    """
    from gpuform.stacks.cli import running  # noqa: PLC0415 - the engine, not for help

    with session() as current:
        return running.run(RunArguments.of(RunOptions("expire"), flags), current)
