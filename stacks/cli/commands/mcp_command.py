"""`gpuform mcp`: what agents may do, by the Model Context Protocol."""

from pathlib import Path

import click

from gpuform.stacks.cli.session import common_flags, session
from gpuform.stacks.operations.opening.emulating import emulator_for, require_emulator


@click.command()
@click.option(
    "--run-programs",
    is_flag=True,
    help="Also plan projects that are Python programs, which runs them. A program can do all that "
    "its user can.",
)
@click.option("--emulate", is_flag=True, help="Ask an emulator of the platforms, for trying it.")
@common_flags
def mcp(run_programs: bool, emulate: bool) -> None:
    """Serve agents by the Model Context Protocol, on stdin and stdout.

    An agent reads the stacks below the folder, with secrets masked, reads the documentation, checks
    and simulates changes, and saves plans with their reviews. It changes no platform, no state and
    no secret: a person reviews a plan, and applies it by its digest. An MCP client starts this
    command; it is nothing for a terminal.

    \b
    Examples:
      gpuform mcp
      gpuform mcp --cwd clusters
    """
    from gpuform.stacks.mcp import serve  # noqa: PLC0415 - not for help

    with session():
        require_emulator()
        folder = Path.cwd()
        with emulator_for(folder, wanted=emulate):
            serve(folder, runs_programs=run_programs)
