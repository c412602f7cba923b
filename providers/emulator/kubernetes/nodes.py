"""Show the workers of a Together cluster as nodes of its Kubernetes API.

`controllers` calls `sync_nodes` at every request; the emulated Together asks which nodes are
cordoned before it shrinks a cluster.
"""

from typing import Any

from gpuform.providers.emulator.kubernetes.kinds import NODE
from gpuform.providers.emulator.kubernetes.objects import (
    ClusterObjects,
    Object,
    format_timestamp,
    parse_timestamp,
)
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
