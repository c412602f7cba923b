"""Test a shrinking SLURM cluster: Slurm has the jobs, and Kubernetes the nodes to cordon."""

from typing import Any

import httpx
import pytest
from support.schedulers.emulated_slurm import SlurmCluster

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.emulator.server import Server
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.records import Drains
from gpuform.providers.slurm.scheduler import create_slurm_scheduler
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.schemas.policies.drain import SlurmInputs

Properties = dict[str, Any]


def shrink(call: ProviderContext, cluster: SlurmCluster, **drain: Any) -> Properties:
    """Shrink the cluster from three nodes to two."""
    lifecycle, program = ClusterLifecycle(), {"__provider": "pickled"}
    with use_context(call):
        read = lifecycle.read(cluster.id, {})
        news = {**read.inputs, "num_gpus": 16, "drain": drain, **program}
        return lifecycle.update(cluster.id, {**read.outs, **program}, news).outs


def list_workers(outs: Properties) -> list[str]:
    return [node["host_name"] for node in outs["gpu_worker_nodes"]]


def open_everywhere(cluster: SlurmCluster) -> bool:
    slurm = create_slurm_scheduler(SlurmInputs(), kubeconfig=cluster.kubeconfig, cluster="train")
    kubernetes = KubernetesScheduler(get_kubernetes_client(cluster.kubeconfig, "train"))
    return not any(node.is_cordoned for node in (*slurm.list_nodes(), *kubernetes.list_nodes()))


def test_shrinking_removes_the_node_without_a_job_of_slurm(
    call: ProviderContext, cluster: SlurmCluster
) -> None:
    names = list_slurm_names(cluster)
    jobs = [cluster.submit(nodes=[names[at]]) for at in (0, 2)]
    outs = shrink(call, cluster)
    assert [name[-1] for name in list_workers(outs)] == ["0", "2"]
    assert outs["ready"] is True
    assert [cluster.get_job_states()[job] for job in jobs] == ["RUNNING", "RUNNING"]
    assert open_everywhere(cluster)


@pytest.mark.slow
def test_shrinking_waits_for_a_job_of_slurm(call: ProviderContext, cluster: SlurmCluster) -> None:
    names = list_slurm_names(cluster)
    job = cluster.submit(nodes=[names[1]], runs_for=1200)
    outs = shrink(call, cluster, nodes=[names[1]])
    assert [name[-1] for name in list_workers(outs)] == ["0", "2"]
    assert cluster.get_job_states()[job] == "COMPLETED"


def test_without_an_answer_of_slurm_no_node_is_removed(
    call: ProviderContext, cluster: SlurmCluster, server: Server
) -> None:
    url = f"{server.url}/_emulator/slurm/{cluster.id}/controller"
    httpx.post(url, json={"is_answering": False}, trust_env=False, verify=False).raise_for_status()
    with pytest.raises(GpuformError, match=r"cluster .*: no node was removed"):
        shrink(call, cluster)
    httpx.post(url, json={"is_answering": True}, trust_env=False, verify=False).raise_for_status()
    assert open_everywhere(cluster)
    assert Drains.from_intents(call.intents).find(cluster.id) is None


@pytest.mark.slow
def test_a_node_with_a_job_beyond_the_wait_is_not_removed(
    call: ProviderContext, cluster: SlurmCluster
) -> None:
    names = list_slurm_names(cluster)
    jobs = [cluster.submit(nodes=[name]) for name in names]
    with pytest.raises(GpuformError, match=f"jobs still run on .*{jobs[2]}"):
        shrink(call, cluster, wait_minutes=10)
    assert set(cluster.get_job_states().values()) == {"RUNNING"}
    assert open_everywhere(cluster)


def list_slurm_names(cluster: SlurmCluster) -> list[str]:
    slurm = create_slurm_scheduler(SlurmInputs(), kubeconfig=cluster.kubeconfig, cluster="train")
    return [node.name for node in slurm.list_nodes()]
