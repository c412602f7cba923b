"""The nodes of a cluster as Kubernetes has them now: whether they are Ready, and take pods."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gpuform.providers.context import get_current_context
from gpuform.providers.kubernetes.client import KubernetesClient, Object

NODES: Final = "/api/v1/nodes"
_FIRST_YEAR: Final = 2014
"""Kubernetes' first: its clusters show no older times."""
_DRIVER: Final = "nvidia.com/cuda.driver-version.full"
"""The label that NVIDIA's GPU feature discovery gives nodes (its page 'Generated Labels')."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """`trouble` says why it is not Ready, in Kubernetes' words, and `since` when it is not so.

    Both are empty for one that is Ready; `since` too where nobody tells, and where it is a time
    before the node's creation or in the future.
    """

    is_ready: bool
    is_cordoned: bool = False
    trouble: str = ""
    since: str = ""


def node_states(client: KubernetesClient) -> dict[str, NodeState]:
    """Every node by its name, in one request that is sent once."""
    nodes, now = client.list_once(NODES), get_current_context().clock.now()
    return {name: state_of(node, now) for node in nodes if (name := _name_of(node))}


def unix_time(text: Any) -> float | None:
    """Return the unix seconds of a time of Kubernetes (RFC 3339), or None for anything else.

    Go writes a time that was never set as one of the year 1.
    """
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None or moment.year < _FIRST_YEAR:
        return None
    return moment.timestamp()


def time_within(text: Any, earliest: float | None, latest: float) -> str:
    """Return a time that is neither before `earliest` nor after `latest`; empty for any other.

    What happened at an object cannot be older than the object: without its creation, nothing is
    believed.
    """
    moment = unix_time(text)
    if moment is None or earliest is None or not earliest <= moment <= latest:
        return ""
    return str(text)


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
    labels = part_of(part_of(node, "metadata"), "labels")
    info = part_of(part_of(node, "status"), "nodeInfo")
    told = (info.get("osImage"), info.get("kernelVersion"))
    return NodeSoftware(
        driver=str(labels.get(_DRIVER) or ""), image=", ".join(str(each) for each in told if each)
    )


def state_of(node: Object, now: float = math.inf) -> NodeState:
    """Return what a node's condition `Ready` says at `now`; a node without it is not Ready."""
    spec, ready = part_of(node, "spec"), _ready_condition(node)
    is_cordoned = bool(spec.get("unschedulable"))
    if ready.get("status") == "True":
        return NodeState(is_ready=True, is_cordoned=is_cordoned)
    told = ready.get("message") or ready.get("reason") or "it has no condition Ready"
    created = unix_time(part_of(node, "metadata").get("creationTimestamp"))
    return NodeState(
        is_ready=False,
        is_cordoned=is_cordoned,
        trouble=" ".join(str(told).split()),
        since=time_within(ready.get("lastTransitionTime"), created, now),
    )


def _ready_condition(node: Object) -> Mapping[str, Any]:
    found = part_of(node, "status").get("conditions")
    conditions = found if isinstance(found, list) else []
    mappings = (each for each in conditions if isinstance(each, Mapping))
    return next((each for each in mappings if each.get("type") == "Ready"), {})


def _name_of(node: Object) -> str:
    return str(part_of(node, "metadata").get("name") or "")


def part_of(node: Any, name: str) -> Mapping[str, Any]:
    """Return the object under `name`; empty where there is none, or something else."""
    found = node.get(name) if isinstance(node, Mapping) else None
    return found if isinstance(found, Mapping) else {}
