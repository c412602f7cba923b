"""Test how people reject and cancel the repairs that Together proposes."""

from typing import Any

import pytest
from support.schedulers.cluster_with_jobs import (
    PROGRAM,
    Cluster,
    Killed,
    Properties,
    create_cluster,
)

from gpuform.providers.errors import GpuformError
from gpuform.providers.permissions import REPAIR_VARIABLE
from gpuform.providers.records import Repairs
from gpuform.providers.together.client import TogetherClient
from gpuform.schemas.changes import FieldChange

BROKEN = "train-worker-1"
ROW = f'repair["{BROKEN}"]'


@pytest.fixture
def cluster(emulator: Any, cluster_inputs: Properties) -> Cluster:
    cluster = create_cluster(emulator, cluster_inputs)
    cluster.inputs = {**cluster.inputs, "num_gpus": 32.0, **PROGRAM}
    return cluster


def propose(cluster: Cluster, worker: int = 1, **fields: Any) -> str:
    body = {"cluster_id": cluster.id, "instance_name": f"train-worker-{worker}", **fields}
    answer = cluster.emulator.http.post("/_emulator/together/remediations", json=body)
    return str(answer.raise_for_status().json()["id"])


def review_as_somebody_else(cluster: Cluster, id_: str, verb: str) -> None:
    path = f"/clusters/{cluster.id}/instances/{read_worker(cluster)['instance_id']}/remediations"
    cluster.emulator.send_as_somebody_else("POST", f"{path}/{id_}/{verb}", {})


def read_worker(cluster: Cluster) -> Properties:
    answer = cluster.emulator.send_as_somebody_else("GET", f"/clusters/{cluster.id}")
    (worker,) = [node for node in answer["gpu_worker_nodes"] if node["host_name"] == BROKEN]
    return dict(worker)


def read_state(cluster: Cluster) -> str:
    return str(read_worker(cluster)["latest_remediation"]["state"])


