"""`gpuform repair`: repairs broken nodes, or one by name, and nothing else."""

from pathlib import Path
from typing import Any

import click

from gpuform.stacks.cli.arguments import RunArguments
from gpuform.stacks.cli.flags import (
    emulate_flag,
    lock_flag,
    parallel_flag,
    require_checks_flag,
    yes_flag,
)
from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.operations.runs.options import RunOptions


@click.command()
@click.argument("node", nargs=-1)
@click.option(
    "--mode",
    metavar="MODE",
    default="",
    help="How, in the platform's words, such as REBOOT_VM; for all the nodes that are named.",
)
@yes_flag
@click.option(
    "--dry-run",
    "preview_only",
    is_flag=True,
    help="Only show what would be repaired; exits with 3 if anything would.",
)
@click.option(
    "--save-plan",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="With --dry-run: write the plan to this file, for a review and for --plan.",
)
@click.option(
    "--plan",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Do what this plan says, and no more.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Permit what is refused otherwise, such as evict-jobs; for this run only.",
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
@parallel_flag
@lock_flag
@emulate_flag
@stack_flags
def repair(node: tuple[str, ...], mode: str, **flags: Any) -> int:
    """Repair broken nodes, none under a job.

    Repairs what the `repair` of the resources lets be repaired, or the nodes NODE whatever is
    declared. Works from the state, without the program: looks at the resources that have nodes,
    and shows what is broken, the evidence and the jobs there. What is repaired is drained first:
    no job runs on it. Nodes whose `repair` wants a review are repaired when a person answers the
    question, or by a saved plan; with --yes only those with `approve: automatic`, and those that
    are named. Exits with 0 when all that was due is done or nothing is, 1 when something failed or
    was refused; with --dry-run with 3 when something is due.

    \b
    Examples:
      gpuform repair --dry-run
      gpuform repair training-worker-0 --mode REBOOT_VM
    """
    from gpuform.stacks.cli import running  # noqa: PLC0415 - the engine, not for help

    if mode and not node:
        raise click.UsageError("--mode is for the nodes that are named: gpuform repair NODE --mode")
    if flags.get("save_plan") and not flags["preview_only"]:
        raise click.UsageError("--save-plan goes with --dry-run")
    if flags.get("plan") and (node or flags["preview_only"]):
        raise click.UsageError("--plan says which nodes are repaired: leave the others out")
    repair_nodes = tuple(f"{each}={mode}" if mode else each for each in node)
    options = RunOptions("repair", repair_nodes=repair_nodes)
    with session() as current:
        return running.run(RunArguments.of(options, flags), current)
