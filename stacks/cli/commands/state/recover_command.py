"""`gpuform state recover`."""

import click

from gpuform.stacks.cli.failures import SUCCESS
from gpuform.stacks.cli.flags import lock_flag
from gpuform.stacks.cli.opening import locked, workspace_of
from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.engine.stack import path_of_unsaved
from gpuform.stacks.engine.stack import recover as recovered
from gpuform.stacks.review.names import counted


@click.command()
@lock_flag
@stack_flags
def recover() -> int:
    """Bring back what a run did while its state could not be kept.

    When the store of the state fails in the middle of a run, the run starts nothing more and keeps
    what it did in the project's .gpuform/unsaved/. This puts it into the state, once the store
    answers again. Nothing is created, changed or deleted on a platform.

    \b
    Example:
      gpuform state recover --stack prod
    """
    with session() as current:
        workspace = workspace_of(current, runs_program=False)
        name = workspace.resolve(current.stack)
        path = path_of_unsaved(workspace.project, name)
        with locked(current, workspace, name):
            workspace.finish_secrets_change(name, exclusive=True)
            count = recovered(workspace.backend, workspace.project.name, name, path)
        if count:
            changes = counted(count, "change")
            current.screen.print(f"The state of stack {name} has {changes} more.")
            current.screen.print("`gpuform refresh` compares it with what the platforms have.")
        else:
            current.screen.print(f"The state of stack {name} has everything already.")
        return SUCCESS
