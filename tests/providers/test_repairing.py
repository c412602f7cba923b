"""Test repairs of broken nodes of a Together cluster, on the emulated platform."""

import copy
import itertools
from typing import Any

import pytest
from support.platforms.lens_document import HEATMAP
from support.schedulers.cluster_with_jobs import (
    PROGRAM,
    Cluster,
    Killed,
    Properties,
    create_cluster,
)

from gpuform.providers.draining import DrainOperation, NodeEviction
from gpuform.providers.errors import GpuformError
from gpuform.providers.permissions import REPAIR_VARIABLE, VARIABLE
from gpuform.providers.together.client import TogetherClient
from gpuform.providers.together.repairing import ClusterRepairRun

AUTOMATIC = {"approve": "automatic", "on": ["platform", "not_ready"]}
BROKEN = "train-worker-1"
ROW = f'repair["{BROKEN}"]'


@pytest.fixture
def cluster(emulator: Any, cluster_inputs: Properties) -> Cluster:
    return create_cluster(emulator, cluster_inputs)


def declare_repair(cluster: Cluster, drain: Properties | None = None, **repair: Any) -> Properties:
    policy = {**AUTOMATIC, **repair}
    cluster.inputs = {**cluster.inputs, "num_gpus": 32.0, "repair": policy, **PROGRAM}
    if drain is not None:
        cluster.inputs["drain"] = drain
    cluster.outs = {**cluster.outs, "repair": policy}
    return cluster.inputs


def propose_remediation(cluster: Cluster, worker: int = 1, **fields: Any) -> str:
    body = {"cluster_id": cluster.id, "instance_name": f"train-worker-{worker}", **fields}
    answer = cluster.emulator.http.post("/_emulator/together/remediations", json=body)
    return str(answer.raise_for_status().json()["id"])


def list_remediations(cluster: Cluster) -> list[tuple[str, str]]:
    """Return mode and state of every requested remediation."""
    cluster_answer = cluster.emulator.send_as_somebody_else("GET", f"/clusters/{cluster.id}")
    nodes = [*cluster_answer["gpu_worker_nodes"], *cluster_answer["deleted_gpu_worker_nodes"]]
    collected = []
    for node in nodes:
        path = f"/clusters/{cluster.id}/instances/{node['instance_id']}/remediations"
        collected += cluster.emulator.send_as_somebody_else("GET", path)["remediations"]
    return sorted(
        (remediation["mode"].removeprefix("REMEDIATION_MODE_"), remediation["state"])
        for remediation in collected
    )


def advance(cluster: Cluster, seconds: float) -> None:
    cluster.emulator.http.post("/_emulator/clock", json={"advance": seconds}).raise_for_status()


def read_clock(cluster: Cluster) -> float:
    return float(cluster.emulator.http.get("/_emulator/clock").json()["now"])


def break_node(cluster: Cluster, worker: int = 1, seconds: float = 3600) -> None:
    cluster.call_emulated_kubernetes("POST", f"nodes/train-worker-{worker}", {"ready": False})
    advance(cluster, seconds)


def assert_sound(cluster: Cluster) -> None:
    """Assert that no job was killed and no node stays cordoned."""
    assert "killed" not in cluster.pod_ends.values()
    assert "evicted" not in cluster.pod_ends.values()
    assert (cluster.cordoned, cluster.drain_record) == ([], None)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_proposal_is_planned_then_repaired_then_no_change(cluster: Cluster) -> None:
    news = declare_repair(cluster)
    job = cluster.start_pod(1, minutes=30)
    propose_remediation(cluster)
    cluster.refresh()
    assert cluster.list_changed_paths(news) == [ROW]
    assert cluster.predict_removals(news) == {BROKEN: ("repaired", [job])}
    assert cluster.update(news)["ready"]
    assert list_remediations(cluster) == [("HOST_AWARE", "SUCCEEDED")]
    assert cluster.pod_ends == {job: "succeeded"}
    assert cluster.workers == ["0", "2", "3", "4"]
    assert_sound(cluster)
    cluster.refresh()
    assert cluster.list_changed_paths(news) == []


def test_the_evidence_is_reported_with_its_age(cluster: Cluster) -> None:
    propose_remediation(cluster)
    cluster.refresh()
    (fault,) = cluster.outs["faults"]
    assert (fault["because"], fault["mode"]) == ("GpuPcieReplayRateHigh (critical)", "HOST_AWARE")
    assert fault["since"].startswith("20")


