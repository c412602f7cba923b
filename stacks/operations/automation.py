"""The operations as functions, for programs: what Pulumi users know as the Automation API."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.urn import STACK_TYPE
from gpuform.stacks.operations.importing import ImportResult, run_import
from gpuform.stacks.operations.opening.selecting import SelectedStack
from gpuform.stacks.operations.runs.caller import Caller, Cancellation, OperationEvent, ignore
from gpuform.stacks.operations.runs.options import ImportOptions, RunOptions
from gpuform.stacks.operations.runs.results import OutputValue, RunResult, output_values
from gpuform.stacks.operations.runs.running import run
from gpuform.stacks.operations.status_reading import DriftResult, find_drift, read_status
from gpuform.stacks.operations.transfer import export_deployment, import_deployment
from gpuform.stacks.review.text.status_text import Status

OnEvent = Callable[[OperationEvent], None]
"""Hears what happens, one event at a time; `Interrupted` and `Message` come from any thread."""

Confirm = Callable[[Plan], bool]
"""Says whether a plan is to be done. It is not asked where the plan has no changes."""

_DEFAULTS = RunOptions()


def preview(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """What `up` would change. Raises EngineError for what stops it before it begins."""
    options = replace(options, operation="update", preview_only=True)
    return run(stack, options, _caller(on_event, None, cancellation))


def up(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Creates, changes and deletes resources until they are as the program declares.

    Without `confirm` the plan is done unasked. Raises EngineError for what stops it before anything
    is done; what fails in the midst of it is in the result, and what was done is in the state.
    """
    options = replace(options, operation="update")
    return run(stack, options, _caller(on_event, confirm, cancellation))


def refresh(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Takes over what the platforms say of every resource; nothing on them is changed."""
    options = replace(options, operation="refresh")
    return run(stack, options, _caller(on_event, confirm, cancellation))


def destroy(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Deletes every resource of the stack, dependents first."""
    options = replace(options, operation="destroy")
    return run(stack, options, _caller(on_event, confirm, cancellation))


def expire(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Destroys what has expired, and stops or starts what has running hours."""
    options = replace(options, operation="expire")
    return run(stack, options, _caller(on_event, confirm, cancellation))


def repair(
    stack: SelectedStack,
    options: RunOptions = _DEFAULTS,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> RunResult:
    """Repairs broken nodes as their `repair` says, or those of `repair_nodes`; none under a job."""
    options = replace(options, operation="repair")
    return run(stack, options, _caller(on_event, confirm, cancellation))


def import_resources(
    stack: SelectedStack,
    options: ImportOptions,
    *,
    on_event: OnEvent | None = None,
    confirm: Confirm | None = None,
    cancellation: Cancellation | None = None,
) -> ImportResult:
    """Takes objects that exist into the stack, with their entries in its topology or program."""
    return run_import(stack, options, _caller(on_event, confirm, cancellation))


def drift(
    stack: SelectedStack,
    targets: Sequence[str] = (),
    *,
    emulate: bool = False,
    on_event: OnEvent | None = None,
    cancellation: Cancellation | None = None,
) -> DriftResult:
    """What was changed behind the stack's back: all of it, or of `targets`. Nothing is written."""
    return find_drift(stack, targets, _caller(on_event, None, cancellation), emulate=emulate)


def outputs(stack: SelectedStack) -> dict[str, OutputValue]:
    """The stack's outputs, as its last run has left them."""
    with stack.environment():
        resources = stack.open().snapshot.resources
    found = next((each.outputs for each in resources if each.type == STACK_TYPE), {})
    return output_values(found)


def status(stack: SelectedStack, *, refresh: bool = False, emulate: bool = False) -> Status:
    """The stack's resources with their states, GPUs and cost; with `refresh` as they are now."""
    return read_status(stack, refresh=refresh, emulate=emulate)


def export_stack(
    stack: SelectedStack, *, show_secrets: bool = False, on_event: OnEvent | None = None
) -> dict[str, Any]:
    """The stack's state as Pulumi's deployment JSON; secrets stay encrypted by default."""
    with stack.environment():
        tell = _caller(on_event, None, None).warn
        return export_deployment(stack, tell, show_secrets=show_secrets)


def import_stack(
    stack: SelectedStack,
    deployment: Mapping[str, Any],
    *,
    force: bool = False,
    on_event: OnEvent | None = None,
) -> int:
    """Replaces the stack's state by an exported one; how many entries it has.

    Raises EngineError for what breaks rules or is of another stack; with `force` it is taken.
    """
    with stack.environment():
        text = json.dumps(deployment).encode()
        tell = _caller(on_event, None, None).warn
        return import_deployment(stack, text, "the deployment", tell, force=force)


def _caller(
    on_event: OnEvent | None, confirm: Confirm | None, cancellation: Cancellation | None
) -> Caller:
    return Caller(on_event or ignore, confirm, cancellation or Cancellation())
