"""Edit, verify and repair a snapshot, as Pulumi's `state` commands do.

Each edit takes a snapshot and returns another one; `stacks.operations` reads and writes the files.
The rules follow "pkg/resource/edit" and "pkg/cmd/pulumi/state" in Pulumi's source.
`SnapshotManager` checks every checkpoint before writing. `repair` sorts entries and drops
references to missing resources; violations that only a loss would mend are reported and stay.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

from gpuform.schemas.errors import EngineError
from gpuform.schemas.values import sort_by_dependencies
from gpuform.stacks.engine.state import graph
from gpuform.stacks.engine.state.checkpoint import (
    Manifest,
    PendingOperation,
    ResourceState,
    Snapshot,
    compute_magic,
)
from gpuform.stacks.engine.state.graph import (
    DroppedReference,
    drop_references,
    rename_references,
    rename_used_resources,
)
from gpuform.stacks.engine.urn import (
    STACK_TYPE,
    is_noise,
    is_provider,
    is_urn,
    type_of,
    with_name,
    with_parent,
    with_stack,
)


class EditRefused(EngineError):
    """An edit that would leave the state invalid or lose something that the state must keep."""

    help_page = "guides/state-for-a-team"


def delete(
    snapshot: Snapshot, deleted_entry: ResourceState, *, force: bool, target_dependents: bool
) -> tuple[Snapshot, list[ResourceState]]:
    """Remove an entry from a state; return the snapshot and the removed entries.

    The objects on the platform stay. An old entry beside another one of its URN has no dependents.

    Args:
        snapshot: the state.
        deleted_entry: the entry to remove.
        force: remove protected entries too.
        target_dependents: remove the entries that depend on `deleted_entry` too.

    Raises:
        EditRefused: there are dependents, or protected entries.
    """
    entries = snapshot.resources
    position = next(n for n, entry in enumerate(entries) if entry is deleted_entry)
    same_urn_entries = [e for e in entries if e.urn == deleted_entry.urn and e is not deleted_entry]
    # The other entries of the URN remain for its dependents to refer to.
    dependent_positions = (
        []
        if deleted_entry.delete and same_urn_entries
        else _find_dependent_positions(entries, deleted_entry.urn)
    )
    dependents = [entries[n] for n in dependent_positions]
    if dependents and not target_dependents:
        raise EditRefused(
            f"{deleted_entry.urn} cannot be deleted: other resources depend on it"
            + _format_urn_lines(dependents),
            hint="delete these first, or all of them with --target-dependents",
        )
    removed_entries = [deleted_entry, *dependents]
    _reject_protected(removed_entries, force=force)
    removed_positions = {position, *dependent_positions}
    remaining_entries = [e for n, e in enumerate(entries) if n not in removed_positions]
    return replace(snapshot, resources=remaining_entries), removed_entries


def delete_all(snapshot: Snapshot, *, force: bool) -> tuple[Snapshot, list[ResourceState]]:
    """Remove all entries; return the snapshot and the removed entries.

    Pending operations stay.

    Raises:
        EditRefused: an entry is protected, and `force` is False.
    """
    _reject_protected(snapshot.resources, force=force)
    return replace(snapshot, resources=[]), list(snapshot.resources)


def _reject_protected(removed_entries: Collection[ResourceState], *, force: bool) -> None:
    """Raise EditRefused if an entry to remove is protected, unless `force` is True."""
    protected = [entry for entry in removed_entries if entry.protect]
    if protected and not force:
        raise EditRefused(
            "protected resources cannot be deleted:" + _format_urn_lines(protected),
            hint="run `gpuform state unprotect` first, or add --force",
        )


def _find_dependent_positions(entries: list[ResourceState], root_urn: str) -> list[int]:
    """Return the positions of the direct and indirect dependents of a URN.

    Entries marked for deletion are included. `entries` must be sorted, dependencies first. Other
    entries of the same URN are left out.
    """
    reached = {root_urn}
    positions = []
    # In a valid state dependencies come first, so that one pass finds indirect dependents.
    for position, entry in enumerate(entries):
        if entry.urn != root_urn and not reached.isdisjoint(graph.find_dependency_urns(entry)):
            reached.add(entry.urn)
            positions.append(position)
    return positions


def set_protect(snapshot: Snapshot, urns: Collection[str], protect: bool) -> Snapshot:
    """Set `protect` on the live entries of `urns`; entries marked for deletion stay unchanged."""
    return _edit_live_entries(snapshot, urns, lambda entry: replace(entry, protect=protect))


def set_taint(snapshot: Snapshot, urns: Collection[str], taint: bool) -> Snapshot:
    """Set `taint` on the live entries of `urns`: the next update replaces tainted resources.

    Entries that are marked for deletion stay as they are.
    """
    return _edit_live_entries(snapshot, urns, lambda entry: replace(entry, taint=taint))


def _edit_live_entries(
    snapshot: Snapshot, urns: Collection[str], edit: Callable[[ResourceState], ResourceState]
) -> Snapshot:
    """Return the state with `edit` applied to the live entries of the URNs; ignore unknown URNs."""
    resources = [
        edit(entry) if entry.urn in urns and not entry.delete else entry
        for entry in snapshot.resources
    ]
    return replace(snapshot, resources=resources)


def list_program_resource_urns(snapshot: Snapshot) -> list[str]:
    """Return the URNs of the program's resources: without providers and the stack itself.

    Entries marked for deletion are left out.
    """
    return [
        entry.urn for entry in snapshot.resources if not entry.delete and not is_noise(entry.type)
    ]


def rename(snapshot: Snapshot, old: str, name: str) -> tuple[Snapshot, str]:
    """Rename a resource in all entries; return the snapshot and the new URN.

    URNs of children stay: they hold the parent's type, not the parent's name. An unknown `old`
    renames nothing.

    Raises:
        EditRefused: the name is empty or taken, or `old` is not a URN, has several objects or is
            the stack.
    """
    entries = [entry for entry in snapshot.resources if entry.urn == old]
    if not name:
        raise EditRefused("a resource's name cannot be empty")
    _reject_invalid_urns([old])
    new = with_name(old, name)
    if type_of(old) == STACK_TYPE:
        raise EditRefused(f"{old} is the stack's root resource", hint="use `gpuform stack rename`")
    if len(entries) > 1:
        raise EditRefused(
            f"{old} has {len(entries)} objects, some pending deletion",
            hint="run `gpuform up` first to delete these",
        )
    if any(entry.urn == new for entry in snapshot.resources):
        raise EditRefused(f"a resource {new} already exists", hint="choose another name")
    return replace_urns(snapshot, {old: new}), new


def rename_stack(snapshot: Snapshot, full_name: str) -> Snapshot:
    """Return the state under another full name, `organization/<project>/<stack>`.

    Resource references in the properties change where they name a resource of this stack, but not
    inside secrets. Raises EditRefused for an invalid URN.
    """
    _, project, stack = full_name.split("/")
    entries = [*snapshot.resources, *(o.resource for o in snapshot.pending_operations)]
    names = {urn for entry in entries for urn in {entry.urn, *graph.find_dependency_urns(entry)}}
    names |= {entry.view_of for entry in entries if entry.view_of}
    _reject_invalid_urns(names)
    renamed = {name: with_stack(name, stack, project) for name in names}

    def rename_entry(entry: ResourceState) -> ResourceState:
        return rename_used_resources(entry, lambda urn: renamed.get(urn, urn))

    return replace(
        _change_all_entries(replace_urns(snapshot, renamed), rename_entry), stack=full_name
    )


def replace_urns(snapshot: Snapshot, names: dict[str, str]) -> Snapshot:
    """Return the state with all URNs in `names` (old to new) replaced, except in properties."""
    return _change_all_entries(
        snapshot, lambda entry: rename_references(entry, lambda urn: names.get(urn, urn))
    )


def _change_all_entries(
    snapshot: Snapshot, change: Callable[[ResourceState], ResourceState]
) -> Snapshot:
    """Return the state with `change` applied to all entries, pending operations included."""
    return replace(
        snapshot,
        resources=[change(entry) for entry in snapshot.resources],
        pending_operations=[
            PendingOperation(change(operation.resource), operation.type)
            for operation in snapshot.pending_operations
        ],
    )


def _reject_invalid_urns(names: Collection[str]) -> None:
    """Raise EditRefused if one of the names is not a URN."""
    invalid_urns = sorted(name for name in names if not is_urn(name))
    if invalid_urns:
        raise EditRefused(
            f"{invalid_urns[0]!r} in the state is not a URN",
            hint="correct it with `gpuform stack export --file F`, edit F, `gpuform stack import "
            "--file F`",
        )


def _format_urn_lines(entries: Collection[ResourceState]) -> str:
    """Return each entry's URN on a separate indented line, after a line break."""
    return "".join(f"\n  {entry.urn}" for entry in entries)


