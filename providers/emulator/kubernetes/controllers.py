"""What keeps pods in number: replica sets, stateful sets, jobs and daemon sets; and the owners."""

from typing import Any

from gpuform.providers.emulator.kubernetes.kinds import (
    DAEMON_SET,
    JOB,
    NODE,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    Kind,
)
from gpuform.providers.emulator.kubernetes.objects import Object, Objects
from gpuform.providers.emulator.kubernetes.pods import is_active, is_done
from gpuform.providers.emulator.store import Store


def run_controllers(store: Store, objects: Objects) -> None:
    """Once: pods that are missing are created, those of no owner are removed."""
    _remove_orphans(objects)
    pods: dict[str, list[Object]] = {}
    for pod in objects.of(POD):
        for owner in pod["metadata"].get("ownerReferences", []):
            pods.setdefault(owner["uid"], []).append(pod)
    for kind, wanted in (
        (DAEMON_SET, _daemons),
        (REPLICA_SET, _replicas),
        (STATEFUL_SET, _members),
        (JOB, _tasks),
    ):
        for owner in objects.of(kind):
            own = pods.get(owner["metadata"]["uid"], [])
            if "deletionTimestamp" in owner["metadata"]:
                continue
            for name, node in wanted(store, objects, owner, own):
                objects.add(POD, _pod(kind, owner, name, node))
            objects.replace(kind, owner, {**owner, "status": _status(kind, owner, own)})


_Missing = list[tuple[str, str | None]]


def _daemons(store: Store, objects: Objects, owner: Object, own: list[Object]) -> _Missing:
    """One on every node, whether it is cordoned or not."""
    taken = {pod["spec"].get("nodeName") for pod in own if not is_done(pod)}
    nodes = [node["metadata"]["name"] for node in objects.of(NODE)]
    return [(_suffixed(store, owner), node) for node in nodes if node not in taken]


def _replicas(store: Store, _: Objects, owner: Object, own: list[Object]) -> _Missing:
    missing = owner["spec"].get("replicas", 1) - sum(map(is_active, own))
    return [(_suffixed(store, owner), None) for _ in range(missing)]


def _members(_store: Store, _: Objects, owner: Object, own: list[Object]) -> _Missing:
    """Numbered; a new one comes when the old one of its number is gone."""
    taken = {pod["metadata"]["name"] for pod in own}
    names = [f"{owner['metadata']['name']}-{at}" for at in range(owner["spec"].get("replicas", 1))]
    return [(name, None) for name in names if name not in taken]


def _tasks(store: Store, _: Objects, owner: Object, own: list[Object]) -> _Missing:
    succeeded = sum(pod["status"].get("phase") == "Succeeded" for pod in own)
    left = owner["spec"].get("completions", 1) - succeeded
    wanted = min(owner["spec"].get("parallelism", 1), left)
    return [(_suffixed(store, owner), None) for _ in range(wanted - sum(map(is_active, own)))]


def _suffixed(store: Store, owner: Object) -> str:
    return f"{owner['metadata']['name']}-{store.new_id()[:5]}"


def _pod(kind: Kind, owner: Object, name: str, node: str | None) -> Object:
    template = owner["spec"]["template"]
    spec: dict[str, Any] = {**template["spec"]}
    if node is not None:
        spec["nodeName"] = node
    reference = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
    metadata = {
        **template.get("metadata", {}),
        "name": name,
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [reference],
    }
    return {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _status(kind: Kind, owner: Object, own: list[Object]) -> dict[str, Any]:
    running = sum(pod["status"].get("phase") == "Running" for pod in own)
    if kind is JOB:
        succeeded = sum(pod["status"].get("phase") == "Succeeded" for pod in own)
        is_complete = succeeded >= owner["spec"].get("completions", 1)
        conditions = [{"type": "Complete", "status": "True"}] if is_complete else []
        return {"active": running, "succeeded": succeeded, "conditions": conditions}
    if kind is DAEMON_SET:
        return {
            "currentNumberScheduled": len(own),
            "desiredNumberScheduled": len(own),
            "numberReady": running,
            "numberMisscheduled": 0,
        }
    return {"replicas": len(own), "readyReplicas": running, "availableReplicas": running}


def _remove_orphans(objects: Objects) -> None:
    """What all the owners of an object are gone for goes as well (background deletion)."""
    uids = {each["metadata"]["uid"] for _, each in objects.all()}
    for kind, each in list(objects.all()):
        owners = each["metadata"].get("ownerReferences") or []
        if owners and all(owner["uid"] not in uids for owner in owners):
            objects.remove(kind, each)