def request(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv(REPAIR_VARIABLE, f"{BROKEN}={mode}")


def list_rows(cluster: Cluster) -> list[FieldChange]:
    with cluster.emulator.use_context_of():
        return list(
            cluster.lifecycle.list_changes({**cluster.outs, **PROGRAM}, cluster.inputs, cluster.id)
        )


@pytest.mark.parametrize("mode", ["REJECT", "CANCEL"])
def test_a_proposal_is_ended_without_a_drain_and_only_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    job = cluster.start_pod(1)
    id_ = propose(cluster)
    cluster.refresh()
    request(monkeypatch, mode)
    (row,) = list_rows(cluster)
    assert (row.path, row.before, row.after) == (ROW, "HOST_AWARE", mode)
    assert row.because == "GpuPcieReplayRateHigh (critical); requested by together"
    assert not cluster.predict_removals(cluster.inputs)

    assert cluster.update(cluster.inputs)["ready"]

    assert (read_state(cluster), job in cluster.pod_ends) == ("CANCELLED", False)
    cluster.assert_unchanged()
    record = Repairs.from_intents(cluster.emulator.intents).find(cluster.id, BROKEN)
    assert record is not None
    assert (record.repair, record.mode) == (id_, mode)
    cluster.refresh()
    assert list_rows(cluster) == []


def test_a_rejection_names_gpuform_and_status_names_the_reviewer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    propose(cluster)
    cluster.refresh()
    request(monkeypatch, "REJECT")
    cluster.update(cluster.inputs)
    cluster.refresh()
    monkeypatch.delenv(REPAIR_VARIABLE)
    now = cluster.emulator.create_context().clock.now()
    (notice,) = cluster.lifecycle.hooks.list_notices(cluster.inputs, cluster.outs, now)
    assert notice.text.startswith(
        f"node {BROKEN}: repair HOST_AWARE is CANCELLED; requested by together, reviewed by api at "
    )
    assert notice.text.endswith("(gpuform: rejected by `repair`)")
    later = cluster.lifecycle.hooks.list_notices(cluster.inputs, cluster.outs, now + 48 * 3600)
    assert list(later) == []


def test_an_approved_repair_that_waits_is_cancelled(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    review_as_somebody_else(cluster, propose(cluster), "approve")
    cluster.refresh()
    request(monkeypatch, "CANCEL")
    (row,) = list_rows(cluster)
    assert "requested by together, reviewed by api at " in row.because
    cluster.update(cluster.inputs)
    assert read_state(cluster) == "CANCELLED"
    cluster.assert_unchanged()


@pytest.mark.parametrize(
    ("mode", "state", "message"),
    [
        ("REJECT", "PENDING", "is PENDING and cannot be rejected any more"),
        ("CANCEL", "RUNNING", "is RUNNING and cannot be cancelled any more"),
        ("CANCEL", "SUCCEEDED", "is SUCCEEDED and cannot be cancelled any more"),
        ("REJECT", "", "has no repair that could be rejected"),
    ],
)
def test_a_repair_that_cannot_be_ended_is_refused_in_the_plan(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, mode: str, state: str, message: str
) -> None:
    if state:
        propose(cluster, state=state)
    cluster.refresh()
    request(monkeypatch, mode)
    with cluster.emulator.use_context_of(), pytest.raises(GpuformError, match=message):
        cluster.lifecycle.diff(cluster.id, {**cluster.outs, **PROGRAM}, cluster.inputs)
    assert list_rows(cluster) == []


def test_a_proposal_that_somebody_approves_after_the_plan_is_not_rejected(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = propose(cluster)
    cluster.refresh()
    request(monkeypatch, "REJECT")
    review_as_somebody_else(cluster, id_, "approve")
    with pytest.raises(GpuformError, match="is PENDING and cannot be rejected"):
        cluster.update(cluster.inputs)
    assert read_state(cluster) == "PENDING"


def test_a_proposal_of_another_mode_than_planned_is_not_rejected(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    id_ = propose(cluster)
    cluster.refresh()
    request(monkeypatch, "REJECT")
    propose(cluster, id=id_, mode="REMEDIATION_MODE_VM_ONLY")
    with pytest.raises(GpuformError, match="Together now proposes another repair"):
        cluster.update(cluster.inputs)
    assert read_state(cluster) == "PENDING_APPROVAL"


@pytest.mark.parametrize("mode", ["REJECT", "CANCEL"])
@pytest.mark.parametrize("ending", ["reject", "resolve"])
def test_a_proposal_that_has_ended_since_the_plan_only_gives_a_warning(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, mode: str, ending: str
) -> None:
    id_ = propose(cluster)
    cluster.refresh()
    request(monkeypatch, mode)
    if ending == "reject":
        review_as_somebody_else(cluster, id_, ending)
    else:
        cluster.emulator.http.post(f"/_emulator/together/remediations/{id_}/resolve")
    cluster.update(cluster.inputs)
    assert (
        f"the proposed repair of node {BROKEN} has ended"
        in (cluster.emulator.reported.warnings[-1])
    )


@pytest.mark.parametrize("mode", ["REJECT", "CANCEL"])
@pytest.mark.parametrize(
    "fault", [{"drop": "after", "count": 1}, {"drop": "after", "count": 9}, {"status": 500}]
)
def test_a_lost_answer_is_read_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, mode: str, fault: Properties
) -> None:
    propose(cluster)
    cluster.refresh()
    request(monkeypatch, mode)
    cluster.emulator.add_fault("POST", "remediations/.*/(reject|cancel)$", **fault)
    if "status" in fault:
        with pytest.raises(GpuformError):
            cluster.update(cluster.inputs)
        assert read_state(cluster) == "PENDING_APPROVAL"
    cluster.update(cluster.inputs)
    assert read_state(cluster) == "CANCELLED"
    cluster.assert_unchanged()


@pytest.mark.parametrize("mode", ["REJECT", "CANCEL"])
def test_an_accepted_request_without_an_effect_is_an_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    propose(cluster)
    cluster.refresh()
    request(monkeypatch, mode)
    for verb in ("reject_remediation", "cancel_remediation"):
        monkeypatch.setattr(TogetherClient, verb, lambda *_, **__: None)
    with pytest.raises(GpuformError, match=f"{mode} of the repair of .* PENDING_APPROVAL"):
        cluster.update(cluster.inputs)


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_killed_rejection_is_repeated(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, is_sent: bool
) -> None:
    propose(cluster)
    cluster.refresh()
    request(monkeypatch, "REJECT")
    reject = TogetherClient.reject_remediation

    def die(*path: Any, **fields: Any) -> None:
        if is_sent:
            reject(*path, **fields)
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(TogetherClient, "reject_remediation", die)
        with pytest.raises(Killed):
            cluster.update(cluster.inputs)
    cluster.update(cluster.inputs)
    assert read_state(cluster) == "CANCELLED"
    cluster.assert_unchanged()


def test_one_proposal_is_rejected_while_the_policy_repairs_another_node(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = {"approve": "automatic", "modes": ["REBOOT_VM"], "max_unhealthy": 4}
    cluster.inputs = {**cluster.inputs, "repair": policy}
    cluster.outs = {**cluster.outs, "repair": policy}
    propose(cluster)
    propose(cluster, 2)
    cluster.refresh()
    request(monkeypatch, "REJECT")
    rejection, repair = list_rows(cluster)
    assert (rejection.after, repair.after) == ("REJECT", "REBOOT_VM")
    assert "at a time" not in (rejection.because + repair.because)
    cluster.update(cluster.inputs)
    assert read_state(cluster) == "CANCELLED"
    approvals = [
        sent["path"]
        for sent in cluster.emulator.list_requests("POST")
        if sent["path"].endswith("/approve")
    ]
    assert len(approvals) == 1
    cluster.assert_unchanged()
