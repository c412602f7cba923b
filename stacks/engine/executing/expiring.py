"""Apply due changes: delete expired resources, start and stop scheduled ones, repair broken ones.

The run works from the state alone, without the program. The caller's calendar (`stacks.schedule`)
decides which changes are due.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from gpuform.schemas.values import convert_leaves
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.step_executor import StepError, StepExecutor, Stopped
from gpuform.stacks.engine.planning import UNPROTECT, Op, Step, build_same_step, describe_change
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.state import ResourceState, graph
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import PropertyMap, property_paths


@dataclass(frozen=True, slots=True)
class DueChange:
    """A change that a resource needs now: new `inputs`, or its deletion when `inputs` is None."""

    reason: str
    inputs: PropertyMap | None = None


Calendar = Callable[[ResourceState], DueChange | None]
"""Return the due change of a resource as last observed, or None if nothing is due."""


def find_due_changes(
    entries: Sequence[ResourceState], calendar: Calendar
) -> Mapping[str, DueChange]:
    """Return the due changes by URN, as found by `calendar`.

    Components and external objects have none. Entries that already wait for their deletion or
    replacement are left to the next `up`.
    """
    live_entries = (
        candidate
        for candidate in entries
        if not (candidate.delete or candidate.pending_replacement)
    )
    change_by_urn = {
        # Components have no object, and an object that is only read is not this stack's to change.
        entry.urn: calendar(entry)
        for entry in live_entries
        if entry.custom and not entry.external
    }
    return {urn: change for urn, change in change_by_urn.items() if change is not None}


def apply_due_changes(
    executor: StepExecutor,
    entries: Sequence[ResourceState],
    due_changes: Mapping[str, DueChange],
    should_resume: Callable[[ResourceState], bool],
) -> None:
    """Update or replace the entries with new inputs in `due_changes`; keep all others unchanged.

    `due_changes` is by URN; those without inputs are deletions and left to the delete phase.
    Dependencies come first. An entry whose object an interrupted replacement has deleted is created
    again if `should_resume` returns True. Failures are reported, not raised. A preview only plans.
    """
    entries = [entry for entry in entries if not entry.delete]
    steps_by_urn = _plan_entries(executor, entries, due_changes, should_resume)
    changing_urns = {urn for urn, steps in steps_by_urn.items() if steps[0].op is not Op.SAME}
    recreated_ids: dict[str, str] = {}
    for layer in _group_into_layers(entries, changing_urns):
        layer_steps = [steps_by_urn[entry.urn] for entry in layer]
        for chain in layer_steps:
            # Unchanged entries first: an update of the same layer may depend on one, and the state
            # lists entries in the order of their completion.
            if chain[0].op is Op.SAME:
                executor.run_layer(chain)
        updates = [chain[0] for chain in layer_steps if chain[0].op is Op.UPDATE]
        if updates:
            _run_updates(executor, updates, recreated_ids)
        for chain in layer_steps:
            if len(chain) > 1:
                with suppress(StepError, Stopped):  # the executor has reported the reason
                    executor.run_steps(chain)


def _plan_entries(
    executor: StepExecutor,
    entries: Sequence[ResourceState],
    due_changes: Mapping[str, DueChange],
    should_resume: Callable[[ResourceState], bool],
) -> dict[str, list[Step]]:
    """Return the steps of each entry by URN; an entry without a change has one, which keeps it.

    An entry that tests nodes repaired by the steps before it gets an update, too.
    """
    steps_by_urn: dict[str, list[Step]] = {}
    for entry in entries:
        due_change = due_changes.get(entry.urn)
        if due_change is None and executor.host.tests_repaired_nodes(entry):
            due_change = DueChange("a node that it tests is repaired", entry.inputs)
        entry_steps: list[Step] = []
        if entry.pending_replacement:
            entry_steps = _plan_recreation(executor, entry) if should_resume(entry) else []
        elif due_change is not None and due_change.inputs is not None:
            entry_steps = _plan_change(executor, entry, due_change, entries)
        steps_by_urn[entry.urn] = entry_steps or [build_same_step(entry)]
        for step in entry_steps:
            executor.host.add_planned_repairs(step.change)
    return steps_by_urn


def _run_updates(
    executor: StepExecutor, updates: list[Step], recreated_ids: dict[str, str]
) -> None:
    """Run updates with the ids of nodes that earlier ones recreated; add the ids that these do."""
    for step in updates:
        if recreated_ids and step.new is not None:
            step.new.inputs = _rename_nodes(step.new.inputs, recreated_ids)
    executor.run_layer(updates)
    for step in updates:
        # The outputs of a preview are unknown, and those of a failed update are the old ones.
        if not executor.preview and step.old is not None and step.new is not None:
            recreated_ids |= executor.host.find_recreated_ids(step.old, step.new)


def _rename_nodes(value: Any, recreated_ids: Mapping[str, str]) -> Any:
    """Return inputs in which the ids of recreated nodes take the place of their old ids."""
    # The program would declare the new ids, but a run from the state alone does not run it.
    return convert_leaves(
        value, lambda leaf: recreated_ids.get(leaf, leaf) if isinstance(leaf, str) else leaf
    )


def _group_into_layers(
    entries: Sequence[ResourceState], changing_urns: Container[str]
) -> Iterator[list[ResourceState]]:
    """Yield layers of entries; changing dependencies of an entry are in an earlier layer.

    `entries` must be sorted, dependencies first: later ones are ignored.
    """
    level_by_urn: dict[str, int] = {}
    layers: dict[int, list[ResourceState]] = {}
    for entry in entries:
        dependency_levels = [
            (urn, level_by_urn[urn])
            for urn in graph.find_dependency_urns(entry)
            if urn in level_by_urn
        ]
        entry_level = max(
            (level + (urn in changing_urns) for urn, level in dependency_levels), default=0
        )
        level_by_urn[entry.urn] = entry_level
        layers.setdefault(entry_level, []).append(entry)
    yield from (layers[level] for level in sorted(layers))


def _plan_change(
    executor: StepExecutor,
    entry: ResourceState,
    due_change: DueChange,
    entries: Sequence[ResourceState],
) -> list[Step]:
    """Return the steps giving `entry` the inputs of `due_change`.

    The list is empty if the provider sees no difference. It is empty also, and the error is
    reported,
    if the comparison fails or the change is not allowed.
    """
    inputs = due_change.inputs or {}
    try:
        provider_diff = executor.host.diff(
            entry.urn, entry.id, entry.outputs, inputs, entry.provider
        )
    except EngineError as error:
        executor.fail_resource(entry.urn, error)
        return []
    if not provider_diff.changes:
        return []
    goal = replace(entry, id="", outputs={}, inputs=inputs)
    fields = [
        replace(field_change, because=field_change.because or due_change.reason)
        for field_change in provider_diff.fields or ()
    ]
    diff = replace(provider_diff, fields=fields)
    keys = property_paths.list_roots(field.path for field in fields)
    if provider_diff.replaces:
        return _plan_replacement(executor, entry, goal, diff, entries)
    description = describe_change(executor.host, Op.UPDATE, entry, goal, diff)
    return [Step(Op.UPDATE, entry.urn, entry, goal, diffs=keys, change=description)]


def _plan_recreation(executor: StepExecutor, entry: ResourceState) -> list[Step]:
    """Return the steps recreating an object deleted by an interrupted replacement."""
    goal = replace(entry, id="", outputs={}, pending_replacement=False)
    diff = Diff(changes=True, replaces=(), delete_before_replace=True)
    description = describe_change(executor.host, Op.REPLACE, entry, goal, diff)
    return [
        Step(Op.REPLACE, entry.urn, entry, goal, change=description),
        Step(Op.CREATE_REPLACEMENT, entry.urn, entry, goal),
    ]


def _plan_replacement(
    executor: StepExecutor,
    entry: ResourceState,
    goal: ResourceState,
    diff: Diff,
    entries: Sequence[ResourceState],
) -> list[Step]:
    """Return the steps to delete the old object and then create the replacement.

    For a protected resource, or one that others depend on, an error is reported and the list is
    empty: dependents are updated only by a run of the program.
    """
    name = name_of(entry.urn)
    dependent_names = [
        name_of(other_entry.urn)
        for other_entry in entries
        if entry.urn in graph.find_dependency_urns(other_entry)
    ]
    if dependent_names:
        error = EngineError(
            f"{name} cannot be replaced without the program, because of its dependents: "
            f"{', '.join(dependent_names)}",
            hint="`gpuform up --refresh` replaces the resource, and updates its dependents",
        )
        executor.fail_resource(entry.urn, error)
        return []
    if entry.protect:
        error = EngineError(f"{name} is protected and cannot be replaced", hint=UNPROTECT)
        executor.fail_resource(entry.urn, error)
        return []
    keys = list(diff.replaces)
    description = describe_change(executor.host, Op.REPLACE, entry, goal, diff)
    return [
        Step(Op.DELETE_REPLACED, entry.urn, entry, None, keys, retain=entry.retain_on_delete),
        Step(Op.REPLACE, entry.urn, entry, goal, keys, keys, description),
        Step(Op.CREATE_REPLACEMENT, entry.urn, entry, goal, keys, keys),
    ]
