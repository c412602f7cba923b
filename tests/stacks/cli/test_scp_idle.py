"""SCP nodes that `gpuform expire` stops as idle: by Kubernetes and Lens, look by look."""

import base64
import json
import urllib.request
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

from gpuform.providers.emulator.together import ADMIN_KEY

POOL = """
node_pools:
  pool:
    platform: scp
    node_pool_id: POOL001-krw1a
    cluster_fabric_name: fabric1
    gpu_node_name_prefix: train-worker
    nodes: {"0": {}, "1": {}}
    image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
    server_type_id: f90e8ef54cc2451b825608e9f95f7bcb
    region_id: kr-west1
    vpc_id: e58348b1bc9148e5af86500fd4ef99ca
    subnet_id: ab313c43291e4b678f4bacffe10768ae
    os_user_password: Abcdef12!
    drain: {kubernetes: {kubeconfig: kubeconfig}}
    idle: {below: 5%, for: 30m}
"""
CLUSTER = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "billing_type": "ON_DEMAND",
}
OBSERVATION_INTERVAL_S = 600.0


def send(planned_project: PlannedProject, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {ADMIN_KEY}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{planned_project.url}/{path}", data, headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def advance(planned_project: PlannedProject, seconds: float) -> None:
    send(planned_project, "_emulator/clock", {"advance": seconds})


def get_node_states(planned_project: PlannedProject) -> set[str]:
    return {
        gpu_node["status"]
        for gpu_node in send(planned_project, "_emulator/objects")["scp"]["gpu_nodes"]
    }


def show_all_gpus(planned_project: PlannedProject) -> None:
    """Make Lens show every GPU of the pool: its top five prove nothing about sixteen GPUs."""
    gpus = [
        {"nodeName": f"train-worker-{node}", "deviceId": gpu, "value": 0.4, "gpuModel": "H100"}
        for node in range(2)
        for gpu in range(8)
    ]
    metric = {"serial": 1, "unit": "%", "yAxisMax": 100, "yAxisMin": 0, "data": gpus}
    send(planned_project, "_emulator/lens/settings", {"heatmap": {"utilization": metric}})


@pytest.fixture
def pool(planned_project: PlannedProject) -> tuple[PlannedProject, str]:
    """Create a pool whose nodes are a cluster's workers, and return the cluster's id."""
    (planned_project.project / "__main__.py").write_text(
        "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    )
    (planned_project.project / "topology.yaml").write_text(POOL)
    made = send(planned_project, "together/v1/compute/clusters", CLUSTER)["cluster_id"]
    advance(planned_project, 7200)
    description = send(planned_project, f"together/v1/compute/clusters/{made}")
    (planned_project.project / "kubeconfig").write_bytes(
        base64.b64decode(description["kube_config"])
    )
    ran = planned_project.run("up", "--yes")
    assert ran.code == 0, ran.err
    advance(planned_project, 7200)
    return planned_project, made


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_expire_stops_an_idle_pool_after_enough_observations(
    pool: tuple[PlannedProject, str],
) -> None:
    planned_project, _ = pool
    show_all_gpus(planned_project)
    for _ in range(3):
        ran = planned_project.run("expire", "--yes")
        assert (ran.code, get_node_states(planned_project)) == (0, {"RUNNING"}), ran.err
        assert "pool is not stopped as idle: idle for " in ran.out + ran.err
        advance(planned_project, OBSERVATION_INTERVAL_S)
    dry = planned_project.run("expire", "--dry-run")
    assert (dry.code, get_node_states(planned_project)) == (3, {"RUNNING"}), dry.out
    assert '~ state: "RUNNING" => "STOPPED"  # idle: no job, and each GPU used below 5%' in dry.out
    done = planned_project.run("expire", "--yes")
    assert (done.code, get_node_states(planned_project)) == (0, {"STOPPED"}), done.err
    assert planned_project.run("drift", "--detailed-exitcode").code == 0
    next_up = planned_project.run("up", "--yes", "--refresh")
    assert 'state: stays "STOPPED": stopped by idleness, each GPU used below 5%' in next_up.out
    assert planned_project.run("refresh", "--yes", "--expect-no-changes").code == 0
    assert get_node_states(planned_project) == {"STOPPED"}
    assert planned_project.run("up", "--yes", "--allow", "start-terminated").code == 0
    assert get_node_states(planned_project) == {"RUNNING"}


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_dry_run_and_status_record_no_observation(
    pool: tuple[PlannedProject, str],
) -> None:
    planned_project, _ = pool
    show_all_gpus(planned_project)
    for _ in range(5):
        assert planned_project.run("expire", "--dry-run").code == 0
        assert "idle for less than a minute" in planned_project.run("status", "--refresh").out
        advance(planned_project, OBSERVATION_INTERVAL_S)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_job_or_a_busy_gpu_restarts_the_idle_time(pool: tuple[PlannedProject, str]) -> None:
    planned_project, cluster = pool
    show_all_gpus(planned_project)
    pod = {"name": "train-0", "namespace": "ml", "node": "train-worker-1", "runs_for": 300}
    for _ in range(3):
        assert planned_project.run("expire", "--yes").code == 0
        advance(planned_project, OBSERVATION_INTERVAL_S)
    send(planned_project, f"_emulator/kubernetes/{cluster}/pods", pod)
    ran = planned_project.run("expire", "--yes")
    because = "pool is not stopped as idle: the scheduler: train-worker-1 runs ml/train-0"
    assert because in ran.out + ran.err
    advance(planned_project, OBSERVATION_INTERVAL_S)
    consumer = {"kind": "Job", "name": "t", "namespace": "ml", "uid": "1"}
    consumer |= {"stat": {"gpuRequest": 32, "gpuUtilization": 0.9}, "source": "k8s"}
    send(planned_project, "_emulator/lens/settings", {"consumers": [consumer]})
    ran = planned_project.run("expire", "--yes")
    assert "Lens: overview: utilization is 90%, but no GPU of gpuHeatmap" in ran.out + ran.err
    assert get_node_states(planned_project) == {"RUNNING"}