def test_without_a_policy_a_proposal_is_only_reported(cluster: Cluster) -> None:
    propose_remediation(cluster)
    cluster.refresh()
    news = {**cluster.inputs, **PROGRAM}
    assert cluster.list_changed_paths(news) == []
    (messages,) = [n.text for n in cluster.lifecycle.hooks.list_notices(news, cluster.outs, 0.0)]
    assert messages.startswith(f"node {BROKEN} is broken: GpuPcieReplayRateHigh (critical)")
    assert "the platform proposes HOST_AWARE. Not repaired: no `repair` is declared" in messages


def test_a_proposal_is_no_drift(cluster: Cluster) -> None:
    news = declare_repair(cluster)
    propose_remediation(cluster)
    cluster.refresh()
    with cluster.emulator.use_context_of(refreshing=True):
        result = cluster.lifecycle.diff_with_changes(cluster.id, {**cluster.outs, **PROGRAM}, news)
    assert result[0].changes is False


def test_a_job_that_does_not_end_keeps_its_node(cluster: Cluster) -> None:
    news = declare_repair(cluster, drain={"wait_minutes": 5})
    cluster.start_pod(1)
    propose_remediation(cluster)
    cluster.refresh()
    with pytest.raises(GpuformError, match="jobs still run on train-worker-1: ml/on-1"):
        cluster.update(news)
    assert list_remediations(cluster) == [("HOST_AWARE", "PENDING_APPROVAL")]
    cluster.assert_unchanged()


def test_a_proposal_that_has_changed_is_refused(cluster: Cluster) -> None:
    news = declare_repair(cluster)
    id_ = propose_remediation(cluster)
    cluster.refresh()
    propose_remediation(cluster, id=id_, mode="REMEDIATION_MODE_VM_ONLY")
    with pytest.raises(GpuformError, match="proposes another repair of node train-worker-1"):
        cluster.update(news)
    assert list_remediations(cluster) == [("VM_ONLY", "PENDING_APPROVAL")]
    cluster.assert_unchanged()


def test_a_proposal_that_has_ended_is_not_approved(cluster: Cluster) -> None:
    news = declare_repair(cluster)
    id_ = propose_remediation(cluster)
    cluster.refresh()
    cluster.emulator.http.post(f"/_emulator/together/remediations/{id_}/resolve")
    cluster.update(news)
    assert list_remediations(cluster) == [("HOST_AWARE", "AUTO_RESOLVED")]
    assert "has ended: HOST_AWARE AUTO_RESOLVED" in cluster.emulator.reported.warnings[-1]
    cluster.assert_unchanged()


def test_another_mode_than_proposed_may_be_declared(cluster: Cluster) -> None:
    news = declare_repair(cluster, modes=["REBOOT_VM"])
    propose_remediation(cluster)
    cluster.refresh()
    cluster.update(news)
    assert list_remediations(cluster) == [("REBOOT_VM", "SUCCEEDED")]
    cluster.assert_unchanged()


def test_a_node_that_is_not_ready_for_long_is_repaired_once(cluster: Cluster) -> None:
    news = declare_repair(cluster, modes=["REBOOT_VM"])
    break_node(cluster, seconds=300)
    cluster.refresh()
    assert ROW not in cluster.list_changed_paths(news)
    advance(cluster, 600)
    cluster.refresh()
    assert ROW in cluster.list_changed_paths(news)
    assert cluster.update(news)["ready"]
    assert list_remediations(cluster) == [("REBOOT_VM", "SUCCEEDED")]
    cluster.assert_unchanged()
    cluster.refresh()
    assert cluster.list_changed_paths(news) == []


