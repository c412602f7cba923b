"""Who depends on whom among the entries of a state."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

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


def dependents(resources: Sequence[ResourceState], root: str) -> list[ResourceState]:
    """The live entries that transitively depend on `root`, in the state's order."""
    reached = {root}
    found = []
    for resource in resources:
        if not resource.delete and resource.urn != root and needs(resource) & reached:
            reached.add(resource.urn)
            found.append(resource)
    return found


def deletion_layers(doomed: Collection[ResourceState]) -> Iterable[list[ResourceState]]:
    """Groups that may be deleted together, dependents before what they depend on."""
    users = Counter(urn for resource in doomed for urn in needs(resource) - {resource.urn})
    waiting = list(doomed)
    while waiting:
        layer = [resource for resource in waiting if not users[resource.urn]]
        # A cycle cannot be in a valid state; were there one, its members go together.
        layer = layer or waiting
        yield layer
        gone = set(map(id, layer))
        waiting = [resource for resource in waiting if id(resource) not in gone]
        users.subtract(urn for resource in layer for urn in needs(resource) - {resource.urn})
