"""Kueue's topology-aware scheduling: a Topology of node labels, and the flavor that uses it.

From Kueue's API kueue.x-k8s.io: `Topology.spec.levels[].nodeLabel`, the widest first and the host
last; `ResourceFlavor.spec.topologyName`, which needs a label of its nodes. Kueue leaves out a node
that lacks a label of a level, so only labels that all nodes have are levels.
"""

from collections.abc import Iterator
from typing import Final

from gpuform.stacks.topology_export.kubernetes_labels import (
    FABRIC,
    POOL,
    STACK,
    kubernetes_labels,
    own_labels,
)
from gpuform.stacks.topology_export.labels import HOST, domain_key, tier_keys
from gpuform.stacks.topology_export.manifests import (
    Manifest,
    NodeMetadata,
    WholeObject,
    mark_of,
    object_name,
)
from gpuform.stacks.topology_export.model import NoTopology, StackTopology

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
"""Kueue 0.15 and newer; an older one's is asked of the cluster before anything is written."""

_OWN: Final = (POOL, FABRIC)


def kueue(topology: StackTopology, namespace: str) -> list[Manifest]:  # noqa: ARG001 - as the other formats
    """Both objects; they have the stack's name."""
    if not topology.nodes:
        raise NoTopology(f"{topology.title} has no nodes yet", hint="make them: `gpuform up`")
    name = object_name(topology)
    levels = [{"nodeLabel": key} for key in levels_of(topology)]
    flavor = {"nodeLabels": {STACK: mark_of(topology)}, "topologyName": name}
    version = f"{GROUP}/{VERSION}"
    return [
        WholeObject(version, "Topology", "topologies", name, {"spec": {"levels": levels}}),
        WholeObject(version, "ResourceFlavor", "resourceflavors", name, {"spec": flavor}),
    ]


def levels_of(topology: StackTopology) -> list[str]:
    """The labels that all nodes have, the widest first."""
    own = [key for key in _OWN if all(key in own_labels(node) for node in topology.nodes)]
    known = [node.labels for node in topology.nodes if node.labels is not None]
    found = known[0] if len(known) == len(topology.nodes) else {}
    keys = [*reversed(tier_keys(found)), domain_key(found)]
    shared = [key for key in keys if key and all(labels.get(key) for labels in known)]
    return [*own, *shared, HOST]


def kueue_unknown(topology: StackTopology) -> Iterator[str]:
    """What has to be on the nodes for it to work."""
    wanted = {
        each.name: each.labels
        for each in kubernetes_labels(topology, "")
        if isinstance(each, NodeMetadata)
    }
    without = [
        node.name
        for node in topology.nodes
        if node.labels is not None
        if any(node.labels.get(key) != value for key, value in wanted[node.name].items())
    ]
    unasked = any(node.labels is None for node in topology.nodes)
    if without or unasked:
        what = f"{len(without)} nodes have not" if without else "it is not known whether nodes have"
        yield (
            f"{what} the labels that Kueue goes by: `gpuform topology --format kubernetes-labels "
            "--apply` writes them"
        )
