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


def control(planned_project: PlannedProject, path: str, body: Any = None, **headers: str) -> Any:
    data = None if body is None else json.dumps(body).encode()
    url = f"{planned_project.url}/{path}"
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def servers(planned_project: PlannedProject) -> dict[str, str]:
    found = control(planned_project, "_emulator/objects")["scp"]["gpu_nodes"]
    return {each["name"]: each["id"] for each in found}


def fail(planned_project: PlannedProject, *names: str) -> None:
    ids = servers(planned_project)
    for name in names or ("train-worker-1",):
        control(planned_project, f"_emulator/scp/gpu-nodes/{ids[name]}", {"state": "ERROR"})


def declared(planned_project: PlannedProject, topology: str, *lines: str) -> None:
    (planned_project.project / "__main__.py").write_text(
        "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
    )
    (planned_project.project / "topology.yaml").write_text(
        topology + "".join(f"    {each}\n" for each in lines)
    )
    up = planned_project.run("up", "--yes")
    assert up.code == 0, up.out + up.err


def nothing_left(planned_project: PlannedProject) -> None:
    empty = planned_project.run("preview", "--refresh", "--expect-no-changes")
    assert (empty.code, empty.err) == (0, ""), empty.out
    assert planned_project.run("repair", "--dry-run").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_failed_node_becomes_a_row_a_comment_a_new_node_and_an_empty_plan(
    planned_project: PlannedProject,
) -> None:
    declared(planned_project, POOL, "repair: {max_unhealthy: 50%}")
    before = servers(planned_project)
    fail(planned_project)
    shown = planned_project.run("preview", "--refresh")
    assert (shown.code, "Not repaired" in shown.out, ROW in shown.out) == (0, False, True)
    due = planned_project.run("repair", "--dry-run", "--save-plan", "plan.json")
    assert (due.code, ROW in due.out) == (3, True)
    review = planned_project.run("review", "plan.json", "--format", "github")
    assert "train/train-worker-1 by REMAKE: its state is ERROR" in review.out
    assert servers(planned_project) == before
    done = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert (done.code, done.err) == (0, "")
    after = servers(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["train-worker-1"]
    nothing_left(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_saved_plan_is_refused_for_another_server_of_the_name(
    planned_project: PlannedProject,
) -> None:
    declared(planned_project, POOL, "repair: {}")
    fail(planned_project)
    assert planned_project.run("repair", "--dry-run", "--save-plan", "plan.json").code == 3
    assert planned_project.run("repair", "--yes", "--allow", "repair").code == 0
    fail(planned_project)
    before = servers(planned_project)
    refused = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert refused.code == 1
    assert "the repair of node train-worker-1 by REMAKE" in refused.out + refused.err
    assert servers(planned_project) == before


def test_nobody_makes_anew_what_nobody_has_reviewed(planned_project: PlannedProject) -> None:
    declared(planned_project, POOL, "repair: {}")
    before = servers(planned_project)
    fail(planned_project)
    ran = planned_project.run("repair", "--yes")
    assert (ran.code, servers(planned_project)) == (0, before)
    assert "Not repaired: the repair needs a review of the plan" in ran.out
    up = planned_project.run("up", "--yes", "--refresh")
    assert (up.code, servers(planned_project)) == (1, before)
    assert "its state is ERROR; not repaired: the repair needs a review" in up.out + up.err


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_without_a_declaration_up_makes_it_anew_as_ever(planned_project: PlannedProject) -> None:
    declared(planned_project, POOL)
    before = servers(planned_project)
    fail(planned_project)
    assert planned_project.run("repair", "--yes").code == 0
    assert servers(planned_project) == before
    shown = planned_project.run("preview", "--refresh")
    assert 'nodes["1"].state: "ERROR" => "RUNNING"' in shown.out
    assert planned_project.run("up", "--yes", "--refresh").code == 0
    assert servers(planned_project) != before
    nothing_left(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_node_is_made_anew_by_name(planned_project: PlannedProject) -> None:
    declared(planned_project, POOL)
    before = servers(planned_project)
    assert planned_project.run("repair", "train-worker-2", "--yes").code == 0
    after = servers(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["train-worker-2"]
    other = planned_project.run("repair", "train-worker-2", "--mode", "REBOOT_VM", "--yes")
    assert other.code == 1
    assert "use one of REMAKE" in other.out + other.err
    nothing_left(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_repair_killed_after_its_delete_is_resumed_by_the_same_command(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared(planned_project, POOL)
    before = servers(planned_project)
    kill_after_delete(planned_project, monkeypatch, "train-worker-2")
    assert sorted(servers(planned_project)) == ["train-worker-0", "train-worker-1"]
    resumed = planned_project.run("repair", "train-worker-2", "--yes")
    assert resumed.code == 0, resumed.out + resumed.err
    after = servers(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["train-worker-2"]
    nothing_left(planned_project)
    again = planned_project.run("repair", "train-worker-2", "--yes")
    assert (again.code, servers(planned_project)["train-worker-2"] != after["train-worker-2"]) == (
        0,
        True,
    )


def kill_after_delete(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch, node: str
) -> None:
    """The process that repairs the node dies right after its deletion."""
    state, killed = planned_project.project / ".pulumi", planned_project.project.with_name("killed")
    delete = ScpClient.delete_nodes

    def die_after(self: ScpClient, ids: Sequence[str]) -> None:
        delete(self, ids)
        shutil.copytree(state, killed)
        refusal = {"method": "POST", "path": "gpu-nodes$", "status": 400, "count": None}
        control(planned_project, "_emulator/faults", refusal)

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
def test_a_repair_of_a_node_alone_is_resumed_by_the_same_command(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared(planned_project, POOL + SOLO)
    before = servers(planned_project)
    kill_after_delete(planned_project, monkeypatch, "solo")
    assert "solo" not in servers(planned_project)
    resumed = planned_project.run("repair", "solo", "--yes")
    assert resumed.code == 0, resumed.out + resumed.err
    after = servers(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["solo"]
    nothing_left(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_node_alone_is_replaced(planned_project: PlannedProject) -> None:
    declared(planned_project, POOL + SOLO)
    before = servers(planned_project)
    fail(planned_project, "solo")
    due = planned_project.run("repair", "--dry-run")
    assert (due.code, 'repair["solo"]' in due.out) == (3, True), due.out + due.err
    done = planned_project.run("repair", "--yes")
    assert done.code == 0, done.out + done.err
    after = servers(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["solo"]
    nothing_left(planned_project)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_one_that_others_need_is_left_to_up(planned_project: PlannedProject) -> None:
    other = SOLO.replace("gpu_nodes:\n", "").replace("solo", "other")
    declared(
        planned_project, POOL + SOLO + other, 'options: {depends_on: ["{{ gpu_nodes.solo }}"]}'
    )
    before = servers(planned_project)
    fail(planned_project, "solo")
    ran = planned_project.run("repair", "--yes")
    assert (ran.code, servers(planned_project)) == (1, before)
    assert (
        "solo cannot be replaced without the program, because of its dependents: other"
    ) in ran.out + ran.err
    up = planned_project.run("up", "--yes", "--refresh")
    assert up.code == 0, up.out + up.err
    after = servers(planned_project)
    assert [name for name in before if before[name] != after[name]] == ["solo"]


def test_a_node_that_its_scheduler_cannot_use(planned_project: PlannedProject) -> None:
    key = {"Authorization": f"Bearer {ADMIN_KEY}"}
    path = "together/v1/compute/clusters"
    made = control(planned_project, path, TOGETHER, **key)
    control(planned_project, "_emulator/clock", {"advance": 7200})
    shown = control(planned_project, f"{path}/{made['cluster_id']}", **key)
    kubeconfig = planned_project.project / "kubeconfig"
    kubeconfig.write_bytes(base64.b64decode(shown["kube_config"]))
    drain = f"drain: {{kubernetes: {{kubeconfig: {kubeconfig}}}}}"
    declared(planned_project, POOL, drain, "repair: {on: [not_ready], approve: automatic}")
    worker = f"_emulator/kubernetes/{made['cluster_id']}/nodes/train-worker-1"
    control(planned_project, worker, {"ready": False})
    control(planned_project, "_emulator/clock", {"advance": 300})
    assert planned_project.run("repair", "--dry-run").code == 0, "for five minutes only"
    control(planned_project, "_emulator/clock", {"advance": 400})
    due = planned_project.run("repair", "--dry-run")
    assert due.code == 3
    row = '~ repair["train-worker-1"]: "broken" => "REMAKE"  # NotReady: Kubelet stopped posting'
    assert row in due.out
    assert "no job runs there (Kubernetes)" in due.out
    before = servers(planned_project)
    control(planned_project, worker, {"ready": True})
    assert planned_project.run("repair", "--yes").code == 0
    assert servers(planned_project) == before


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_cluster_of_tensorone_is_restarted(planned_project: PlannedProject) -> None:
    declared(planned_project, WORKBENCH)
    (found,) = control(planned_project, "_emulator/objects")["tensorone"]["clusters"]
    ill = {"status_details": {"health_checks": {"gpu_health": "degraded"}}}
    control(planned_project, f"_emulator/tensorone/clusters/{found['id']}", {"shown": ill})
    ran = planned_project.run("repair", "--dry-run")
    assert (ran.code, "a GPU may be used at 5 % or more" in ran.out) == (0, True)
    control(planned_project, f"_emulator/tensorone/clusters/{found['id']}", {"idle": True})
    due = planned_project.run("repair", "--dry-run")
    assert due.code == 3
    assert '~ repair["workbench"]: "broken" => "RESTART"' in due.out
    asked = len(planned_project.sent_changes)
    done = planned_project.run("repair", "--yes", "--allow", "repair")
    assert done.code == 0, done.out + done.err
    assert [each.rpartition("/")[2] for each in planned_project.sent_changes[asked:]] == [
        "stop",
        "start",
    ]
    told = planned_project.run("repair", "--dry-run")
    assert (told.code, "without success" in told.out) == (0, True)
