"""What happens to pods: they are placed on nodes, run, end in time, are deleted or killed."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gpuform.providers.emulator.kubernetes.kinds import CLAIM, NODE, POD
from gpuform.providers.emulator.kubernetes.nodes import is_cordoned, is_ready
from gpuform.providers.emulator.kubernetes.objects import (
    Object,
    Objects,
    amount,
    timestamp,
    unix_time,
)
from gpuform.providers.emulator.store import Store

RUNS_FOR = "emulator.gpuform.dev/runs-for"
"""An annotation of pods: seconds of the clock after which they have done their work."""
_ENDS_AT = "emulator.gpuform.dev/ends-at"
_GPU = "nvidia.com/gpu"
_DONE = ("Succeeded", "Failed")


def is_done(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in _DONE


def is_active(pod: Object) -> bool:
    """Neither done nor being deleted."""
    return not is_done(pod) and "deletionTimestamp" not in pod["metadata"]


def is_healthy(pod: Object) -> bool:
    """As disruption budgets count: ready, and not being deleted."""
    return is_active(pod) and pod["status"].get("phase") == "Running"


def end_pods(
    store: Store,
    cluster_id: str,
    objects: Objects,
    left: Mapping[str, float],
    rebooted: Mapping[str, float] = MappingProxyType({}),
) -> None:
    """Pods that did their work, were deleted or lost their node, whatever came first.

    A node is lost when it has `left`, and to all that ran there before it `rebooted`.
    """
    for pod in objects.of(POD):
        node = pod["spec"].get("nodeName")
        deleted_at = pod["metadata"].get("deletionTimestamp")
        moments = {
            "succeeded": float(pod["metadata"].get("annotations", {}).get(_ENDS_AT, "inf")),
            "deleted": unix_time(deleted_at) if deleted_at else float("inf"),
            "killed": min(left.get(node, float("inf")), _rebooted_at(pod, rebooted)),
        }
        how = min(moments, key=lambda name: moments[name])
        if moments[how] > objects.now:
            continue
        if not is_done(pod):
            told = "evicted" if how == "deleted" and _is_evicted(pod) else how
            _note(store, cluster_id, objects, pod, told)
        if min(moments["deleted"], moments["killed"]) <= objects.now:
            objects.remove(POD, pod)
        elif not is_done(pod):
            objects.replace(POD, pod, _succeeded(pod, objects.now))


def _rebooted_at(pod: Object, rebooted: Mapping[str, float]) -> float:
    """When its node began to start anew under it; never where it was started afterwards."""
    moment = rebooted.get(pod["spec"].get("nodeName"))
    started = pod.get("status", {}).get("startTime")
    if moment is None or started is None or "config.mirror" in str(pod["metadata"]):
        return float("inf")
    return moment if unix_time(started) < moment else float("inf")


def place_pods(objects: Objects) -> None:
    """Pods without a node get one that is ready, takes pods and has the GPUs they ask for."""
    waiting = [pod for pod in objects.of(POD) if pod["status"].get("phase") == "Pending"]
    if not waiting:
        return
    nodes = [node for node in objects.of(NODE) if is_ready(node) and not is_cordoned(node)]
    free = {
        node["metadata"]["name"]: int(node["status"]["allocatable"].get(_GPU, "0"))
        for node in nodes
    }
    for pod in objects.of(POD):
        if not is_done(pod) and pod["spec"].get("nodeName") in free:
            free[pod["spec"]["nodeName"]] -= gpus(pod)
    for pod in waiting:
        asked = pod["spec"].get("nodeName")
        if free.get(asked, 0) < 0:
            free[asked] += gpus(pod)
            objects.replace(POD, pod, _rejected(pod))
            continue
        name = asked or _home(pod, nodes, free)
        if objects.get(NODE, name or "") is None or not _has_its_claims(pod, objects):
            continue
        if "nodeName" not in pod["spec"]:
            free[str(name)] -= gpus(pod)
        objects.replace(POD, pod, _started(pod, str(name), objects.now))


def gpus(pod: Object) -> int:
    asked = (each.get("resources", {}) for each in pod["spec"].get("containers", []))
    return sum(
        int(amount({**one.get("requests", {}), **one.get("limits", {})}.get(_GPU, "0")))
        for one in asked
    )


def claims_of(pod: Object) -> list[str]:
    """The names of the claims that it mounts."""
    volumes = pod["spec"].get("volumes") or []
    return [
        each["persistentVolumeClaim"]["claimName"]
        for each in volumes
        if "persistentVolumeClaim" in each
    ]


def evicted(pod: Object, now: float) -> Object:
    """The pod with the condition that tells why it is deleted."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
        "lastTransitionTime": timestamp(now),
    }
    status = pod["status"]
    kept = [each for each in status.get("conditions", []) if each["type"] != condition["type"]]
    return {**pod, "status": {**status, "conditions": [*kept, condition]}}


