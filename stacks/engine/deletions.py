"""The delete phase: what of the old state the program no longer has, and in which order it goes."""

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from gpuform.stacks.engine import graph
from gpuform.stacks.engine.presentation import describe
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.steps import Op, Step


@dataclass(frozen=True, slots=True)
class Deletions:
    """Layers of steps, dependents first; `protected` are steps that may not be done."""

    layers: Sequence[Sequence[Step]]
    protected: Sequence[Step]


def plan_deletions(
    host: ProviderHost, leftovers: Sequence[ResourceState], kept: AbstractSet[str]
) -> Deletions:
    """Steps for the entries that are marked for deletion or whose URN is not in `kept`."""
    doomed = [entry for entry in leftovers if entry.delete or entry.urn not in kept]
    protected = [entry for entry in doomed if entry.protect and not entry.delete]
    spared = {id(entry) for entry in protected}
    doomed = [entry for entry in doomed if id(entry) not in spared]
    layers = list(_layers(host, doomed, protected))
    return Deletions(layers, [_deletion(host, entry) for entry in protected])


def _layers(
    host: ProviderHost, doomed: Sequence[ResourceState], protected: Sequence[ResourceState]
) -> Iterator[list[Step]]:
    # What a protected entry needs stays with it.
    held: set[str] = set()
    for entry in protected:
        held |= graph.needs(entry)
    for layer in graph.deletion_layers(doomed):
        steps = []
        for entry in layer:
            if entry.urn in held and not entry.delete:
                held |= graph.needs(entry)
            else:
                steps.append(_deletion(host, entry))
        if steps:
            yield steps


def _deletion(host: ProviderHost, entry: ResourceState) -> Step:
    if entry.pending_replacement:
        return Step(Op.REMOVE_PENDING_REPLACE, entry.urn, entry)
    op = Op.DELETE_REPLACED if entry.delete else Op.DELETE
    return Step(
        op,
        entry.urn,
        entry,
        retain=entry.retain_on_delete,
        change=None if entry.delete else describe(host, Op.DELETE, entry, None),
    )
