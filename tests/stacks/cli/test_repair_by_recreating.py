"""Broken nodes of SCP and clusters of TensorOne by the commands: shown, reviewed, done, or left."""

import base64
import json
import shutil
import urllib.request
from collections.abc import Sequence
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

from gpuform.providers.emulator.together import ADMIN_KEY
from gpuform.providers.scp.client import ScpClient

POOL = """
node_pools:
  train:
    platform: scp
    node_pool_id: POOL001-krw1a
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train-worker
    nodes: {"0": {}, "1": {}, "2": {}}
    image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
    server_type_id: f90e8ef54cc2451b825608e9f95f7bcb
    region_id: kr-west1
    vpc_id: e58348b1bc9148e5af86500fd4ef99ca
    subnet_id: ab313c43291e4b678f4bacffe10768ae
    os_user_password: Only4Tests!
"""
SOLO = """
gpu_nodes:
  solo:
    platform: scp
    gpu_node_name: solo
    cluster_fabric_id: "{{ node_pools.train.cluster_fabric_id }}"
    image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
    server_type_id: f90e8ef54cc2451b825608e9f95f7bcb
    region_id: kr-west1
    vpc_id: e58348b1bc9148e5af86500fd4ef99ca
    subnet_id: ab313c43291e4b678f4bacffe10768ae
    os_user_password: Only4Tests!
    repair: {approve: automatic}
"""
WORKBENCH = """
clusters:
  workbench:
    platform: tensorone
    name: workbench
    gpu_type: A100
    gpu_count: 4
    storage_gb: 500
    region: us-west-2
    project_id: proj_456
    repair: {}
"""
TOGETHER = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 24,
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "shared_volume": {"volume_name": "data", "size_tib": 1, "region": "us-central-8"},
}
ROW = '~ repair["train-worker-1"]: "broken" => "REMAKE"  # its state is ERROR'


def call_platform(
    planned_project: PlannedProject, path: str, body: Any = None, **headers: str
) -> Any:
    data = None if body is None else json.dumps(body).encode()
    url = f"{planned_project.url}/{path}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def get_server_ids(planned_project: PlannedProject) -> dict[str, str]:
    gpu_nodes = call_platform(planned_project, "_emulator/objects")["scp"]["gpu_nodes"]
    return {gpu_node["name"]: gpu_node["id"] for gpu_node in gpu_nodes}


def fail_servers(planned_project: PlannedProject, *names: str) -> None:
    ids = get_server_ids(planned_project)
    for name in names or ("train-worker-1",):
        call_platform(planned_project, f"_emulator/scp/gpu-nodes/{ids[name]}", {"state": "ERROR"})


