"""Moving resources from one stack's state to another's, as `pulumi state move` does it.

Children go with their parents, providers are copied, references between what goes and what stays
are dropped. Neither snapshot is changed; the objects on the platform stay as they are.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from gpuform.stacks.engine import urn
from gpuform.stacks.engine.state.checkpoint import ResourceState, Snapshot
from gpuform.stacks.engine.state.edits import EditRefused
from gpuform.stacks.engine.state.graph import (
    DroppedReference,
    provider_urn,
    rename_references,
    without,
)
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, PROVIDER_TYPE_PREFIX, STACK_TYPE, is_provider
from gpuform.stacks.engine.values import are_equal

_DYNAMIC = f"{PROVIDER_TYPE_PREFIX}{DYNAMIC_PACKAGE}"


@dataclass(frozen=True, slots=True)
class Move:
    """Both states after a move.

    `urns` are those that went, old -> new; `dropped_here` and `dropped_there` the references that
    the source and the destination lost. `borrowed` are providers of the destination that the
    resources use from now on although they are configured otherwise.
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
    """Moves resources, with their children and, if wanted, their parents.

    `dest_name` is the destination's full name. Raises EditRefused.
    """
    chosen = _chosen(source.resources, urns, include_parents=include_parents)
    _refuse_what_cannot_go(source, chosen)
    names = _Names(dest_name)
    going = [entry for entry in source.resources if entry.urn in chosen]
    staying, dropped_here = _parted(source.resources, chosen)
    root, base = _root(dest, names)
    placing = _Providers(staying, dest.resources, names, root.urn)
    providers = placing.place({entry.provider for entry in going if entry.provider})
    arrived, dropped_there = [], []
    for entry in going:
        freed, dropped = without(entry, lambda urn: urn not in chosen)
        dropped_there += dropped
        parent = names.new(entry.parent) if entry.parent in chosen else root.urn
        arriving = replace(rename_references(freed, names.new), parent=parent)
        arriving.provider = placing.references.get(entry.provider, "")
        arrived.append(arriving)
    _refuse_twice(dest.resources, arrived)
    return Move(
        replace(source, resources=staying),
        replace(dest, resources=[*base, *providers, *arrived]),
        {entry.urn: names.new(entry.urn) for entry in going},
        dropped_here,
        dropped_there,
        placing.borrowed,
    )


class _Names:
    """URNs as they are in the destination."""

    def __init__(self, full_name: str) -> None:
        _, self.project, self.stack = full_name.split("/")

    def new(self, old: str) -> str:
        return urn.in_stack(old, self.stack, self.project)


def _chosen(
    entries: Sequence[ResourceState], urns: Collection[str], *, include_parents: bool
) -> set[str]:
    chosen = set(urns)
    by_urn = {entry.urn: entry for entry in entries}
    if include_parents:
        for name in urns:
            chosen.update(_ancestors(by_urn, name))
    for entry in entries:  # parents come first
        if entry.parent in chosen:
            chosen.add(entry.urn)
    return {name for name in chosen if by_urn[name].type != STACK_TYPE}


def _ancestors(by_urn: dict[str, ResourceState], name: str) -> Iterator[str]:
    parent = by_urn[name].parent
    while parent and by_urn[parent].type != STACK_TYPE:
        yield parent
        parent = by_urn[parent].parent


def _refuse_what_cannot_go(source: Snapshot, chosen: Collection[str]) -> None:
    for entry in source.resources:
        if entry.urn not in chosen:
            continue
        if is_provider(entry.type):
            raise EditRefused(
                f"{entry.urn} is a provider",
                hint="name resources only: their providers are copied with them",
            )
        if entry.snippet_id or entry.extension_ref:
            raise EditRefused(
                f"{entry.urn} uses parts of Pulumi that gpuform only carries along",
                hint="move it with `pulumi state move`",
            )
    pending = [o for o in source.pending_operations if o.resource.urn in chosen]
    if pending:
        raise EditRefused(
            f"an interrupted run was {pending[0].type} {pending[0].resource.urn}: what it made "
            "must be known first",
            hint="run `gpuform up` or `gpuform refresh` in the source stack",
        )


def _parted(
    entries: Sequence[ResourceState], chosen: Collection[str]
) -> tuple[list[ResourceState], list[DroppedReference]]:
    staying, dropped = [], []
    for entry in entries:
        if entry.urn not in chosen:
            freed, lost = without(entry, lambda urn: urn in chosen)
            staying.append(freed)
            dropped += lost
    return staying, dropped


def _root(dest: Snapshot, names: _Names) -> tuple[ResourceState, list[ResourceState]]:
    """The destination's own resource, and its entries: a stack that is new gets its own now."""
    for entry in dest.resources:
        if entry.type == STACK_TYPE and not entry.delete:
            return entry, dest.resources
    name = urn.make_urn(
        names.stack, names.project, "", STACK_TYPE, f"{names.project}-{names.stack}"
    )
    root = ResourceState(name, False, STACK_TYPE)
    return root, [root, *dest.resources]


def _refuse_twice(there: Sequence[ResourceState], arrived: Sequence[ResourceState]) -> None:
    known = {entry.urn for entry in there}
    for entry in arrived:
        if entry.urn in known:
            raise EditRefused(
                f"the destination has a resource {entry.urn} already",
                hint="if it is the same object, an earlier move was cut off: take it out of the "
                "source with `gpuform state delete`",
            )


class _Providers:
    """The providers of what goes: those of the destination, or copies of the source's."""

    def __init__(
        self,
        here: Sequence[ResourceState],
        there: Sequence[ResourceState],
        names: _Names,
        root: str,
    ) -> None:
        self._here, self._names, self._root = here, names, root
        self._there = {entry.urn: entry for entry in there if not entry.delete}
        self.references: dict[str, str] = {}  # in the source -> in the destination
        self.borrowed: list[str] = []

    def place(self, wanted: Collection[str]) -> list[ResourceState]:
        """The copies to add, for these references."""
        copies = []
        for entry in self._here:
            old = f"{entry.urn}::{entry.id}"
            if not is_provider(entry.type) or old not in wanted or old in self.references:
                continue
            new = self._there.get(self._names.new(entry.urn))
            if new is None:
                new = self._copy(entry)
                copies.append(new)
            else:
                self._check(entry, new)
            self.references[old] = f"{new.urn}::{new.id}"
        for old in wanted - self.references.keys():  # of what awaits replacement, provider gone
            self.references[old] = self._names.new(provider_urn(old)) + _id_part(old)
        return copies

    def _copy(self, entry: ResourceState) -> ResourceState:
        alone, _ = without(entry, lambda _urn: True)
        parent = self._root if entry.parent else ""
        return replace(rename_references(alone, self._names.new), parent=parent)

    def _check(self, here: ResourceState, there: ResourceState) -> None:
        if here.id == there.id or are_equal(here.inputs, there.inputs):
            return
        if here.type != _DYNAMIC:
            raise EditRefused(
                f"the destination has a provider {there.urn} that is configured otherwise",
                hint="give both the same configuration first, or move with another provider",
            )
        self.borrowed.append(there.urn)


def _id_part(reference: str) -> str:
    return reference.removeprefix(provider_urn(reference))
