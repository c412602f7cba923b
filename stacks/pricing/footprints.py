"""What a resource of a state takes up, as its platform's own lifecycle tells."""

from typing import Any

from gpuform.providers.forms import PROVIDER_KEY
from gpuform.providers.properties import to_properties
from gpuform.schemas.resource_facts import ResourceUsage
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.engine.provider_host import to_provider
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import PropertyMap, PropertyValue, Secret, Unknown
from gpuform.stacks.resource_rules import lifecycle_of


def footprint_now(entry: ResourceState) -> ResourceUsage | None:
    """As it was last seen; None for what is not gpuform's own."""
    return _footprint(entry, entry.outputs or entry.inputs, entry.outputs)


def footprint_then(entry: ResourceState, seen: ResourceState | None) -> ResourceUsage | None:
    """As it is declared; `seen` is the entry of the object that goes on, if one does."""
    return _footprint(entry, entry.inputs, seen.outputs if seen else {})


def _footprint(
    entry: ResourceState, values: PropertyMap, seen: PropertyMap
) -> ResourceUsage | None:
    lifecycle = lifecycle_of(entry.type)
    if lifecycle is None:
        return None
    found = told(seen)
    return lifecycle.compute_resource_usage(found if values is seen else told(values), found)


def told(properties: PropertyMap) -> dict[str, Any]:
    """Properties as plain values; a secret is as good as unknown, since plans are shown to many.

    As providers get them: without nulls, but for those in lists, and with doubles for numbers.
    """
    return _told({key: value for key, value in properties.items() if key != PROVIDER_KEY})


def _told(properties: PropertyMap) -> dict[str, Any]:
    return {key: _value(value) for key, value in properties.items() if value is not None}


def _value(value: PropertyValue) -> Any:
    if isinstance(value, str | bool) or value is None:
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, dict):
        return _told(value)
    if isinstance(value, list):
        return [_value(item) for item in value]
    if isinstance(value, Secret | Unknown):
        return UNKNOWN
    return to_properties(to_provider({"": value}))[""]
