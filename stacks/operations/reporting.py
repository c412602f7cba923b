"""Run operations, and report them: to a collector by traces and metrics, to people by messages.

Commands and the Python API call this module in place of the operations themselves. A report that
fails never fails an operation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from gpuform.providers.context import get_run_context, is_exported, trace_run
from gpuform.providers.errors import GpuformError
from gpuform.stacks.notify import has_rules_file, read_rules
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.callbacks import OperationCallbacks
from gpuform.stacks.operations.runs.options import FinalState, ReportSubject, RunOptions, RunResult
from gpuform.stacks.operations.runs.runner import run_operation
from gpuform.stacks.operations.runs.saved_plans import SavedPlan

if TYPE_CHECKING:
    from gpuform.stacks.operations.notifying import Announcer
    from gpuform.stacks.operations.status_reading import DriftResult


def run_reported_operation(
    selected: SelectedStack,
    options: RunOptions,
    callbacks: OperationCallbacks,
    saved_plan: SavedPlan | None = None,
    subject: ReportSubject = "",
) -> RunResult:
    """Run the operation by `run_operation`, and report the result to people and collectors.

    `subject` says which part of the run is reported; if empty, the options decide.

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
        if announcer is not None:
            from gpuform.stacks.operations import notifying  # noqa: PLC0415 - only with rules

            subject = subject or notifying.choose_subject(options)
        reports_errors = subject not in {"nothing", "approval"}
        with _announce_error(announcer if reports_errors else None, options.command):
            result = run_operation(selected, options, callbacks, saved_plan)
        if announcer is not None and subject != "nothing" and not result.was_applied:
            announcer.announce(
                options.command,
                partial(notifying.find_run_findings, result, options, subject),
                result.final_state,
                removed=options.remove and result.succeeded,
            )
        _send_metrics(result.final_state, callbacks.warn, is_measured=_is_measured(options))
        return result


def find_reported_drift(
    selected: SelectedStack, targets: Sequence[str], callbacks: OperationCallbacks, *, emulate: bool
) -> "DriftResult":
    """Find the drift of a stack by `find_drift`, and report the result.

    Raises:
        EngineError: as `find_drift`.
    """
    from gpuform.stacks.operations.status_reading import find_drift  # noqa: PLC0415 - no run needs
    # status, workspaces and metrics

    with trace_run(
        "gpuform drift",
        _get_full_name(selected),
        get_run_context().environ,
        callbacks.warn,
        parent=selected.traceparent,
    ):
        announcer = _create_announcer(selected, callbacks.warn)
        with _announce_error(announcer, "drift"):
            result = find_drift(selected, targets, callbacks, emulate=emulate)
        if announcer is not None:
            from gpuform.stacks.operations import notifying  # noqa: PLC0415 - only with rules

            drift_findings = partial(notifying.find_drift_findings, result, is_complete=not targets)
            announcer.announce("drift", drift_findings, result.final_state)
        _send_metrics(result.final_state, callbacks.warn, drift=_count_drift(result, targets))
        return result


@contextmanager
def _announce_error(announcer: "Announcer | None", command: str) -> Iterator[None]:
    """Announce an error that the context raises, except without an announcer."""
    try:
        yield
    except GpuformError as error:
        if announcer is not None:
            from gpuform.stacks.operations import notifying  # noqa: PLC0415 - only with rules

            announcer.announce(command, partial(notifying.find_error_findings, command, error))
        raise


def _create_announcer(selected: SelectedStack, warn: Callable[[str], None]) -> "Announcer | None":
    """Return the announcer for the project's notification rules; None without valid rules.

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


def _is_measured(options: RunOptions) -> bool:
    """Return True for a run after which metrics are sent: not for a person's own preview."""
    return not options.preview_only or options.operation in {"expire", "repair"}


def _count_drift(result: "DriftResult", targets: Sequence[str]) -> int | None:
    """Return the number of resources with drift; None if not all resources were compared."""
    if not result.succeeded or targets:
        return None
    return sum(change.action.is_change for change in result.plan.changes)


def _send_metrics(
    final_state: FinalState | None,
    warn: Callable[[str], None],
    *,
    drift: int | None = None,
    is_measured: bool = True,
) -> None:
    """Send the figures of the stack to the collector named by the OTEL_ variables, if any."""
    environ = get_run_context().environ
    if final_state is None or not is_measured or not is_exported("metrics", environ):
        return
    from gpuform.stacks import fleet_metrics  # noqa: PLC0415 - only with a collector
    from gpuform.stacks.schedule.noticing import list_entry_notices  # noqa: PLC0415 - as above

    try:
        entries = [
            entry
            for entry in final_state.entries
            if not (entry.delete or entry.pending_replacement)
        ]
        clock = final_state.has_emulated_clock
        facts = fleet_metrics.FleetFacts(
            final_state.stack,
            entries,
            list_entry_notices(entries, final_state.now, is_emulated=clock),
            final_state.now,
            emulated=final_state.emulated,
            has_emulated_clock=clock,
            drift=drift,
        )
        fleet_metrics.export_samples(fleet_metrics.collect_samples(facts), environ, warn)
    # Also a mistake here: the operation has ended, and its result counts.
    except Exception as error:  # noqa: BLE001 - see above
        warn(f"warning: no metrics were sent: {type(error).__name__}")


def _get_full_name(selected: SelectedStack) -> str:
    """Return the selected stack as PROJECT/STACK."""
    return f"{selected.workspace.project.name}/{selected.name}"
