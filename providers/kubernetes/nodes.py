"""Read what a cluster's Kubernetes reports of its nodes: readiness, cordon, software.

Repairs, certifications and status commands call it with a `KubernetesClient`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from gpuform.providers.context import get_current_context
from gpuform.providers.kubernetes.client import KubernetesClient, KubernetesObject

NODES_PATH: Final = "/api/v1/nodes"
_FIRST_KUBERNETES_YEAR: Final = 2014
"""No cluster reports older times: Kubernetes was first released in this year."""
_DRIVER_LABEL: Final = "nvidia.com/cuda.driver-version.full"
"""The label that NVIDIA's GPU feature discovery gives nodes (its page 'Generated Labels')."""


@dataclass(frozen=True, slots=True)
class KubernetesNodeState:
    """Whether a node is Ready and cordoned.

    `not_ready_reason` has Kubernetes' words, and `not_ready_since` the time in RFC 3339. Both are
    empty for a node that is Ready. The time is empty, too, if it is missing, before the node's
    creation or in the future.
    """

    is_ready: bool
    is_cordoned: bool = False
    not_ready_reason: str = ""
    not_ready_since: str = ""


def list_node_states(client: KubernetesClient) -> dict[str, KubernetesNodeState]:
    """Return the state of every node by name, in one request without a retry."""
    # Sent once: commands that only look must not wait for a cluster that does not answer.
    nodes, now = client.list_objects_once(NODES_PATH), get_current_context().clock.now()
    return {name: get_node_state(node, now) for node in nodes if (name := _get_node_name(node))}


def parse_time(timestamp: Any) -> float | None:
    """Return the Unix seconds of a Kubernetes time (RFC 3339).

    Returns None for any other text, for a time without a time zone, and for a time before 2014: Go
    writes an unset time as year 1.
    """
    try:
        moment = datetime.fromisoformat(timestamp)
    except (TypeError, ValueError):
        return None
    # Go writes a time that was never set as one of the year 1.
    if moment.tzinfo is None or moment.year < _FIRST_KUBERNETES_YEAR:
        return None
    return moment.timestamp()


def accept_time_between(timestamp: Any, earliest: float | None, latest: float) -> str:
    """Return `timestamp` if neither before `earliest` nor after `latest`, else "".

    `earliest`, the creation of the object, and `latest` are in Unix seconds. Without `earliest` no
    time is accepted: nothing can have happened to an object before its creation.
    """
    moment = parse_time(timestamp)
    if moment is None or earliest is None or not earliest <= moment <= latest:
        return ""
    return str(timestamp)


@dataclass(frozen=True, slots=True)
class NodeSoftware:
    """GPU driver and operating system of a node; empty where Kubernetes does not report them."""

    driver: str
    image: str


def list_node_software(client: KubernetesClient) -> dict[str, NodeSoftware]:
    """Return the software of every node by name, in one request without a retry."""
    nodes = client.list_objects_once(NODES_PATH)
    return {name: _get_node_software(node) for node in nodes if (name := _get_node_name(node))}


def _get_node_software(node: KubernetesObject) -> NodeSoftware:
    """Return GPU driver and operating system of a node; empty where the node reports none."""
    labels = get_mapping(get_mapping(node, "metadata"), "labels")
    node_info = get_mapping(get_mapping(node, "status"), "nodeInfo")
    versions = (node_info.get("osImage"), node_info.get("kernelVersion"))
    return NodeSoftware(
        driver=str(labels.get(_DRIVER_LABEL) or ""),
        image=", ".join(str(version) for version in versions if version),
    )


def get_node_state(node: KubernetesObject, now: float = math.inf) -> KubernetesNodeState:
    """Return whether a node is Ready, why and since when not, and whether it is cordoned.

    A node without the condition Ready is not Ready. `not_ready_since` is "" if the reported time is
    after `now` (Unix seconds) or before the node's creation.
    """
    spec, condition = get_mapping(node, "spec"), _find_ready_condition(node)
    is_cordoned = bool(spec.get("unschedulable"))
    if condition.get("status") == "True":
        return KubernetesNodeState(is_ready=True, is_cordoned=is_cordoned)
    reason = condition.get("message") or condition.get("reason") or "it has no condition Ready"
    created = parse_time(get_mapping(node, "metadata").get("creationTimestamp"))
    return KubernetesNodeState(
        is_ready=False,
        is_cordoned=is_cordoned,
        not_ready_reason=" ".join(str(reason).split()),
        not_ready_since=accept_time_between(condition.get("lastTransitionTime"), created, now),
    )


def _find_ready_condition(node: KubernetesObject) -> Mapping[str, Any]:
    """Return the condition `Ready` of a node, or an empty mapping."""
    raw_conditions = get_mapping(node, "status").get("conditions")
    conditions = raw_conditions if isinstance(raw_conditions, list) else []
    mappings = (condition for condition in conditions if isinstance(condition, Mapping))
    return next((condition for condition in mappings if condition.get("type") == "Ready"), {})


def _get_node_name(node: KubernetesObject) -> str:
    """Return the name of a node, or ""."""
    return str(get_mapping(node, "metadata").get("name") or "")


def get_mapping(parent: Any, name: str) -> Mapping[str, Any]:
    """Return the mapping under `name`, or an empty one if there is none."""
    child = parent.get(name) if isinstance(parent, Mapping) else None
    return child if isinstance(child, Mapping) else {}