def test_a_node_that_lens_shows_as_too_hot_is_planned(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = declare_repair(cluster, on=["overheated"], max_temperature=90)
    monkeypatch.setenv("LENS_URL", "http://emulator.test/lens")
    heatmap = copy.deepcopy(HEATMAP["data"])
    heatmap["temperature"]["data"] = [{"nodeName": BROKEN, "deviceId": 0, "value": 95}]
    cluster.emulator.http.post("/_emulator/lens/settings", json={"heatmap": heatmap})

    cluster.refresh()

    assert "has 95 °C, above 90 °C (Lens)" in cluster.outs["faults"][0]["because"]
    assert ROW in cluster.list_changed_paths(news)


def test_a_recovered_node_is_not_repaired(cluster: Cluster) -> None:
    news = declare_repair(cluster)
    break_node(cluster)
    cluster.refresh()
    cluster.call_emulated_kubernetes("POST", f"nodes/{BROKEN}", {"ready": True})
    cluster.update(news)
    assert list_remediations(cluster) == []
    cluster.assert_unchanged()


def test_one_fault_is_never_repaired_twice(cluster: Cluster) -> None:
    """The reboot does not help: the kubelet stops again at once, with the same date."""
    news = declare_repair(cluster, modes=["REBOOT_VM"])
    cluster.emulator.http.post(
        f"/_emulator/together/workers/{BROKEN}", json={"repair_fails": "no power"}
    )
    break_node(cluster)
    cluster.refresh()
    before = dict(cluster.outs)
    with pytest.raises(GpuformError, match=r"REBOOT_VM FAILED \(no power\)"):
        cluster.update(news)
    assert cluster.cordoned == []
    cluster.outs = before
    cluster.call_emulated_kubernetes("POST", f"nodes/{BROKEN}", {"ready": False})
    with pytest.raises(GpuformError, match=r"REBOOT_VM FAILED \(no power\)"):
        cluster.update(news)
    assert list_remediations(cluster) == [("REBOOT_VM", "FAILED")]
    assert (cluster.cordoned, cluster.drain_record) == ([], None)


def test_above_max_unhealthy_nothing_is_repaired(cluster: Cluster) -> None:
    news = declare_repair(cluster)
    for worker in (1, 2):
        break_node(cluster, worker)
        propose_remediation(cluster, worker)
    cluster.refresh()
    assert not [path for path in cluster.list_changed_paths(news) if path.startswith("repair[")]
    notices = cluster.lifecycle.hooks.list_notices(news, cluster.outs, 0.0)
    messages = [notice.text for notice in notices]
    assert any("2 of 4 nodes are unhealthy" in message for message in messages)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_repairs_run_in_parallel_up_to_max_parallel(cluster: Cluster) -> None:
    news = declare_repair(cluster, max_unhealthy=4, max_parallel=1)
    for worker in (0, 1, 2):
        propose_remediation(cluster, worker)
    cluster.refresh()
    cluster.update(news)
    assert list_remediations(cluster) == [("HOST_AWARE", "SUCCEEDED")] * 3
    approved = [
        requests
        for requests in cluster.emulator.list_requests("POST")
        if requests["path"].endswith("/approve")
    ]
    times = [requests["time"] for requests in approved]
    assert min(b - a for a, b in itertools.pairwise(times)) > 900
    assert_sound(cluster)


def test_a_failed_repair_stops_the_run(cluster: Cluster) -> None:
    news = declare_repair(cluster, max_unhealthy=4)
    propose_remediation(cluster, 0, fails="no host is free")
    propose_remediation(cluster, 1)
    cluster.refresh()
    with pytest.raises(GpuformError, match="no host is free"):
        cluster.update(news)
    assert list_remediations(cluster) == [
        ("HOST_AWARE", "FAILED"),
        ("HOST_AWARE", "PENDING_APPROVAL"),
    ]
    cluster.assert_unchanged()


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_proposal_approved_by_somebody_else_is_waited_for(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = declare_repair(cluster)
    id_ = propose_remediation(cluster)
    cluster.refresh()
    approve = TogetherClient.approve_remediation

    def approve_twice(client: TogetherClient, *path: str, **comments: str) -> Any:
        approve(client, *path, **comments)
        return approve(client, *path, **comments)

    monkeypatch.setattr(TogetherClient, "approve_remediation", approve_twice)
    assert cluster.update(news)["ready"]
    assert list_remediations(cluster) == [("HOST_AWARE", "SUCCEEDED")]
    assert id_
    assert_sound(cluster)


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "step", ["_request_repair", "_wait_until_ended", "_wait_for_workers", "_uncordon_nodes"]
)
@pytest.mark.parametrize("cause", ["proposed", "not ready", "asked"])
def test_a_killed_repair_is_resumed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, step: str, cause: str
) -> None:
    news = declare_repair(cluster, modes=["REBOOT_VM"])
    if cause == "proposed":
        propose_remediation(cluster)
    elif cause == "not ready":
        break_node(cluster)
    else:
        monkeypatch.setenv(REPAIR_VARIABLE, f"{BROKEN}=REBOOT_VM")
    cluster.refresh()

    def die(*_: object, **__: object) -> None:
        raise Killed

    before = dict(cluster.outs)
    with monkeypatch.context() as dying:
        dying.setattr(ClusterRepairRun, step, die)
        with pytest.raises(Killed):
            cluster.update(news)
    cluster.outs = before
    cluster.start_pod(0, minutes=5)
    assert cluster.update(news)["ready"]
    assert list_remediations(cluster) == [("REBOOT_VM", "SUCCEEDED")]
    assert_sound(cluster)
    cluster.refresh()
    monkeypatch.delenv(REPAIR_VARIABLE, raising=False)
    assert cluster.list_changed_paths(news) == []


