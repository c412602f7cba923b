"""`gpuform import`: the operation, its view, and its exit code."""

from gpuform.stacks.cli.arguments import RunArguments
from gpuform.stacks.cli.failures import SUCCESS
from gpuform.stacks.cli.opening import chosen_stack, workspace_of
from gpuform.stacks.cli.running import EXIT_CODES, caller_of, goes_on_elsewhere, tell_reason
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.stopping import unwinding
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.operations.importing import run_import
from gpuform.stacks.operations.runs.options import ImportOptions, RunOptions
from gpuform.stacks.review.value_text import counted


def import_and_show(options: ImportOptions, session: Session, *, yes: bool) -> int:
    """Does the command; the exit code. Raises what stops it, with the files as they were."""
    screen = session.screen
    if not (yes or options.preview_only or screen.interactive):
        raise EngineError(
            "`gpuform import` asks before it adopts anything, and nobody is here to answer",
            hint="add --yes, or look first with --preview-only",
        )
    workspace = workspace_of(session)
    if goes_on_elsewhere(workspace.project):
        return SUCCESS
    selected = chosen_stack(session, workspace)
    caller = caller_of(RunArguments(RunOptions("update"), yes=yes), session)
    with unwinding():
        result = run_import(selected, options, caller)
    if result.entries:
        screen.write(result.entries)
    for run_result in result.runs:
        tell_reason(run_result, screen, preview_only=run_result.preview)
    if result.left and result.adopted:
        screen.warn(
            f"error: {counted(len(result.left), 'object')} not adopted: run the command again"
        )
    return EXIT_CODES[result.reason]