class IntegrityError(EngineError):
    """A snapshot that breaks rules; `violations` has one sentence for each."""

    help_page = "guides/state-for-a-team"

    def __init__(self, violations: list[str]) -> None:
        super().__init__(
            "snapshot integrity failure; refusing to use it:\n  " + "\n  ".join(violations),
            hint="`gpuform state repair` repairs what it can; --from-backup restores the .bak "
            "file or a file of .pulumi/backups.",
        )
        self.violations = violations


def check(snapshot: Snapshot) -> None:
    """Verify a snapshot. Raises IntegrityError for broken rules."""
    violations = verify(snapshot)
    if violations:
        raise IntegrityError(violations)


def verify(snapshot: Snapshot) -> list[str]:
    """Return one sentence per broken rule of the snapshot; empty for a valid snapshot.

    Pending operations are not checked.
    """
    violations = []
    if snapshot.manifest.magic != compute_magic(snapshot.manifest.version):
        violations.append(
            f"the manifest's magic does not match version {snapshot.manifest.version!r}"
        )
    all_urns = {state.urn for state in snapshot.resources}
    earlier_urns: set[str] = set()
    live_urns: set[str] = set()
    provider_references: set[str] = set()
    for index, state in enumerate(snapshot.resources):
        violations.extend(_find_entry_violations(index, state))
        if is_provider(state.type):
            provider_references.add(f"{state.urn}::{state.id}")
        if (
            state.provider
            and state.provider not in provider_references
            # Exempt as in Pulumi: the object is deleted, and its provider may be gone.
            and not state.pending_replacement
        ):
            violations.append(f"{state.urn} refers to the unknown provider {state.provider}")
        for role, urn in _list_references(state):
            if urn not in earlier_urns:
                problem = "comes after it" if urn in all_urns else "is missing"
                violations.append(f"{state.urn}: its {role} {urn} {problem}")
        # Pulumi's rule: all entries of a URN, or all but one, are marked for deletion.
        if not state.delete and state.urn in live_urns:
            violations.append(f"{state.urn} occurs twice and is not marked for deletion")
        if not state.delete:
            live_urns.add(state.urn)
        earlier_urns.add(state.urn)
    return violations


