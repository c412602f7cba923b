"""Move resources from one stack's state to another's, as `pulumi state move` does.

Children move with their parents, providers are copied, references between moved and remaining
resources are dropped. Both snapshots stay as they are, and so do the objects on the platform.
`gpuform state move` calls `move`.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuform.providers.values import are_equal
from gpuform.stacks.engine import urn
from gpuform.stacks.engine.state.checkpoint import ResourceState, Snapshot
from gpuform.stacks.engine.state.edits import EditRefused
from gpuform.stacks.engine.state.graph import (
    DroppedReference,
    drop_references,
    get_provider_urn,
    rename_references,
)
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, PROVIDER_TYPE_PREFIX, STACK_TYPE, is_provider

_DYNAMIC = f"{PROVIDER_TYPE_PREFIX}{DYNAMIC_PACKAGE}"


@dataclass(frozen=True, slots=True)
class Move:
    """The states of both stacks after a move.

    `urns` maps the old URNs of the moved resources to the new ones; `dropped_here` and
    `dropped_there` are the references that source and destination lost. `borrowed` are the
    destination's providers that moved resources use although their configuration differs.
    """

    source: Snapshot
    dest: Snapshot
    urns: dict[str, str]
    dropped_here: list[DroppedReference]
    dropped_there: list[DroppedReference]
    borrowed: list[str]


def move(
    source: Snapshot,
    dest: Snapshot,
    dest_name: str,
    urns: Collection[str],
    *,
    include_parents: bool,
) -> Move:
    """Return the states after a move of resources with all children and, if asked, all parents.

    `source` and `dest` stay unchanged; the result has both new states. Also copies the providers
    that the destination lacks, and removes references to resources on the other side.

    Args:
        source: the state to move from.
        dest: the state to move to; a missing stack resource is added.
        dest_name: the full name of the destination.
        urns: the resources to move, all of them in `source`; of the stack resource only the
            children are moved.
        include_parents: move the components around them too, with all their children.

    Raises:
        EditRefused: a resource cannot be moved, or the destination has its URN for another object.
    """
    moved_urns = _find_moved_urns(source.resources, urns, include_parents=include_parents)
    _reject_immovable_entries(source, moved_urns)
    destination_urns = _DestinationUrns(dest_name)
    moved_entries = [entry for entry in source.resources if entry.urn in moved_urns]
    remaining_entries, dropped_here = _split_off(source.resources, moved_urns)
    root, base = _find_or_create_stack_resource(dest, destination_urns)
    provider_placement = _ProviderPlacement(
        remaining_entries, dest.resources, destination_urns, root.urn
    )
    providers = provider_placement.copy_missing_providers(
        {entry.provider for entry in moved_entries if entry.provider}
    )
    new_entries, dropped_there = [], []
    for entry in moved_entries:
        detached_entry, dropped = drop_references(entry, lambda urn: urn not in moved_urns)
        dropped_there += dropped
        parent = (
            destination_urns.to_destination(entry.parent)
            if entry.parent in moved_urns
            else root.urn
        )
        new_entry = replace(
            rename_references(detached_entry, destination_urns.to_destination), parent=parent
        )
        new_entry.provider = provider_placement.references.get(entry.provider, "")
        new_entries.append(new_entry)
    # A killed move has written the destination, and not the source: the same objects are in both.
    is_written = _has_same_objects(dest.resources, new_entries)
    if not is_written:
        _reject_existing_urns(dest.resources, new_entries)
    return Move(
        replace(source, resources=remaining_entries),
        dest if is_written else replace(dest, resources=[*base, *providers, *new_entries]),
        {entry.urn: destination_urns.to_destination(entry.urn) for entry in moved_entries},
        dropped_here,
        dropped_there,
        provider_placement.borrowed,
    )


class _DestinationUrns:
    """Converts the source's URNs to the destination's stack and project."""

    def __init__(self, full_name: str) -> None:
        _, self.project, self.stack = full_name.split("/")

    def to_destination(self, old: str) -> str:
        """Return the URN of the resource in the destination's stack and project."""
        return urn.with_stack(old, self.stack, self.project)


def _find_moved_urns(
    entries: Sequence[ResourceState], urns: Collection[str], *, include_parents: bool
) -> set[str]:
    """Return the URNs to move: the chosen resources, all children and, if asked, all ancestors.

    The children of these ancestors are moved, too. The stack's root resource is never among them.
    """
    moved_urns = set(urns)
    by_urn = {entry.urn: entry for entry in entries}
    if include_parents:
        for name in urns:
            moved_urns.update(_iterate_ancestors(by_urn, name))
    for entry in entries:  # parents come first
        if entry.parent in moved_urns:
            moved_urns.add(entry.urn)
    return {name for name in moved_urns if by_urn[name].type != STACK_TYPE}


def _iterate_ancestors(by_urn: dict[str, ResourceState], name: str) -> Iterator[str]:
    """Yield the URNs of the ancestors of the resource with the URN `name`, nearest first.

    The resource itself and the stack's root resource are left out.
    """
    parent = by_urn[name].parent
    while parent and by_urn[parent].type != STACK_TYPE:
        yield parent
        parent = by_urn[parent].parent