def declare(planned_project: PlannedProject, topology: str, *lines: str) -> None:
    (planned_project.project / "__main__.py").write_text(
        "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    )
    (planned_project.project / "topology.yaml").write_text(
        topology + "".join(f"    {line}\n" for line in lines)
    )
    up = planned_project.run("up", "--yes")
    assert up.code == 0, up.out + up.err


def expect_nothing_to_do(planned_project: PlannedProject) -> None:
    empty = planned_project.run("preview", "--refresh", "--expect-no-changes")
    assert (empty.code, empty.err) == (0, ""), empty.out
    assert planned_project.run("repair", "--dry-run").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_failed_node_is_planned_reviewed_and_recreated(
    planned_project: PlannedProject,
) -> None:
    declare(planned_project, POOL, "repair: {max_unhealthy: 50%}")
    before = get_server_ids(planned_project)
    fail_servers(planned_project)
    ran = planned_project.run("preview", "--refresh")
    assert (ran.code, "Not repaired" in ran.out, ROW in ran.out) == (0, False, True)
    due = planned_project.run("repair", "--dry-run", "--save-plan", "plan.json")
    assert (due.code, ROW in due.out) == (3, True)
    review = planned_project.run("review", "plan.json", "--format", "github")
    assert "train/train-worker-1 by REMAKE: its state is ERROR" in review.out
    assert get_server_ids(planned_project) == before
    done = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert (done.code, done.err) == (0, "")
    after = get_server_ids(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["train-worker-1"]
    expect_nothing_to_do(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_saved_repair_plan_is_refused_for_another_server_of_the_same_name(
    planned_project: PlannedProject,
) -> None:
    declare(planned_project, POOL, "repair: {}")
    fail_servers(planned_project)
    assert planned_project.run("repair", "--dry-run", "--save-plan", "plan.json").code == 3
    assert planned_project.run("repair", "--yes", "--allow", "repair").code == 0
    fail_servers(planned_project)
    before = get_server_ids(planned_project)
    refused = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert refused.code == 1
    assert "the repair of node train-worker-1 by REMAKE" in refused.out + refused.err
    assert get_server_ids(planned_project) == before


def test_a_recreation_that_nobody_reviewed_is_not_done(planned_project: PlannedProject) -> None:
    declare(planned_project, POOL, "repair: {}")
    before = get_server_ids(planned_project)
    fail_servers(planned_project)
    ran = planned_project.run("repair", "--yes")
    assert (ran.code, get_server_ids(planned_project)) == (0, before)
    assert "Not repaired: the repair needs a review of the plan" in ran.out
    up = planned_project.run("up", "--yes", "--refresh")
    assert (up.code, get_server_ids(planned_project)) == (1, before)
    assert "its state is ERROR; not repaired: the repair needs a review" in up.out + up.err


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_up_recreates_a_failed_node_without_a_repair_setting(
    planned_project: PlannedProject,
) -> None:
    declare(planned_project, POOL)
    before = get_server_ids(planned_project)
    fail_servers(planned_project)
    assert planned_project.run("repair", "--yes").code == 0
    assert get_server_ids(planned_project) == before
    ran = planned_project.run("preview", "--refresh")
    assert 'nodes["1"].state: "ERROR" => "RUNNING"' in ran.out
    assert planned_project.run("up", "--yes", "--refresh").code == 0
    assert get_server_ids(planned_project) != before
    expect_nothing_to_do(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_repair_by_name_recreates_a_node(planned_project: PlannedProject) -> None:
    declare(planned_project, POOL)
    before = get_server_ids(planned_project)
    assert planned_project.run("repair", "train-worker-2", "--yes").code == 0
    after = get_server_ids(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["train-worker-2"]
    other = planned_project.run("repair", "train-worker-2", "--mode", "REBOOT_VM", "--yes")
    assert other.code == 1
    assert "use one of REMAKE" in other.out + other.err
    expect_nothing_to_do(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_repair_killed_after_its_delete_is_resumed_by_the_same_command(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(planned_project, POOL)
    before = get_server_ids(planned_project)
    kill_after_delete(planned_project, monkeypatch, "train-worker-2")
    assert sorted(get_server_ids(planned_project)) == ["train-worker-0", "train-worker-1"]
    resumed = planned_project.run("repair", "train-worker-2", "--yes")
    assert resumed.code == 0, resumed.out + resumed.err
    after = get_server_ids(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["train-worker-2"]
    expect_nothing_to_do(planned_project)
    again = planned_project.run("repair", "train-worker-2", "--yes")
    assert (
        again.code,
        get_server_ids(planned_project)["train-worker-2"] != after["train-worker-2"],
    ) == (
        0,
        True,
    )


def kill_after_delete(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    """Run a repair whose process dies just after it deletes the node."""
    state, killed = planned_project.project / ".pulumi", planned_project.project.with_name("killed")
    delete = ScpClient.delete_nodes

    def die_after(self: ScpClient, ids: Sequence[str]) -> None:
        delete(self, ids)
        shutil.copytree(state, killed)
        refusal = {"method": "POST", "path": "gpu-nodes$", "status": 400, "count": None}
        call_platform(planned_project, "_emulator/faults", refusal)

    with monkeypatch.context() as patched:
        patched.setattr(ScpClient, "delete_nodes", die_after)
        assert planned_project.run("repair", node, "--yes").code == 1
    request = urllib.request.Request(f"{planned_project.url}/_emulator/faults", method="DELETE")
    urllib.request.urlopen(request).close()
    shutil.rmtree(state)
    killed.rename(state)
    shutil.rmtree(state / "locks", ignore_errors=True)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_killed_repair_of_a_single_node_is_resumed_by_the_same_command(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(planned_project, POOL + SOLO)
    before = get_server_ids(planned_project)
    kill_after_delete(planned_project, monkeypatch, "solo")
    assert "solo" not in get_server_ids(planned_project)
    resumed = planned_project.run("repair", "solo", "--yes")
    assert resumed.code == 0, resumed.out + resumed.err
    after = get_server_ids(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["solo"]
    expect_nothing_to_do(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_failed_single_node_is_replaced(planned_project: PlannedProject) -> None:
    declare(planned_project, POOL + SOLO)
    before = get_server_ids(planned_project)
    fail_servers(planned_project, "solo")
    due = planned_project.run("repair", "--dry-run")
    assert (due.code, 'repair["solo"]' in due.out) == (3, True), due.out + due.err
    done = planned_project.run("repair", "--yes")
    assert done.code == 0, done.out + done.err
    after = get_server_ids(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["solo"]
    expect_nothing_to_do(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_failed_node_with_dependents_is_left_to_up(planned_project: PlannedProject) -> None:
    other = SOLO.replace("gpu_nodes:\n", "").replace("solo", "other")
    declare(planned_project, POOL + SOLO + other, 'options: {depends_on: ["{{ gpu_nodes.solo }}"]}')
    before = get_server_ids(planned_project)
    fail_servers(planned_project, "solo")
    ran = planned_project.run("repair", "--yes")
    assert (ran.code, get_server_ids(planned_project)) == (1, before)
    assert (
        "solo cannot be replaced without the program, because of its dependents: other"
    ) in ran.out + ran.err
    up = planned_project.run("up", "--yes", "--refresh")
    assert up.code == 0, up.out + up.err
    after = get_server_ids(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["solo"]


def test_a_node_that_is_not_ready_in_kubernetes_is_recreated(
    planned_project: PlannedProject,
) -> None:
    key = {"Authorization": f"Bearer {ADMIN_KEY}"}
    path = "together/v1/compute/clusters"
    made = call_platform(planned_project, path, TOGETHER, **key)
    call_platform(planned_project, "_emulator/clock", {"advance": 7200})
    description = call_platform(planned_project, f"{path}/{made['cluster_id']}", **key)
    kubeconfig = planned_project.project / "kubeconfig"
    kubeconfig.write_bytes(base64.b64decode(description["kube_config"]))
    drain = f"drain: {{kubernetes: {{kubeconfig: {kubeconfig}}}}}"
    declare(planned_project, POOL, drain, "repair: {on: [not_ready], approve: automatic}")
    worker = f"_emulator/kubernetes/{made['cluster_id']}/nodes/train-worker-1"
    call_platform(planned_project, worker, {"ready": False})
    call_platform(planned_project, "_emulator/clock", {"advance": 300})
    assert planned_project.run("repair", "--dry-run").code == 0, "for five minutes only"
    call_platform(planned_project, "_emulator/clock", {"advance": 400})
    due = planned_project.run("repair", "--dry-run")
    assert due.code == 3
    row = '~ repair["train-worker-1"]: "broken" => "REMAKE"  # NotReady: Kubelet stopped posting'
    assert row in due.out
    assert "no job runs there (Kubernetes)" in due.out
    before = get_server_ids(planned_project)
    call_platform(planned_project, worker, {"ready": True})
    assert planned_project.run("repair", "--yes").code == 0
    assert get_server_ids(planned_project) == before


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_degraded_tensorone_cluster_is_restarted(planned_project: PlannedProject) -> None:
    declare(planned_project, WORKBENCH)
    (cluster,) = call_platform(planned_project, "_emulator/objects")["tensorone"]["clusters"]
    ill = {"status_details": {"health_checks": {"gpu_health": "degraded"}}}
    call_platform(planned_project, f"_emulator/tensorone/clusters/{cluster['id']}", {"shown": ill})
    ran = planned_project.run("repair", "--dry-run")
    assert (ran.code, "a GPU may be used at 5 % or more" in ran.out) == (0, True)
    call_platform(planned_project, f"_emulator/tensorone/clusters/{cluster['id']}", {"idle": True})
    due = planned_project.run("repair", "--dry-run")
    assert due.code == 3
    assert '~ repair["workbench"]: "broken" => "RESTART"' in due.out
    asked = len(planned_project.sent_changes)
    done = planned_project.run("repair", "--yes", "--allow", "repair")
    assert done.code == 0, done.out + done.err
    assert [change.rpartition("/")[2] for change in planned_project.sent_changes[asked:]] == [
        "stop",
        "start",
    ]
    result = planned_project.run("repair", "--dry-run")
    assert (result.code, "without success" in result.out) == (0, True)