def ended(store: Store, cluster_id: str) -> list[dict[str, Any]]:
    """How pods ended: succeeded, evicted, deleted or killed, in order."""
    return [json.loads(body) for body in store.list_all(_notes(cluster_id))]


def _is_evicted(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "DisruptionTarget" for each in conditions)


def _note(store: Store, cluster_id: str, objects: Objects, pod: Object, how: str) -> None:
    metadata = pod["metadata"]
    note = {
        "pod": f"{metadata.get('namespace')}/{metadata['name']}",
        "node": pod["spec"].get("nodeName"),
        "how": how,
        "noticed_at": objects.now,
    }
    store.put(_notes(cluster_id), metadata["uid"], json.dumps(note))


def _notes(cluster_id: str) -> str:
    return f"kubernetes/{cluster_id}/ended"


def _succeeded(pod: Object, now: float) -> Object:
    annotations = {**pod["metadata"]["annotations"]}
    del annotations[_ENDS_AT]
    status = {**pod["status"], "phase": "Succeeded", "conditions": _conditions(now, ready=False)}
    metadata = {**pod["metadata"], "annotations": annotations}
    return {**pod, "metadata": metadata, "status": status}


def _started(pod: Object, node: str, now: float) -> Object:
    annotations = {**pod["metadata"].get("annotations", {})}
    if RUNS_FOR in annotations:
        annotations[_ENDS_AT] = str(now + float(annotations[RUNS_FOR]))
    return {
        **pod,
        "metadata": {**pod["metadata"], "annotations": annotations},
        "spec": {**pod["spec"], "nodeName": node},
        "status": {
            "phase": "Running",
            "startTime": timestamp(now),
            "conditions": _conditions(now, ready=True),
        },
    }


def _rejected(pod: Object) -> Object:
    """As a kubelet answers a pod that was given to its node past the scheduler."""
    told = f"Pod was rejected: Node didn't have enough resource: {_GPU}"
    status = {"phase": "Failed", "reason": f"OutOf{_GPU}", "message": told}
    return {**pod, "status": status}


def _conditions(now: float, *, ready: bool) -> list[dict[str, str]]:
    told = {"status": str(ready), "lastTransitionTime": timestamp(now)}
    return [{"type": "Ready", **told}, {"type": "ContainersReady", **told}]


def _home(pod: Object, nodes: list[Object], free: dict[str, int]) -> str | None:
    wanted = pod["spec"].get("nodeSelector") or {}
    names = [
        node["metadata"]["name"]
        for node in nodes
        if wanted.items() <= node["metadata"].get("labels", {}).items()
    ]
    fitting = [name for name in names if free[name] >= gpus(pod)]
    return max(fitting, key=lambda name: free[name], default=None)


def _has_its_claims(pod: Object, objects: Objects) -> bool:
    """Every claim is there, and bound unless it waits for this pod."""
    namespace = pod["metadata"]["namespace"]
    claims = [objects.get(CLAIM, name, namespace) for name in claims_of(pod)]
    return all(
        claim is not None
        and (claim["status"]["phase"] == "Bound" or not claim["spec"].get("volumeName"))
        for claim in claims
    )
