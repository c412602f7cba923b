"""Run operations, and report them: as a trace to a collector.

Commands and the Python API call this module in place of the operations themselves. A report that
fails never fails an operation.
"""

import os
from collections.abc import Sequence

from gpuform.providers.context import trace_run
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.callbacks import OperationCallbacks
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.results import RunResult
from gpuform.stacks.operations.runs.runner import run_operation
from gpuform.stacks.operations.runs.saved_plans import SavedPlan
from gpuform.stacks.operations.status_reading import DriftResult, find_drift


def run_reported_operation(
    selected: SelectedStack,
    options: RunOptions,
    callbacks: OperationCallbacks,
    saved_plan: SavedPlan | None = None,
) -> RunResult:
    """Run the operation as `run_operation` does, and report it.

    Raises:
        EngineError: as `run_operation`.
    """
    with trace_run(
        f"gpuform {options.command}",
        _get_full_name(selected),
        os.environ,
        callbacks.warn,
        parent=selected.traceparent,
    ):
        return run_operation(selected, options, callbacks, saved_plan)


def find_reported_drift(
    selected: SelectedStack, targets: Sequence[str], callbacks: OperationCallbacks, *, emulate: bool
) -> DriftResult:
    """Find the drift of a stack as `find_drift` does, and report it.

    Raises:
        EngineError: as `find_drift`.
    """
    with trace_run(
        "gpuform drift",
        _get_full_name(selected),
        os.environ,
        callbacks.warn,
        parent=selected.traceparent,
    ):
        return find_drift(selected, targets, callbacks, emulate=emulate)


def _get_full_name(selected: SelectedStack) -> str:
    """Return PROJECT/STACK."""
    return f"{selected.workspace.project.name}/{selected.name}"
