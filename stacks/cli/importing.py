"""Run `gpuform import`: call the operation, show its results, return the exit code.

`commands/declaration_commands.py` calls this module; it calls `operations/importing.py`.
"""

from gpuform.stacks.cli.arguments import RunArguments
from gpuform.stacks.cli.failures import SUCCESS
from gpuform.stacks.cli.opening import find_workspace, select_stack
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.stack_runs import (
    EXIT_CODES,
    create_run_callbacks,
    is_continued_in_virtualenv,
    print_reason,
)
from gpuform.stacks.cli.terminal.signals import raise_on_signals
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.operations.importing import run_import
from gpuform.stacks.operations.runs.options import ImportOptions, RunOptions
from gpuform.stacks.review.value_text import counted


def import_and_show(options: ImportOptions, session: Session, *, yes: bool) -> int:
    """Import the objects, show the results, and return the exit code.

    A project with its own virtualenv continues there when this process ends. If no object was
    imported, the files are unchanged.

    Raises:
        EngineError: nobody can answer the question, or the import cannot begin.
    """
    screen = session.screen
    # Before the platform is asked: the question comes after the objects are listed.
    if not (yes or options.preview_only or screen.interactive):
        raise EngineError(
            "`gpuform import` requires a confirmation, and the command cannot ask for it here",
            hint="add --yes, or preview first with --preview-only",
        )
    workspace = find_workspace(session)
    if is_continued_in_virtualenv(workspace.project):
        return SUCCESS
    selected = select_stack(session, workspace)
    callbacks = create_run_callbacks(RunArguments(RunOptions("update"), yes=yes), session)
    with raise_on_signals():
        result = run_import(selected, options, callbacks)
    if result.entries:
        screen.write(result.entries)
    for run_result in result.runs:
        print_reason(run_result, screen, preview_only=run_result.preview)
    # Without a single import the error of the update says why.
    if result.remaining and result.imported:
        screen.warn(
            f"error: {counted(len(result.remaining), 'object')} not imported: run the command again"
        )
    return EXIT_CODES[result.reason]
