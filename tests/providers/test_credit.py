"""Test clusters and volumes without credit: reported, not waited for, and never replaced."""

from collections.abc import Iterator
from typing import Any

import pytest

from gpuform.providers.context import use_context
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle

Properties = dict[str, Any]
STUCK = [
    ("OnDemandComputePaused", "add credit to the account, then run up again"),
    ("Paused", "add credit to the account, or ask Together's support"),
    ("Degraded", "gpuform does not replace it"),
]


@pytest.fixture(params=STUCK, ids=lambda degraded_cluster: degraded_cluster[0])
def degraded_cluster(request: Any, emulator: Any, ready: Any) -> Iterator[str]:
    """Give every cluster a status that it keeps, and return the message for it."""
    status, message = request.param
    emulator.add_fault("GET", "^/compute/clusters", status_override=status, count=None)
    yield message
    emulator.clear_faults()


def test_a_refresh_reports_the_status_and_the_plan_a_remedy(
    lifecycle: ClusterLifecycle, emulator: Any, ready: Any, degraded_cluster: str
) -> None:
    id_, outs, inputs = ready
    with emulator.use_context_of():
        read = lifecycle.read(id_, outs)
    assert read.outs["ready"] is False
    assert degraded_cluster in read.outs["not_ready_reason"]
    state = {**read.outs, "__provider": "pickled"}
    (change,) = lifecycle.list_changes(state, inputs)
    assert (change.path, change.replaces) == ("ready", False)
    assert degraded_cluster in change.because
    diff = lifecycle.diff(id_, state, inputs)
    assert (diff.changes, diff.replaces) == (True, [])


def test_the_status_is_reported_beside_another_change(
    lifecycle: ClusterLifecycle, emulator: Any, ready: Any, degraded_cluster: str
) -> None:
    id_, outs, inputs = ready
    with emulator.use_context_of():
        read = lifecycle.read(id_, outs)
    state = {**read.outs, "__provider": "pickled"}
    changes = lifecycle.list_changes(state, {**inputs, "num_gpus": 24})
    assert [change.path for change in changes] == ["num_gpus", "ready"]
    assert degraded_cluster in changes[1].because


def test_an_up_fails_at_once_and_resumes_when_credit_is_restored(
    lifecycle: ClusterLifecycle, emulator: Any, ready: Any, degraded_cluster: str
) -> None:
    id_, outs, inputs = ready
    state = {**outs, "ready": False, "not_ready_reason": degraded_cluster}
    began = emulator.http.get("/_emulator/clock").json()["now"]
    call = emulator.create_context()
    with use_context(call):
        updated = lifecycle.update(id_, state, inputs)
    assert emulator.http.get("/_emulator/clock").json()["now"] == began
    assert len(call.progress.init_errors) == 1
    assert degraded_cluster in call.progress.init_errors[0]
    assert updated.outs is not None
    assert updated.outs["ready"] is False
    emulator.clear_faults()
    with emulator.use_context_of():
        resumed = lifecycle.update(id_, {**updated.outs, "__provider": "pickled"}, inputs)
    assert resumed.outs is not None
    assert resumed.outs["ready"] is True
    assert "not_ready_reason" not in resumed.outs
    assert emulator.list_requests("PUT") == []
    assert len(emulator.list_requests("POST")) == 1


def test_a_cluster_that_loses_credit_during_its_create_is_kept(
    lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
) -> None:
    emulator.add_fault(
        "GET", "^/compute/clusters/", status_override="OnDemandComputePaused", skip=2, count=None
    )
    call = emulator.create_context()
    with use_context(call):
        created = lifecycle.create(cluster_inputs)
    assert (created.outs["ready"], created.outs["status"]) == (False, "OnDemandComputePaused")
    assert "no credit is left" in call.progress.init_errors[0]
    assert len(emulator.list_objects("clusters")) == 1


def test_a_volume_with_revoked_access_is_reported(emulator: Any, volume_inputs: Properties) -> None:
    volume = SharedVolumeLifecycle()
    with emulator.use_context_of("data"):
        inputs = {**volume.check({}, volume_inputs).inputs, "__provider": "pickled"}
        created = volume.create(inputs)
    emulator.add_fault("GET", "storage/volumes", status_override="access_revoked", count=None)
    call = emulator.create_context("data")
    with use_context(call):
        read = volume.read(created.id, created.outs)
        state = {**read.outs, "__provider": "pickled"}
        (change,) = volume.list_changes(state, inputs)
        assert volume.diff(created.id, state, inputs).replaces == []
        volume.update(created.id, state, inputs)
    assert "add credit to the account" in change.because
    assert "revoked access to its data" in call.progress.init_errors[0]
    emulator.clear_faults()
    with emulator.use_context_of("data"):
        resumed = volume.update(created.id, state, inputs)
    assert resumed.outs is not None
    assert resumed.outs["ready"] is True
