"""Test every injected fault with Together's own client."""

from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from together import (
    APIConnectionError,
    ConflictError,
    InternalServerError,
    NotFoundError,
    RateLimitError,
    Together,
)

from gpuform.providers.emulator.app import create_app
from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import DroppedConnection, FaultRule, Faults
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together import ADMIN_KEY

CLUSTERS = "^/compute/clusters$"
ONE_CLUSTER = "^/compute/clusters/[^/]+$"
VOLUME = {"volume_name": "data", "size_tib": 1, "region": "us-central-8"}


def test_a_status_replaces_the_answer_and_the_effect(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    control.add_fault(
        method="POST",
        path=CLUSTERS,
        status=429,
        headers={"Retry-After": "2"},
        body={"error": {"message": "slow down"}},
    )
    with pytest.raises(RateLimitError, match="slow down") as caught:
        together.clusters.create(**cluster_args)
    assert caught.value.response.headers["Retry-After"] == "2"
    assert together.clusters.list().clusters == []
    together.clusters.create(**cluster_args)
    assert len(together.clusters.list().clusters) == 1


def test_a_server_error_has_the_platforms_form_by_default(together: Together, control: Any) -> None:
    control.add_fault(status=503)
    with pytest.raises(InternalServerError) as caught:
        together.clusters.list()
    assert set(caught.value.body["error"]) == {"message", "type", "code"}


def test_a_connection_dropped_before_has_no_effect(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    control.add_fault(method="POST", drop="before")
    with pytest.raises(APIConnectionError):
        together.clusters.create(**cluster_args)
    assert together.clusters.list().clusters == []


def test_a_connection_dropped_after_has_its_effect(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    control.add_fault(method="POST", path=CLUSTERS, drop="after")
    with pytest.raises(APIConnectionError):
        together.clusters.create(**cluster_args)
    (cluster,) = together.clusters.list().clusters
    assert cluster.cluster_name == "training"
    posted = [entry for entry in control.list_requests() if entry["method"] == "POST"]
    assert [item["status"] for item in posted] == [None]


def test_a_drop_in_process_is_a_broken_connection(cluster_args: dict[str, Any]) -> None:
    with Store(None) as store:
        app = create_app(store, Clock(store))
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        with httpx.Client(
            transport=httpx.WSGITransport(app), base_url="http://emulator", headers=headers
        ) as client:
            client.post("/_emulator/faults", json={"drop": "after"})
            with pytest.raises(DroppedConnection):
                client.post("/together/v1/compute/clusters", json=cluster_args)
            assert len(client.get("/together/v1/compute/clusters").json()["clusters"]) == 1
    assert issubclass(DroppedConnection, ConnectionError)


def test_no_capacity_refuses_new_and_growing_clusters(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    control.add_fault(method="POST", path=CLUSTERS, capacity=True)
    with pytest.raises(ConflictError, match="Out of stock"):
        together.clusters.create(**cluster_args)
    cluster = together.clusters.create(**cluster_args)
    control.add_fault(method="PUT", count=2, capacity=True)
    with pytest.raises(ConflictError, match="Out of stock"):
        together.clusters.update(cluster.cluster_id, num_gpus=24)
    assert together.clusters.update(cluster.cluster_id, num_gpus=8).num_gpus == 8


def test_a_stuck_cluster_stays_until_it_is_changed(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    control.add_fault(method="POST", stuck=True)
    stuck = together.clusters.create(**cluster_args)
    moving = together.clusters.create(**cluster_args)
    control.advance(86400)
    assert together.clusters.retrieve(stuck.cluster_id).status == "Scheduled"
    assert together.clusters.retrieve(moving.cluster_id).status == "Ready"
    together.clusters.update(stuck.cluster_id, num_gpus=16)
    control.advance(86400)
    again = together.clusters.retrieve(stuck.cluster_id)
    assert (again.status, len(again.gpu_worker_nodes)) == ("Ready", 2)


def test_a_stuck_volume_and_a_stuck_resize_stay(together: Together, control: Any) -> None:
    storage = together.clusters.storage
    control.add_fault(method="POST", stuck=True)
    stuck = storage.create(**VOLUME)
    moving = storage.create(**VOLUME)
    control.advance(3600)
    assert storage.retrieve(stuck.volume_id).status == "scheduled"
    control.add_fault(method="PUT", stuck=True)
    storage.update(volume_id=moving.volume_id, size_tib=9)
    control.advance(3600)
    assert storage.retrieve(moving.volume_id).size_tib == 1
    control.add_fault(method="DELETE", stuck=True)
    storage.delete(moving.volume_id)
    control.advance(3600)
    assert storage.retrieve(moving.volume_id).status == "deleting"


@pytest.mark.parametrize("change", [{"num_gpus": 24}, {"cluster_type": "SLURM"}])
def test_a_stuck_update_never_becomes_ready(
    together: Together, control: Any, cluster_args: dict[str, Any], change: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args)
    control.advance(3600)
    control.add_fault(method="PUT", stuck=True)
    first = together.clusters.update(cluster.cluster_id, **change).status
    control.advance(86400)
    stuck = together.clusters.retrieve(cluster.cluster_id)
    assert stuck.status == first != "Ready"
    assert len(stuck.gpu_worker_nodes) == 2


def test_a_stuck_update_of_a_new_cluster_stops_its_workers(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args)
    control.advance(300)
    control.add_fault(method="PUT", stuck=True)
    together.clusters.update(cluster.cluster_id, num_gpus=24)
    control.advance(86400)
    stuck = together.clusters.retrieve(cluster.cluster_id)
    assert (stuck.status, stuck.gpu_worker_nodes) == ("WaitingForDataPlaneNodes", [])


def test_a_stuck_deletion_keeps_cluster_and_volume(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args, shared_volume=VOLUME)
    control.add_fault(method="DELETE", stuck=True)
    together.clusters.delete(cluster.cluster_id)
    control.advance(86400)
    assert together.clusters.retrieve(cluster.cluster_id).status == "Deleting"
    (volume,) = together.clusters.storage.list().volumes
    assert volume.status == "bound"
    together.clusters.delete(cluster.cluster_id)
    control.advance(180)
    with pytest.raises(NotFoundError):
        together.clusters.retrieve(cluster.cluster_id)


def test_a_status_override_shows_while_its_rule_lives(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    cluster = together.clusters.create(**cluster_args)
    other = together.clusters.create(**cluster_args)
    control.advance(3600)
    control.add_fault(
        path=f"^/compute/clusters/{cluster.cluster_id}$", status_override="Degraded", count=None
    )
    for _ in range(3):
        retrieved = together.clusters.retrieve(cluster.cluster_id)
        assert retrieved.status == "Degraded"
        assert retrieved.phase_transitions[-1].phase == "CLUSTER_PHASE_DEGRADED"
    listed = {cluster.cluster_id: cluster.status for cluster in together.clusters.list().clusters}
    assert listed == {cluster.cluster_id: "Degraded", other.cluster_id: "Ready"}
    control.call("DELETE", "/faults")
    assert together.clusters.retrieve(cluster.cluster_id).status == "Ready"


def test_a_status_override_counts_answers(
    together: Together, control: Any, cluster_args: dict[str, Any]
) -> None:
    for _ in range(3):
        together.clusters.create(**cluster_args)
    control.add_fault(
        path=CLUSTERS,
        method="GET",
        skip=1,
        count=2,
        status_override="Paused",
        phase="CLUSTER_PHASE_ACCEPTANCE_TESTS_FAILED",
    )
    statuses = [{cluster.status for cluster in together.clusters.list().clusters} for _ in range(4)]
    assert statuses == [{"Scheduled"}, {"Paused"}, {"Paused"}, {"Scheduled"}]


def test_skip_and_count_choose_the_requests(together: Together, control: Any) -> None:
    control.add_fault(path="^/compute/regions$", skip=2, count=2, status=500)
    number = str(control.call("GET", "/faults")[0]["number"])
    outcomes = []
    for _ in range(6):
        try:
            together.clusters.list_regions()
            outcomes.append("ok")
        except InternalServerError:
            outcomes.append("error")
    assert outcomes == ["ok", "ok", "error", "error", "ok", "ok"]
    assert control.call("GET", "/faults") == []
    assert control.call("GET", "/faults/applied")[number] == 2


def test_rules_apply_to_requests_in_the_order_of_their_addition(
    together: Together, control: Any
) -> None:
    control.add_fault(status=500)
    control.add_fault(status=429)
    assert [rule["status"] for rule in control.call("GET", "/faults")] == [500, 429]
    with pytest.raises(InternalServerError):
        together.clusters.list()
    with pytest.raises(RateLimitError):
        together.clusters.list()
    together.clusters.list()


@pytest.mark.parametrize(
    "rule",
    [
        {},
        {"status": 429, "drop": "before"},
        {"status": 200},
        {"path": "(", "status": 500},
        {"drop": "sometimes"},
        {"status": 500, "count": 0},
        {"effect": {"status": 500}},
    ],
)
def test_a_malformed_rule_is_refused(emulator: Any, rule: dict[str, Any]) -> None:
    answer = httpx.post(f"{emulator.url}/_emulator/faults", json=rule, verify=False)
    assert answer.status_code == 422
    assert answer.json()["error"]
    with pytest.raises(ValidationError):
        FaultRule.model_validate(rule)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3), st.one_of(st.none(), st.integers(1, 3)), st.integers(400, 599)
        ),
        max_size=4,
    ),
    st.integers(0, 20),
)
def test_each_rule_skips_and_then_applies_as_often_as_it_says(
    rules: list[tuple[int, int | None, int]], requests: int
) -> None:
    with Store(None) as store:
        faults = Faults(store)
        for skip, count, status in rules:
            faults.add(FaultRule(skip=skip, count=count, status=status))
        taken = [faults.take("GET", "/x") for _ in range(requests)]
        remaining_rules = faults.list_live()
        applied = faults.count_applications()
    for at, fault in enumerate(taken):
        alone = [
            status
            for skip, count, status in rules[:1]
            if skip <= at and (count is None or at < skip + count)
        ]
        if alone:  # the oldest rule is not disturbed by the others
            assert fault is not None
            assert fault.status == alone[0]
    met = sum(fault is not None for fault in taken)
    assert met <= requests
    assert sum(applied.values()) == met
    if all(count is not None for _, count, _ in rules):
        assert met + sum(rule.count or 0 for rule in remaining_rules) == sum(
            n or 0 for _, n, _ in rules
        )
