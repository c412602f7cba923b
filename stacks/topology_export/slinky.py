"""Slurm on Kubernetes by Slinky: a `topology.yaml`, and an annotation on each node.

From the slurm-operator's page 'Topology': a node's annotation `topology.slinky.slurm.net/spec` says
which switch and which block the Slurm node is under that runs there. Slurm's nodes are pods, so the
file names switches and blocks alone. `topology.yaml` is of Slurm 25.05 and newer.
"""

from collections.abc import Iterator
from typing import Any, Final

from gpuform.stacks.topology_export.manifests import (
    Manifest,
    NodeMetadata,
    WholeObject,
    checked_namespace,
    checked_node,
    object_name,
)
from gpuform.stacks.topology_export.model import NoTopology, StackTopology
from gpuform.stacks.topology_export.slurm_topology import (
    Block,
    Switch,
    block_sizes,
    blocks_of,
    checked,
    compressed,
    switch_of_each,
    switches_of,
)

SPEC: Final = "topology.slinky.slurm.net/spec"
TREE: Final = "topo-tree"
BLOCK: Final = "topo-block"
FILE: Final = "topology.yaml"


def slinky(topology: StackTopology, namespace: str) -> list[Manifest]:
    """A ConfigMap with the file, for `configFileRefs` of Slinky's controller, and the nodes."""
    import yaml  # noqa: PLC0415 - slow

    if not topology.nodes:
        raise NoTopology(f"{topology.title} has no nodes yet", hint="make them: `gpuform up`")
    switches, blocks = switches_of(topology), blocks_of(topology)
    text = yaml.safe_dump(list(_topologies(switches, blocks)), sort_keys=False, width=1000)
    name = f"{object_name(topology)}-topology"
    place = checked_namespace(namespace)
    held = WholeObject("v1", "ConfigMap", "configmaps", name, {"data": {FILE: text}}, place)
    under = switch_of_each(switches)
    block = {node: each.name for each in blocks for node in each.nodes}
    nodes = [
        NodeMetadata(
            checked_node(node.name),
            annotations={SPEC: _spec(under[node], block.get(node, ""))},
        )
        for node in topology.nodes
    ]
    return [held, *nodes]


def _spec(switch: str, block: str) -> str:
    return f"{TREE}:{switch}" + (f",{BLOCK}:{block}" if block else "")


def _topologies(switches: list[Switch], blocks: list[Block]) -> Iterator[dict[str, Any]]:
    yield {
        "topology": TREE,
        "cluster_default": True,
        "tree": {"switches": [_switch(each) for each in switches]},
    }
    if blocks:
        names = [{"block": checked(each.name, "block")} for each in blocks]
        yield {
            "topology": BLOCK,
            "cluster_default": False,
            "block": {"block_sizes": block_sizes(blocks), "blocks": names},
        }


def _switch(switch: Switch) -> dict[str, Any]:
    found = {"switch": checked(switch.name, "switch")}
    if switch.switches:
        found["children"] = compressed(checked(name, "switch") for name in switch.switches)
    return found
