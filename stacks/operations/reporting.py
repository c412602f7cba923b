"""Run operations, and report them: as a trace to a collector, and to people by notifications.

Commands and the Python API call this module in place of the operations themselves. A report that
fails never fails an operation.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpuform.providers.context import get_run_context, trace_run
from gpuform.providers.errors import GpuformError
from gpuform.stacks.notify.rules import has_rules_file, read_rules
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.callbacks import OperationCallbacks
from gpuform.stacks.operations.runs.options import ReportSubject, RunOptions
from gpuform.stacks.operations.runs.results import RunResult
from gpuform.stacks.operations.runs.runner import run_operation
from gpuform.stacks.operations.runs.saved_plans import SavedPlan
from gpuform.stacks.operations.status_reading import DriftResult, find_drift

if TYPE_CHECKING:
    from gpuform.stacks.operations.notifying import Announcer


def run_reported_operation(
    selected: SelectedStack,
    options: RunOptions,
    callbacks: OperationCallbacks,
    saved_plan: SavedPlan | None = None,
    subject: ReportSubject = "",
) -> RunResult:
    """Run the operation as `run_operation` does, and report it.

    `subject` is what of the run is reported to people; if empty, the options decide.

    Raises:
        EngineError: as `run_operation`.
    """
    with trace_run(
        f"gpuform {options.command}",
        _get_full_name(selected),
        get_run_context().environ,
        callbacks.warn,
        parent=selected.traceparent,
    ):
        announcer = _create_announcer(selected, callbacks.warn)
        if announcer is None:
            return run_operation(selected, options, callbacks, saved_plan)
        from gpuform.stacks.operations import notifying  # noqa: PLC0415 - only with rules

        subject = subject or notifying.choose_subject(options)
        try:
            result = run_operation(selected, options, callbacks, saved_plan)
        except GpuformError as error:
            if subject not in {"nothing", "approval"}:
                findings = partial(notifying.find_error_findings, options.command, error)
                announcer.announce(options.command, findings)
            raise
        if subject != "nothing":
            announcer.announce(
                options.command,
                partial(notifying.find_run_findings, result, options, subject),
                result.final_state,
                removed=options.remove and result.succeeded,
            )
        return result


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
        get_run_context().environ,
        callbacks.warn,
        parent=selected.traceparent,
    ):
        announcer = _create_announcer(selected, callbacks.warn)
        if announcer is None:
            return find_drift(selected, targets, callbacks, emulate=emulate)
        from gpuform.stacks.operations import notifying  # noqa: PLC0415 - only with rules

        try:
            result = find_drift(selected, targets, callbacks, emulate=emulate)
        except GpuformError as error:
            announcer.announce("drift", partial(notifying.find_error_findings, "drift", error))
            raise
        drift_findings = partial(notifying.find_drift_findings, result, is_complete=not targets)
        announcer.announce("drift", drift_findings, result.final_state)
        return result


def _create_announcer(selected: SelectedStack, warn: Callable[[str], None]) -> "Announcer | None":
    """Return what reports people by the project's rules; None without rules, or for wrong ones.

    Wrong rules are a warning: a run without notifications is better than none.
    """
    directory = selected.workspace.project.directory
    # A look at two names: most projects have no rules, and load nothing for them.
    if not has_rules_file(directory):
        return None
    try:
        rules = read_rules(directory)
    except GpuformError as error:
        warn(f"warning: {error}")
        return None
    if not rules:
        return None
    from gpuform.stacks.operations.notifying import Announcer  # noqa: PLC0415 - only with rules

    return Announcer(selected, rules, warn)


def _get_full_name(selected: SelectedStack) -> str:
    """Return PROJECT/STACK."""
    return f"{selected.workspace.project.name}/{selected.name}"
