"""Who depends on whom among the entries of a state."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from gpuform.stacks.engine.state.checkpoint import ResourceState


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
