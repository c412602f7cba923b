"""Test repairs of workers' machines through the unchanged PyPI client."""

from contextlib import suppress
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from together import BadRequestError, ConflictError, NotFoundError, Together
from together.types import Cluster

from gpuform.providers.emulator.server import Server

READY = 20 * 60
LONGEST = 3600
MODES = (
    "REMEDIATION_MODE_VM_ONLY",
    "REMEDIATION_MODE_HOST_AWARE",
    "REMEDIATION_MODE_EVICT_WITHOUT_REPLACEMENT",
    "REMEDIATION_MODE_REBOOT_VM",
    "REMEDIATION_MODE_HOST_POWER_CYCLE",
)
ARROWS = {
    "PENDING_APPROVAL": {"PENDING", "CANCELLED", "AUTO_RESOLVED"},
    "PENDING": {"QUARANTINING", "CANCELLED"},
    "QUARANTINING": {"QUARANTINED"},
    "QUARANTINED": {"RUNNING"},
    "RUNNING": {"SUCCEEDED", "FAILED"},
}


@pytest.fixture
def cluster(together: Together, control: Any, cluster_args: dict[str, Any]) -> Cluster:
    created = together.clusters.create(**{**cluster_args, "num_gpus": 32})
    control.advance(READY)
    return together.clusters.retrieve(created.cluster_id)


def propose_remediation(emulator: Server, cluster: Cluster, at: int = 1, **fields: Any) -> str:
    name = cluster.gpu_worker_nodes[at].host_name
    body = {"cluster_id": cluster.cluster_id, "instance_name": name, **fields}
    url = f"{emulator.url}/_emulator/together/remediations"
    return str(httpx.post(url, json=body, verify=False).raise_for_status().json()["id"])


def machine(cluster: Cluster, at: int = 1) -> dict[str, str]:
    instance = cluster.gpu_worker_nodes[at].instance_id
    assert instance is not None
    return {"cluster_id": cluster.cluster_id, "instance_id": instance}