def _reject_immovable_entries(source: Snapshot, chosen: Collection[str]) -> None:
    """Raise EditRefused for a provider, a pending operation, or an unsupported feature."""
    for entry in source.resources:
        if entry.urn not in chosen:
            continue
        if is_provider(entry.type):
            raise EditRefused(
                f"{entry.urn} is a provider",
                hint="move resources only: their providers are copied with them",
            )
        if entry.snippet_id or entry.extension_ref:
            raise EditRefused(
                f"{entry.urn} uses features of Pulumi that gpuform does not support",
                hint="move it with `pulumi state move`",
            )
    pending = [o for o in source.pending_operations if o.resource.urn in chosen]
    if pending:
        raise EditRefused(
            f"an interrupted run was {pending[0].type} {pending[0].resource.urn}, and the "
            "result is unknown",
            hint="first run `gpuform up` or `gpuform refresh` in the source stack",
        )


def _split_off(
    entries: Sequence[ResourceState], chosen: Collection[str]
) -> tuple[list[ResourceState], list[DroppedReference]]:
    """Return the entries to stay, without references to moved entries, and the references."""
    remaining_entries, dropped = [], []
    for entry in entries:
        if entry.urn not in chosen:
            changed_entry, dropped_references = drop_references(entry, lambda urn: urn in chosen)
            remaining_entries.append(changed_entry)
            dropped += dropped_references
    return remaining_entries, dropped


def _find_or_create_stack_resource(
    dest: Snapshot, names: _DestinationUrns
) -> tuple[ResourceState, list[ResourceState]]:
    """Return the stack resource and all entries of the destination.

    A new stack gets its stack resource here.
    """
    for entry in dest.resources:
        if entry.type == STACK_TYPE and not entry.delete:
            return entry, dest.resources
    name = urn.make_urn(
        names.stack, names.project, "", STACK_TYPE, f"{names.project}-{names.stack}"
    )
    root = ResourceState(name, False, STACK_TYPE)
    return root, [root, *dest.resources]


def _has_same_objects(there: Sequence[ResourceState], arriving: Sequence[ResourceState]) -> bool:
    """Return True if the destination has all arriving entries, with equal ids of objects."""
    existing_ids = {entry.urn: entry.id for entry in there if not entry.delete}
    return any(entry.id for entry in arriving) and all(
        existing_ids.get(entry.urn) == entry.id for entry in arriving
    )


def _reject_existing_urns(there: Sequence[ResourceState], arrived: Sequence[ResourceState]) -> None:
    """Raise EditRefused if the destination has one of the arriving URNs already."""
    existing_urns = {entry.urn for entry in there}
    for entry in arrived:
        if entry.urn in existing_urns:
            raise EditRefused(
                f"the destination already has a resource {entry.urn}",
                hint="rename one of the two with `gpuform state rename`; if it is the same object, "
                "remove it from the source with `gpuform state delete`",
            )


class _ProviderPlacement:
    """The providers of the moved resources: the destination's own, or copies of the source's."""

    def __init__(
        self,
        here: Sequence[ResourceState],
        there: Sequence[ResourceState],
        names: _DestinationUrns,
        root: str,
    ) -> None:
        self._here, self._names, self._root = here, names, root
        self._there = {entry.urn: entry for entry in there if not entry.delete}
        self.references: dict[str, str] = {}  # in the source -> in the destination
        self.borrowed: list[str] = []

    def copy_missing_providers(self, references: Collection[str]) -> list[ResourceState]:
        """Return the provider entries to add to the destination for `references`.

        Fills `self.references` with the new reference for each old one, and `self.borrowed` with
        differing dynamic providers of the destination. Raises EditRefused if another provider
        differs.
        """
        copies = []
        for entry in self._here:
            old = f"{entry.urn}::{entry.id}"
            if not is_provider(entry.type) or old not in references or old in self.references:
                continue
            new = self._there.get(self._names.to_destination(entry.urn))
            if new is None:
                new = self._copy(entry)
                copies.append(new)
            else:
                self._require_same_configuration(entry, new)
            self.references[old] = f"{new.urn}::{new.id}"
        # The provider of an entry that waits for its replacement may be gone already.
        for old in references - self.references.keys():
            provider_urn = get_provider_urn(old)
            new_urn = self._names.to_destination(provider_urn)
            self.references[old] = new_urn + old.removeprefix(provider_urn)
        return copies

    def _copy(self, entry: ResourceState) -> ResourceState:
        """Return a copy of the provider for the destination, without dependencies."""
        detached_entry, _ = drop_references(entry, lambda _urn: True)
        parent = self._root if entry.parent else ""
        return replace(rename_references(detached_entry, self._names.to_destination), parent=parent)

    def _require_same_configuration(self, here: ResourceState, there: ResourceState) -> None:
        """Raise EditRefused if the two providers differ; note a differing dynamic provider.

        Providers with the same id count as equal.
        """
        if here.id == there.id or are_equal(here.inputs, there.inputs):
            return
        # The inputs of the dynamic provider are the whole configuration of a stack, which hardly
        # ever is the same in two stacks.
        if here.type != _DYNAMIC:
            raise EditRefused(
                f"the destination has a provider {there.urn} with another configuration",
                hint="first give both providers the same configuration, or move the resources to "
                "another provider",
            )
        self.borrowed.append(there.urn)
