"""Run the delete phase: delete the entries that the program no longer declares, dependents first.

`deployment` runs this phase after the program has ended; each deletion is a step of the step
executor.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.step_executor import StepExecutor
from gpuform.stacks.engine.planning import UNPROTECT, Op, Step, describe_change
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.registration import DeletionRule
from gpuform.stacks.engine.state import ResourceState, Selection, find_deletable_urns, graph
from gpuform.stacks.engine.urn import is_provider


def select_deletions(
    to_delete: Sequence[ResourceState], selection: Selection, base: Sequence[ResourceState]
) -> tuple[list[ResourceState], list[ResourceState]]:
    """Return the entries of `to_delete` that `selection` lets the run delete, in two lists.

    The first list has all of them, including the dependents of targets. The second list has those
    entries of the first that are not targets themselves; the caller reports each as an error. It is
    empty without targets, and with `--target-dependents`. `base` is the state that the last run
    left, from which dependents are found.
    """
    allowed = find_deletable_urns(selection, base)
    selected = [entry for entry in to_delete if entry.urn in allowed]
    unnamed: list[ResourceState] = []
    if selection.targets and not selection.target_dependents:
        unnamed = [entry for entry in selected if entry.urn not in selection.targets]
    return selected, unnamed


def find_forbidden_deletions(
    to_delete: Sequence[ResourceState],
    base: Sequence[ResourceState],
    replaced: Collection[str],
    rules: Sequence[DeletionRule],
) -> Iterator[tuple[str, EngineError]]:
    """Yield URN and error of each deletion or replacement forbidden by `rules`.

    `base` is the state that the last run left. `replaced` holds the URNs that this run replaces.
    Each rule gets an entry to delete and the live entries that stay. Components, external and
    retained objects are not checked.
    """
    # Only the URN finds an entry in `base`: a preview deletes copies.
    deleted_urns = {entry.urn for entry in to_delete if not entry.delete}
    live_entries = [entry for entry in base if entry.custom and not entry.delete]
    ending_urns = deleted_urns.union(replaced)
    staying_entries = [entry for entry in live_entries if entry.urn not in ending_urns]
    ending_entries = [*to_delete, *(entry for entry in live_entries if entry.urn in replaced)]
    # The old entry of a replacement that deletes first is in both lists.
    for entry in {
        (ending_entry.urn, ending_entry.id): ending_entry for ending_entry in ending_entries
    }.values():
        if entry.custom and not (entry.external or entry.retain_on_delete):
            for rule in rules:
                yield from ((entry.urn, error) for error in rule(entry, staying_entries))


@dataclass(slots=True)
class DeletePhase:
    """Deletes entries of `base`, dependents first.

    Protected entries stay, and so does everything that a staying or failed entry depends on.
    Entries whose objects no longer exist stay until the end of the phase, when their number is
    known.
    """

    executor: StepExecutor
    base: Sequence[ResourceState]
    _kept_urns: set[str] = field(default_factory=set)  # URNs whose live entry stays
    _fully_kept_urns: set[str] = field(default_factory=set)  # URNs of which every entry stays
    _urns_needed_by_missing: set[str] = field(default_factory=set)  # URNs that deleted objects need
    _live_entries: Mapping[str, ResourceState] = field(init=False)

    def __post_init__(self) -> None:
        self._live_entries = graph.index_live(self.base)

    def run(self, to_delete: Sequence[ResourceState]) -> None:
        """Delete `to_delete` in layers, dependents before dependencies.

        Protected entries are reported as failed. Entries needed by protected or failed ones stay.
        Parents and providers of missing objects are deleted last.
        """
        graph.extend_with_dependencies(self._kept_urns, self._live_entries, self.executor.failed)
        protected = [entry.urn for entry in to_delete if _is_protected(entry)]
        # Pulumi's integrity check needs the dependencies of an entry in the state: they stay with
        # it.
        staying_urns = self._kept_urns | graph.add_dependencies(self.base, protected)
        urns = {entry.urn for entry in to_delete} - staying_urns
        postponed_layers: list[list[ResourceState]] = []
        handled_count = 0
        # Pulumi deletes in antichains: the next layer starts when the whole layer has ended.
        for layer in graph.group_for_deletion(to_delete):
            if self.executor.is_stopping:
                break
            for entry in self.executor.outside_deletions.entries[handled_count:]:
                graph.extend_with_dependencies(
                    self._urns_needed_by_missing,
                    self._live_entries,
                    graph.find_dependency_urns(entry),
                )
            handled_count = len(self.executor.outside_deletions.entries)
            ready: list[ResourceState] = []
            # Whether entries of missing objects leave the state is decided at the end of the phase.
            # Until then their parents and providers have to stay.
            postponed_layers.append([])
            for entry in layer:
                # Pulumi refuses a checkpoint with an entry whose provider or parent is missing.
                must_wait = entry.urn in self._urns_needed_by_missing and (
                    not entry.custom or is_provider(entry.type)
                )
                (postponed_layers[-1] if must_wait else ready).append(entry)
            self._delete_layer(ready, urns)
        self._forget_missing_objects()
        for layer in postponed_layers:
            if not self.executor.is_stopping:
                self._delete_layer(layer, urns)

    def _forget_missing_objects(self) -> None:
        """Forget missing objects; if too many are missing, keep all, with the dependencies.

        Too many without the user's permission are a failure of the run.
        """
        missing_entries = self.executor.outside_deletions.entries
        self.executor.forget_missing_objects()
        for entry in missing_entries:
            if entry.urn in self.executor.failed:
                self._keep_dependencies(entry)

    def _delete_layer(self, layer: Sequence[ResourceState], urns: Collection[str]) -> None:
        """Delete the entries of a layer, except for protected and needed ones.

        The dependencies of each entry that stays, or whose deletion fails, are kept: later layers
        do not delete them. `urns` are the URNs of all entries that the phase deletes: an entry
        whose `deleted_with` is among them needs no delete call.
        """
        deletable_entries = [entry for entry in layer if self._can_delete(entry)]
        steps = [
            _build_deletion_step(self.executor.host, entry, urns) for entry in deletable_entries
        ]
        for step in self.executor.run_layer(steps) if steps else ():
            self._keep_dependencies(step.state)

    def _can_delete(self, entry: ResourceState) -> bool:
        """Return False for a protected entry, and for an entry that a kept entry depends on.

        If the result is False, the dependencies of the entry are kept too. A protected entry is
        reported as failed.
        """
        if entry.urn in self._fully_kept_urns or (
            entry.urn in self._kept_urns and not entry.delete
        ):
            self._keep_dependencies(entry)
            return False
        if not _is_protected(entry):
            return True
        self._keep_dependencies(entry)
        self.executor.refuse_step(
            _build_deletion_step(self.executor.host, entry, ()),
            EngineError(f"{entry.urn} is protected and cannot be deleted", hint=UNPROTECT),
        )
        return False

    def _keep_dependencies(self, entry: ResourceState) -> None:
        """Record that the dependencies of a kept entry must stay in the state.

        For a live entry these are the live entries of all direct and indirect dependencies. For an
        entry marked for deletion these are only the direct dependencies, but with all their
        entries.
        """
        if entry.delete:
            self._fully_kept_urns |= graph.find_dependency_urns(entry)
        else:
            graph.extend_with_dependencies(
                self._kept_urns, self._live_entries, graph.find_dependency_urns(entry)
            )


def _is_protected(entry: ResourceState) -> bool:
    """Return True if the entry may not be deleted; leftovers of a replacement may."""
    # Leftovers of a replacement were permitted when the replacement was planned.
    return entry.protect and not entry.delete and not entry.pending_replacement


def _build_deletion_step(
    host: ProviderHost, entry: ResourceState, to_delete: Collection[str]
) -> Step:
    """Build the step that deletes the object, or that only removes the entry from the state.

    Only the entry is removed if the object is deleted already, external, retained, or
    `deleted_with` an entry in `to_delete`, the URNs of all entries that the phase deletes.
    """
    # The object is deleted already: by Pulumi's rule its provider must not be called again.
    if entry.pending_replacement:
        return Step(Op.REMOVE_PENDING_REPLACE, entry.urn, entry)
    if entry.external:
        return Step(Op.DISCARD_REPLACED if entry.delete else Op.DISCARD, entry.urn, entry)
    return Step(
        Op.DELETE_REPLACED if entry.delete else Op.DELETE,
        entry.urn,
        entry,
        # The object of `deleted_with` takes this one along: Pulumi makes no delete call for it.
        retain=entry.retain_on_delete or entry.deleted_with in to_delete,
        # The plan shows the replacement, not the deletion of its old object.
        change=None if entry.delete else describe_change(host, Op.DELETE, entry, None),
    )