def test_a_requested_node_needs_no_policy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPAIR_VARIABLE, "train-worker-2=VM_ONLY")
    news = {**cluster.inputs, "num_gpus": 32.0, **PROGRAM}
    assert cluster.list_changed_paths(news) == ['repair["train-worker-2"]']
    assert cluster.update(news)["ready"]
    assert list_remediations(cluster) == [("VM_ONLY", "SUCCEEDED")]
    assert cluster.workers == ["0", "1", "3", "4"]
    assert_sound(cluster)


def test_a_review_is_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    news = declare_repair(cluster, approve="reviewed")
    propose_remediation(cluster)
    cluster.refresh()
    assert cluster.list_changed_paths(news) == []
    monkeypatch.setenv(VARIABLE, "repair")
    assert cluster.list_changed_paths(news) == [ROW]


def test_growing_and_repairing_happen_in_one_update(cluster: Cluster) -> None:
    propose_remediation(cluster)
    news = declare_repair(cluster)
    cluster.refresh()
    outs = cluster.update({**news, "num_gpus": 40.0})
    assert (outs["ready"], len(cluster.workers)) == (True, 5)
    assert list_remediations(cluster) == [("HOST_AWARE", "SUCCEEDED")]
    assert_sound(cluster)


def test_deleting_a_cluster_removes_its_records(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REPAIR_VARIABLE, f"{BROKEN}=REBOOT_VM")
    cluster.update(declare_repair(cluster))
    names = cluster.emulator.intents.records.names
    assert [name for name in names() if name.startswith("repair-")]
    with cluster.emulator.use_context_of():
        cluster.lifecycle.delete(cluster.id, cluster.outs)
    assert not [name for name in names() if name.startswith("repair-")]


