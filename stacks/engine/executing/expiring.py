"""The run that does what is due: deletes what has expired, starts and stops what has its hours,
and repairs what is broken.

It works from the state alone; what is due, somebody else says.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.step_executor import StepError, StepExecutor, Stopped
from gpuform.stacks.engine.planning import UNPROTECT, Op, Step, describe, unchanged
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.state import ResourceState, graph
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import PropertyMap, property_paths


@dataclass(frozen=True, slots=True)
class Due:
    """What is to be done about a resource now: it is deleted, or changed to have `inputs`."""

    because: str
    inputs: PropertyMap | None = None


Calendar = Callable[[ResourceState], Due | None]
"""What is due of a resource as it was last seen; None: nothing."""


def find_due(entries: Sequence[ResourceState], calendar: Calendar) -> Mapping[str, Due]:
    """What is due, by URN. What waits for its deletion anyway is left to the next `up`."""
    live = (each for each in entries if not (each.delete or each.pending_replacement))
    found = {entry.urn: calendar(entry) for entry in live if entry.custom and not entry.external}
    return {urn: due for urn, due in found.items() if due is not None}


def keep_and_change(
    executor: StepExecutor,
    entries: Sequence[ResourceState],
    due: Mapping[str, Due],
    resumed: Callable[[ResourceState], bool],
) -> None:
    """Changes what is due, side by side, and keeps the other entries as they are.

    What an interrupted replacement has deleted, and is `resumed`, is created again.
    What an entry needs is dealt with before it, as in any state. In a preview it plans that.
    """
    changing = {urn: wanted for urn, wanted in due.items() if wanted.inputs is not None}
    entries = [entry for entry in entries if not entry.delete]
    steps: dict[int, list[Step]] = {}
    for entry in entries:
        if entry.pending_replacement:
            found = _remake(executor, entry) if resumed(entry) else []
        else:
            wanted = changing.get(entry.urn)
            found = [] if wanted is None else _change(executor, entry, wanted, entries)
        steps[id(entry)] = found or [unchanged(entry)]
    for layer in _layers(entries, changing):
        own = [steps[id(entry)] for entry in layer]
        for each in own:
            if each[0].op is Op.SAME:
                executor.run_layer(each)
        updates = [each[0] for each in own if each[0].op is Op.UPDATE]
        if updates:
            executor.run_layer(updates)
        for each in own:
            if len(each) > 1:
                with suppress(StepError, Stopped):  # told already
                    executor.run(each)


def _layers(
    entries: Sequence[ResourceState], changing: Container[str]
) -> Iterator[list[ResourceState]]:
    """The entries, each in a layer after those of all changing ones that it needs."""
    level: dict[str, int] = {}
    layers: dict[int, list[ResourceState]] = {}
    for entry in entries:
        needed = [(urn, level[urn]) for urn in graph.needs(entry) if urn in level]
        own = max((at + (urn in changing) for urn, at in needed), default=0)
        level[entry.urn] = own
        layers.setdefault(own, []).append(entry)
    yield from (layers[at] for at in sorted(layers))


def _change(
    executor: StepExecutor, entry: ResourceState, wanted: Due, entries: Sequence[ResourceState]
) -> list[Step]:
    """Nothing where the object is so already, or may not be changed, which is told."""
    inputs = wanted.inputs or {}
    try:
        found = executor.host.diff(entry.urn, entry.id, entry.outputs, inputs, entry.provider)
    except EngineError as error:
        executor.fail(entry.urn, error)
        return []
    if not found.changes:
        return []
    new = replace(entry, id="", outputs={}, inputs=inputs)
    fields = [replace(each, because=each.because or wanted.because) for each in found.fields or ()]
    diff = replace(found, fields=fields)
    keys = property_paths.top_level(field.path for field in fields)
    if found.replaces:
        return _replacement(executor, entry, new, diff, entries)
    shown = describe(executor.host, Op.UPDATE, entry, new, diff)
    return [Step(Op.UPDATE, entry.urn, entry, new, diffs=keys, change=shown)]


def _remake(executor: StepExecutor, entry: ResourceState) -> list[Step]:
    """Return the steps that create again what an interrupted replacement has deleted."""
    new = replace(entry, id="", outputs={}, pending_replacement=False)
    diff = Diff(changes=True, replaces=(), delete_before_replace=True)
    shown = describe(executor.host, Op.REPLACE, entry, new, diff)
    return [
        Step(Op.REPLACE, entry.urn, entry, new, change=shown),
        Step(Op.CREATE_REPLACEMENT, entry.urn, entry, new),
    ]


def _replacement(
    executor: StepExecutor,
    entry: ResourceState,
    new: ResourceState,
    diff: Diff,
    entries: Sequence[ResourceState],
) -> list[Step]:
    """The old object goes first. What others need is replaced by a run of the program alone."""
    name = name_of(entry.urn)
    needed_by = [name_of(each.urn) for each in entries if entry.urn in graph.needs(each)]
    if needed_by:
        error = EngineError(
            f"{name} cannot be replaced without the program: {', '.join(needed_by)} needs it",
            hint="`gpuform up --refresh` replaces it, and changes what needs it",
        )
        executor.fail(entry.urn, error)
        return []
    if entry.protect:
        error = EngineError(f"{name} is protected, and this replaces it", hint=UNPROTECT)
        executor.fail(entry.urn, error)
        return []
    keys = list(diff.replaces)
    shown = describe(executor.host, Op.REPLACE, entry, new, diff)
    return [
        Step(Op.DELETE_REPLACED, entry.urn, entry, None, keys, retain=entry.retain_on_delete),
        Step(Op.REPLACE, entry.urn, entry, new, keys, keys, shown),
        Step(Op.CREATE_REPLACEMENT, entry.urn, entry, new, keys, keys),
    ]
