"""The nodes of a cluster as Kubernetes has them now: whether they are Ready, and take pods."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuform.providers.kubernetes.client import KubernetesClient, Object

NODES: Final = "/api/v1/nodes"
_DRIVER: Final = "nvidia.com/cuda.driver-version.full"
"""The label that NVIDIA's GPU feature discovery gives nodes (its page 'Generated Labels')."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """`trouble` says why it is not Ready, in Kubernetes' words, and `since` when it is not so.

    Both are empty for one that is Ready; `since` too where nobody tells.
    """

    is_ready: bool
    is_cordoned: bool = False
    trouble: str = ""
    since: str = ""


def node_states(client: KubernetesClient) -> dict[str, NodeState]:
    """Every node by its name, in one request that is sent once."""
    nodes = client.list_once(NODES)
    return {name: state_of(node) for node in nodes if (name := _name_of(node))}


@dataclass(frozen=True, slots=True)
class NodeSoftware:
    """What a node runs; empty where nobody tells."""

    driver: str
    image: str


def software_of_nodes(client: KubernetesClient) -> dict[str, NodeSoftware]:
    """Every node by its name, in one request that is sent once."""
    nodes = client.list_once(NODES)
    return {name: _software(node) for node in nodes if (name := _name_of(node))}


def _software(node: Object) -> NodeSoftware:
    labels = _part(_part(node, "metadata"), "labels")
    info = _part(_part(node, "status"), "nodeInfo")
    told = (info.get("osImage"), info.get("kernelVersion"))
    return NodeSoftware(
        driver=str(labels.get(_DRIVER) or ""), image=", ".join(str(each) for each in told if each)
    )


def state_of(node: Object) -> NodeState:
    """What its condition `Ready` says; one without it is not Ready."""
    spec, ready = _part(node, "spec"), _ready_condition(node)
    is_cordoned = bool(spec.get("unschedulable"))
    if ready.get("status") == "True":
        return NodeState(is_ready=True, is_cordoned=is_cordoned)
    told = ready.get("message") or ready.get("reason") or "it has no condition Ready"
    trouble, since = " ".join(str(told).split()), ready.get("lastTransitionTime")
    return NodeState(
        is_ready=False,
        is_cordoned=is_cordoned,
        trouble=trouble,
        since=since if isinstance(since, str) else "",
    )


def _ready_condition(node: Object) -> Mapping[str, Any]:
    found = _part(node, "status").get("conditions")
    conditions = found if isinstance(found, list) else []
    mappings = (each for each in conditions if isinstance(each, Mapping))
    return next((each for each in mappings if each.get("type") == "Ready"), {})


def _name_of(node: Object) -> str:
    return str(_part(node, "metadata").get("name") or "")


def _part(node: Any, name: str) -> Mapping[str, Any]:
    found = node.get(name) if isinstance(node, Mapping) else None
    return found if isinstance(found, Mapping) else {}
