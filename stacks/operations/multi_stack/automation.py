"""The operations on several stacks as functions, for programs; the counterpart of `--all`.

Users import these names from `gpuform.stacks.operations`; each function calls `runner`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuform.providers.context import get_run_context
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.multi_stack import order_workspace
from gpuform.stacks.operations.multi_stack.runner import (
    MultiStackCallbacks,
    MultiStackOptions,
    MultiStackResult,
    run_multi_stack,
)
from gpuform.stacks.operations.multi_stack.stack_process import OutputLine, TaskResult
from gpuform.stacks.operations.runs.callbacks import Cancellation
from gpuform.stacks.operations.runs.options import ExitReason, RunOptions

ConfirmAll = Callable[[StacksPlan], bool]
"""Return True to apply the plans of all stacks."""
OnLine = Callable[[str, str], None]
"""Receives the name of a stack and a line of its output, from any thread."""

WORKER_MODULE = "gpuform.stacks.cli.multi_stack_worker"
"""The module that runs one stack in a process of its own; operations must not import it."""
_DEFAULTS = RunOptions()


@dataclass(frozen=True, slots=True)
class StackSelection:
    """Which stacks of a workspace an operation works on.

    Attributes:
        folder: a folder inside the workspace: of stacks.yaml, else of the projects.
        filters: names, folders and git diffs as for `--filter`; without filters all stacks.
        stack: only stacks of this name, such as `prod`; None for every name.
        jobs: how many stacks run at a time; None as for `--jobs`.
        environ: the variables that choose backends; None for those of this process.
    """

    folder: Path
    filters: Sequence[str] = ()
    stack: str | None = None
    jobs: int | None = None
    environ: Mapping[str, str] | None = None


def preview_all(
    selection: StackSelection,
    options: RunOptions = _DEFAULTS,
    *,
    on_line: OnLine | None = None,
    cancellation: Cancellation | None = None,
) -> MultiStackResult:
    """Plan the selected stacks in the order of their references, and return the combined plan.

    Nothing changes on the platforms or in the states. `options.save_plan` names the file of the
    plans.

    Raises:
        EngineError: the run cannot begin. A failure of a stack is in the result instead.
    """
    options = replace(options, operation="update", preview_only=True)
    return _run(selection, options, on_line, None, cancellation)


def up_all(
    selection: StackSelection,
    options: RunOptions = _DEFAULTS,
    *,
    on_line: OnLine | None = None,
    confirm: ConfirmAll | None = None,
    cancellation: Cancellation | None = None,
) -> MultiStackResult:
    """Plan the selected stacks together, and apply the plan, each stack after those it reads.

    `confirm` receives the combined plan; without `confirm` the plan is applied without a question.
    Nothing is applied if a stack cannot be planned or a gate stops the plan.

    Raises:
        EngineError: the run cannot begin. A failure of a stack is in the result instead.
    """
    options = replace(options, operation="update")
    return _run(selection, options, on_line, confirm, cancellation)


def refresh_all(
    selection: StackSelection,
    options: RunOptions = _DEFAULTS,
    *,
    on_line: OnLine | None = None,
    confirm: ConfirmAll | None = None,
    cancellation: Cancellation | None = None,
) -> MultiStackResult:
    """Store what the platforms report in the states of the selected stacks, as `up_all` applies."""
    options = replace(options, operation="refresh")
    return _run(selection, options, on_line, confirm, cancellation)


def destroy_all(
    selection: StackSelection,
    options: RunOptions = _DEFAULTS,
    *,
    on_line: OnLine | None = None,
    confirm: ConfirmAll | None = None,
    cancellation: Cancellation | None = None,
) -> MultiStackResult:
    """Delete all resources of the selected stacks, dependents first, as `up_all` applies."""
    options = replace(options, operation="destroy")
    return _run(selection, options, on_line, confirm, cancellation)


def _run(
    selection: StackSelection,
    options: RunOptions,
    on_line: OnLine | None,
    confirm: ConfirmAll | None,
    cancellation: Cancellation | None,
) -> MultiStackResult:
    """Run an operation on the selected stacks; succeeds at once if a git diff selects none.

    Raises EngineError.
    """
    environ = get_run_context().environ if selection.environ is None else selection.environ
    order, names = order_workspace(
        selection.folder,
        environ,
        selection.filters,
        selection.stack,
        runs_programs=options.operation == "update",
    )
    if not names:
        return MultiStackResult(ExitReason.SUCCEEDED)
    callbacks = MultiStackCallbacks(
        _build_line_callback(on_line),
        _ignore_end,
        _ignore_plan,
        cancellation or Cancellation(),
        confirm,
    )
    run_options = MultiStackOptions(options, names, WORKER_MODULE, selection.jobs)
    return run_multi_stack(order, run_options, callbacks)


def _build_line_callback(on_line: OnLine | None) -> Callable[[str, OutputLine], None]:
    """Return the callback for lines of stdout and stderr; without `on_line` lines are ignored."""

    def report_line(name: str, line: OutputLine) -> None:
        if on_line is not None:
            on_line(name, line.content)

    return report_line


def _ignore_end(_name: str, _result: TaskResult, _is_preview: bool) -> None:
    pass


def _ignore_plan(_plan: StacksPlan, _digest: str) -> None:
    pass
