"""A cluster's Kubernetes as the scheduler of its nodes.

What counts as a job is what its node's end would hurt. These are not jobs:

- pods that have ended;
- pods of a DaemonSet and mirror pods, which belong to their node and end with it;
- pods in the namespaces of the system and of NVIDIA's operators that a controller replaces
  elsewhere: they are evicted, and nobody waits for their end.

Everything else is: also a pod that is being deleted, until it has ended, a server of a Deployment,
and a pod without any controller.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, ClassVar

from gpuform.providers.draining import ScheduledNode
from gpuform.providers.errors import Conflict, NotFound, RateLimited, UnknownOutcome
from gpuform.providers.http import at
from gpuform.providers.kubernetes.client import KubernetesClient, Object, until_no_conflict
from gpuform.providers.kubernetes.nodes import NODES, state_of
from gpuform.schemas.drain import RunningJob

MARK = "gpuform.dev/cordoned-for"
"""The annotation of nodes that `cordon` writes."""

SYSTEM_NAMESPACES = frozenset({"kube-system", "gpu-operator", "nvidia-network-operator"})
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"
_CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
_MIRROR = "kubernetes.io/config.mirror"


class KubernetesScheduler:
    """A `gpuform.providers.draining.Scheduler` over the API of one cluster."""

    name: ClassVar[str] = "Kubernetes"

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    def nodes(self) -> Sequence[ScheduledNode]:
        """Every worker, with the jobs that run on it now: two requests."""
        jobs: dict[str, list[RunningJob]] = {}
        for pod in self._pods():
            if is_job(pod):
                jobs.setdefault(_node_of(pod), []).append(_job(pod))
        return [
            _scheduled(node, jobs.get(_name(node), []))
            for node in self._client.list(NODES)
            if _CONTROL_PLANE not in (node["metadata"].get("labels") or {})
        ]

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
    metadata = pod["metadata"]
    if _belongs_to_node(pod) or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
        return False
    is_replaced = any(owner.get("controller") for owner in metadata.get("ownerReferences") or ())
    return not (is_replaced and metadata["namespace"] in SYSTEM_NAMESPACES)


def _belongs_to_node(pod: Object) -> bool:
    metadata = pod["metadata"]
    owners = {owner["kind"] for owner in metadata.get("ownerReferences") or ()}
    return "DaemonSet" in owners or _MIRROR in (metadata.get("annotations") or {})


def _scheduled(node: Object, jobs: Sequence[RunningJob]) -> ScheduledNode:
    state = state_of(node)
    created_at = node["metadata"].get("creationTimestamp")
    return ScheduledNode(
        name=_name(node),
        is_cordoned=state.is_cordoned,
        is_failed=not state.is_ready,
        mark=_mark_of(node),
        since=datetime.fromisoformat(created_at).timestamp() if created_at else None,
        jobs=tuple(jobs),
    )


def _job(pod: Object) -> RunningJob:
    name = _name(pod)
    owners = pod["metadata"].get("ownerReferences") or ()
    shown = next((owner["name"] for owner in owners if owner.get("controller")), name)
    return RunningJob(id=f"{pod['metadata']['namespace']}/{name}", name=shown)


def _name(each: Object) -> str:
    return str(each["metadata"]["name"])


def _node_of(pod: Object) -> str:
    return str(pod.get("spec", {}).get("nodeName") or "")


def _mark_of(node: Object) -> str | None:
    found = (node["metadata"].get("annotations") or {}).get(MARK)
    return None if found is None else str(found)
