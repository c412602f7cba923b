"""Emulate Slinky's operator: the pods of Slurm, and the drains of Slurm nodes that pods ask for.

`controllers` calls this module at every request. The rules are those of slurm-operator's controller
of NodeSets (`syncCordon` and `syncSlurmTopology` in `nodeset_sync.go`) and of its page "NodeSet
Operations". Version 1.3 drains for the annotation `pod-cordon-requested` (release notes of 1.3.0),
earlier versions for `pod-cordon`; from 1.3 on `pod-cordon` is the operator's own.
"""

from typing import Final

from gpuform.providers.emulator.kubernetes.kinds import NAMESPACE, NODE, POD
from gpuform.providers.emulator.kubernetes.nodes import is_cordoned
from gpuform.providers.emulator.kubernetes.objects import ClusterObjects, Object, format_timestamp
from gpuform.providers.emulator.kubernetes.settings import KubernetesSettings
from gpuform.providers.emulator.slurm.scheduler import SlurmCluster
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.nodes import Node

_NAMESPACE: Final = "slurm"
_PREFIX: Final = "nodeset.slinky.slurm.net/"
HOSTNAME_LABEL: Final = f"{_PREFIX}pod-hostname"
CORDON: Final = f"{_PREFIX}pod-cordon"
CORDON_REQUESTED: Final = f"{_PREFIX}pod-cordon-requested"
TOPOLOGY_SPEC: Final = "topology.slinky.slurm.net/spec"
_REASON_PREFIX: Final = "slurm-operator: "
_CONTROL_PODS: Final = {
    "slurm-controller-0": ("slurmctld", "controller"),
    "slurm-login-slinky-5c76c76644-cj9s9": ("login", "login"),
}
"""Name -> the application, which names the pod's container too, and the component."""


def sync_slurm_pods(objects: ClusterObjects, cluster: Cluster) -> None:
    """Create Slurm's missing pods: controller, login, and a worker on each running node.

    Removes the workers of nodes that have left, and in a cluster without Slurm all these pods.
    """
    is_slurm = cluster.settings.cluster_type == "SLURM"
    if is_slurm and objects.get(NAMESPACE, _NAMESPACE) is None:
        phase = {"phase": "Active"}
        objects.add(NAMESPACE, {"metadata": {"name": _NAMESPACE}, "status": phase})
    # On a control plane node, which is no node of the API: the pods take no worker's place.
    control_node = f"{cluster.settings.host_prefix}-control-0"
    pods = {
        name: _build_pod(name, application, component, control_node)
        for name, (application, component) in _CONTROL_PODS.items()
    }
    workers = [*cluster.workers, *cluster.preemptible]
    for worker in workers:
        if worker.is_running(objects.now):
            name = _name_worker_pod(worker)
            pods[name] = _build_pod(name, "slurmd", "worker", worker.host_name)
            pods[name]["metadata"]["labels"][HOSTNAME_LABEL] = worker.slurm_name
    running_names = {*pods} if is_slurm else set()
    for name in sorted({*_CONTROL_PODS, *map(_name_worker_pod, workers)}):
        existing_pod = objects.get(POD, name, _NAMESPACE)
        if existing_pod is not None and name not in running_names:
            objects.remove(POD, existing_pod)
        elif existing_pod is None and name in running_names:
            status = {
                "phase": "Running",
                "startTime": format_timestamp(objects.now),
                "conditions": [{"type": "Ready", "status": "True"}],
            }
            objects.add(POD, {**pods[name], "status": status})


def run_slinky(store: Store, objects: ClusterObjects, cluster: Cluster) -> None:
    """Drain and resume Slurm nodes as their pods and Kubernetes nodes ask, and copy topologies.

    A drain with the reason of somebody else stays as it is, and so does a node that is DOWN. Does
    nothing where Slurm or Slinky is missing, or while Slurm's controller does not answer.
    """
    settings = KubernetesSettings.load(store)
    if cluster.settings.cluster_type != "SLURM" or not settings.slinky:
        return
    slurm = SlurmCluster(store, cluster, objects.now)
    if not slurm.is_answering:
        return
    has_changed = False
    for name, worker in slurm.nodes.items():
        pod = objects.get(POD, _name_worker_pod(worker), _NAMESPACE)
        node = objects.get(NODE, worker.host_name)
        if pod is None or node is None:
            continue
        annotations = pod["metadata"].get("annotations") or {}
        # The operator copies the node's topology to the pod, and from there to Slurm.
        spec = (node["metadata"].get("annotations") or {}).get(TOPOLOGY_SPEC, "")
        changed_annotations = {**annotations, TOPOLOGY_SPEC: spec}
        reason = slurm.get_reason(name)
        is_foreign = reason is not None and not reason.text.startswith(_REASON_PREFIX)
        if not is_foreign and "DOWN" not in slurm.list_states(name):
            is_requested = annotations.get(settings.slinky_request) == "true"
            drain_reason = _explain_drain(pod, node, is_requested=is_requested)
            has_changed |= _set_drain(slurm, name, drain_reason)
            if settings.slinky_request != CORDON:
                changed_annotations[CORDON] = "true" if drain_reason else None
        kept = {key: value for key, value in changed_annotations.items() if value}
        if kept != annotations:
            objects.replace(POD, pod, {**pod, "metadata": {**pod["metadata"], "annotations": kept}})
    if has_changed:
        slurm.save()


def _explain_drain(pod: Object, node: Object, *, is_requested: bool) -> str:
    """Return the operator's reason for the drain of a pod's Slurm node, or "" if none is due."""
    label = f"{_NAMESPACE}/{pod['metadata']['name']}"
    if is_cordoned(node):
        name = node["metadata"]["name"]
        return f"{_REASON_PREFIX}Node ({name}) was cordoned, Pod ({label}) must be cordoned"
    return f"{_REASON_PREFIX}Pod ({label}) was cordoned" if is_requested else ""


def _set_drain(slurm: SlurmCluster, name: str, reason: str) -> bool:
    """Drain a node for `reason`, or resume it without one; return whether anything changed.

    A node that is drained already keeps its old reason.
    """
    is_drained = "DRAIN" in slurm.list_states(name)
    if reason and not is_drained:
        slurm.drain(name)
        slurm.set_reason(name, reason)
    elif is_drained and not reason:
        slurm.resume(name, also_down=False)
    return is_drained != bool(reason)


def _name_worker_pod(worker: Node) -> str:
    """Return the name of the pod in which a worker is a node of Slurm."""
    return f"slinky-{worker.slurm_name}"


def _build_pod(name: str, application: str, component: str, node_name: str) -> Object:
    """Return a pod of Slurm without a status; the application names the container, too."""
    labels = {
        "app.kubernetes.io/name": application,
        "app.kubernetes.io/instance": "slurm",
        "app.kubernetes.io/component": component,
    }
    image = f"ghcr.io/slinkyproject/{application}:25.05"
    spec = {"nodeName": node_name, "containers": [{"name": application, "image": image}]}
    return {"metadata": {"name": name, "namespace": _NAMESPACE, "labels": labels}, "spec": spec}
