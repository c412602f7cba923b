"""Compute the resource usage and list the nodes of state entries, by their platform's lifecycle.

Called by pricing, gates, review, status, the log of runs and explanations.
"""

from typing import Any

from gpuform.providers.values import PropertyMap
from gpuform.schemas.resource_facts import NodeRecord, ResourceUsage
from gpuform.stacks.engine.dynamic_providers import to_plain
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.resource_rules import find_lifecycle


def compute_current_usage(entry: ResourceState) -> ResourceUsage | None:
    """Return the last observed usage of an entry, or None for another type than gpuform's."""
    return _compute_usage(entry, entry.outputs or entry.inputs, entry.outputs)


def compute_planned_usage(
    entry: ResourceState, observed: ResourceState | None
) -> ResourceUsage | None:
    """Return the usage of an entry as declared.

    `observed` is the entry of the existing object, if the declared resource keeps one.
    """
    return _compute_usage(entry, entry.inputs, observed.outputs if observed else {})


def _compute_usage(
    entry: ResourceState, values: PropertyMap, observed: PropertyMap
) -> ResourceUsage | None:
    """Compute the usage of a gpuform resource with `values`; None for any other resource.

    `observed` are the last outputs, empty for a new object.
    """
    lifecycle = find_lifecycle(entry.type)
    if lifecycle is None:
        return None
    observed_values = to_plain_properties(observed)
    return lifecycle.hooks.compute_resource_usage(
        observed_values if values is observed else to_plain_properties(values), observed_values
    )


def list_entry_nodes(entry: ResourceState) -> tuple[NodeRecord, ...]:
    """Return the GPU nodes of an entry, from its last outputs; none for another kind.

    An object that is only looked up is part of no inventory of this stack.
    """
    lifecycle = find_lifecycle(entry.type)
    if lifecycle is None or not entry.custom or entry.external or not entry.outputs:
        return ()
    inputs, outputs = to_plain_properties(entry.inputs), to_plain_properties(entry.outputs)
    identity = {"platform": lifecycle.platform, "resource": name_of(entry.urn)}
    return tuple(
        record.model_copy(update=identity)
        for record in lifecycle.hooks.list_node_records(entry.id, inputs, outputs)
    )


def to_plain_properties(properties: PropertyMap) -> dict[str, Any]:
    """Return properties as plain values; secrets become unknown, since many people read plans.

    The values are as providers get them: no nulls outside of lists, and numbers as doubles.
    """
    return to_plain(properties, hides_secrets=True)
