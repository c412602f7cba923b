"""How platforms say where the nodes of what they make are."""

from typing import Any

import pytest

from gpuform.providers.catalog import list_kinds, load_lifecycle_class
from gpuform.schemas.resource_facts import ResourcePlacement
from gpuform.schemas.values import UNKNOWN


def placement(platform: str, kind: str, seen: Any) -> ResourcePlacement:
    found = load_lifecycle_class(platform, kind).get_placement(seen)
    assert found is not None
    return found


def test_a_cluster_of_together() -> None:
    workers = [
        {"host_name": "train-worker-0", "slurm_worker_hostname": "slurm-worker-0"},
        {"host_name": "train-worker-1"},
        {"host_name": ""},
    ]
    seen = {"cluster_name": "train", "region": "a", "placed_region": "b", "kube_config": "hunter2"}
    found = placement("together", "Cluster", {**seen, "gpu_worker_nodes": workers})
    assert (found.name, found.region, found.pool, found.fabrics) == ("train", "b", "", {})
    assert [(node.name, node.name_in_slurm) for node in found.nodes] == [
        ("train-worker-0", "slurm-worker-0"),
        ("train-worker-1", "train-worker-1"),
    ]
    assert found.has_own_scheduler
    assert found.untold == ("fabrics", "switches")
    assert "hunter2" not in repr(found) + found.model_dump_json()


def test_a_pool_and_a_node_of_scp() -> None:
    node = {
        "gpu_node_name": "train-001",
        "policy_ip": "10.0.0.1",
        "cluster_fabric_id": "f1",
        "cluster_fabric_name": "train-a",
    }
    common = {"region_id": "kr-west1", "node_pool_id": "POOL001-krw1a"}
    drain = {"kubernetes": {"kubeconfig": "~/.kube/train"}}
    pool = placement(
        "scp",
        "NodePool",
        {**common, "gpu_node_name_prefix": "train", "gpu_nodes": {"1": node}, "drain": drain},
    )
    one = placement("scp", "GpuNode", {**common, **node})
    assert pool.nodes == one.nodes
    assert pool.fabrics == {"f1": "train-a"}
    assert (pool.region, pool.pool, pool.name) == ("kr-west1", "POOL001-krw1a", "train")
    assert pool.kubernetes is not None
    assert pool.kubernetes.kubeconfig == "~/.kube/train"
    assert one.kubernetes is None
    assert not pool.has_own_scheduler


@pytest.mark.parametrize("odd", [None, UNKNOWN, 7, "text", [None], {"a": None}, [{"host_name": 1}]])
def test_what_is_odd_or_not_known_yet_is_left_out(odd: Any) -> None:
    names = ("gpu_worker_nodes", "gpu_nodes", "drain", "region", "region_id", "gpu_node_name")
    for platform, kind in list_kinds():
        found = load_lifecycle_class(platform, kind).get_placement(dict.fromkeys(names, odd))
        if found is not None:
            assert [node for node in found.nodes if node.name != "text"] == [], (platform, kind)
