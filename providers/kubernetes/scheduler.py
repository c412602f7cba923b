"""Read a cluster's nodes from its Kubernetes; list their jobs, cordon, uncordon and evict.

`providers.draining` calls `KubernetesScheduler`. A pod counts as a job if the end of its node would
hurt it. These pods are no jobs:

- pods that have ended;
- pods of a DaemonSet and mirror pods, which belong to their node and end with it;
- pods without GPUs that a controller replaces elsewhere, in the namespaces of the system and of
  NVIDIA's operators: a drain evicts them and does not wait for their end.

All others are jobs: also a pod that is being deleted, until it has ended, a server of a Deployment,
and a pod without a controller.

Repairs, certifications and status commands read nodes with a `KubernetesClient`.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, Final

from gpuform.providers.context import get_current_context
from gpuform.providers.draining import ScheduledNode
from gpuform.providers.errors import Conflict, NotFound, RateLimited, UnknownOutcome
from gpuform.providers.http import Retry, build_path
from gpuform.providers.kubernetes.client import (
    KubernetesClient,
    KubernetesObject,
    retry_on_conflict,
)
from gpuform.schemas.policies.drain import RunningJob
from gpuform.schemas.values import to_unix_time

NODES_PATH: Final = "/api/v1/nodes"
_KUBERNETES_RELEASE: Final = datetime(2014, 1, 1, tzinfo=UTC).timestamp()
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
    nodes, now = (
        client.list_objects(NODES_PATH, retry=Retry.NEVER),
        get_current_context().clock.now(),
    )
    return {name: get_node_state(node, now) for node in nodes if (name := _get_node_name(node))}


def parse_time(timestamp: Any) -> float | None:
    """Return the Unix seconds of a Kubernetes time (RFC 3339).

    Returns None for any other text, for a time without a time zone, and for a time before 2014: Go
    writes an unset time as year 1.
    """
    moment = to_unix_time(timestamp)
    # Go writes a time that was never set as one of the year 1.
    return None if moment is None or moment < _KUBERNETES_RELEASE else moment


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
    nodes = client.list_objects(NODES_PATH, retry=Retry.NEVER)
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
    """Return the name of a Kubernetes node, or ""."""
    return str(get_mapping(node, "metadata").get("name") or "")


def get_mapping(parent: Any, name: str) -> Mapping[str, Any]:
    """Return the mapping under `name`, or an empty one if there is none."""
    child = parent.get(name) if isinstance(parent, Mapping) else None
    return child if isinstance(child, Mapping) else {}


OWNER_ANNOTATION = "gpuform.dev/cordoned-for"
"""The annotation that `cordon` writes on nodes."""

SYSTEM_NAMESPACES = frozenset({"kube-system", "gpu-operator", "nvidia-network-operator"})
_NOT_ENDED_SELECTOR = "status.phase!=Succeeded,status.phase!=Failed"
_CONTROL_PLANE_LABEL = "node-role.kubernetes.io/control-plane"
_MIRROR_POD_ANNOTATION = "kubernetes.io/config.mirror"
_REPLACING_CONTROLLERS = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
"""Kinds of controllers that start a lost pod again on another node, without harm."""
_CONTAINER_LISTS = ("containers", "initContainers", "ephemeralContainers")
_GPU_RESOURCE = re.compile(r"/(gpu|mig-|pgpu|vgpu)|gpu$", re.IGNORECASE)
"""`nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`, `nvidia.com/gpu.shared`, `amd.com/gpu`."""


class KubernetesScheduler:
    """A `gpuform.providers.draining.Scheduler` over the Kubernetes API of one cluster."""

    name: ClassVar[str] = "Kubernetes"

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    def list_nodes(self) -> Sequence[ScheduledNode]:
        """Return every worker node with the jobs which run there now.

        Nodes of the control plane are left out, unless they have GPUs. The jobs on a node without
        any visible pod count as incomplete.
        """
        nodes = self._client.list_objects(NODES_PATH)
        # Asked last, so that no job is missed that started in between.
        pods_by_node: dict[str, list[KubernetesObject]] = {}
        for pod in self._list_pods():
            pods_by_node.setdefault(_get_node_of_pod(pod), []).append(pod)
        return [
            _to_scheduled_node(node, pods_by_node.get(_get_name(node), []))
            for node in nodes
            if is_worker(node)
        ]

    def cordon(self, node_names: Collection[str], owner_label: str) -> None:
        """Make nodes unschedulable, and annotate each with `owner_label`.

        A node that is cordoned already stays as it is, without or with the annotation of its own
        cordon.

        Raises:
            NotFound: a node does not exist. Earlier ones of `node_names` are cordoned.
            Conflict: others have changed a node during each of 20 attempts.
        """
        for node_name in node_names:
            retry_on_conflict(partial(self._cordon_node, node_name, owner_label))

    def uncordon(self, node_names: Collection[str], owner_label: str) -> None:
        """Make nodes annotated with `owner_label` schedulable, and remove the annotation.

        Missing nodes, and nodes with another annotation or none, are skipped.

        Raises:
            Conflict: others have changed a node during each of 20 attempts.
        """
        for node_name in node_names:
            retry_on_conflict(partial(self._uncordon_node, node_name, owner_label))

    def evict(self, node_names: Collection[str]) -> None:
        """Evict the pods on nodes, as far as disruption budgets allow now.

        Pods that are not jobs are evicted, too. Pods of DaemonSets and mirror pods stay. A refused
        eviction is no error, and nothing waits for the end of the pods.
        """
        for pod in self._list_pods():
            is_being_deleted = "deletionTimestamp" in pod["metadata"]
            if (
                _get_node_of_pod(pod) in node_names
                and not _belongs_to_node(pod)
                and not is_being_deleted
            ):
                self._evict_pod(pod)

    def _list_pods(self) -> Sequence[KubernetesObject]:
        """Return the pods of all namespaces which have not ended."""
        return self._client.list_objects("/api/v1/pods", fieldSelector=_NOT_ENDED_SELECTOR)

    def _cordon_node(self, name: str, owner_label: str) -> None:
        """Make a node unschedulable and annotate it, unless cordoned already.

        Raises:
            NotFound: there is no such node.
            Conflict: the node has changed since the read.
        """
        node = self._client.get_object(NODES_PATH + build_path(name))
        # A node that a person has cordoned keeps its state, so that no later uncordon undoes it.
        if not get_node_state(node).is_cordoned:
            self._patch_node(node, {OWNER_ANNOTATION: owner_label}, is_cordoned=True)

    def _uncordon_node(self, name: str, owner_label: str) -> None:
        """Make a node schedulable and remove the label if still there; a missing node is no error.

        Raises:
            Conflict: the node has changed since the read.
        """
        try:
            node = self._client.get_object(NODES_PATH + build_path(name))
            if _get_cordon_owner(node) == owner_label:
                self._patch_node(node, {OWNER_ANNOTATION: None}, is_cordoned=False)
        except NotFound:
            return

    def _patch_node(
        self, node: KubernetesObject, annotations: Mapping[str, Any], *, is_cordoned: bool
    ) -> None:
        """Patch a node, or raise Conflict if the node has changed since the read."""
        version = node["metadata"]["resourceVersion"]
        self._client.patch_object(
            NODES_PATH + build_path(_get_name(node)),
            {
                "metadata": {"resourceVersion": version, "annotations": annotations},
                # In a merge patch None removes the field, as on a node that was never cordoned.
                "spec": {"unschedulable": is_cordoned or None},
            },
        )

    def _evict_pod(self, pod: KubernetesObject) -> None:
        """Ask Kubernetes to evict a pod; a refusal by a disruption budget is no error.

        A pod that is gone or replaced, and a lost answer, are no errors either.
        """
        namespace, name = pod["metadata"]["namespace"], _get_name(pod)
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            # Not another pod that got the same name meanwhile.
            "deleteOptions": {"preconditions": {"uid": pod["metadata"]["uid"]}},
        }
        path = f"/api/v1/namespaces{build_path(namespace)}/pods{build_path(name)}/eviction"
        try:
            self._client.create_object(path, eviction)
        except (RateLimited, NotFound, Conflict, UnknownOutcome):
            return  # forbidden by its budget now, gone, replaced; or the next look shows


def is_job(pod: KubernetesObject) -> bool:
    """Return True if the end of its node would hurt a pod.

    False for a pod that has ended, a DaemonSet's pod, a mirror pod, and a pod of the system without
    GPUs that a controller replaces elsewhere.
    """
    if _belongs_to_node(pod) or get_mapping(pod, "status").get("phase") in {"Succeeded", "Failed"}:
        return False
    is_replaced = not _REPLACING_CONTROLLERS.isdisjoint(_get_controller_kinds(pod))
    is_system = pod["metadata"].get("namespace") in SYSTEM_NAMESPACES
    return not (is_replaced and is_system) or has_gpu_requests(pod)


def is_worker(node: KubernetesObject) -> bool:
    """Return True if jobs can run on a node: a node of the control plane needs GPUs for that."""
    is_control_plane = _CONTROL_PLANE_LABEL in get_mapping(get_mapping(node, "metadata"), "labels")
    return not is_control_plane or _has_gpus(get_mapping(get_mapping(node, "status"), "capacity"))


def has_gpu_requests(pod: KubernetesObject) -> bool:
    """Return True if a pod asks for GPUs, by an extended resource or any resource claim (DRA)."""
    spec = get_mapping(pod, "spec")
    if spec.get("resourceClaims"):
        return True
    containers = [container for kind in _CONTAINER_LISTS for container in spec.get(kind) or ()]
    resource_blocks = [get_mapping(holder, "resources") for holder in (spec, *containers)]
    return any(
        _has_gpus(get_mapping(resources, kind))
        for resources in resource_blocks
        for kind in ("limits", "requests")
    )


def _has_gpus(resources: Mapping[str, Any]) -> bool:
    """Return True if a resource list has any kind of GPU with an amount other than 0."""
    return any(
        _GPU_RESOURCE.search(str(name)) is not None and str(amount) not in {"0", ""}
        for name, amount in resources.items()
    )


def _belongs_to_node(pod: KubernetesObject) -> bool:
    """Return True if a pod ends with its node: a pod of a DaemonSet or a mirror pod."""
    is_mirror = _MIRROR_POD_ANNOTATION in get_mapping(pod["metadata"], "annotations")
    return "DaemonSet" in _get_controller_kinds(pod) or is_mirror


def _get_controller_kinds(pod: KubernetesObject) -> set[str]:
    """Return the kinds of a pod's controllers, without owners for garbage collection only."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return {str(owner.get("kind")) for owner in owners if owner.get("controller")}


