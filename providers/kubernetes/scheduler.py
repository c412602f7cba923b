"""A cluster's Kubernetes as the scheduler of its nodes.

What counts as a job is what its node's end would hurt. These are not jobs:

- pods that have ended;
- pods of a DaemonSet and mirror pods, which belong to their node and end with it;
- pods without GPUs in the namespaces of the system and of NVIDIA's operators that a controller
  replaces elsewhere: they are evicted, and nobody waits for their end.

Everything else is: also a pod that is being deleted, until it has ended, a server of a Deployment,
and a pod without any controller.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from gpuform.providers.draining import ScheduledNode
from gpuform.providers.errors import Conflict, NotFound, RateLimited, UnknownOutcome
from gpuform.providers.http import at
from gpuform.providers.kubernetes.client import KubernetesClient, Object, until_no_conflict
from gpuform.providers.kubernetes.nodes import NODES, part_of, state_of, unix_time
from gpuform.schemas.policies.drain import RunningJob

MARK = "gpuform.dev/cordoned-for"
"""The annotation of nodes that `cordon` writes."""

SYSTEM_NAMESPACES = frozenset({"kube-system", "gpu-operator", "nvidia-network-operator"})
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_MIRROR = "kubernetes.io/config.mirror"
_REPLACING = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet"})
"""The controllers that start a lost pod again on another node, as if nothing had happened."""
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_GPU_RESOURCE = re.compile(r"/(gpu|mig-|pgpu|vgpu)|gpu$", re.IGNORECASE)
"""`nvidia.com/gpu`, `nvidia.com/mig-1g.10gb`, `nvidia.com/gpu.shared`, `amd.com/gpu`."""


class KubernetesScheduler:
    """A `gpuform.providers.draining.Scheduler` over the API of one cluster."""

    name: ClassVar[str] = "Kubernetes"

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    def nodes(self) -> Sequence[ScheduledNode]:
        """Return every worker, with the jobs that run on it now."""
        nodes = self._client.list(NODES)
        # Asked last, so that no job is missed that started in between.
        pods: dict[str, list[Object]] = {}
        for pod in self._pods():
            pods.setdefault(_node_of(pod), []).append(pod)
        return [_scheduled(node, pods.get(_name(node), [])) for node in nodes if is_worker(node)]

    def cordon(self, names: Collection[str], mark: str) -> None:
        """Lets nodes take no new pods, and writes the mark on those that nobody else cordoned."""
        for name in names:
            until_no_conflict(partial(self._cordon, name, mark))

    def uncordon(self, names: Collection[str], mark: str) -> None:
        """Lets nodes take pods again: those alone that still bear `mark`. Gone ones are skipped."""
        for name in names:
            until_no_conflict(partial(self._uncordon, name, mark))

    def evict(self, names: Collection[str]) -> None:
        """Asks the pods on nodes to end, as far as their disruption budgets allow it now."""
        for pod in self._pods():
            leaving = "deletionTimestamp" in pod["metadata"]
            if _node_of(pod) in names and not _belongs_to_node(pod) and not leaving:
                self._evict(pod)

    def _pods(self) -> Sequence[Object]:
        return self._client.list("/api/v1/pods", fieldSelector=_RUNNING)

    def _cordon(self, name: str, mark: str) -> None:
        node = self._client.get(NODES + at(name))
        if not state_of(node).is_cordoned:
            self._write(node, {MARK: mark}, is_cordoned=True)

    def _uncordon(self, name: str, mark: str) -> None:
        try:
            node = self._client.get(NODES + at(name))
            if _mark_of(node) == mark:
                self._write(node, {MARK: None}, is_cordoned=False)
        except NotFound:
            return

    def _write(self, node: Object, annotations: Mapping[str, Any], *, is_cordoned: bool) -> None:
        """Refused as a conflict when the node was changed since it was read."""
        version = node["metadata"]["resourceVersion"]
        self._client.patch(
            NODES + at(_name(node)),
            {
                "metadata": {"resourceVersion": version, "annotations": annotations},
                "spec": {"unschedulable": is_cordoned or None},
            },
        )

    def _evict(self, pod: Object) -> None:
        namespace, name = pod["metadata"]["namespace"], _name(pod)
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            # Not another pod that got the same name meanwhile.
            "deleteOptions": {"preconditions": {"uid": pod["metadata"]["uid"]}},
        }
        path = f"/api/v1/namespaces{at(namespace)}/pods{at(name)}/eviction"
        try:
            self._client.create(path, eviction)
        except (RateLimited, NotFound, Conflict, UnknownOutcome):
            return  # forbidden by its budget now, gone, replaced; or the next look tells


def is_job(pod: Object) -> bool:
    """Whether the end of its node would hurt a pod (see above)."""
    if _belongs_to_node(pod) or part_of(pod, "status").get("phase") in {"Succeeded", "Failed"}:
        return False
    is_replaced = not _REPLACING.isdisjoint(_controllers_of(pod))
    is_system = pod["metadata"].get("namespace") in SYSTEM_NAMESPACES
    return not (is_replaced and is_system) or requests_gpus(pod)


def is_worker(node: Object) -> bool:
    """Return whether jobs run on a node: one of the control plane counts if it has GPUs."""
    is_control_plane = _CONTROL_PLANE in part_of(part_of(node, "metadata"), "labels")
    return not is_control_plane or _has_gpus(part_of(part_of(node, "status"), "capacity"))


def requests_gpus(pod: Object) -> bool:
    """Return whether a pod asks for GPUs: as an extended resource, or by a resource claim (DRA)."""
    spec = part_of(pod, "spec")
    if spec.get("resourceClaims"):
        return True
    containers = [each for kind in _CONTAINERS for each in spec.get(kind) or ()]
    asked = [part_of(each, "resources") for each in (spec, *containers)]
    return any(_has_gpus(part_of(each, kind)) for each in asked for kind in ("limits", "requests"))


def _has_gpus(resources: Mapping[str, Any]) -> bool:
    return any(
        _GPU_RESOURCE.search(str(name)) is not None and str(amount) not in {"0", ""}
        for name, amount in resources.items()
    )


def _belongs_to_node(pod: Object) -> bool:
    is_mirror = _MIRROR in part_of(pod["metadata"], "annotations")
    return "DaemonSet" in _controllers_of(pod) or is_mirror


def _controllers_of(pod: Object) -> set[str]:
    """Return the kinds of the owners that manage a pod: others only collect it as garbage."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return {str(owner.get("kind")) for owner in owners if owner.get("controller")}


