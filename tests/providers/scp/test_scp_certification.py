"""Test certifications of SCP nodes in a Kubernetes, and the recreation of failed nodes.

The Kubernetes is that of an emulated cluster whose nodes have the names of the SCP nodes.
"""

import base64
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.emulator.together import ADMIN_KEY
from gpuform.schemas.policies.repair import FaultCause

NAMES = ["train-worker-0", "train-worker-1"]
CLUSTER = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
}
CATEGORY = {
    "domain": "communication",
    "variant": "nccl-all-reduce",
    "options": {"testScale": "intra-node"},
    "floor": 300,
}
REPAIR = {"approve": "automatic", "on": ["failed_certification"]}


@pytest.fixture
def kubeconfig(environment: Any, tmp_path: Path) -> str:
    headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
    made = environment.http.post("/together/v1/compute/clusters", json=CLUSTER, headers=headers)
    id_ = made.raise_for_status().json()["cluster_id"]
    environment.move_clock(3600)
    answer = environment.http.get(f"/together/v1/compute/clusters/{id_}", headers=headers).json()
    path = tmp_path / "kubeconfig"
    path.write_bytes(base64.b64decode(answer["kube_config"]))
    return str(path)


@pytest.fixture
def nodes(environment: Any, pool_inputs: dict[str, Any], node_inputs: dict[str, Any]) -> list[Any]:
    """Create two nodes in the fabric of a pool."""
    pool = environment.create("NodePool", {**pool_inputs, "count": 2}, "pool")
    fabric = pool.outs["cluster_fabric_id"]
    named = {**node_inputs, "cluster_fabric_id": fabric, "repair": REPAIR}
    return [environment.create("GpuNode", {**named, "gpu_node_name": name}, name) for name in NAMES]


def declare_certification(nodes: list[Any], kubeconfig: str, **fields: Any) -> dict[str, Any]:
    return {
        "name": "fabric",
        "node_ids": [node.id for node in nodes],
        "kubernetes": {"kubeconfig": kubeconfig},
        "categories": [CATEGORY],
        **fields,
    }


def slow_down_nodes(environment: Any, **nodes: float) -> None:
    slow_nodes = {name.replace("_", "-"): figure for name, figure in nodes.items()}
    environment.call_emulator("POST", "kubernetes/settings", {"slow_nodes": slow_nodes})


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_failed_node_is_recreated_and_the_new_one_is_certified(
    environment: Any, nodes: list[Any], kubeconfig: str
) -> None:
    slow_down_nodes(environment, train_worker_1=250)
    proof = environment.create("Certification", declare_certification(nodes, kubeconfig), "fabric")
    assert "node train-worker-1: communication/nccl-all-reduce: 250 GB/s" in proof.reason
    assert [evidence["machine"] for evidence in proof.outs["evidence"]] == [nodes[0].id]

    refreshed_nodes = [environment.refresh(node) for node in nodes]
    assert [node.outs["faults"] for node in refreshed_nodes[:1]] == [[]]
    [fault] = refreshed_nodes[1].outs["faults"]
    assert (fault["cause"], fault["instance"]) == (FaultCause.FAILED_CERTIFICATION, nodes[1].id)
    replaced = environment.diff(refreshed_nodes[1], refreshed_nodes[1].inputs)
    assert replaced == ['repair["train-worker-1"]']


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_changed_nodes_plan_another_certification(
    environment: Any, nodes: list[Any], kubeconfig: str
) -> None:
    proof = environment.create(
        "Certification", declare_certification(nodes[:1], kubeconfig), "fabric"
    )
    assert proof.outs["ready"] is True
    changes = environment.list_changes(proof, declare_certification(nodes, kubeconfig))
    assert changes["evidence"] == ("1 node proven", "all nodes proven")
    proof = environment.update(proof, declare_certification(nodes, kubeconfig))
    assert [evidence["node"] for evidence in proof.outs["evidence"]] == NAMES
    assert environment.list_changes(proof, declare_certification(nodes[:1], kubeconfig)).keys() == {
        "node_ids"
    }


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_missing_node_is_not_certified(
    environment: Any, nodes: list[Any], kubeconfig: str
) -> None:
    ids = [*(node.id for node in nodes), "no-such-node"]
    proof = environment.create(
        "Certification", declare_certification(nodes, kubeconfig, node_ids=ids), "fabric"
    )
    assert proof.outs["ready"] is False
    assert "2 of 3 declared nodes exist" in proof.reason


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"kubernetes": None}, "kubernetes"),
        ({"categories": [{**CATEGORY, "options": None, "job": {}}]}, "categories[0].job.script"),
        ({"slurm": {"via": "ssh"}}, "slurm"),
    ],
)
def test_contradictory_inputs_are_refused(
    environment: Any, fields: dict[str, Any], path: str
) -> None:
    inputs = {**declare_certification([], "k"), "node_ids": ["a"], **fields}
    assert path in environment.find_problems("Certification", inputs)
