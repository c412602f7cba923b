"""The workers of a cluster as nodes of its API: they come and go as the platform says."""

from typing import Any

from gpuform.providers.emulator.kubernetes.kinds import NODE
from gpuform.providers.emulator.kubernetes.objects import Object, Objects, timestamp, unix_time
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.catalogue import MACHINES
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.nodes import GPUS_PER_WORKER, Node


def sync_nodes(objects: Objects, cluster: Cluster) -> dict[str, float]:
    """Every worker that runs is a node; the names of those that left, and since when."""
    workers = [*cluster.workers, *cluster.preemptible]
    running = {worker.host_name: worker for worker in workers if worker.is_running(objects.now)}
    removed_at = {worker.host_name: worker.removed_at for worker in workers}
    left: dict[str, float] = {}
    for node in objects.of(NODE):
        name = node["metadata"]["name"]
        if name not in running:
            objects.remove(NODE, node)
            left[name] = removed_at.get(name) or objects.now
    for name, worker in running.items():
        node = objects.get(NODE, name) or objects.add(NODE, _node(worker, cluster))
        _follow_reboots(objects, node, worker)
    return left


def rebooted(cluster: Cluster, now: float) -> dict[str, float]:
    """When the machines last began to start anew, or ended that, by host name, if they did."""
    found = {}
    for worker in (*cluster.workers, *cluster.preemptible):
        begun = [span for span in worker.down if span[0] <= now]
        if begun:
            start, end = max(begun)
            found[worker.host_name] = end if end <= now else start
    return found


def _follow_reboots(objects: Objects, node: Object, worker: Node) -> None:
    """It is not Ready while its machine starts anew; then as before, or Ready if that helped."""
    begun = [span for span in worker.down if span[0] <= objects.now]
    if not begun:
        return
    start, end = max(begun)
    condition = next(c for c in node["status"]["conditions"] if c["type"] == "Ready")
    since = unix_time(condition["lastTransitionTime"])
    if objects.now < end and is_ready(node):
        objects.replace(NODE, node, with_readiness(node, start, ready=False))
    elif (
        objects.now >= end > since
        and not is_ready(node)
        and (since >= start or (worker.revived_at or 0.0) >= end)
    ):
        objects.replace(NODE, node, with_readiness(node, end, ready=True))


def is_cordoned(node: Object) -> bool:
    return bool(node.get("spec", {}).get("unschedulable"))


def is_ready(node: Object) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def with_readiness(node: Object, now: float, *, ready: bool) -> Object:
    """The node with another condition `Ready`; False is Unknown, as of a kubelet that died."""
    status = {**node["status"], "conditions": [_ready(now, ready=ready)]}
    return {**node, "status": status}


def _node(worker: Node, cluster: Cluster) -> Object:
    settings = cluster.settings
    machine = MACHINES[settings.gpu_type]
    joined_at = worker.running_at or 0.0
    capacity = {
        "cpu": str(machine.num_cpu_cores),
        "memory": f"{int(machine.memory_gib)}Gi",
        "nvidia.com/gpu": str(GPUS_PER_WORKER),
        "pods": "110",
    }
    return {
        "metadata": {
            "name": worker.host_name,
            "uid": worker.node_id,
            "creationTimestamp": timestamp(joined_at),
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
        "spec": {"providerID": f"together://{worker.instance_id}"},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [_ready(joined_at, ready=True)],
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


def _ready(moment: float, *, ready: bool) -> dict[str, Any]:
    return {
        "type": "Ready",
        "status": "True" if ready else "Unknown",
        "reason": "KubeletReady" if ready else "NodeStatusUnknown",
        "message": "kubelet is posting ready status" if ready else "Kubelet stopped posting status",
        "lastTransitionTime": timestamp(moment),
        "lastHeartbeatTime": timestamp(moment),
    }


def cordoned(store: Store, cluster_id: str, now: float) -> frozenset[str]:
    """The host names of a cluster's cordoned workers."""
    nodes = Objects(store, cluster_id, now).of(NODE)
    return frozenset(
        node["metadata"]["name"] for node in nodes if node.get("spec", {}).get("unschedulable")
    )
