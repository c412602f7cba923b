"""The delete phase: what of the old state the program no longer has, and in which order it goes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.step_executor import StepExecutor
from gpuform.stacks.engine.planning import UNPROTECT, Op, Step, describe
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.registration import DeletionRule
from gpuform.stacks.engine.state import ResourceState, Selection, deletable, graph
from gpuform.stacks.engine.urn import is_provider


def among(
    to_delete: Sequence[ResourceState], selection: Selection, base: Sequence[ResourceState]
) -> tuple[list[ResourceState], list[ResourceState]]:
    """Which of the entries a run of this selection deletes, and which of these nobody named.

    `base` is the state that the last run left.
    """
    allowed = deletable(selection, base)
    chosen = [entry for entry in to_delete if entry.urn in allowed]
    unnamed: list[ResourceState] = []
    if selection.targets and not selection.target_dependents:
        unnamed = [entry for entry in chosen if entry.urn not in selection.targets]
    return chosen, unnamed


def forbidden(
    to_delete: Sequence[ResourceState],
    base: Sequence[ResourceState],
    replaced: Collection[str],
    rules: Sequence[DeletionRule],
) -> Iterator[tuple[str, EngineError]]:
    """The entries, by URN, that must not be deleted, or replaced, as long as others stay."""
    gone = set(map(id, to_delete))
    live = [entry for entry in base if entry.custom and not entry.delete]
    staying = [entry for entry in live if id(entry) not in gone and entry.urn not in replaced]
    going = [*to_delete, *(entry for entry in live if entry.urn in replaced)]
    # What a replacement deletes first is among both.
    for entry in {(each.urn, each.id): each for each in going}.values():
        if entry.custom and not (entry.external or entry.retain_on_delete):
            for rule in rules:
                yield from ((entry.urn, error) for error in rule(entry, staying))


@dataclass(slots=True)
class DeletePhase:
    """Deletes entries of `base`, dependents first.

    What is protected stays, and so does everything that an entry needs which stays or has failed.
    What is gone already stays until the end, when it is known how much that is.
    """

    executor: StepExecutor
    base: Sequence[ResourceState]
    _held: set[str] = field(default_factory=set)  # URNs whose live entry stays
    _held_old: set[str] = field(default_factory=set)  # URNs of which every entry stays
    _awaited: set[str] = field(default_factory=set)  # URNs that deleted objects need
    _live: Mapping[str, ResourceState] = field(init=False)

    def __post_init__(self) -> None:
        self._live = graph.live(self.base)

    def run(self, to_delete: Sequence[ResourceState]) -> None:
        graph.add_with_needs(self._held, self._live, self.executor.failed)
        protected = [entry.urn for entry in to_delete if _is_protected(entry)]
        staying = self._held | graph.with_needs(self.base, protected)
        urns = {entry.urn for entry in to_delete} - staying
        later: list[list[ResourceState]] = []
        seen = 0
        for layer in graph.deletion_layers(to_delete):
            if self.executor.stopping:
                break
            for entry in self.executor.vanished.entries[seen:]:
                graph.add_with_needs(self._awaited, self._live, graph.needs(entry))
            seen = len(self.executor.vanished.entries)
            now: list[ResourceState] = []
            later.append([])
            for entry in layer:
                # No state has an entry without its provider and its parent.
                waits = entry.urn in self._awaited and (not entry.custom or is_provider(entry.type))
                (later[-1] if waits else now).append(entry)
            self._delete(now, urns)
        self._settle_vanished()
        for layer in later:
            if not self.executor.stopping:
                self._delete(layer, urns)

    def _settle_vanished(self) -> None:
        found = self.executor.vanished.entries
        self.executor.settle_vanished()
        for entry in found:
            if entry.urn in self.executor.failed:
                self._hold(entry)

    def _delete(self, layer: Sequence[ResourceState], urns: Collection[str]) -> None:
        going = [entry for entry in layer if self._may_go(entry)]
        steps = [_deletion(self.executor.host, entry, urns) for entry in going]
        left = {id(step.old) for step in self.executor.run_layer(steps)} if steps else set()
        for entry in going:
            if id(entry) in left:
                self._hold(entry)

    def _may_go(self, entry: ResourceState) -> bool:
        if entry.urn in self._held_old or (entry.urn in self._held and not entry.delete):
            self._hold(entry)
            return False
        if not _is_protected(entry):
            return True
        self._hold(entry)
        self.executor.refuse(
            _deletion(self.executor.host, entry, ()),
            EngineError(f"{entry.urn} is protected and cannot be deleted", hint=UNPROTECT),
        )
        return False

    def _hold(self, entry: ResourceState) -> None:
        if entry.delete:
            self._held_old |= graph.needs(entry)
        else:
            graph.add_with_needs(self._held, self._live, graph.needs(entry))


def _is_protected(entry: ResourceState) -> bool:
    return entry.protect and not entry.delete and not entry.pending_replacement


def _deletion(host: ProviderHost, entry: ResourceState, to_delete: Collection[str]) -> Step:
    if entry.pending_replacement:
        return Step(Op.REMOVE_PENDING_REPLACE, entry.urn, entry)
    if entry.external:
        return Step(Op.DISCARD_REPLACED if entry.delete else Op.DISCARD, entry.urn, entry)
    return Step(
        Op.DELETE_REPLACED if entry.delete else Op.DELETE,
        entry.urn,
        entry,
        retain=entry.retain_on_delete or entry.deleted_with in to_delete,
        change=None if entry.delete else describe(host, Op.DELETE, entry, None),
    )
