"""Which objects are whose, by what the states of a backend's stacks say."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuform.stacks.adopting.chosen import Key
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.lifecycles import lifecycle_of


@dataclass(frozen=True, slots=True)
class Owner:
    """The resource that stands for an object, and the full name of its stack."""

    stack: str
    urn: str


def owners_of(resources: Iterable[tuple[str, ResourceState]]) -> dict[Key, Owner]:
    """The owners of all objects, and of what these are made of; `resources` with their stacks."""
    return {key: Owner(stack, each.urn) for stack, each in resources for key in objects_of(each)}


def objects_of(resource: ResourceState) -> Iterator[Key]:
    """The objects that a resource of gpuform's stands for."""
    lifecycle = lifecycle_of(resource.type)
    if lifecycle is None or not resource.id or resource.external:
        return
    yield lifecycle.platform, lifecycle.kind, resource.id
    parts = resource.outputs.get(lifecycle.parts) if lifecycle.parts else None
    for id_ in parts if isinstance(parts, list) else ():
        yield lifecycle.platform, lifecycle.parts_kind, str(id_)
