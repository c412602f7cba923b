"""Test Together's clusters whose nodes have 4 GPUs: every count of nodes follows the workers."""

from typing import Any

import pytest
from support.schedulers.cluster_with_jobs import Cluster, Properties, create_cluster

from gpuform.providers.context import use_context
from gpuform.providers.together.certification import CertificationLifecycle
from gpuform.providers.together.cluster_view import count_nodes, evaluate_cluster
from gpuform.schemas.together import wire

GB200 = {"region": "eu-north-1", "gpu_type": "GB200_SXM"}


@pytest.fixture
def cluster(emulator: Any, cluster_inputs: Properties) -> Cluster:
    """Create a cluster with 32 GPUs, which are 8 nodes."""
    return create_cluster(emulator, {**cluster_inputs, **GB200})


def test_a_cluster_is_ready_with_a_node_for_every_4_gpus(cluster: Cluster) -> None:
    assert cluster.outs["ready"] is True
    assert [node["num_gpus"] for node in cluster.outs["gpu_worker_nodes"]] == [4] * 8


@pytest.mark.parametrize(("reported_gpus", "is_done"), [([4] * 3, False), ([4, 4, 4, 0], True)])
def test_a_worker_without_a_gpu_count_counts_as_one_of_the_others(
    reported_gpus: list[int], is_done: bool
) -> None:
    workers = [{"host_name": f"w{at}", "num_gpus": gpus} for at, gpus in enumerate(reported_gpus)]
    cluster = wire.Cluster.model_validate(
        {"cluster_id": "c1", "num_gpus": 16, "status": "Ready", "gpu_worker_nodes": workers}
    )
    assert evaluate_cluster(cluster, 16).is_done is is_done


@pytest.mark.parametrize(
    ("gpu_type", "gpus_per_node"),
    [("GB200_SXM", 4), ("GB300_SXM", 4), ("B200_SXM", 8), ("H100_SXM", 8), ("", 8)],
)
def test_a_cluster_without_workers_has_as_many_nodes_as_its_type_needs(
    gpu_type: str, gpus_per_node: int
) -> None:
    cluster = wire.Cluster.model_validate(
        {"cluster_id": "c1", "gpu_type": gpu_type, "num_gpus": 16, "status": "Scheduling"}
    )
    assert count_nodes(cluster, 16) == 16 // gpus_per_node


def test_shrinking_removes_a_node_for_every_4_gpus(cluster: Cluster) -> None:
    for worker in range(6):
        cluster.start_pod(worker)
    declared = cluster.declare(24.0)
    assert cluster.predict_removals(declared) == {
        "train-worker-6": ("idle", []),
        "train-worker-7": ("idle", []),
    }
    outputs = cluster.update(declared)
    assert outputs["ready"] is True
    assert cluster.workers == ["0", "1", "2", "3", "4", "5"]
    assert (cluster.cordoned, cluster.drain_record) == ([], None)


def test_preemptible_nodes_are_not_counted_by_num_gpus(cluster: Cluster) -> None:
    cluster.inputs = {**cluster.inputs, "num_preemptible_gpus": 8.0}
    cluster.update(cluster.declare(32.0))
    cluster.emulator.advance(3600)
    cluster.refresh()
    assert cluster.outs["allocated_preemptible_gpus"] == 8
    removals = cluster.predict_removals(cluster.declare(24.0))
    assert removals is not None
    assert len(removals) == 2


def _declare_certification(cluster: Cluster, num_gpus: int) -> Properties:
    test = {"domain": "communication", "variant": "nccl-all-reduce", "floor": 300}
    declared = {"cluster_id": cluster.id, "num_gpus": num_gpus, "name": "fabric"}
    return {**declared, "categories": [test]}


def test_a_certification_waits_for_all_nodes_and_names_the_new_ones(cluster: Cluster) -> None:
    lifecycle = CertificationLifecycle()
    declared = _declare_certification(cluster, 32)
    with use_context(cluster.emulator.create_context("fabric")):
        created = lifecycle.create(declared)
    assert len(created.outs["evidence"]) == 8
    larger = {**declared, "num_gpus": 40}
    certify_again, _ = lifecycle.hooks.find_planned_changes(created.outs, larger)
    assert certify_again.because == "certify again: 2 new nodes"


def test_a_certification_is_refused_while_a_declared_node_is_missing(cluster: Cluster) -> None:
    lifecycle = CertificationLifecycle()
    with use_context(cluster.emulator.create_context("fabric")):
        created = lifecycle.create(_declare_certification(cluster, 40))
    assert created.outs["not_ready_reason"].startswith("8 of 10 declared nodes exist")
