"""Find who depends on whom among the entries of a state, and the URNs that an entry refers to."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuform.stacks.engine.state.checkpoint import ResourceState
from gpuform.stacks.engine.values import PropertyMap, PropertyValue, ResourceReference


def provider_urn(reference: str) -> str:
    """The URN in a provider reference, `<urn>::<id>`."""
    return reference.rpartition("::")[0]


def needs(resource: ResourceState, *, provider: bool = True) -> set[str]:
    """URNs that must exist while this entry does, its provider's among them if wanted."""
    urns = set(resource.dependencies)
    for property_urns in resource.property_dependencies.values():
        urns.update(property_urns)
    urns.update(resource.replace_with)
    urns.update(urn for urn in (resource.parent, resource.deleted_with) if urn)
    if provider and resource.provider:
        urns.add(provider_urn(resource.provider))
    return urns


def users(resources: Sequence[ResourceState]) -> dict[str, list[int]]:
    """The places of the entries that need a URN, by that URN."""
    found: dict[str, list[int]] = {}
    for place, resource in enumerate(resources):
        for urn in needs(resource):
            found.setdefault(urn, []).append(place)
    return found


def with_dependents(resources: Sequence[ResourceState], urns: Collection[str]) -> set[str]:
    """The URNs with those of everything that transitively needs one of them."""
    users_of = users(resources)
    reached, waiting = set(urns), list(urns)
    while waiting:
        for place in users_of.get(waiting.pop(), ()):
            if (urn := resources[place].urn) not in reached:
                reached.add(urn)
                waiting.append(urn)
    return reached


def with_needs(resources: Sequence[ResourceState], urns: Iterable[str]) -> set[str]:
    """The URNs with those of everything that they transitively need."""
    reached: set[str] = set()
    add_with_needs(reached, live(resources), urns)
    return reached


def live(resources: Iterable[ResourceState]) -> dict[str, ResourceState]:
    """The entries that do not wait for their deletion, by URN."""
    return {resource.urn: resource for resource in resources if not resource.delete}


def add_with_needs(
    reached: set[str], entries: Mapping[str, ResourceState], urns: Iterable[str]
) -> None:
    """Adds the URNs, and what they need, to a set that has with each URN all that it needs."""
    waiting = [*urns]
    while waiting:
        urn = waiting.pop()
        if urn not in reached:
            reached.add(urn)
            waiting += needs(entries[urn]) if urn in entries else ()


def deletion_layers(doomed: Collection[ResourceState]) -> Iterator[list[ResourceState]]:
    """Groups that may be deleted together, dependents before what they depend on."""
    places = {id(resource): place for place, resource in enumerate(doomed)}
    by_urn: dict[str, list[ResourceState]] = {}
    left: Counter[str] = Counter()
    for resource in doomed:
        by_urn.setdefault(resource.urn, []).append(resource)
        left.update(needs(resource) - {resource.urn})
    layer = [resource for resource in doomed if not left[resource.urn]]
    while layer:
        yield layer
        following: list[ResourceState] = []
        for resource in layer:
            del places[id(resource)]
            for urn in needs(resource) - {resource.urn}:
                left[urn] -= 1
                if not left[urn]:
                    following += by_urn.get(urn, ())
        layer = sorted(following, key=lambda resource: places[id(resource)])
    # A cycle cannot be in a valid state; were there one, its members go together.
    if places:
        yield [resource for resource in doomed if id(resource) in places]


def rename_references(entry: ResourceState, new: Callable[[str], str]) -> ResourceState:
    """The entry with `new` applied to every URN in it, but not to those among its properties."""

    def each(urns: list[str]) -> list[str]:
        return [new(urn) for urn in urns]

    def maybe(urn: str) -> str:
        return new(urn) if urn else ""

    provider = provider_urn(entry.provider)
    return replace(
        entry,
        urn=new(entry.urn),
        parent=maybe(entry.parent),
        provider=entry.provider and new(provider) + entry.provider.removeprefix(provider),
        dependencies=each(entry.dependencies),
        property_dependencies={k: each(urns) for k, urns in entry.property_dependencies.items()},
        deleted_with=maybe(entry.deleted_with),
        replace_with=each(entry.replace_with),
        view_of=maybe(entry.view_of),
    )


def rename_used_resources(entry: ResourceState, new: Callable[[str], str]) -> ResourceState:
    """Return the entry with `new` applied to the URNs of the resources among its properties.

    Secrets stay as they are, as under the Pulumi CLI.
    """

    def rename_map(properties: PropertyMap) -> PropertyMap:
        return {key: rename_value(value) for key, value in properties.items()}

    def rename_value(value: PropertyValue) -> PropertyValue:
        if isinstance(value, ResourceReference):
            return replace(value, urn=new(value.urn))
        if isinstance(value, list):
            return [rename_value(item) for item in value]
        return rename_map(value) if isinstance(value, dict) else value

    return replace(
        entry,
        inputs=rename_map(entry.inputs),
        outputs=rename_map(entry.outputs),
        replacement_trigger=rename_value(entry.replacement_trigger),
    )


@dataclass(frozen=True, slots=True)
class DroppedReference:
    """A reference that was taken out of an entry; `role` is Pulumi's word for it."""

    entry: str
    role: str
    urn: str

    def describe(self) -> str:
        """One line that names all three."""
        return f"{self.entry}: {self.role} {self.urn}"


def without(
    entry: ResourceState, is_gone: Callable[[str], bool]
) -> tuple[ResourceState, list[DroppedReference]]:
    """The entry without the references to what is gone, and those references.

    Parents and providers stay: nothing can be said without them.
    """
    dropped: list[DroppedReference] = []

    def left(role: str, urns: list[str]) -> list[str]:
        dropped.extend(DroppedReference(entry.urn, role, urn) for urn in urns if is_gone(urn))
        return [urn for urn in urns if not is_gone(urn)]

    freed = replace(
        entry,
        dependencies=left("dependency", entry.dependencies),
        property_dependencies={
            key: left(f"dependency of property {key!r}", urns)
            for key, urns in entry.property_dependencies.items()
        },
        replace_with=left("replaceWith", entry.replace_with),
        deleted_with="".join(
            left("deletedWith", [entry.deleted_with] if entry.deleted_with else [])
        ),
    )
    return (freed if dropped else entry), dropped