def _to_scheduled_node(node: KubernetesObject, pods: Sequence[KubernetesObject]) -> ScheduledNode:
    """Return a node with the jobs among the node's `pods`.

    A node always runs pods of its own (network, GPU device plugin). A list without any pod on the
    node is from another cluster, or a gateway has filtered it.
    """
    state = get_node_state(node)
    return ScheduledNode(
        name=_get_name(node),
        is_cordoned=state.is_cordoned,
        is_failed=not state.is_ready,
        owner_label=_get_cordon_owner(node),
        joined_at=parse_time(node["metadata"].get("creationTimestamp")),
        jobs=tuple(_to_running_job(pod) for pod in pods if is_job(pod)),
        provider_id=str(get_mapping(node, "spec").get("providerID") or ""),
        addresses=tuple(
            str(address["address"])
            for address in get_mapping(node, "status").get("addresses") or ()
            if isinstance(address, Mapping) and address.get("address")
        ),
        incomplete_jobs_reason=""
        if pods
        else "no pod is visible on the node, not even one of the system",
    )


def _to_running_job(pod: KubernetesObject) -> RunningJob:
    """Return a pod as a job, named after the controller if there is one, else after the pod."""
    name = _get_name(pod)
    owners = pod["metadata"].get("ownerReferences") or ()
    # The controller's name is what people submitted: the pod's name has a random suffix.
    job_name = next((owner["name"] for owner in owners if owner.get("controller")), name)
    return RunningJob(id=f"{pod['metadata']['namespace']}/{name}", name=job_name)


def _get_name(kubernetes_object: KubernetesObject) -> str:
    """Return the `metadata.name` of an object of Kubernetes."""
    return str(kubernetes_object["metadata"]["name"])


def _get_node_of_pod(pod: KubernetesObject) -> str:
    """Return the name of the node which a pod runs on, or "" for a pod without a node."""
    return str(get_mapping(pod, "spec").get("nodeName") or "")


def _get_cordon_owner(node: KubernetesObject) -> str | None:
    """Return the owner label which gpuform's cordon wrote on the node as annotation, or None."""
    label = (node["metadata"].get("annotations") or {}).get(OWNER_ANNOTATION)
    return None if label is None else str(label)
