"""Apply changes that no program declares: the delete phase, and the due changes of a state.

`deployment` runs the delete phase after the program has ended, dependents first; each deletion is a
step of the step executor. Due changes delete expired resources, start and stop scheduled ones and
repair broken ones, from the state alone; the caller's calendar (`stacks.schedule`) decides which
are due.
"""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import PlanAction
from gpuform.schemas.values import convert_leaves
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.digests import DeletionRule
from gpuform.stacks.engine.executing.step_executor import StepError, StepExecutor, Stopped
from gpuform.stacks.engine.planning import UNPROTECT, Op, Step, build_same_step, describe_change
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.state import ResourceState, Selection, find_deletable_urns, graph
from gpuform.stacks.engine.urn import is_provider, name_of


def select_deletions(
    executor: StepExecutor,
    to_delete: Sequence[ResourceState],
    selection: Selection,
    base: Sequence[ResourceState],
) -> list[ResourceState]:
    """Return the entries of `to_delete` which the selection lets the run delete.

    A dependent of a target that is not a target itself is reported as failed, unless the selection
    has `target_dependents`; it is in the result all the same. `base` is the state that the last run
    left, from which dependents are found.
    """
    allowed = find_deletable_urns(selection, base)
    selected = [entry for entry in to_delete if entry.urn in allowed]
    if selection.targets and not selection.target_dependents:
        for entry in selected:
            if entry.urn not in selection.targets:
                error = EngineError(
                    f"{entry.urn} would be deleted, but is not among the targets",
                    hint="add the resource to the targets, or add all dependents of the targets "
                    "with --target-dependents",
                )
                executor.fail_resource(entry.urn, error)
    return selected


def can_delete(
    executor: StepExecutor,
    to_delete: Sequence[ResourceState],
    base: Sequence[ResourceState],
    rules: Sequence[DeletionRule],
) -> bool:
    """Return True if no rule forbids the deletions; report each violation.

    A preview also checks the objects that would be replaced. `base` is the state that the last run
    left. Each rule gets an entry to delete and the live entries that stay. Components, external and
    retained objects are not checked.
    """
    planned = executor.planned_changes if executor.preview else ()
    replaced = {change.urn for change in planned if change.action is PlanAction.REPLACE}
    # Only the URN finds an entry in `base`: a preview deletes copies.
    ending_urns = replaced | {entry.urn for entry in to_delete if not entry.delete}
    live_entries = [entry for entry in base if entry.custom and not entry.delete]
    staying_entries = [entry for entry in live_entries if entry.urn not in ending_urns]
    ending_entries = [*to_delete, *(entry for entry in live_entries if entry.urn in replaced)]
    # The old entry of a replacement that deletes first is in both lists.
    violations = [
        (entry.urn, error)
        for entry in {(entry.urn, entry.id): entry for entry in ending_entries}.values()
        if entry.custom and not (entry.external or entry.retain_on_delete)
        for rule in rules
        for error in rule(entry, staying_entries)
    ]
    for urn, error in violations:
        executor.fail_resource(urn, error)
    return not violations


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
    _replaced_earlier: Collection[tuple[str, str]] = field(init=False)  # URNs and ids

    def __post_init__(self) -> None:
        self._live_entries = graph.index_live(self.base)
        self._replaced_earlier = {(entry.urn, entry.id) for entry in self.base if entry.delete}

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
        steps = [self._build_deletion_step(entry, urns) for entry in deletable_entries]
        for step in self.executor.run_layer(steps) if steps else ():
            self._keep_dependencies(step.state)

    def _can_delete(self, entry: ResourceState) -> bool:
        """Return False for a protected entry, and for a dependency of a kept entry.

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
            self._build_deletion_step(entry, ()),
            EngineError(f"{entry.urn} is protected and cannot be deleted", hint=UNPROTECT),
        )
        return False

    def _keep_dependencies(self, entry: ResourceState) -> None:
        """Record the dependencies of a kept entry as entries to stay in the state.

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

    def _build_deletion_step(self, entry: ResourceState, to_delete: Collection[str]) -> Step:
        """Build the step to delete the object, or to remove only the entry from the state.

        Only the entry is removed if the object is deleted already, external, retained, or
        `deleted_with` an entry in `to_delete`, the URNs of all entries that the phase deletes.
        """
        # The object is deleted already: by Pulumi's rule its provider must not be called again.
        if entry.pending_replacement:
            return Step(Op.REMOVE_PENDING_REPLACE, entry.urn, entry)
        if entry.external:
            return Step(Op.DISCARD_REPLACED if entry.delete else Op.DISCARD, entry.urn, entry)
        # The plan shows a replacement of this run instead of the deletion of the old object.
        is_planned = not entry.delete or (entry.urn, entry.id) in self._replaced_earlier
        return Step(
            Op.DELETE_REPLACED if entry.delete else Op.DELETE,
            entry.urn,
            entry,
            # The object of `deleted_with` takes this one along: Pulumi makes no delete call for it.
            retain=entry.retain_on_delete or entry.deleted_with in to_delete,
            change=describe_change(self.executor.host, Op.DELETE, entry, None)
            if is_planned
            else None,
        )


def _is_protected(entry: ResourceState) -> bool:
    """Return True if the entry may not be deleted; leftovers of a replacement may."""
    # Leftovers of a replacement were permitted when the replacement was planned.
    return entry.protect and not entry.delete and not entry.pending_replacement


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
    """Return the steps of each entry by URN; an entry without a change has one step, a no-op.

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
    """Run updates with the new ids of nodes recreated so far, and add newly recreated ids."""
    for step in updates:
        if recreated_ids and step.new is not None:
            # The program would declare the new ids, but a run from the state alone does not run it.
            step.new.inputs = convert_leaves(
                step.new.inputs,
                lambda leaf: recreated_ids.get(leaf, leaf) if isinstance(leaf, str) else leaf,
            )
    executor.run_layer(updates)
    for step in updates:
        # The outputs of a preview are unknown, and those of a failed update are the old ones.
        if not executor.preview and step.old is not None and step.new is not None:
            recreated_ids |= executor.host.find_recreated_ids(step.old, step.new)


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
    reported, if the comparison fails or the change is not allowed.
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
