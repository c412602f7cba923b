"""Where SCP's GPU nodes are: region, node pool and fabric.

From the SCP reference, 'Show GPU Node' (`cluster_fabric_id`, `cluster_fabric_name`,
`node_pool_id`). It tells no switches.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from gpuform.providers.declared import text_of
from gpuform.schemas.drain import KubernetesInputs
from gpuform.schemas.placement import PlacedNode, Placement


def pool_placement(seen: Mapping[str, Any]) -> Placement:
    """The nodes of a pool, each with the fabric that it is in itself."""
    nodes = seen.get("gpu_nodes")
    each = nodes.values() if isinstance(nodes, Mapping) else ()
    name = text_of(seen, "gpu_node_name_prefix")
    return _placement(seen, name, [node for node in each if isinstance(node, Mapping)])


def node_placement(seen: Mapping[str, Any]) -> Placement:
    """One node."""
    return _placement(seen, text_of(seen, "gpu_node_name"), [seen])


def _placement(seen: Mapping[str, Any], name: str, nodes: list[Mapping[str, Any]]) -> Placement:
    return Placement(
        name=name,
        region=text_of(seen, "region_id"),
        pool=text_of(seen, "node_pool_id"),
        nodes=tuple(_node(each) for each in nodes if text_of(each, "gpu_node_name")),
        kubernetes=_kubernetes(seen.get("drain")),
        untold=("switches",),
    )


def _node(node: Mapping[str, Any]) -> PlacedNode:
    return PlacedNode(
        name=text_of(node, "gpu_node_name"),
        address=text_of(node, "policy_nat") or text_of(node, "policy_ip"),
        fabric_id=text_of(node, "cluster_fabric_id"),
        fabric=text_of(node, "cluster_fabric_name"),
    )


def _kubernetes(drain: Any) -> KubernetesInputs | None:
    told = drain.get("kubernetes") if isinstance(drain, Mapping) else None
    try:
        return None if told is None else KubernetesInputs.model_validate(told)
    except ValidationError:  # of another version's state
        return None
