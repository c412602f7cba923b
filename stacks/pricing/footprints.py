"""What a resource of a state takes up, as its platform's own lifecycle tells."""

from collections.abc import Mapping
from typing import Any

from gpuform.providers.catalog import LIFECYCLES, lifecycle_class
from gpuform.providers.properties import plain
from gpuform.schemas.footprint import Footprint
from gpuform.stacks.engine.provider_values import to_provider
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.review.names import short_type


def footprint_now(entry: ResourceState) -> Footprint | None:
    """As it was last seen; None for what is not gpuform's own."""
    return _footprint(entry, entry.outputs or entry.inputs, entry.outputs)


def footprint_then(entry: ResourceState, seen: ResourceState | None) -> Footprint | None:
    """As it is declared; `seen` is the entry of the object that goes on, if one does."""
    return _footprint(entry, entry.inputs, seen.outputs if seen else {})


def _footprint(
    entry: ResourceState, values: Mapping[str, Any], seen: Mapping[str, Any]
) -> Footprint | None:
    platform, _, kind = short_type(entry.type).partition(":")
    if kind not in LIFECYCLES.get(platform, {}):
        return None
    return lifecycle_class(platform, kind).footprint(
        plain(to_provider(dict(values))), plain(to_provider(dict(seen)))
    )
