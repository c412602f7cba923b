"""What a resource of a state takes up, as its platform's own lifecycle tells."""

from typing import Any

from gpuform.providers.properties import plain
from gpuform.schemas.footprint import Footprint
from gpuform.stacks.engine.provider_host import to_provider
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import UNKNOWN, PropertyMap, PropertyValue, Secret
from gpuform.stacks.lifecycles import lifecycle_of


def footprint_now(entry: ResourceState) -> Footprint | None:
    """As it was last seen; None for what is not gpuform's own."""
    return _footprint(entry, entry.outputs or entry.inputs, entry.outputs)


def footprint_then(entry: ResourceState, seen: ResourceState | None) -> Footprint | None:
    """As it is declared; `seen` is the entry of the object that goes on, if one does."""
    return _footprint(entry, entry.inputs, seen.outputs if seen else {})


def _footprint(entry: ResourceState, values: PropertyMap, seen: PropertyMap) -> Footprint | None:
    lifecycle = lifecycle_of(entry.type)
    return lifecycle.footprint(told(values), told(seen)) if lifecycle else None


def told(properties: PropertyMap) -> dict[str, Any]:
    """Properties as plain values; a secret is as good as unknown, since plans are shown to many."""
    return plain(to_provider({name: _open(value) for name, value in properties.items()}))


def _open(value: PropertyValue) -> PropertyValue:
    if isinstance(value, Secret):
        return UNKNOWN
    if isinstance(value, list):
        return [_open(item) for item in value]
    if isinstance(value, dict):
        return {name: _open(item) for name, item in value.items()}
    return value
