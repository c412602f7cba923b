"""Test the node placement that platforms report."""

from typing import Any

import pytest

from gpuform.providers.catalog import list_kinds, load_lifecycle_class
from gpuform.schemas.resource_facts import ResourcePlacement
from gpuform.schemas.values import UNKNOWN


def get_placement(platform: str, kind: str, outputs: Any) -> ResourcePlacement:
    reported_placement = load_lifecycle_class(platform, kind).hooks.get_placement(outputs)
    assert reported_placement is not None
    return reported_placement


def test_the_placement_of_a_together_cluster() -> None:
    workers = [
        {"host_name": "train-worker-0", "slurm_worker_hostname": "slurm-worker-0"},
        {"host_name": "train-worker-1"},
        {"host_name": ""},
    ]
    outputs = {
        "cluster_name": "train",
        "region": "a",
        "placed_region": "b",
        "kube_config": "hunter2",
    }
    reported_placement = get_placement(
        "together", "Cluster", {**outputs, "gpu_worker_nodes": workers}
    )
    assert (
        reported_placement.name,
        reported_placement.region,
        reported_placement.pool,
        reported_placement.fabrics,
    ) == ("train", "b", "", {})
    assert [(node.name, node.name_in_slurm) for node in reported_placement.nodes] == [
        ("train-worker-0", "slurm-worker-0"),
        ("train-worker-1", "train-worker-1"),
    ]
    assert reported_placement.has_own_scheduler
    assert reported_placement.untold == ("fabrics", "switches")
    assert "hunter2" not in repr(reported_placement) + reported_placement.model_dump_json()


def test_the_placement_of_an_scp_pool_and_node() -> None:
    node = {
        "gpu_node_name": "train-001",
        "policy_ip": "10.0.0.1",
        "cluster_fabric_id": "f1",
        "cluster_fabric_name": "train-a",
    }
    common = {"region_id": "kr-west1", "node_pool_id": "POOL001-krw1a"}
    drain = {"kubernetes": {"kubeconfig": "~/.kube/train"}}
    pool = get_placement(
        "scp",
        "NodePool",
        {**common, "gpu_node_name_prefix": "train", "gpu_nodes": {"1": node}, "drain": drain},
    )
    node_placement = get_placement("scp", "GpuNode", {**common, **node})
    assert pool.nodes == node_placement.nodes
    assert pool.fabrics == {"f1": "train-a"}
    assert (pool.region, pool.pool, pool.name) == ("kr-west1", "POOL001-krw1a", "train")
    assert pool.kubernetes is not None
    assert pool.kubernetes.kubeconfig == "~/.kube/train"
    assert node_placement.kubernetes is None
    assert not pool.has_own_scheduler


@pytest.mark.parametrize("odd", [None, UNKNOWN, 7, "text", [None], {"a": None}, [{"host_name": 1}]])
def test_invalid_and_unknown_values_are_omitted(odd: Any) -> None:
    names = ("gpu_worker_nodes", "gpu_nodes", "drain", "region", "region_id", "gpu_node_name")
    for platform, kind in list_kinds():
        reported_placement = load_lifecycle_class(platform, kind).hooks.get_placement(
            dict.fromkeys(names, odd)
        )
        if reported_placement is not None:
            assert [node for node in reported_placement.nodes if node.name != "text"] == [], (
                platform,
                kind,
            )
