"""The operations as functions, for programs: gpuform's counterpart of Pulumi's Automation API.

Users import these names from `gpuform.stacks.operations`; each function calls the module of its
operation.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.operations.importing import ImportResult, run_import
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.reporting import find_reported_drift, run_reported_operation
from gpuform.stacks.operations.runs.callbacks import (
    Cancellation,
    OperationCallbacks,
    OperationEvent,
    ignore_event,
)
from gpuform.stacks.operations.runs.options import (
    ImportOptions,
    OutputValue,
    RunOptions,
    RunResult,
    convert_outputs,
)
from gpuform.stacks.operations.status_reading import DriftResult, read_status
from gpuform.stacks.operations.transfer import export_deployment, import_deployment
from gpuform.stacks.review.status_text import StatusReport

OnEvent = Callable[[OperationEvent], None]
"""Receives events one at a time; `Interrupted` and `Message` come from any thread."""

Confirm = Callable[[Plan], bool]
"""Return True to apply the plan. Not called where the plan has no changes."""

_DEFAULTS = RunOptions()


def preview(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Perform a dry run of `up`, and return the pending changes.

    Nothing changes on the platforms or in the state. `options.config` is written to the stack's
    settings file, and `options.save_plan` names the file of the plan.

    Raises:
        EngineError: the run cannot begin. A failure during the run is in the result instead.
    """
    options = replace(options, operation="update", preview_only=True)
    return run_reported_operation(stack, options, _build_callbacks(on_event, None, cancellation))


def up(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Create, update and delete the stack's resources as the program declares.

    A preview comes first; with `options.skip_preview` only where gates, checks or limited API keys
    need one. `confirm` receives the plan of the preview, except with `options.skip_preview` or
    without changes; without `confirm` the plan is applied without a question.

    Raises:
        EngineError: the run cannot begin. A failure during the run is in the result instead, and
            the changes made until then are in the state.
    """
    options = replace(options, operation="update")
    return run_reported_operation(stack, options, _build_callbacks(on_event, confirm, cancellation))


def refresh(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Read every resource from its platform, and store the differences in the stack's state.

    Nothing changes on the platforms. `confirm` and errors are as for `up`.
    """
    options = replace(options, operation="refresh")
    return run_reported_operation(stack, options, _build_callbacks(on_event, confirm, cancellation))


def destroy(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Delete all resources of the stack, dependents first.

    The stack, its history and its configuration stay, unless `options.remove` is set. `confirm` and
    errors are as for `up`.
    """
    options = replace(options, operation="destroy")
    return run_reported_operation(stack, options, _build_callbacks(on_event, confirm, cancellation))


def expire(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Destroy expired resources, and stop or start resources by idle limits and running hours.

    A preview with something due returns `ExitReason.DUE`; a refusal (FAILED) or an unknown end
    (END_UNKNOWN) comes first. `confirm` and errors are as for `up`.
    """
    options = replace(options, operation="expire")
    return run_reported_operation(stack, options, _build_callbacks(on_event, confirm, cancellation))


def repair(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Repair the broken nodes, or the nodes of `options.repair_nodes`, by the `repair` policy.

    A node is repaired only after its jobs have ended. A preview with something to repair returns
    `ExitReason.DUE`. `confirm` and errors are as for `up`.

    Raises:
        EngineError: also where the stack has no node of a requested name.
    """
    options = replace(options, operation="repair")
    return run_reported_operation(stack, options, _build_callbacks(on_event, confirm, cancellation))


def import_resources(
    stack: SelectedStack,
    options: ImportOptions,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> ImportResult:
    """Import existing objects into the state, and declare the objects in the topology or program.

    No object is changed on a platform. `confirm` is asked before the state changes. If no object
    was imported, the files are unchanged, and the result has the reason.

    Raises:
        EngineError: the import cannot begin, or would change an object; the files are unchanged.
    """
    return run_import(stack, options, _build_callbacks(on_event, confirm, cancellation))


def drift(
    stack: SelectedStack,
    targets: Sequence[str] = (),
    *,
    emulate: bool = False,
    on_event: OnEvent | None = None,
    cancellation: Cancellation | None = None,
) -> DriftResult:
    """Return the changes made outside of Pulumi, to all resources or to `targets`.

    `targets` are URNs, names and patterns. Nothing is locked and nothing is written.

    Raises:
        EngineError: a target fits no resource, or the stack cannot be opened.
    """
    return find_reported_drift(
        stack, targets, _build_callbacks(on_event, None, cancellation), emulate=emulate
    )


def outputs(stack: SelectedStack) -> dict[str, OutputValue]:
    """Return the stack's outputs as of the last run; empty before the first run."""
    with stack.begin_operation() as begun:
        # The root resource of a stack has the stack's outputs, as under the Pulumi CLI.
        resources = begun.open().snapshot.resources
    stack_outputs = next(
        (resource.outputs for resource in resources if resource.type == STACK_TYPE), {}
    )
    return convert_outputs(stack_outputs)


def status(stack: SelectedStack, *, refresh: bool = False, emulate: bool = False) -> StatusReport:
    """Return the stack's resources with state, GPUs and cost; with `refresh` ask the platforms.

    Nothing is locked and nothing is written. With `emulate` the platforms are those of the
    project's emulator.
    """
    return read_status(stack, refresh=refresh, emulate=emulate)


def export_stack(
    stack: SelectedStack, *, show_secrets: bool = False, on_event: OnEvent | None = None
) -> dict[str, Any]:
    """Return the stack's state as Pulumi's deployment JSON, with secrets encrypted by default.

    `on_event` receives warnings about the journal of an interrupted run.
    """
    with stack.begin_operation() as begun:
        report = _build_callbacks(on_event, None, None).warn
        return export_deployment(begun, report, show_secrets=show_secrets)


def import_stack(
    stack: SelectedStack,
    deployment: Mapping[str, Any],
    *,
    force: bool = False,
    on_event: OnEvent | None = None,
) -> int:
    """Replace the stack's state by an exported deployment, and return the number of resources.

    Pending operations are dropped, with a warning.

    Raises:
        EngineError: the deployment breaks a rule or belongs to another stack; `force` imports the
            deployment anyway.
    """
    with stack.begin_operation() as begun:
        deployment_json = json.dumps(deployment).encode()
        report = _build_callbacks(on_event, None, None).warn
        return import_deployment(begun, deployment_json, "the deployment", report, force=force)


def _build_callbacks(
    on_event: OnEvent | None, confirm: Confirm | None, cancellation: Cancellation | None
) -> OperationCallbacks:
    """Build the callbacks of an operation; events are ignored without `on_event`.

    Without `confirm` every plan is applied.
    """
    return OperationCallbacks(on_event or ignore_event, confirm, cancellation or Cancellation())