@pytest.mark.parametrize("mode", MODES)
def test_an_approved_proposal_runs_and_succeeds(
    together: Together, control: Any, emulator: Server, cluster: Cluster, mode: Any
) -> None:
    id_ = propose_remediation(emulator, cluster, mode=mode)
    calls, where = together.clusters.remediations, machine(cluster)
    control.advance(LONGEST)
    remediation = calls.retrieve(id_, **where)
    assert (remediation.state, remediation.trigger) == (
        "PENDING_APPROVAL",
        "REMEDIATION_TRIGGER_AUTOMATED",
    )
    assert remediation.linked_alerts is not None
    assert remediation.linked_alerts[0].severity == "PHC_SEVERITY_CRITICAL"
    calls.approve(id_, **where, comment="seen")
    states = [calls.retrieve(id_, **where).state]
    for _ in range(LONGEST // 30):
        control.advance(30)
        states.append(calls.retrieve(id_, **where).state)
    distinct_states = list(dict.fromkeys(states))
    assert distinct_states == ["PENDING", "QUARANTINING", "QUARANTINED", "RUNNING", "SUCCEEDED"]
    ended = calls.retrieve(id_, **where)
    assert ended.start_time is not None
    assert ended.end_time is not None
    assert ended.review_comment == "seen"
    before = [node.node_id for node in cluster.gpu_worker_nodes]
    after = together.clusters.retrieve(cluster.cluster_id).gpu_worker_nodes
    stayed = [node.node_id for node in after if node.node_id in before]
    is_in_place = mode in ("REMEDIATION_MODE_REBOOT_VM", "REMEDIATION_MODE_HOST_POWER_CYCLE")
    assert len(stayed) == (4 if is_in_place else 3)
    assert len(after) == (3 if "EVICT" in mode else 4)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_repair_has_its_effect_on_a_preemptible_worker(
    together: Together, control: Any, cluster: Cluster, mode: Any
) -> None:
    together.clusters.update(cluster.cluster_id, num_preemptible_gpus=8)
    control.advance(LONGEST)
    before = together.clusters.retrieve(cluster.cluster_id)
    old = before.gpu_worker_nodes[-1]
    remediation = together.clusters.remediations.create(**machine(before, -1), mode=mode)
    statuses = set()
    for _ in range(LONGEST // 30):
        control.advance(30)
        nodes = together.clusters.retrieve(cluster.cluster_id).gpu_worker_nodes
        statuses |= {node.status for node in nodes if node.node_id == old.node_id}
    remediation = together.clusters.remediations.retrieve(remediation.id, **machine(before, -1))
    assert remediation.state == "SUCCEEDED"
    is_in_place = mode in ("REMEDIATION_MODE_REBOOT_VM", "REMEDIATION_MODE_HOST_POWER_CYCLE")
    assert ("Booting" in statuses) == is_in_place
    assert (old.node_id in {node.node_id for node in nodes}) == is_in_place
    after = together.clusters.retrieve(cluster.cluster_id)
    assert after.allocated_preemptible_gpus == (0 if "EVICT" in mode else 8)


def test_a_cancelled_repair_does_not_affect_a_preemptible_worker(
    together: Together, control: Any, cluster: Cluster
) -> None:
    together.clusters.update(cluster.cluster_id, num_preemptible_gpus=8)
    control.advance(LONGEST)
    before = together.clusters.retrieve(cluster.cluster_id)
    calls, where = together.clusters.remediations, machine(before, -1)
    calls.cancel(calls.create(**where, mode="REMEDIATION_MODE_VM_ONLY").id, **where)
    control.advance(LONGEST)
    after = together.clusters.retrieve(cluster.cluster_id)
    assert [node.node_id for node in after.gpu_worker_nodes] == [
        node.node_id for node in before.gpu_worker_nodes
    ]


def test_a_rejected_proposal_is_cancelled_and_cannot_be_approved(
    together: Together, emulator: Server, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    id_ = propose_remediation(emulator, cluster)
    assert calls.reject(id_, **where, comment="no").state == "CANCELLED"
    for call in (calls.approve, calls.cancel, calls.reject):
        with pytest.raises(ConflictError):
            call(id_, **where)


def test_a_cancelled_queued_remediation_does_not_affect_its_worker(
    together: Together, control: Any, emulator: Server, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    calls.approve(propose_remediation(emulator, cluster), **where)
    (listed,) = calls.list(**where).remediations
    assert calls.cancel(listed.id, **where).state == "CANCELLED"
    control.advance(LONGEST)
    after = together.clusters.retrieve(cluster.cluster_id)
    assert [node.node_id for node in after.gpu_worker_nodes] == [
        node.node_id for node in cluster.gpu_worker_nodes
    ]


def test_a_second_request_with_the_same_id_gets_the_same_remediation(
    together: Together, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    mine, other = {"remediation_id": "mine"}, {"remediation_id": "another"}
    requests: dict[str, Any] = {**where, "mode": MODES[3], "extra_query": mine}
    first, second = calls.create(**requests), calls.create(**requests)
    assert (first.id, second.id, second.state) == ("mine", "mine", "PENDING")
    with pytest.raises(ConflictError):
        calls.create(**{**requests, "mode": MODES[0]})
    with pytest.raises(ConflictError):
        calls.create(**{**requests, "extra_query": other})
    assert len(calls.list(**where).remediations) == 1


def test_an_approval_cannot_change_the_mode_to_a_power_cycle(
    together: Together, emulator: Server, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    id_ = propose_remediation(emulator, cluster)
    with pytest.raises(BadRequestError):
        calls.approve(id_, **where, mode=MODES[4])
    assert calls.approve(id_, **where, mode=MODES[3]).mode == MODES[3]


def test_a_proposal_whose_alerts_end_resolves_itself(
    together: Together, emulator: Server, cluster: Cluster
) -> None:
    id_ = propose_remediation(emulator, cluster)
    url = f"{emulator.url}/_emulator/together/remediations/{id_}/resolve"
    httpx.post(url, verify=False).raise_for_status()
    remediation = together.clusters.remediations.retrieve(id_, **machine(cluster))
    assert remediation.state == "AUTO_RESOLVED"
    assert remediation.linked_alerts is not None
    assert remediation.linked_alerts[0].resolved_at is not None


def test_lists_are_filtered_ordered_and_paged(
    together: Together, control: Any, emulator: Server, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    created = []
    for _ in range(3):
        created.append(propose_remediation(emulator, cluster))
        calls.reject(created[-1], **where)
        control.advance(60)
    created.append(propose_remediation(emulator, cluster, mode=MODES[3]))
    assert [remediation.id for remediation in calls.list(**where).remediations] == created[::-1]
    oldest = calls.list(**where, order_by="create_time").remediations
    assert [remediation.id for remediation in oldest] == created
    page = calls.list(**where, page_size=3)
    assert (len(page.remediations), page.has_next) == (3, True)
    rest = calls.list(**where, page_size=3, page_token=page.next_page_token)
    assert ([remediation.id for remediation in rest.remediations], rest.has_next) == (
        [created[0]],
        False,
    )
    wanted_states: Any = ["PENDING_APPROVAL", "RUNNING"]
    assert [
        remediation.id for remediation in calls.list(**where, state=wanted_states).remediations
    ] == [created[3]]
    assert [e.id for e in calls.list(**where, mode=[MODES[3]]).remediations] == [created[3]]  # type: ignore[list-item]
    bad: dict[str, Any]
    for bad in ({"state": ["SLEEPING"]}, {"order_by": "mood"}, {"page_token": "x"}):
        with pytest.raises(BadRequestError):
            calls.list(**where, **bad)


def test_an_unknown_remediation_or_machine_is_404(together: Together, cluster: Cluster) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    with pytest.raises(NotFoundError):
        calls.retrieve("none", **where)
    with pytest.raises(NotFoundError):
        calls.create(cluster_id=where["cluster_id"], instance_id="none", mode=MODES[0])  # type: ignore[arg-type]


def test_a_failed_remediation_has_a_message_and_leaves_the_worker(
    together: Together, control: Any, emulator: Server, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    calls.approve(propose_remediation(emulator, cluster, fails="no host is free"), **where)
    control.advance(LONGEST)
    (listed,) = calls.list(**where).remediations
    assert (listed.state, listed.error_message) == ("FAILED", "no host is free")
    after = together.clusters.retrieve(cluster.cluster_id).gpu_worker_nodes
    assert [node.node_id for node in after] == [e.node_id for e in cluster.gpu_worker_nodes]


@pytest.mark.slow
@pytest.mark.sampled(1)
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.sampled_from(["propose", "create", "approve", "reject", "cancel", "wait", "wait long"]),
        max_size=12,
    )
)
def test_states_change_only_as_documented(
    together: Together, control: Any, emulator: Server, cluster: Cluster, steps: list[str]
) -> None:
    calls = together.clusters.remediations
    there = together.clusters.retrieve(cluster.cluster_id)
    at = next(i for i, node in enumerate(there.gpu_worker_nodes))
    where = machine(there, at)
    last_states: dict[str, str] = {}
    for step in steps:
        with suppress(ConflictError, NotFoundError):
            if step == "propose":
                if not any(
                    s not in ("SUCCEEDED", "FAILED", "CANCELLED") for s in last_states.values()
                ):
                    last_states[propose_remediation(emulator, there, at)] = "PENDING_APPROVAL"
            elif step == "create":
                created = calls.create(**where, mode=MODES[3])  # type: ignore[arg-type]
                last_states[created.id] = created.state
            elif step.startswith("wait"):
                control.advance(30 if step == "wait" else LONGEST)
            elif last_states:
                getattr(calls, step)([*last_states][-1], **where)
        for id_, before in last_states.items():
            now = calls.retrieve(id_, **where).state
            assert now == before or now in _list_reachable_states(before)
            last_states[id_] = now
    control.advance(LONGEST)


def _list_reachable_states(state: str) -> set[str]:
    reachable = set(ARROWS.get(state, ()))
    for view in tuple(reachable):
        reachable |= _list_reachable_states(view)
    return reachable
