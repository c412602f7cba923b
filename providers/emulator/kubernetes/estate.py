"""A cluster's API at a time: what has happened since somebody last looked.

Nothing runs in the background, as everywhere in the emulator: every request first brings the
objects to the time of the clock.
"""

from gpuform.providers.emulator.kubernetes.controllers import (
    count_budgets,
    run_controllers,
    run_slurm,
)
from gpuform.providers.emulator.kubernetes.kinds import DAEMON_SET, NAMESPACE, NODE, POD
from gpuform.providers.emulator.kubernetes.nodes import rebooted, sync_nodes
from gpuform.providers.emulator.kubernetes.objects import Objects
from gpuform.providers.emulator.kubernetes.pods import end_pods, place_pods
from gpuform.providers.emulator.kubernetes.readiness import run_engine
from gpuform.providers.emulator.kubernetes.storage import sync_claims, sync_volumes
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.errors import ApiError
from gpuform.providers.emulator.together.operations import Operations

_SYSTEM = "kube-system"
_PLUGIN = {"name": "nvidia-device-plugin", "namespace": _SYSTEM}


def running_cluster(store: Store, cluster_id: str, now: float) -> Cluster | None:
    """The cluster, if it is there and has a control plane."""
    try:
        cluster = Operations(store, now).cluster(cluster_id)
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
