"""Show the workers of a Together cluster in its Kubernetes, and emulate Slinky's operator.

`controllers` calls `sync_nodes` at every request; the emulated Together asks which nodes are
cordoned before it shrinks a cluster.

The rules of Slinky are those of slurm-operator's controller of NodeSets (`syncCordon` and
`syncSlurmTopology` in `nodeset_sync.go`) and of its page "NodeSet Operations". Version 1.3 drains
for the annotation `pod-cordon-requested` (release notes of 1.3.0), earlier versions for
`pod-cordon`; from 1.3 on `pod-cordon` is the operator's own.
"""

from typing import Any, Final

from gpuform.providers.emulator.clock import format_timestamp
from gpuform.providers.emulator.kubernetes.kinds import NAMESPACE, NODE, POD, KubernetesSettings
from gpuform.providers.emulator.kubernetes.objects import (
    ClusterObjects,
    Object,
    parse_timestamp,
)
from gpuform.providers.emulator.slurm.scheduler import SlurmCluster
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.nodes import Node


def sync_nodes(objects: ClusterObjects, cluster: Cluster) -> dict[str, float]:
    """Add a node object for each running worker, and remove the nodes of other workers.

    Nodes are not Ready while their machines restart. Returns when the worker of each node removed
    by this call left, in unix seconds by host name.
    """
    workers = [*cluster.workers, *cluster.preemptible]
    running = {worker.host_name: worker for worker in workers if worker.is_running(objects.now)}
    removed_at = {worker.host_name: worker.removed_at for worker in workers}
    departed_nodes: dict[str, float] = {}
    for node in objects.list_objects(NODE):
        name = node["metadata"]["name"]
        if name not in running:
            objects.remove(NODE, node)
            # The platform's own time, so that pods end when the node left and not when somebody
            # looked.
            departed_nodes[name] = removed_at.get(name) or objects.now
    for name, worker in running.items():
        node = objects.get(NODE, name) or objects.add(NODE, _build_node(worker, cluster))
        _apply_reboots(objects, node, worker)
    return departed_nodes


def find_reboots(cluster: Cluster, now: float) -> dict[str, float]:
    """Return when each restarted machine last began or ended a restart, by host name.

    Times are unix seconds. Restarts and ends after `now` do not count.
    """
    reboots = {}
    for worker in (*cluster.workers, *cluster.preemptible):
        begun_spans = [span for span in worker.down if span[0] <= now]
        if begun_spans:
            start, end = max(begun_spans)
            reboots[worker.host_name] = end if end <= now else start
    return reboots


def _apply_reboots(objects: ClusterObjects, node: Object, worker: Node) -> None:
    """Store a node as not Ready while the worker's machine restarts, and as Ready afterwards.

    A node that was not Ready before the restart stays so, unless the restart revived the worker.
    """
    begun_spans = [span for span in worker.down if span[0] <= objects.now]
    if not begun_spans:
        return
    start, end = max(begun_spans)
    condition = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    since = parse_timestamp(condition["lastTransitionTime"])
    if objects.now < end and is_ready(node):
        objects.replace(NODE, node, set_readiness(node, start, ready=False))
    # A node that was broken before the restart stays so, unless the repair has ended what was
    # wrong.
    elif (
        objects.now >= end > since
        and not is_ready(node)
        and (since >= start or (worker.revived_at or 0.0) >= end)
    ):
        objects.replace(NODE, node, set_readiness(node, end, ready=True))


def is_cordoned(node: Object) -> bool:
    """Return whether the node takes no new pods: `spec.unschedulable` is true."""
    return bool(node.get("spec", {}).get("unschedulable"))


def is_ready(node: Object) -> bool:
    """Return whether the node's condition `Ready` has the status True."""
    conditions = node.get("status", {}).get("conditions", [])
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


def set_readiness(node: Object, now: float, *, ready: bool) -> Object:
    """Return the node with the condition `Ready` set to True, or to Unknown if not `ready`.

    Unknown is the status of a node whose kubelet no longer reports.
    """
    status = {**node["status"], "conditions": [_build_ready_condition(now, ready=ready)]}
    return {**node, "status": status}


def _build_node(worker: Node, cluster: Cluster) -> Object:
    """Return the node object of a worker."""
    settings = cluster.settings
    machine = settings.machine
    joined_at = worker.running_at or 0.0
    capacity = {
        "cpu": str(machine.num_cpu_cores),
        "memory": f"{int(machine.memory_gib)}Gi",
        "nvidia.com/gpu": str(machine.num_gpus),
        "pods": "110",
    }
    return {
        "metadata": {
            "name": worker.host_name,
            # The platform's id: a machine that comes back under its name is another node.
            "uid": worker.node_id,
            "creationTimestamp": format_timestamp(joined_at),
            "labels": {
                "kubernetes.io/hostname": worker.host_name,
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": settings.gpu_type,
                "topology.kubernetes.io/region": settings.region,
                "nvidia.com/gpu.present": "true",
                "nvidia.com/cuda.driver-version.full": cluster.driver.nvidia_driver_version,
            },
        },
        # Together's instance id, by which clients find the machine of a node.
        "spec": {"providerID": f"together://{worker.instance_id}"},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [_build_ready_condition(joined_at, ready=True)],
            "addresses": [{"type": "Hostname", "address": worker.host_name}],
            "nodeInfo": {
                "kubeletVersion": "v1.32.0",
                "kubeProxyVersion": "v1.32.0",
                "kernelVersion": "6.8.0-generic",
                "containerRuntimeVersion": "containerd://2.0.0",
                "machineID": worker.instance_id,
                "systemUUID": worker.instance_id,
                "bootID": worker.node_id,
                "osImage": cluster.driver.os,
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    }


def _build_ready_condition(moment: float, *, ready: bool) -> dict[str, Any]:
    """Return the condition `Ready` since `moment`: True, or Unknown if not `ready`."""
    return {
        "type": "Ready",
        "status": "True" if ready else "Unknown",
        "reason": "KubeletReady" if ready else "NodeStatusUnknown",
        "message": "kubelet is posting ready status" if ready else "Kubelet stopped posting status",
        "lastTransitionTime": format_timestamp(moment),
        "lastHeartbeatTime": format_timestamp(moment),
    }


def list_cordoned_hosts(store: Store, cluster_id: str, now: float) -> frozenset[str]:
    """Return the host names of a cluster's cordoned workers, as the stored node objects say."""
    nodes = ClusterObjects(store, cluster_id, now).list_objects(NODE)
    return frozenset(
        node["metadata"]["name"] for node in nodes if node.get("spec", {}).get("unschedulable")
    )


_NAMESPACE: Final = "slurm"
_PREFIX: Final = "nodeset.slinky.slurm.net/"
HOSTNAME_LABEL: Final = f"{_PREFIX}pod-hostname"
CORDON: Final = f"{_PREFIX}pod-cordon"
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
        remaining = {key: value for key, value in changed_annotations.items() if value}
        if remaining != annotations:
            objects.replace(
                POD, pod, {**pod, "metadata": {**pod["metadata"], "annotations": remaining}}
            )
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
