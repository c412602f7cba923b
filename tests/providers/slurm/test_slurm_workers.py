"""Test how a refresh shows the workers of a SLURM cluster as its Slurm reports them."""

from typing import Any

from support.platforms.provider_contexts import change_context
from support.schedulers.emulated_slurm import NODES, SlurmCluster

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.together.cluster import ClusterLifecycle


def read(call: ProviderContext, cluster: SlurmCluster) -> dict[str, Any]:
    with use_context(call):
        return dict(ClusterLifecycle().read(cluster.id, {}).outs)


def list_removed_jobs(outs: dict[str, Any], name: str) -> list[Any]:
    return [node.get(name) for node in outs["gpu_worker_nodes"]]


def list_notices(outs: dict[str, Any]) -> list[str]:
    return [notice.text for notice in ClusterLifecycle.hooks.list_notices({}, outs, 0.0)]


def create_context(outs: dict[str, Any], slurm_name: str) -> str:
    names = {n["slurm_worker_hostname"]: n["host_name"] for n in outs["gpu_worker_nodes"]}
    return str(names[slurm_name])


def update(cluster: SlurmCluster, *settings: str) -> None:
    *_, code = cluster.run_command("scontrol", "update", f"NodeName={NODES[1]}", *settings)
    assert code == 0


def test_the_jobs_of_both_schedulers_are_shown(
    call: ProviderContext, cluster: SlurmCluster
) -> None:
    cluster.submit(nodes=[NODES[0]])  # at work is no news
    outs = read(call, cluster)
    assert list_removed_jobs(outs, "kubernetes") == ["Ready"] * 3
    assert list_removed_jobs(outs, "slurm") == ["usable"] * 3
    assert (outs["ready"], list_notices(outs)) == (True, [])


def test_a_node_that_is_down_in_slurm_is_not_ready(
    call: ProviderContext, cluster: SlurmCluster
) -> None:
    update(cluster, "State=DOWN", "Reason=bad GPU")
    outs = read(call, cluster)
    name = create_context(outs, NODES[1])
    assert outs["ready"] is False
    assert outs["not_ready_reason"] == f"Slurm cannot use worker {name}: DOWN (bad GPU)"


def test_a_node_drained_in_slurm_is_reported(call: ProviderContext, cluster: SlurmCluster) -> None:
    update(cluster, "State=DRAIN", "Reason=new disk")
    outs = read(call, cluster)
    name = create_context(outs, NODES[1])
    assert outs["ready"] is True
    message = f"worker {name} takes no new jobs: it is drained (new disk) in Slurm"
    assert list_notices(outs) == [message]


def test_a_silent_controller_does_not_fail_a_refresh(
    call: ProviderContext, cluster: SlurmCluster
) -> None:
    unchecked: list[str] = []
    change_context(call, on_skipped_check=unchecked.append)
    cluster.call_slurm("POST", "/controller", {"is_answering": False})
    outs = read(call, cluster)
    assert (outs["ready"], list_removed_jobs(outs, "slurm")) == (True, [None] * 3)
    assert list_removed_jobs(outs, "kubernetes") == ["Ready"] * 3
    assert "Slurm did not answer" in outs["workers_not_asked"]
    assert unchecked == [f"the workers of cluster train: {outs['workers_not_asked']}"]
