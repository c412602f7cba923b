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
from gpuform.stacks.operations.runs.callbacks import (
    Cancellation,
    OperationCallbacks,
    OperationEvent,
    ignore_event,
)
from gpuform.stacks.operations.runs.options import ImportOptions, RunOptions
from gpuform.stacks.operations.runs.results import OutputValue, RunResult, convert_outputs
from gpuform.stacks.operations.runs.runner import run
from gpuform.stacks.operations.status_reading import DriftResult, find_drift, read_status
from gpuform.stacks.operations.transfer import export_deployment, import_deployment
from gpuform.stacks.review.text.status_text import Status

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
    """Return the changes that `up` would make, without making them.

    Raises:
        EngineError: the run cannot begin.
    """
    options = replace(options, operation="update", preview_only=True)
    return run(stack, options, _build_callbacks(on_event, None, cancellation))


def up(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Create, update and delete resources until they are as the program declares.

    Without `confirm` the plan is applied without a question.

    Raises:
        EngineError: the run cannot begin. A failure during the run is in the result instead, and
            the
            changes made until then are in the state.
    """
    options = replace(options, operation="update")
    return run(stack, options, _build_callbacks(on_event, confirm, cancellation))


def refresh(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Read every resource from its platform into the state; change nothing on the platforms."""
    options = replace(options, operation="refresh")
    return run(stack, options, _build_callbacks(on_event, confirm, cancellation))


def destroy(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Delete every resource of the stack, dependents first."""
    options = replace(options, operation="destroy")
    return run(stack, options, _build_callbacks(on_event, confirm, cancellation))


def expire(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Destroy expired resources, and stop or start those with running hours."""
    options = replace(options, operation="expire")
    return run(stack, options, _build_callbacks(on_event, confirm, cancellation))


def repair(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Repair broken nodes by their `repair` policy, or `repair_nodes`; no node that runs a job."""
    options = replace(options, operation="repair")
    return run(stack, options, _build_callbacks(on_event, confirm, cancellation))


def import_resources(
    stack: SelectedStack,
    options: ImportOptions,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> ImportResult:
    """Import existing objects into the stack, and write entries to its topology or program."""
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

    Write nothing.
    """
    return find_drift(
        stack, targets, _build_callbacks(on_event, None, cancellation), emulate=emulate
    )


def outputs(stack: SelectedStack) -> dict[str, OutputValue]:
    """Return the stack's outputs as of its last run."""
    with stack.environment():
        resources = stack.open().snapshot.resources
    stack_outputs = next(
        (resource.outputs for resource in resources if resource.type == STACK_TYPE), {}
    )
    return convert_outputs(stack_outputs)


def status(stack: SelectedStack, *, refresh: bool = False, emulate: bool = False) -> Status:
    """Return the stack's resources with state, GPUs and cost; with `refresh` ask the platforms."""
    return read_status(stack, refresh=refresh, emulate=emulate)


def export_stack(
    stack: SelectedStack, *, show_secrets: bool = False, on_event: OnEvent | None = None
) -> dict[str, Any]:
    """Return the stack's state as Pulumi's deployment JSON, with secrets encrypted by default."""
    with stack.environment():
        report = _build_callbacks(on_event, None, None).warn
        return export_deployment(stack, report, show_secrets=show_secrets)


def import_stack(
    stack: SelectedStack,
    deployment: Mapping[str, Any],
    *,
    force: bool = False,
    on_event: OnEvent | None = None,
) -> int:
    """Replace the stack's state by an exported one, and return its number of resources.

    Raises:
        EngineError: the deployment breaks a rule or belongs to another stack; `force` imports it.
    """
    with stack.environment():
        deployment_json = json.dumps(deployment).encode()
        report = _build_callbacks(on_event, None, None).warn
        return import_deployment(stack, deployment_json, "the deployment", report, force=force)


def _build_callbacks(
    on_event: OnEvent | None, confirm: Confirm | None, cancellation: Cancellation | None
) -> OperationCallbacks:
    return OperationCallbacks(on_event or ignore_event, confirm, cancellation or Cancellation())
