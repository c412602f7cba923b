"""NVIDIA's Topograph: a model file, which its `test` provider and its simulations read.

From Topograph's page 'Modeling and API Simulation': `switches` is a map, `blocks` name the nodes,
and an annotation of a block names an accelerator domain.
"""

from typing import Any, Final

from gpuform.stacks.topology_export.labels import REGION, ZONE
from gpuform.stacks.topology_export.model import Node, NoTopology, StackTopology
from gpuform.stacks.topology_export.slurm_topology import (
    Switch,
    checked,
    switch_of_each,
    switches_of,
)

DOMAIN: Final = "accelerator.topology.test/domain"


def topograph(topology: StackTopology) -> str:
    """The file as YAML. Raises NoTopology where a node's name is there twice."""
    import yaml  # noqa: PLC0415 - slow

    _check(topology)
    switches = switches_of(topology)
    under = switch_of_each(switches)
    groups: dict[tuple[str, str, str, str], list[Node]] = {}
    for node in topology.nodes:
        groups.setdefault((under[node], node.domain, node.region, node.zone), []).append(node)
    found = {
        "switches": {checked(each.name, "switch"): _switch(each) for each in switches},
        "blocks": [_block(key, nodes) for key, nodes in groups.items()],
    }
    return f"# {topology.title}; written by gpuform.\n" + str(
        yaml.safe_dump(found, sort_keys=False, width=1000)
    )


def _check(topology: StackTopology) -> None:
    if not topology.nodes:
        raise NoTopology(f"{topology.title} has no nodes yet", hint="make them: `gpuform up`")
    names = [checked(node.name, "node") for node in topology.nodes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise NoTopology(
            f"two nodes are called {twice}", hint="name the clusters whose nodes differ"
        )


def _switch(switch: Switch) -> dict[str, Any]:
    return {"switches": list(switch.switches)} if switch.switches else {}


def _block(key: tuple[str, str, str, str], nodes: list[Node]) -> dict[str, Any]:
    switch, domain, region, zone = key
    labels = {name: value for name, value in ((REGION, region), (ZONE, zone)) if value}
    found: dict[str, Any] = {"switch": switch, "nodes": [node.name for node in nodes]}
    if labels:
        found["labels"] = labels
    if domain:
        found["annotations"] = {DOMAIN: domain}
    return found
