"""Place pods on nodes, start them, and end them: done, deleted, evicted or killed with their node.

`controllers` calls this module at every request.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpuform.providers.emulator.clock import format_timestamp
from gpuform.providers.emulator.kubernetes.kinds import BUDGET, CLAIM, NODE, POD
from gpuform.providers.emulator.kubernetes.nodes import is_cordoned, is_ready
from gpuform.providers.emulator.kubernetes.objects import (
    ClusterObjects,
    Object,
    is_selected,
    parse_quantity,
    parse_timestamp,
)
from gpuform.providers.emulator.store import Store

RUNS_FOR = "emulator.gpuform.dev/runs-for"
"""An annotation of pods: after how many seconds of the clock they have done their work."""
_ENDS_AT = "emulator.gpuform.dev/ends-at"
_GPU = "nvidia.com/gpu"
_FINAL_PHASES = ("Succeeded", "Failed")


def is_done(pod: Object) -> bool:
    """Return whether the pod has succeeded or failed."""
    return pod.get("status", {}).get("phase") in _FINAL_PHASES


def is_active(pod: Object) -> bool:
    """Return whether the pod is neither done nor being deleted."""
    return not is_done(pod) and "deletionTimestamp" not in pod["metadata"]


def is_healthy(pod: Object) -> bool:
    """Return whether the pod is Running and not being deleted, as disruption budgets count."""
    return is_active(pod) and pod["status"].get("phase") == "Running"


def end_pods(
    store: Store,
    cluster_id: str,
    objects: ClusterObjects,
    departed_nodes: Mapping[str, float],
    rebooted: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """End pods for the first reason that has come: work done, deletion, loss of the node.

    How a pod ended is stored. Pods that have done their work stay, as Succeeded; any others are
    removed.

    Args:
        store: keeps how pods ended.
        cluster_id: the cluster of `objects`.
        objects: the objects of the cluster.
        departed_nodes: when nodes have left, in unix seconds by name: their pods are killed.
        rebooted: when nodes restarted, likewise: pods that ran there before are killed.
    """
    for pod in objects.list_objects(POD):
        node = pod["spec"].get("nodeName")
        deleted_at = pod["metadata"].get("deletionTimestamp")
        end_times = {
            "succeeded": float(pod["metadata"].get("annotations", {}).get(_ENDS_AT, "inf")),
            "deleted": parse_timestamp(deleted_at) if deleted_at else float("inf"),
            "killed": min(departed_nodes.get(node, float("inf")), _get_reboot_time(pod, rebooted)),
        }
        # Several ends may have come since the last request: the earliest one took place.
        end = min(end_times, key=lambda name: end_times[name])
        if end_times[end] > objects.now:
            continue
        if not is_done(pod):
            recorded_end = "evicted" if end == "deleted" and _is_evicted(pod) else end
            _record_end(store, cluster_id, objects, pod, recorded_end)
        if min(end_times["deleted"], end_times["killed"]) <= objects.now:
            objects.remove(POD, pod)
        # Work that is done leaves the pod, as Kubernetes does; only the phase changes.
        elif not is_done(pod):
            objects.replace(POD, pod, _mark_succeeded(pod, objects.now))


def _get_reboot_time(pod: Object, rebooted: Mapping[str, float]) -> float:
    """Return when the pod's node restarted after the pod's start; infinity if never.

    Infinity, too, for a static pod. `rebooted` has the restart times in unix seconds by node name.
    """
    moment = rebooted.get(pod["spec"].get("nodeName"))
    started = pod.get("status", {}).get("startTime")
    # A static pod is started again by its kubelet, which keeps the mirror pod.
    if moment is None or started is None or "config.mirror" in str(pod["metadata"]):
        return float("inf")
    return moment if parse_timestamp(started) < moment else float("inf")


def place_pods(objects: ClusterObjects) -> None:
    """Start pending pods on ready, uncordoned nodes with enough free GPUs and usable claims.

    A pod that names its node starts there even if the node is cordoned or not ready; it fails if a
    ready, uncordoned node lacks GPUs for it. Pods without a fitting node stay Pending, and so do
    pods with a claim that is missing or is not yet bound to the volume that it names.
    """
    waiting = [pod for pod in objects.list_objects(POD) if pod["status"].get("phase") == "Pending"]
    if not waiting:
        return
    nodes = [
        node for node in objects.list_objects(NODE) if is_ready(node) and not is_cordoned(node)
    ]
    free_gpus = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(_GPU, "0"))
        for node in nodes
    }
    for pod in objects.list_objects(POD):
        if not is_done(pod) and pod["spec"].get("nodeName") in free_gpus:
            free_gpus[pod["spec"]["nodeName"]] -= count_gpus(pod)
    for pod in waiting:
        requested_node = pod["spec"].get("nodeName")
        # A pod that names its node goes past the scheduler; the kubelet refuses what does not fit.
        if free_gpus.get(requested_node, 0) < 0:
            free_gpus[requested_node] += count_gpus(pod)
            objects.replace(POD, pod, _mark_rejected(pod))
            continue
        node_name = requested_node or _choose_node(pod, nodes, free_gpus)
        # The pod waits: no node fits, the named node is not there, or a claim is not bound.
        if objects.get(NODE, node_name or "") is None or not _has_usable_claims(pod, objects):
            continue
        if "nodeName" not in pod["spec"]:
            free_gpus[str(node_name)] -= count_gpus(pod)
        objects.replace(POD, pod, _mark_started(pod, str(node_name), objects.now))


def count_gpus(pod: Object) -> int:
    """Return the number of GPUs of all containers; limits win over requests."""
    resources = (container.get("resources", {}) for container in pod["spec"].get("containers", []))
    return sum(
        int(
            parse_quantity(
                {**resource.get("requests", {}), **resource.get("limits", {})}.get(_GPU, "0")
            )
        )
        for resource in resources
    )


def list_claims(pod: Object) -> list[str]:
    """Return the names of the volume claims that the pod uses, all in the pod's namespace."""
    volumes = pod["spec"].get("volumes") or []
    return [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in volumes
        if "persistentVolumeClaim" in volume
    ]


