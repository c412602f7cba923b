"""Who depends on whom among the entries of a state."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from gpuform.stacks.engine.state import ResourceState


def provider_urn(reference: str) -> str:
    """The URN in a provider reference, `<urn>::<id>`."""
    return reference.rpartition("::")[0]


def needs(resource: ResourceState) -> set[str]:
    """URNs that must exist while this entry does."""
    urns = set(resource.dependencies)
    for property_urns in resource.property_dependencies.values():
        urns.update(property_urns)
    urns.update(urn for urn in (resource.parent, resource.deleted_with) if urn)
    if resource.provider:
        urns.add(provider_urn(resource.provider))
    return urns


def users(resources: Sequence[ResourceState]) -> dict[str, list[int]]:
    """The places of the live entries that need a URN, by that URN."""
    found: dict[str, list[int]] = {}
    for place, resource in enumerate(resources):
        if not resource.delete:
            for urn in needs(resource):
                found.setdefault(urn, []).append(place)
    return found


def dependents(
    resources: Sequence[ResourceState], users_of: Mapping[str, Sequence[int]], root: str
) -> list[ResourceState]:
    """The live entries that transitively depend on `root`, in the state's order.

    `users_of` is what `users` found in `resources`.
    """
    reached: set[int] = set()
    waiting = [root]
    while waiting:
        for place in users_of.get(waiting.pop(), ()):
            if place not in reached:
                reached.add(place)
                waiting.append(resources[place].urn)
    return [resources[place] for place in sorted(reached) if resources[place].urn != root]


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
