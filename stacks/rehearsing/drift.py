"""Seed what is known of the platform beside the state: objects gone or changed, broken nodes.

`operation` edits the state before an emulator is seeded with it, and `worker` breaks nodes then.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.providers.emulator.server import Server
from gpuform.schemas.plan import PropertyChange, ResourceDrift
from gpuform.schemas.resource_facts import NodeHealth
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import type_of
from gpuform.stacks.pricing import list_entry_nodes
from gpuform.stacks.rehearsing.fleet import FleetState, Owner, break_node
from gpuform.stacks.testing.cases import get_address


@dataclass(frozen=True, slots=True)
class ObservedNodes:
    """How many nodes the platform has last reported for a resource, and which do not work."""

    count: int
    failed: tuple[str, ...]


def list_observed_nodes(
    resources: Iterable[ResourceState], drift: Sequence[ResourceDrift]
) -> dict[str, ObservedNodes]:
    """Return the nodes of each resource that has any, by URN: as drifted, or as in the state."""
    observed_nodes = {}
    for resource in resources:
        records = list_entry_nodes(resource)
        if records and not resource.delete:
            failed = [node.name for node in records if node.health_state is NodeHealth.UNHEALTHY]
            observed_nodes[resource.urn] = ObservedNodes(len(records), tuple(failed))
    for item in drift:
        if item.nodes is not None and item.urn in observed_nodes:
            observed_nodes[item.urn] = ObservedNodes(item.nodes, item.failed_nodes)
    return observed_nodes


def apply_drift(resources: list[Any], drift: Sequence[ResourceDrift]) -> list[Any]:
    """Return the resources of a state's JSON as the refresh of the plan has left them.

    Resources that are gone are left out, and inputs have the values of the platform.
    """
    by_urn = {item.urn: item for item in drift}
    gone = {item.urn for item in drift if item.is_gone}
    for resource in resources:
        if (item := by_urn.get(resource["urn"])) is not None:
            for change in item.changes:
                _set_input(resource.get("inputs") or {}, change)
    return [resource for resource in resources if resource["urn"] not in gone]


def _set_input(inputs: Any, change: PropertyChange) -> None:
    """Write the changed value into the inputs, unless they have no such value."""
    *parents, last = property_paths.parse(change.path)
    container = inputs
    for key in parents:
        container = _get_item(container, key)
    # Outputs drift as well, and the value of a secret is unknown.
    if change.secret or change.after == MASK or _get_item(container, last) is None:
        return
    if change.after is not None:
        container[last] = change.after
    elif isinstance(container, dict):
        del container[last]


def _get_item(container: Any, key: str | int) -> Any:
    """Return the item of a mapping or list; None if there is none."""
    try:
        return container[key]
    except (KeyError, IndexError, TypeError):
        return None


def break_observed_nodes(
    server: Server,
    observed_nodes: Mapping[str, ObservedNodes],
    owners: Mapping[str, Owner],
    fleet: FleetState,
) -> frozenset[tuple[str, str, str]]:
    """Break the emulator's nodes in place of failed or missing ones, and return which.

    Nodes may have other names on the emulator: then the last ones of the same owner are broken.
    """
    broken: set[tuple[str, str, str]] = set()
    for urn, nodes in observed_nodes.items():
        owner = owners.get(urn)
        names = sorted(name for *key, name in fleet.nodes if tuple(key) == owner)
        count = len(set(nodes.failed)) + max(0, len(names) - nodes.count)
        if owner is None or not count:
            continue
        failed = [name for name in names if name in nodes.failed]
        others = [name for name in names if name not in nodes.failed]
        for name in [*failed, *reversed(others)][:count]:
            break_node(server, *owner, name)
            broken.add((*owner, name))
    return frozenset(broken)


def describe_drift(drift: Iterable[ResourceDrift]) -> Iterator[str]:
    """Yield what the refresh of the plan has found, in words: clusters.train: num_gpus is 8."""
    for item in drift:
        facts = ["no longer exists"] if item.is_gone else []
        facts += [
            f"{change.path} is {change.after}"
            for change in item.changes
            if not (change.secret or change.after is None)
        ]
        if item.failed_nodes:
            facts.append(f"broken: {', '.join(item.failed_nodes)}")
        yield f"{get_address(type_of(item.urn), item.urn)}: {', '.join(facts) or 'changed'}"
