"""No credit, and Degraded: said plainly, waited for by nobody, and never a reason to replace."""

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


@pytest.fixture(params=STUCK, ids=lambda stuck: stuck[0])
def stuck(request: Any, emulator: Any, ready: Any) -> Iterator[str]:
    """Every cluster shows a status that it does not leave; what has to be said of it."""
    status, said = request.param
    emulator.fault("GET", "^/compute/clusters", status_override=status, count=None)
    yield said
    emulator.clear_faults()


def test_a_refresh_finds_it_and_the_plan_says_what_to_do(
    lifecycle: ClusterLifecycle, emulator: Any, ready: Any, stuck: str
) -> None:
    id_, outs, inputs = ready
    with emulator.serving():
        read = lifecycle.read(id_, outs)
    assert read.outs["ready"] is False
    assert stuck in read.outs["not_ready_reason"]
    state = {**read.outs, "__provider": "pickled"}
    (change,) = lifecycle.list_changes(state, inputs)
    assert (change.path, change.replaces) == ("ready", False)
    assert stuck in change.because
    diff = lifecycle.diff(id_, state, inputs)
    assert (diff.changes, diff.replaces) == (True, [])


def test_it_is_said_beside_another_change_too(
    lifecycle: ClusterLifecycle, emulator: Any, ready: Any, stuck: str
) -> None:
    id_, outs, inputs = ready
    with emulator.serving():
        read = lifecycle.read(id_, outs)
    state = {**read.outs, "__provider": "pickled"}
    changes = lifecycle.list_changes(state, {**inputs, "num_gpus": 24})
    assert [change.path for change in changes] == ["num_gpus", "ready"]
    assert stuck in changes[1].because


def test_an_up_fails_at_once_and_resumes_when_it_is_over(
    lifecycle: ClusterLifecycle, emulator: Any, ready: Any, stuck: str
) -> None:
    id_, outs, inputs = ready
    state = {**outs, "ready": False, "not_ready_reason": stuck}
    began = emulator.http.get("/_emulator/clock").json()["now"]
    call = emulator.call()
    with use_context(call):
        updated = lifecycle.update(id_, state, inputs)
    assert emulator.http.get("/_emulator/clock").json()["now"] == began
    assert len(call.init_errors) == 1
    assert stuck in call.init_errors[0]
    assert updated.outs is not None
    assert updated.outs["ready"] is False
    emulator.clear_faults()
    with emulator.serving():
        resumed = lifecycle.update(id_, {**updated.outs, "__provider": "pickled"}, inputs)
    assert resumed.outs is not None
    assert resumed.outs["ready"] is True
    assert "not_ready_reason" not in resumed.outs
    assert emulator.requests("PUT") == []
    assert len(emulator.requests("POST")) == 1


def test_a_cluster_that_runs_out_of_credit_while_it_is_made_is_kept(
    lifecycle: ClusterLifecycle, emulator: Any, cluster_inputs: Properties
) -> None:
    emulator.fault(
        "GET", "^/compute/clusters/", status_override="OnDemandComputePaused", skip=2, count=None
    )
    call = emulator.call()
    with use_context(call):
        created = lifecycle.create(cluster_inputs)
    assert (created.outs["ready"], created.outs["status"]) == (False, "OnDemandComputePaused")
    assert "no credit is left" in call.init_errors[0]
    assert len(emulator.objects("clusters")) == 1


def test_a_volume_whose_data_is_out_of_reach(emulator: Any, volume_inputs: Properties) -> None:
    volume = SharedVolumeLifecycle()
    with emulator.serving("data"):
        inputs = {**volume.check({}, volume_inputs).inputs, "__provider": "pickled"}
        created = volume.create(inputs)
    emulator.fault("GET", "storage/volumes", status_override="access_revoked", count=None)
    call = emulator.call("data")
    with use_context(call):
        read = volume.read(created.id, created.outs)
        state = {**read.outs, "__provider": "pickled"}
        (change,) = volume.list_changes(state, inputs)
        assert volume.diff(created.id, state, inputs).replaces == []
        volume.update(created.id, state, inputs)
    assert "add credit to the account" in change.because
    assert "revoked access to its data" in call.init_errors[0]
    emulator.clear_faults()
    with emulator.serving("data"):
        resumed = volume.update(created.id, state, inputs)
    assert resumed.outs is not None
    assert resumed.outs["ready"] is True
