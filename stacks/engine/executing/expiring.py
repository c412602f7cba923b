"""The run that does what is due: deletes what has expired, and starts and stops what has its hours.

It works from the state alone; what is due, somebody else says.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.step_executor import StepExecutor
from gpuform.stacks.engine.planning import Op, Step, describe, unchanged
from gpuform.stacks.engine.state import ResourceState, graph
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
    executor: StepExecutor, entries: Sequence[ResourceState], due: Mapping[str, Due]
) -> None:
    """Starts and stops what is due, side by side, and keeps the other entries as they are.

    What an entry needs is dealt with before it, as in any state. In a preview it plans that.
    """
    changing = {urn: wanted for urn, wanted in due.items() if wanted.inputs is not None}
    entries = [entry for entry in entries if not entry.delete]
    steps = {}
    for entry in entries:
        wanted = None if entry.pending_replacement else changing.get(entry.urn)
        step = None if wanted is None else _update(executor, entry, wanted)
        steps[id(entry)] = step or unchanged(entry)
    for layer in _layers(entries, changing):
        for entry in layer:
            if steps[id(entry)].op is Op.SAME:
                executor.run_layer([steps[id(entry)]])
        updates = [steps[id(e)] for e in layer if steps[id(e)].op is Op.UPDATE]
        if updates:
            executor.run_layer(updates)


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


def _update(executor: StepExecutor, entry: ResourceState, wanted: Due) -> Step | None:
    """None where the object is so already, or may not be changed, which is told."""
    inputs = wanted.inputs or {}
    try:
        found = executor.host.diff(entry.urn, entry.id, entry.outputs, inputs, entry.provider)
    except EngineError as error:
        executor.fail(entry.urn, error)
        return None
    if not found.changes:
        return None
    new = replace(entry, id="", outputs={}, inputs=inputs)
    fields = [replace(each, because=each.because or wanted.because) for each in found.fields or ()]
    diff = replace(found, fields=fields)
    shown = describe(executor.host, Op.UPDATE, entry, new, diff)
    keys = property_paths.top_level(field.path for field in fields)
    return Step(Op.UPDATE, entry.urn, entry, new, diffs=keys, change=shown)