def _scheduled(node: Object, pods: Sequence[Object]) -> ScheduledNode:
    """Return a node with the jobs among its `pods`.

    A node always runs pods of its own (network, GPU device plugin): without any, the list of pods
    is another cluster's, or one that a gateway filters.
    """
    state = state_of(node)
    return ScheduledNode(
        name=_name(node),
        is_cordoned=state.is_cordoned,
        is_failed=not state.is_ready,
        mark=_mark_of(node),
        since=unix_time(node["metadata"].get("creationTimestamp")),
        jobs=tuple(_job(pod) for pod in pods if is_job(pod)),
        provider_id=str(part_of(node, "spec").get("providerID") or ""),
        addresses=tuple(
            str(each["address"])
            for each in part_of(node, "status").get("addresses") or ()
            if isinstance(each, Mapping) and each.get("address")
        ),
        doubt="" if pods else "it shows no pod there, not even one of the system",
    )


def _job(pod: Object) -> RunningJob:
    name = _name(pod)
    owners = pod["metadata"].get("ownerReferences") or ()
    shown = next((owner["name"] for owner in owners if owner.get("controller")), name)
    return RunningJob(id=f"{pod['metadata']['namespace']}/{name}", name=shown)


def _name(each: Object) -> str:
    return str(each["metadata"]["name"])


def _node_of(pod: Object) -> str:
    return str(part_of(pod, "spec").get("nodeName") or "")


def _mark_of(node: Object) -> str | None:
    found = (node["metadata"].get("annotations") or {}).get(MARK)
    return None if found is None else str(found)
