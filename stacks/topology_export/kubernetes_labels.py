"""Labels of nodes by which schedulers of Kubernetes can place pods, all of them gpuform's own.

Switches and NVLink domains are not written again: they are known from labels that are there.
"""

from collections.abc import Iterator
from typing import Final

from gpuform.stacks.topology_export.manifests import (
    Manifest,
    NodeMetadata,
    checked_node,
    is_label_value,
    mark_of,
)
from gpuform.stacks.topology_export.model import Node, NoTopology, StackTopology

STACK: Final = "gpuform.dev/stack"
PLATFORM: Final = "gpuform.dev/platform"
REGION: Final = "gpuform.dev/region"
POOL: Final = "gpuform.dev/pool"
FABRIC: Final = "gpuform.dev/fabric"
FABRIC_ID: Final = "gpuform.dev/fabric-id"


def kubernetes_labels(topology: StackTopology, namespace: str) -> list[Manifest]:  # noqa: ARG001 - as the other formats
    """Each node with the labels that say where it is."""
    if not topology.nodes:
        raise NoTopology(f"{topology.title} has no nodes yet", hint="make them: `gpuform up`")
    mark = mark_of(topology)
    return [
        NodeMetadata(checked_node(node.name), labels={STACK: mark, **own_labels(node)})
        for node in topology.nodes
    ]


def own_labels(node: Node) -> dict[str, str]:
    """What is known of a node and can be the value of a label, the widest first."""
    return {key: value for key, value in _told(node).items() if is_label_value(value)}


def labels_unknown(topology: StackTopology) -> Iterator[str]:
    """What no label can tell."""
    lost = {
        f"{key}={value!r}"
        for node in topology.nodes
        for key, value in _told(node).items()
        if value and not is_label_value(value)
    }
    for each in sorted(lost):
        yield f"{each} is no value of a label, and is left out"


def _told(node: Node) -> dict[str, str]:
    return {
        PLATFORM: node.platform,
        REGION: node.region,
        POOL: node.pool,
        FABRIC: node.fabric,
        FABRIC_ID: node.fabric_id if node.fabric_id != node.fabric else "",
    }