def _find_entry_violations(index: int, state: ResourceState) -> Iterator[str]:
    """Yield a sentence for each broken rule of one entry by itself."""
    if not state.urn:
        yield f"entry {index} has no urn"
    if not state.type:
        yield f"{state.urn or f'entry {index}'} has no type"
    if state.id and not state.custom:
        yield f"{state.urn} is not a custom resource, but has an id"
    if state.custom and not state.id and not state.view_of:
        yield f"{state.urn} has no id: its object would be forgotten and created again"
    if state.urn and not is_urn(state.urn):
        yield f"{state.urn} is not a URN"
    elif state.urn and state.type and type_of(state.urn) != state.type:
        yield f"{state.urn} has the type {state.type}, which differs from the type in its URN"


def _list_references(state: ResourceState) -> Iterator[tuple[str, str]]:
    """Yield role and URN of each reference to another entry, except the provider."""
    if state.parent:
        yield "parent", state.parent
    for urn in state.dependencies:
        yield "dependency", urn
    for name, urns in state.property_dependencies.items():
        for urn in urns:
            yield f"dependency of property {name!r},", urn
    if state.deleted_with:
        yield "deletedWith", state.deleted_with
    for urn in state.replace_with:
        yield "replaceWith", urn


class NotRepairable(EngineError):
    """A state with broken rules that cannot be repaired without losing something."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class StateRepair:
    """A repaired state, and a line for each change of the repair."""

    snapshot: Snapshot
    done: list[str]


def repair(snapshot: Snapshot) -> StateRepair:
    """Repair a state with broken rules; return the state and a line for each change.

    A valid state is returned unchanged, without lines.

    Raises:
        NotRepairable: lists all violations that remain, or the resources of a cycle.
    """
    if not verify(snapshot):
        return StateRepair(snapshot, [])
    done = []
    if snapshot.manifest.magic != compute_magic(snapshot.manifest.version):
        done.append("the manifest's magic is recomputed")
    done += [
        f"{name}: moved after its dependencies"
        for name in _find_misplaced_entries(snapshot.resources)
    ]
    # Sorted first: a reference to a later entry would be dropped as missing.
    ordered = _sort_by_dependencies(snapshot.resources)
    pruned = list(_drop_missing_references(ordered, done))
    repaired = replace(snapshot, resources=pruned, manifest=Manifest())
    violations = verify(repaired)
    if violations:
        raise NotRepairable(
            "the state cannot be repaired without data loss:\n  " + "\n  ".join(violations),
            hint="Restore an earlier state with `gpuform state repair --from-backup`, or correct "
            "it: `gpuform stack export --file F`, edit F, `gpuform stack import --file F`.",
        )
    return StateRepair(repaired, done)


def _find_misplaced_entries(entries: Sequence[ResourceState]) -> Iterator[str]:
    """Yield the URN of each entry listed before a dependency."""
    first_index_by_urn = {entry.urn: index for index, entry in reversed([*enumerate(entries)])}
    for position, entry in enumerate(entries):
        if any(
            first_index_by_urn.get(name, 0) > position for name in graph.find_dependency_urns(entry)
        ):
            yield entry.urn


def _sort_by_dependencies(entries: Sequence[ResourceState]) -> list[ResourceState]:
    """Sort entries topologically, dependencies first; otherwise keep the order.

    Raises NotRepairable for a cycle.
    """
    live_positions = {entry.urn: n for n, entry in enumerate(entries) if not entry.delete}
    deleted_positions = {entry.urn: n for n, entry in enumerate(entries) if entry.delete}

    def list_dependencies(position: int) -> Iterator[int]:
        entry = entries[position]
        # An entry marked for deletion was created before the live entries: where a URN has two
        # entries, it depends on the one that is marked too.
        first, second = (
            (deleted_positions, live_positions)
            if entry.delete
            else (live_positions, deleted_positions)
        )
        for name in sorted(graph.find_dependency_urns(entry)):
            dependency = first.get(name, second.get(name))
            if dependency is not None and dependency != position:
                yield dependency

    def refuse_cycle(cycle: Sequence[int]) -> NoReturn:
        raise NotRepairable(
            "the state cannot be repaired: these resources depend on each other in a cycle:"
            + "".join(f"\n  {entries[position].urn}" for position in cycle[:-1]),
            hint="Restore an earlier state with `gpuform state repair --from-backup`.",
        )

    sorted_positions = sort_by_dependencies(range(len(entries)), list_dependencies, refuse_cycle)
    return [entries[position] for position in sorted_positions]


def _drop_missing_references(
    entries: Sequence[ResourceState], actions: list[str]
) -> Iterator[ResourceState]:
    """Yield the entries without references to missing entries; append each change to `actions`.

    `entries` must be sorted, dependencies first: a later entry counts as missing. A resource whose
    parent is missing becomes a child of the stack: the parent's type is removed from the URNs of
    the resource and of its children. References to missing providers stay.
    """
    current_urn_by_urn: dict[str, str] = {}
    for entry in entries:
        pruned_entry, dropped = drop_references(entry, lambda name: name not in current_urn_by_urn)
        current = rename_references(pruned_entry, lambda name: current_urn_by_urn.get(name, name))
        current.urn = _compute_urn(entry, current_urn_by_urn)
        if entry.parent and entry.parent not in current_urn_by_urn:
            dropped.append(DroppedReference(entry.urn, "parent", entry.parent))
            current.parent = ""
        for reference in dropped:
            is_itself = reference.urn == reference.entry
            reason = "which is the resource itself" if is_itself else "which does not exist"
            actions.append(f"dropped: {reference.describe()}, {reason}")
        if current.urn != entry.urn:
            actions.append(f"{entry.urn} becomes {current.urn}")
        current_urn_by_urn[entry.urn] = current.urn
        yield current


def _compute_urn(entry: ResourceState, current_urn_by_urn: dict[str, str]) -> str:
    """Return the URN of `entry` under the parent's current URN."""
    if (
        not entry.parent
        or current_urn_by_urn.get(entry.parent) == entry.parent
        or not is_urn(entry.urn)
    ):
        return entry.urn
    return with_parent(entry.urn, current_urn_by_urn.get(entry.parent, ""))