def test_a_broken_node_that_a_shrink_removes_is_not_repaired(cluster: Cluster) -> None:
    news = {**declare_repair(cluster, drain={"nodes": [BROKEN]}), "num_gpus": 24.0}
    propose_remediation(cluster)
    cluster.refresh()
    assert cluster.list_changed_paths(news) == ["num_gpus", ROW]
    cluster.update(news)
    assert BROKEN.removeprefix("train-worker-") not in cluster.workers
    assert (
        f"node {BROKEN} is no longer part of the cluster: it is not repaired"
        in cluster.emulator.reported.warnings
    )


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_reviewed_proposal_is_approved_although_another_was_made(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together changes its proposal while gpuform waits for a job."""
    news = declare_repair(cluster)
    cluster.start_pod(1, minutes=30)
    id_ = propose_remediation(cluster)
    cluster.refresh()
    clear = DrainOperation.drain_nodes

    def replace_proposal(draining: DrainOperation, eviction: NodeEviction) -> Any:
        drain = clear(draining, eviction)
        propose_remediation(cluster, id=id_, mode="REMEDIATION_MODE_VM_ONLY")
        return drain

    monkeypatch.setattr(DrainOperation, "drain_nodes", replace_proposal)
    with pytest.raises(GpuformError, match="proposes another repair of node train-worker-1"):
        cluster.update(news)
    assert list_remediations(cluster) == [("VM_ONLY", "PENDING_APPROVAL")]
    assert_sound(cluster)


def test_a_node_that_recovers_during_the_wait_is_not_repaired(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = declare_repair(cluster)
    break_node(cluster)
    cluster.refresh()
    clear = DrainOperation.drain_nodes

    def recover_node(draining: DrainOperation, eviction: NodeEviction) -> Any:
        drain = clear(draining, eviction)
        cluster.call_emulated_kubernetes("POST", f"nodes/{BROKEN}", {"ready": True})
        return drain

    monkeypatch.setattr(DrainOperation, "drain_nodes", recover_node)
    cluster.update(news)
    assert list_remediations(cluster) == []
    cluster.assert_unchanged()


def test_too_many_newly_broken_nodes_stop_the_repair(
    cluster: Cluster,
) -> None:
    news = declare_repair(cluster)
    propose_remediation(cluster)
    cluster.refresh()
    for worker in (0, 2):
        break_node(cluster, worker, seconds=0)
    with pytest.raises(GpuformError, match="3 of 4 nodes are unhealthy now"):
        cluster.update(news)
    assert list_remediations(cluster) == [("HOST_AWARE", "PENDING_APPROVAL")]
    assert (cluster.cordoned, cluster.drain_record) == ([], None)


@pytest.mark.parametrize("num_gpus", [40, 24])
def test_a_resize_by_others_during_a_repair_ends_the_wait_and_not_the_repair(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, num_gpus: int
) -> None:
    news = declare_repair(cluster)
    propose_remediation(cluster)
    cluster.refresh()
    finish_repairs = ClusterRepairRun._finish_repairs

    def resize_first(run: ClusterRepairRun, *arguments: Any) -> list[str]:
        cluster.emulator.send_as_somebody_else(
            "PUT", f"/clusters/{cluster.id}", {"num_gpus": num_gpus}
        )
        return finish_repairs(run, *arguments)

    monkeypatch.setattr(ClusterRepairRun, "_finish_repairs", resize_first)
    began = read_clock(cluster)
    outs = cluster.update(news)
    warnings = cluster.emulator.reported.warnings
    assert read_clock(cluster) - began < 1800, "the lock of the stack is free again"
    assert f"has changed num_gpus from 32 to {num_gpus} during" in outs["not_ready_reason"]
    assert (outs["ready"], len(cluster.workers)) == (False, num_gpus // 8)
    assert list_remediations(cluster) == [("HOST_AWARE", "SUCCEEDED")]
    assert [text.partition(":")[0] for text in warnings] == ([BROKEN] if num_gpus == 24 else [])
    assert_sound(cluster)
    cluster.refresh()
    assert cluster.outs["num_gpus"] == num_gpus
    assert cluster.list_changed_paths(news) == ["num_gpus"]


def test_a_refused_repeated_request_id_reads_the_first_request(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    news = declare_repair(cluster, modes=["REBOOT_VM"])
    break_node(cluster)
    cluster.refresh()
    create = TogetherClient.create_remediation

    def create_twice(client: TogetherClient, *arguments: str) -> Any:
        create(client, *arguments)
        cluster.emulator.add_fault("POST", "remediations", status=409, count=1)
        return create(client, *arguments)

    monkeypatch.setattr(TogetherClient, "create_remediation", create_twice)
    assert cluster.update(news)["ready"]
    assert list_remediations(cluster) == [("REBOOT_VM", "SUCCEEDED")]
    cluster.assert_unchanged()


def test_other_proposals_are_reported(cluster: Cluster) -> None:
    news = declare_repair(cluster)
    propose_remediation(cluster, mode="REMEDIATION_MODE_EVICT_WITHOUT_REPLACEMENT")
    cluster.refresh()
    with cluster.emulator.use_context_of():
        (row,) = cluster.lifecycle.list_changes({**cluster.outs, **PROGRAM}, news, cluster.id)
    assert row.after == "HOST_AWARE"
    assert row.because.endswith("; the platform proposed EVICT_WITHOUT_REPLACEMENT")


def test_platform_texts_are_shortened_to_one_line(cluster: Cluster) -> None:
    propose_remediation(cluster, alerts=[{"alert_name": "a\n# b\x1b[31m" * 1000, "severity": "X"}])
    cluster.refresh()
    (fault,) = cluster.outs["faults"]
    assert len(fault["because"]) <= 200
    assert "\n" not in fault["because"]


@pytest.mark.parametrize("state", ["RUNNING", "A_NEW_ONE", ""])
def test_a_repair_of_somebody_else_is_not_touched(cluster: Cluster, state: str) -> None:
    news = declare_repair(cluster)
    propose_remediation(cluster, state=state)
    cluster.refresh()
    assert cluster.list_changed_paths(news) == []


def test_repairs_of_others_count_for_max_parallel(cluster: Cluster) -> None:
    news = declare_repair(cluster, max_unhealthy=4)
    propose_remediation(cluster, 1)
    cluster.refresh()
    propose_remediation(cluster, 2, state="RUNNING")
    with pytest.raises(
        GpuformError, match=r"the repair of train-worker-2 is running, and repair\.max_par"
    ):
        cluster.update(news)
    assert list_remediations(cluster) == [
        ("HOST_AWARE", "PENDING_APPROVAL"),
        ("HOST_AWARE", "RUNNING"),
    ]
    assert (cluster.cordoned, cluster.drain_record) == ([], None)
    cluster.refresh()
    assert cluster.list_changed_paths(news) == []
    notices = cluster.lifecycle.hooks.list_notices(news, cluster.outs, 0.0)
    messages = [notice.text for notice in notices]
    assert any(
        "1 repairs are running, and repair.max_parallel is 1" in message for message in messages
    )
