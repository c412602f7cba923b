"""A broken node that is repaired under each host: gpuform's engine, Pulumi's, and the plugin."""

from typing import Any

import pytest
from conformance.described import Described, Request
from conformance.emulated import Platform
from conformance.scp_kinds import GPU_NODE, NODE_POOL
from conformance.tensorone_kinds import CLUSTER as TENSORONE
from conformance.together_kinds import CLUSTER
from conformance.verbs import Verbs

REPAIR = {"approve": "automatic", "on": ["platform", "not_ready"]}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("described", [CLUSTER], indirect=True)
def test_a_proposal_is_repaired_and_then_there_is_nothing_to_do(
    verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check({**CLUSTER.good, "repair": REPAIR}).inputs
    made = verbs.create(checked)
    body = {"cluster_id": made.id, "instance_name": "train-worker-1"}
    platform.http.post("/_emulator/together/remediations", json=body).raise_for_status()
    pod = {"name": "train-0", "namespace": "ml", "node": "train-worker-1", "runs_for": 600}
    platform.http.post(f"/_emulator/kubernetes/{made.id}/pods", json=pod).raise_for_status()
    seen = verbs.read(made.id, made.outputs).outputs
    assert verbs.diff(made.id, seen, checked).changes is True
    outputs = verbs.update(made.id, seen, checked)
    assert outputs["ready"] is True
    ended = platform.http.get(f"/_emulator/kubernetes/{made.id}/ended").json()
    assert [each["how"] for each in ended if each["pod"] == "ml/train-0"] == ["succeeded"]
    workers: list[Any] = outputs["gpu_worker_nodes"]
    assert [each["host_name"] for each in workers] == ["train-worker-0", "train-worker-2"]
    again = verbs.read(made.id, outputs).outputs
    assert verbs.diff(made.id, again, checked).changes is False
    sent = platform.send(CLUSTER, Request("GET", f"/compute/clusters/{made.id}"))
    assert all("latest_remediation" not in each for each in sent["gpu_worker_nodes"])


def _fail(platform: Platform, node_id: str) -> None:
    path = f"/_emulator/scp/gpu-nodes/{node_id}"
    platform.http.post(path, json={"state": "ERROR"}).raise_for_status()


@pytest.mark.parametrize("described", [NODE_POOL], indirect=True)
def test_a_failed_node_of_a_pool_is_made_anew(verbs: Verbs, platform: Platform) -> None:
    checked = verbs.check({**NODE_POOL.good, "repair": {"approve": "automatic"}}).inputs
    made = verbs.create(checked)
    failed, *others = sorted(made.outputs["node_ids"])
    _fail(platform, failed)
    seen = verbs.read(made.id, made.outputs).outputs
    assert [each["instance"] for each in seen["faults"]] == [failed]
    assert verbs.diff(made.id, seen, checked).changes is True
    outputs = verbs.update(made.id, seen, checked)
    assert (outputs["ready"], outputs["faults"]) == (True, [])
    assert set(outputs["node_ids"]) & {failed, *others} == {*others}
    assert len(outputs["node_ids"]) == len(made.outputs["node_ids"])
    again = verbs.read(made.id, outputs).outputs
    assert verbs.diff(made.id, again, checked).changes is False


@pytest.mark.parametrize("described", [NODE_POOL], indirect=True)
def test_a_failed_node_waits_for_a_review(verbs: Verbs, platform: Platform) -> None:
    checked = verbs.check({**NODE_POOL.good, "repair": {}}).inputs
    made = verbs.create(checked)
    _fail(platform, made.outputs["node_ids"][0])
    seen = verbs.read(made.id, made.outputs).outputs
    outputs = verbs.update(made.id, seen, checked)
    assert outputs["ready"] is False
    assert sorted(outputs["node_ids"]) == sorted(made.outputs["node_ids"])


@pytest.mark.parametrize("described", [GPU_NODE], indirect=True)
def test_a_failed_node_alone_is_replaced(
    verbs: Verbs, platform: Platform, described: Described
) -> None:
    checked = verbs.check({**described.good, "repair": {"approve": "automatic"}}).inputs
    made = verbs.create(checked)
    _fail(platform, made.id)
    seen = verbs.read(made.id, made.outputs).outputs
    found = verbs.diff(made.id, seen, checked)
    assert (found.changes, found.delete_first) == (True, True)
    assert [each.partition("[")[0] for each in found.replaces] == ["repair"]


@pytest.mark.parametrize("described", [TENSORONE], indirect=True)
def test_a_cluster_with_bad_gpus_is_restarted(verbs: Verbs, platform: Platform) -> None:
    def show(health: str) -> None:
        shown = {"status_details": {"health_checks": {"gpu_health": health}}}
        body = {"idle": True, "shown": shown}
        path = f"/_emulator/tensorone/clusters/{made.id}"
        platform.http.post(path, json=body).raise_for_status()

    checked = verbs.check({**TENSORONE.good, "repair": {"approve": "automatic"}}).inputs
    made = verbs.create(checked)
    show("degraded")
    seen = verbs.read(made.id, made.outputs).outputs
    assert verbs.diff(made.id, seen, checked).changes is True
    platform.forget_requests()
    outputs = verbs.update(made.id, seen, checked)
    sent = [r for r in platform.http.get("/_emulator/requests").json() if r["method"] != "GET"]
    assert [each["path"].rpartition("/")[2] for each in sent] == ["stop", "start"]
    assert outputs["restarted_at"]
    assert verbs.diff(made.id, outputs, checked).changes is False
    show("healthy")
    again = verbs.read(made.id, outputs).outputs
    assert again["faults"] == []
    assert verbs.diff(made.id, again, checked).changes is False
