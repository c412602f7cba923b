"""Test repairs of broken nodes under each host: gpuform's engine, Pulumi's, and the plugin."""

from typing import Any

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription, Request
from conformance.operations import Operations
from conformance.scp_kinds import GPU_NODE, NODE_POOL
from conformance.tensorone_kinds import CLUSTER as TENSORONE
from conformance.together_kinds import CLUSTER

REPAIR = {"approve": "automatic", "on": ["platform", "not_ready"]}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("description", [CLUSTER], indirect=True)
def test_a_proposal_is_repaired_then_no_change(verbs: Operations, platform: Platform) -> None:
    checked = verbs.check({**CLUSTER.valid_inputs, "repair": REPAIR}).inputs
    created = verbs.create(checked)
    body = {"cluster_id": created.id, "instance_name": "train-worker-1"}
    platform.http.post("/_emulator/together/remediations", json=body).raise_for_status()
    pod = {"name": "train-0", "namespace": "ml", "node": "train-worker-1", "runs_for": 600}
    platform.http.post(f"/_emulator/kubernetes/{created.id}/pods", json=pod).raise_for_status()
    read_result = verbs.read(created.id, created.outputs).outputs
    assert verbs.diff(created.id, read_result, checked).changes is True
    outputs = verbs.update(created.id, read_result, checked)
    assert outputs["ready"] is True
    ended = platform.http.get(f"/_emulator/kubernetes/{created.id}/ended").json()
    assert [worker["how"] for worker in ended if worker["pod"] == "ml/train-0"] == ["succeeded"]
    workers: list[Any] = outputs["gpu_worker_nodes"]
    assert [worker["host_name"] for worker in workers] == ["train-worker-0", "train-worker-2"]
    again = verbs.read(created.id, outputs).outputs
    assert verbs.diff(created.id, again, checked).changes is False
    sent = platform.send(CLUSTER, Request("GET", f"/compute/clusters/{created.id}"))
    assert all("latest_remediation" not in worker for worker in sent["gpu_worker_nodes"])


def _fail_node(platform: Platform, node_id: str) -> None:
    path = f"/_emulator/scp/gpu-nodes/{node_id}"
    platform.http.post(path, json={"state": "ERROR"}).raise_for_status()


@pytest.mark.parametrize("description", [NODE_POOL], indirect=True)
def test_a_failed_node_of_a_pool_is_recreated(verbs: Operations, platform: Platform) -> None:
    checked = verbs.check({**NODE_POOL.valid_inputs, "repair": {"approve": "automatic"}}).inputs
    created = verbs.create(checked)
    failed, *others = sorted(created.outputs["node_ids"])
    _fail_node(platform, failed)
    read_result = verbs.read(created.id, created.outputs).outputs
    assert [fault["instance"] for fault in read_result["faults"]] == [failed]
    assert verbs.diff(created.id, read_result, checked).changes is True
    outputs = verbs.update(created.id, read_result, checked)
    assert (outputs["ready"], outputs["faults"]) == (True, [])
    assert set(outputs["node_ids"]) & {failed, *others} == {*others}
    assert len(outputs["node_ids"]) == len(created.outputs["node_ids"])
    again = verbs.read(created.id, outputs).outputs
    assert verbs.diff(created.id, again, checked).changes is False


@pytest.mark.parametrize("description", [NODE_POOL], indirect=True)
def test_a_failed_node_waits_for_a_review(verbs: Operations, platform: Platform) -> None:
    checked = verbs.check({**NODE_POOL.valid_inputs, "repair": {}}).inputs
    created = verbs.create(checked)
    _fail_node(platform, created.outputs["node_ids"][0])
    read_result = verbs.read(created.id, created.outputs).outputs
    outputs = verbs.update(created.id, read_result, checked)
    assert outputs["ready"] is False
    assert sorted(outputs["node_ids"]) == sorted(created.outputs["node_ids"])


@pytest.mark.parametrize("description", [GPU_NODE], indirect=True)
def test_a_failed_separate_node_is_replaced(
    verbs: Operations, platform: Platform, description: KindDescription
) -> None:
    checked = verbs.check({**description.valid_inputs, "repair": {"approve": "automatic"}}).inputs
    created = verbs.create(checked)
    _fail_node(platform, created.id)
    read_result = verbs.read(created.id, created.outputs).outputs
    change = verbs.diff(created.id, read_result, checked)
    assert (change.changes, change.delete_first) == (True, True)
    assert [replace.partition("[")[0] for replace in change.replaces] == ["repair"]


@pytest.mark.parametrize("description", [TENSORONE], indirect=True)
def test_a_cluster_with_bad_gpus_is_restarted(verbs: Operations, platform: Platform) -> None:
    def show(health: str) -> None:
        reported = {"status_details": {"health_checks": {"gpu_health": health}}}
        body = {"idle": True, "shown": reported}
        path = f"/_emulator/tensorone/clusters/{created.id}"
        platform.http.post(path, json=body).raise_for_status()

    checked = verbs.check({**TENSORONE.valid_inputs, "repair": {"approve": "automatic"}}).inputs
    created = verbs.create(checked)
    show("degraded")
    read_result = verbs.read(created.id, created.outputs).outputs
    assert verbs.diff(created.id, read_result, checked).changes is True
    platform.forget_requests()
    outputs = verbs.update(created.id, read_result, checked)
    sent = [r for r in platform.http.get("/_emulator/requests").json() if r["method"] != "GET"]
    assert [request["path"].rpartition("/")[2] for request in sent] == ["stop", "start"]
    assert outputs["restarted_at"]
    assert verbs.diff(created.id, outputs, checked).changes is False
    show("healthy")
    again = verbs.read(created.id, outputs).outputs
    assert again["faults"] == []
    assert verbs.diff(created.id, again, checked).changes is False
