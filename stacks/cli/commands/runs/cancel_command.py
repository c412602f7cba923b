"""`gpuform cancel`: removes the locks of a stack whose owner is gone."""

from pathlib import Path

import click

from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.cli.terminal.asking import agreed
from gpuform.stacks.engine.stack import Workspace


@click.command()
@click.argument("name", required=False)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@stack_flags
def cancel(name: str | None, yes: bool) -> int:
    """Remove the locks that an ended command left on a stack.

    Says whose they are and removes all of them, as `pulumi cancel` does. It ends no process: while
    a gpuform process of this machine works on the stack, or of any machine where state is in a
    bucket, its lock stays. What an interrupted
    command did is in the state, and the next `gpuform up` goes on from there.

    \b
    Example:
      gpuform cancel dev
    """
    with session() as current:
        workspace = Workspace.find(Path.cwd(), current.environ, runs_program=False)
        name = workspace.resolve(name or current.stack)
        lock = workspace.backend.lock(workspace.project.name, name)
        holders = lock.holders()
        if not holders:
            lock.cancel()  # refused while a process works whose file somebody removed
            current.screen.print(f"Stack {name} is not locked.")
            return SUCCESS
        for holder in holders:
            current.screen.print(holder.describe())
        question = (
            "If one of these processes still runs, what it does from now on may be lost to the "
            "state. Remove the locks?"
        )
        if not agreed(current.screen, question, yes=yes):
            return FAILED
        lock.cancel()
        current.screen.print(f"Stack {name} is no longer locked.")
        return SUCCESS
