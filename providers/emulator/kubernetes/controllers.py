"""Run the controllers of a cluster: replica sets, stateful sets, jobs and daemon sets, and all that
happened since somebody last looked.

Also pod disruption budgets, which say how many pods may be evicted now, and the pods of Slurm.

Nothing runs in the background, as everywhere in the emulator: every request first brings the
objects to the time of the clock.
"""

import math
from typing import Any

from gpuform.providers.emulator.kubernetes.kinds import (
    BUDGET,
    DAEMON_SET,
    JOB,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    REPLICA_SET,
    STATEFUL_SET,
    Kind,
)
from gpuform.providers.emulator.kubernetes.nodes import rebooted, sync_nodes
from gpuform.providers.emulator.kubernetes.objects import Object, Objects, selected, timestamp
from gpuform.providers.emulator.kubernetes.pods import (
    end_pods,
    is_active,
    is_done,
    is_healthy,
    place_pods,
)
from gpuform.providers.emulator.kubernetes.readiness import run_engine
from gpuform.providers.emulator.kubernetes.storage import sync_claims, sync_volumes
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.catalogue import ApiError
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.operations import TogetherOperations


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
    return f"{owner['metadata']['name']}-{store.create_id()[:5]}"


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


def count_budgets(objects: Objects) -> None:
    """Bring the status of every budget to the pods that there are."""
    for budget in objects.of(BUDGET):
        objects.replace(BUDGET, budget, {**budget, "status": _budget_status(objects, budget)})


def budgets_of(objects: Objects, pod: Object) -> list[Object]:
    labels = pod["metadata"].get("labels", {})
    return [
        budget
        for budget in objects.of(BUDGET, pod["metadata"]["namespace"])
        if selected(budget["spec"].get("selector"), labels)
    ]


def _budget_status(objects: Objects, budget: Object) -> dict[str, int]:
    selector = budget["spec"].get("selector")
    pods = [
        pod
        for pod in objects.of(POD, budget["metadata"]["namespace"])
        if selected(selector, pod["metadata"].get("labels", {})) and not is_done(pod)
    ]
    expected, healthy = _expected(objects, pods), sum(map(is_healthy, pods))
    desired = _desired(budget, expected)
    return {
        "observedGeneration": budget["metadata"].get("generation", 1),
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(0, healthy - desired) if expected else 0,
    }


def _expected(objects: Objects, pods: list[Object]) -> int:
    """What the pods' controllers want to have; pods without one count as they are."""
    owners = {
        owner["uid"]: (owner["kind"], owner["name"], pod["metadata"]["namespace"])
        for pod in pods
        for owner in pod["metadata"].get("ownerReferences", [])
    }
    kinds = {kind.name: kind for kind in KINDS}
    found = [objects.get(kinds[kind], *place) for kind, *place in owners.values() if kind in kinds]
    scaled = {each["metadata"]["uid"]: each for each in found if each and "spec" in each}
    alone = sum(
        not any(owner["uid"] in scaled for owner in pod["metadata"].get("ownerReferences", []))
        for pod in pods
    )
    return alone + sum(int(each["spec"].get("replicas", 1)) for each in scaled.values())


def _desired(budget: Object, expected: int) -> int:
    spec = budget["spec"]
    if "maxUnavailable" in spec:
        return max(0, expected - _number(spec["maxUnavailable"], expected))
    return _number(spec.get("minAvailable", 0), expected)


def _number(value: int | str, whole: int) -> int:
    """A number, or a share of the whole such as `50%`, rounded up."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(whole * int(value[:-1]) / 100)
    return int(value)


_SLURM = "slurm"
_SLURM_PODS = {
    "slurm-controller-0": ("slurmctld", "controller"),
    "slurm-login-slinky-5c76c76644-cj9s9": ("login", "login"),
}
"""Name -> the application, which names its container too, and the component."""


def run_slurm(objects: Objects, cluster: Cluster) -> None:
    """Both pods run as long as the cluster is one of Slurm."""
    is_slurm = cluster.settings.cluster_type == "SLURM"
    if is_slurm and objects.get(NAMESPACE, _SLURM) is None:
        phase = {"phase": "Active"}
        objects.add(NAMESPACE, {"metadata": {"name": _SLURM}, "status": phase})
    for name, (application, component) in _SLURM_PODS.items():
        pod = objects.get(POD, name, _SLURM)
        if pod is not None and not is_slurm:
            objects.remove(POD, pod)
        elif pod is None and is_slurm:
            labels = {
                "app.kubernetes.io/name": application,
                "app.kubernetes.io/instance": "slurm",
                "app.kubernetes.io/component": component,
            }
            image = f"ghcr.io/slinkyproject/{application}:25.05"
            home = f"{cluster.settings.cluster_name}-control-0"
            spec = {"nodeName": home, "containers": [{"name": application, "image": image}]}
            status = {
                "phase": "Running",
                "startTime": timestamp(objects.now),
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            metadata = {"name": name, "namespace": _SLURM, "labels": labels}
            objects.add(POD, {"metadata": metadata, "spec": spec, "status": status})


_SYSTEM = "kube-system"
_PLUGIN = {"name": "nvidia-device-plugin", "namespace": _SYSTEM}


def running_cluster(store: Store, cluster_id: str, now: float) -> Cluster | None:
    """The cluster, if it is there and has a control plane."""
    try:
        cluster = TogetherOperations(store, now).get_cluster(cluster_id)
    except ApiError:
        return None
    return cluster if cluster.has_control_plane(now) else None


def brought_to(store: Store, cluster: Cluster, now: float) -> Objects:
    """The objects of a cluster as they are now, within a transaction."""
    objects = Objects(store, cluster.cluster_id, now)
    if objects.version == 0:
        _furnish(objects)
    left = sync_nodes(objects, cluster)
    run_slurm(objects, cluster)
    sync_volumes(store, objects, cluster)
    end_pods(store, cluster.cluster_id, objects, left, rebooted(cluster, now))
    settle(store, objects)
    return objects


def settle(store: Store, objects: Objects) -> None:
    """What follows at once from the objects that there are."""
    _mirror_proxies(objects)
    run_controllers(store, objects)
    sync_claims(objects)
    place_pods(objects)
    sync_claims(objects)
    count_budgets(objects)
    run_engine(store, objects)


def _furnish(objects: Objects) -> None:
    for name in ("default", _SYSTEM):
        objects.add(NAMESPACE, {"metadata": {"name": name}, "status": {"phase": "Active"}})
    labels = {"app": _PLUGIN["name"]}
    container = {"name": "plugin", "image": "nvcr.io/nvidia/k8s-device-plugin:v0.17.0"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    objects.add(DAEMON_SET, {"metadata": _PLUGIN, "spec": spec, "status": {}})


def _mirror_proxies(objects: Objects) -> None:
    """The kubelet of each node shows its static pod: nobody's delete ends it."""
    for node in objects.of(NODE):
        name = node["metadata"]["name"]
        if objects.get(POD, f"kube-proxy-{name}", _SYSTEM) is None:
            owner = {"apiVersion": "v1", "kind": "Node", "name": name, "controller": True}
            metadata = {
                "name": f"kube-proxy-{name}",
                "namespace": _SYSTEM,
                "annotations": {"kubernetes.io/config.mirror": node["metadata"]["uid"]},
                "ownerReferences": [{**owner, "uid": node["metadata"]["uid"]}],
            }
            container = {"name": "kube-proxy", "image": "registry.k8s.io/kube-proxy:v1.32.0"}
            spec = {"nodeName": name, "containers": [container]}
            objects.add(POD, {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}})