def mark_evicted(pod: Object, now: float) -> Object:
    """Return the pod with the condition `DisruptionTarget` of an eviction since `now`."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": format_timestamp(now),
    }
    status = pod["status"]
    other_conditions = [
        other for other in status.get("conditions", []) if other["type"] != condition["type"]
    ]
    return {**pod, "status": {**status, "conditions": [*other_conditions, condition]}}


def list_ended_pods(store: Store, cluster_id: str) -> list[dict[str, Any]]:
    """Return how a cluster's pods ended, oldest first: `pod`, `node`, `how` and `noticed_at`.

    The member `how` is succeeded, evicted, deleted or killed; `noticed_at` is in unix seconds, not
    before the end.
    """
    return [json.loads(body) for body in store.list_all(_get_ends_kind(cluster_id))]


def _is_evicted(pod: Object) -> bool:
    """Return whether an eviction was requested for the pod: condition `DisruptionTarget`."""
    conditions = pod["status"].get("conditions", [])
    return any(condition["type"] == "DisruptionTarget" for condition in conditions)


def _record_end(
    store: Store, cluster_id: str, objects: ClusterObjects, pod: Object, end: str
) -> None:
    """Store for tests how a pod ended: `succeeded`, `evicted`, `deleted` or `killed`."""
    metadata = pod["metadata"]
    note = {
        "pod": f"{metadata.get('namespace')}/{metadata['name']}",
        "node": pod["spec"].get("nodeName"),
        "how": end,
        "noticed_at": objects.now,
    }
    store.put(_get_ends_kind(cluster_id), metadata["uid"], json.dumps(note))


def _get_ends_kind(cluster_id: str) -> str:
    """Return the store's kind for the records of how a cluster's pods ended."""
    return f"kubernetes/{cluster_id}/ended"


def _mark_succeeded(pod: Object, now: float) -> Object:
    """Return the running pod in phase Succeeded since `now`, no longer ready."""
    annotations = {**pod["metadata"]["annotations"]}
    del annotations[_ENDS_AT]
    status = {
        **pod["status"],
        "phase": "Succeeded",
        "conditions": _build_conditions(now, ready=False),
    }
    metadata = {**pod["metadata"], "annotations": annotations}
    return {**pod, "metadata": metadata, "status": status}


def _mark_started(pod: Object, node: str, now: float) -> Object:
    """Return the pod Running on `node` since `now`.

    A pod with a declared run time gets the time of its end.
    """
    annotations = {**pod["metadata"].get("annotations", {})}
    # The work begins with the start, not with the creation of the pod.
    if RUNS_FOR in annotations:
        annotations[_ENDS_AT] = str(now + float(annotations[RUNS_FOR]))
    return {
        **pod,
        "metadata": {**pod["metadata"], "annotations": annotations},
        "spec": {**pod["spec"], "nodeName": node},
        "status": {
            "phase": "Running",
            "startTime": format_timestamp(now),
            "conditions": _build_conditions(now, ready=True),
        },
    }


def _mark_rejected(pod: Object) -> Object:
    """Return the pod in phase Failed, rejected by the kubelet for lack of GPUs on the node."""
    message = f"Pod was rejected: Node didn't have enough resource: {_GPU}"
    status = {"phase": "Failed", "reason": f"OutOf{_GPU}", "message": message}
    return {**pod, "status": status}


def _build_conditions(now: float, *, ready: bool) -> list[dict[str, str]]:
    """Return the conditions `Ready` and `ContainersReady` of a pod since `now`."""
    state = {"status": str(ready), "lastTransitionTime": format_timestamp(now)}
    return [{"type": "Ready", **state}, {"type": "ContainersReady", **state}]


def _choose_node(pod: Object, nodes: list[Object], free_gpus: dict[str, int]) -> str | None:
    """Return the name of the node for a pod: the one with the most free GPUs.

    Only nodes with the labels of the pod's `nodeSelector` count. None if no node has enough;
    `free_gpus` is by node name.
    """
    required_labels = pod["spec"].get("nodeSelector") or {}
    names = [
        node["metadata"]["name"]
        for node in nodes
        if required_labels.items() <= node["metadata"].get("labels", {}).items()
    ]
    fitting = [name for name in names if free_gpus[name] >= count_gpus(pod)]
    # The emptiest node, so that pods spread.
    return max(fitting, key=lambda name: free_gpus[name], default=None)


def _has_usable_claims(pod: Object, objects: ClusterObjects) -> bool:
    """Return whether every claim of the pod exists, and is bound or still to be provisioned."""
    namespace = pod["metadata"]["namespace"]
    claims = [objects.get(CLAIM, name, namespace) for name in list_claims(pod)]
    return all(
        claim is not None
        and (claim["status"]["phase"] == "Bound" or not claim["spec"].get("volumeName"))
        for claim in claims
    )


def list_budgets(objects: ClusterObjects, pod: Object) -> list[Object]:
    """Return the disruption budgets in the pod's namespace whose selector matches the pod."""
    labels = pod["metadata"].get("labels", {})
    return [
        budget
        for budget in objects.list_objects(BUDGET, pod["metadata"]["namespace"])
        if is_selected(budget["spec"].get("selector"), labels)
    ]
