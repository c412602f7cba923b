"""Follow the dependencies between the entries of a state, and rename or drop references.

The step generator, the step executor, `edits`, `state_move` and `targeting` call this module.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuform.providers.values import ResourceReference
from gpuform.schemas.values import convert_leaves
from gpuform.stacks.engine.state.checkpoint import ResourceState


def get_provider_urn(reference: str) -> str:
    """Return the URN in a provider reference, `<urn>::<id>`."""
    return reference.rpartition("::")[0]


def find_dependency_urns(resource: ResourceState, *, provider: bool = True) -> set[str]:
    """Return the URNs in the entry's dependencies, parent, `deleted_with` and `replace_with`.

    Args:
        resource: the entry.
        provider: with the URN of the entry's provider.
    """
    # The references that Pulumi's integrity check requires to stand earlier in a checkpoint.
    urns = set(resource.dependencies)
    for property_urns in resource.property_dependencies.values():
        urns.update(property_urns)
    urns.update(resource.replace_with)
    urns.update(urn for urn in (resource.parent, resource.deleted_with) if urn)
    if provider and resource.provider:
        urns.add(get_provider_urn(resource.provider))
    return urns


def index_dependents(resources: Sequence[ResourceState]) -> dict[str, list[int]]:
    """Return the indexes in `resources` of the direct dependents of each URN, by URN."""
    indexes_by_urn: dict[str, list[int]] = {}
    for index, resource in enumerate(resources):
        for urn in find_dependency_urns(resource):
            indexes_by_urn.setdefault(urn, []).append(index)
    return indexes_by_urn


def add_dependents(resources: Sequence[ResourceState], urns: Collection[str]) -> set[str]:
    """Return `urns` and the URNs of all direct and indirect dependents."""
    dependents_by_urn = index_dependents(resources)
    reached, waiting = set(urns), list(urns)
    while waiting:
        for index in dependents_by_urn.get(waiting.pop(), ()):
            if (urn := resources[index].urn) not in reached:
                reached.add(urn)
                waiting.append(urn)
    return reached


def add_dependencies(resources: Sequence[ResourceState], urns: Iterable[str]) -> set[str]:
    """Return `urns` and the URNs of all direct and indirect dependencies of live entries."""
    reached: set[str] = set()
    extend_with_dependencies(reached, index_live(resources), urns)
    return reached


def index_live(resources: Iterable[ResourceState]) -> dict[str, ResourceState]:
    """Return the entries not marked for deletion, by URN."""
    return {resource.urn: resource for resource in resources if not resource.delete}


def extend_with_dependencies(
    reached: set[str], entries: Mapping[str, ResourceState], urns: Iterable[str]
) -> None:
    """Add `urns` and all direct and indirect dependencies to `reached`.

    Args:
        reached: changed in place. Contains with each URN all its dependencies already, so that a
            URN in it needs no second visit.
        entries: the entries by URN.
        urns: the URNs to add.
    """
    waiting = [*urns]
    while waiting:
        urn = waiting.pop()
        if urn not in reached:
            reached.add(urn)
            waiting += find_dependency_urns(entries[urn]) if urn in entries else ()


def group_for_deletion(entries: Collection[ResourceState]) -> Iterator[list[ResourceState]]:
    """Yield groups of entries to delete together, dependents before dependencies.

    The members of a cycle are one group at the end, together with all their dependencies.
    """
    resources = list(entries)
    remaining_positions = set(range(len(resources)))
    positions_by_urn: dict[str, list[int]] = {}
    dependent_counts: Counter[str] = Counter()
    for position, resource in enumerate(resources):
        positions_by_urn.setdefault(resource.urn, []).append(position)
        dependent_counts.update(find_dependency_urns(resource) - {resource.urn})
    # Pulumi's antichains: the entries of one layer can be deleted in parallel.
    layer = [
        position
        for position, resource in enumerate(resources)
        if not dependent_counts[resource.urn]
    ]
    while layer:
        yield [resources[position] for position in layer]
        remaining_positions.difference_update(layer)
        following: list[int] = []
        for position in layer:
            resource = resources[position]
            for urn in find_dependency_urns(resource) - {resource.urn}:
                dependent_counts[urn] -= 1
                if not dependent_counts[urn]:
                    following += positions_by_urn.get(urn, ())
        layer = sorted(following)
    # A valid state has no cycle; the members of an invalid one are deleted together.
    if remaining_positions:
        yield [resources[position] for position in sorted(remaining_positions)]


def rename_references(entry: ResourceState, new: Callable[[str], str]) -> ResourceState:
    """Return the entry with `new` applied to all URNs outside of the properties."""

    def rename_all(urns: list[str]) -> list[str]:
        return [new(urn) for urn in urns]

    def rename_if_set(urn: str) -> str:
        return new(urn) if urn else ""

    provider = get_provider_urn(entry.provider)
    return replace(
        entry,
        urn=new(entry.urn),
        parent=rename_if_set(entry.parent),
        # A provider reference is the provider's URN, followed by `::` and the id.
        provider=entry.provider and new(provider) + entry.provider.removeprefix(provider),
        dependencies=rename_all(entry.dependencies),
        property_dependencies={
            k: rename_all(urns) for k, urns in entry.property_dependencies.items()
        },
        deleted_with=rename_if_set(entry.deleted_with),
        replace_with=rename_all(entry.replace_with),
        view_of=rename_if_set(entry.view_of),
    )


def rename_used_resources(entry: ResourceState, new: Callable[[str], str]) -> ResourceState:
    """Return the entry with `new` applied to the resource references in the properties.

    Secrets stay as they are, as under the Pulumi CLI.
    """

    def rename(value: Any) -> Any:
        return convert_leaves(
            value,
            lambda leaf: (
                replace(leaf, urn=new(leaf.urn)) if isinstance(leaf, ResourceReference) else leaf
            ),
        )

    return replace(
        entry,
        inputs=rename(entry.inputs),
        outputs=rename(entry.outputs),
        replacement_trigger=rename(entry.replacement_trigger),
    )


@dataclass(frozen=True, slots=True)
class DroppedReference:
    """A reference removed from an entry; `role` is Pulumi's word for the kind of reference."""

    entry: str
    role: str
    urn: str

    def describe(self) -> str:
        """Format entry, role and URN as one line."""
        return f"{self.entry}: {self.role} {self.urn}"


def drop_references(
    entry: ResourceState, is_gone: Callable[[str], bool]
) -> tuple[ResourceState, list[DroppedReference]]:
    """Return the entry without references to missing resources, and the dropped references.

    Parents and providers stay: no entry is valid without them.
    """
    dropped: list[DroppedReference] = []

    def keep_existing(role: str, urns: list[str]) -> list[str]:
        dropped.extend(DroppedReference(entry.urn, role, urn) for urn in urns if is_gone(urn))
        return [urn for urn in urns if not is_gone(urn)]

    changed_entry = replace(
        entry,
        dependencies=keep_existing("dependency", entry.dependencies),
        property_dependencies={
            key: keep_existing(f"dependency of property {key!r}", urns)
            for key, urns in entry.property_dependencies.items()
        },
        replace_with=keep_existing("replaceWith", entry.replace_with),
        deleted_with="".join(
            keep_existing("deletedWith", [entry.deleted_with] if entry.deleted_with else [])
        ),
    )
    return (changed_entry if dropped else entry), dropped
