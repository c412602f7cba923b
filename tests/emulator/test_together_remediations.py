"""Repairs of workers' machines through the unchanged PyPI client."""

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
    made = together.clusters.create(**{**cluster_args, "num_gpus": 32})
    control.advance(READY)
    return together.clusters.retrieve(made.cluster_id)


def propose(emulator: Server, cluster: Cluster, at: int = 1, **fields: Any) -> str:
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
    id_ = propose(emulator, cluster, mode=mode)
    calls, where = together.clusters.remediations, machine(cluster)
    control.advance(LONGEST)
    found = calls.retrieve(id_, **where)
    assert (found.state, found.trigger) == ("PENDING_APPROVAL", "REMEDIATION_TRIGGER_AUTOMATED")
    assert found.linked_alerts is not None
    assert found.linked_alerts[0].severity == "PHC_SEVERITY_CRITICAL"
    calls.approve(id_, **where, comment="seen")
    states = [calls.retrieve(id_, **where).state]
    for _ in range(LONGEST // 30):
        control.advance(30)
        states.append(calls.retrieve(id_, **where).state)
    told = list(dict.fromkeys(states))
    assert told == ["PENDING", "QUARANTINING", "QUARANTINED", "RUNNING", "SUCCEEDED"]
    ended = calls.retrieve(id_, **where)
    assert ended.start_time is not None
    assert ended.end_time is not None
    assert ended.review_comment == "seen"
    before = [each.node_id for each in cluster.gpu_worker_nodes]
    after = together.clusters.retrieve(cluster.cluster_id).gpu_worker_nodes
    stayed = [each.node_id for each in after if each.node_id in before]
    is_in_place = mode in ("REMEDIATION_MODE_REBOOT_VM", "REMEDIATION_MODE_HOST_POWER_CYCLE")
    assert len(stayed) == (4 if is_in_place else 3)
    assert len(after) == (3 if "EVICT" in mode else 4)


def test_a_rejected_proposal_is_cancelled_and_cannot_be_approved(
    together: Together, emulator: Server, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    id_ = propose(emulator, cluster)
    assert calls.reject(id_, **where, comment="no").state == "CANCELLED"
    for call in (calls.approve, calls.cancel, calls.reject):
        with pytest.raises(ConflictError):
            call(id_, **where)


def test_a_cancelled_remediation_in_the_queue_leaves_its_worker_alone(
    together: Together, control: Any, emulator: Server, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    calls.approve(propose(emulator, cluster), **where)
    (found,) = calls.list(**where).remediations
    assert calls.cancel(found.id, **where).state == "CANCELLED"
    control.advance(LONGEST)
    after = together.clusters.retrieve(cluster.cluster_id)
    assert [each.node_id for each in after.gpu_worker_nodes] == [
        each.node_id for each in cluster.gpu_worker_nodes
    ]


def test_a_second_request_with_the_same_id_gets_the_same_remediation(
    together: Together, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    mine, other = {"remediation_id": "mine"}, {"remediation_id": "another"}
    asked: dict[str, Any] = {**where, "mode": MODES[3], "extra_query": mine}
    first, second = calls.create(**asked), calls.create(**asked)
    assert (first.id, second.id, second.state) == ("mine", "mine", "PENDING")
    with pytest.raises(ConflictError):
        calls.create(**{**asked, "mode": MODES[0]})
    with pytest.raises(ConflictError):
        calls.create(**{**asked, "extra_query": other})
    assert len(calls.list(**where).remediations) == 1


def test_an_approval_cannot_change_the_mode_to_a_power_cycle(
    together: Together, emulator: Server, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    id_ = propose(emulator, cluster)
    with pytest.raises(BadRequestError):
        calls.approve(id_, **where, mode=MODES[4])
    assert calls.approve(id_, **where, mode=MODES[3]).mode == MODES[3]


def test_a_proposal_whose_alerts_end_resolves_itself(
    together: Together, emulator: Server, cluster: Cluster
) -> None:
    id_ = propose(emulator, cluster)
    url = f"{emulator.url}/_emulator/together/remediations/{id_}/resolve"
    httpx.post(url, verify=False).raise_for_status()
    found = together.clusters.remediations.retrieve(id_, **machine(cluster))
    assert found.state == "AUTO_RESOLVED"
    assert found.linked_alerts is not None
    assert found.linked_alerts[0].resolved_at is not None


def test_lists_are_filtered_ordered_and_paged(
    together: Together, control: Any, emulator: Server, cluster: Cluster
) -> None:
    calls, where = together.clusters.remediations, machine(cluster)
    made = []
    for _ in range(3):
        made.append(propose(emulator, cluster))
        calls.reject(made[-1], **where)
        control.advance(60)
    made.append(propose(emulator, cluster, mode=MODES[3]))
    assert [each.id for each in calls.list(**where).remediations] == made[::-1]
    oldest = calls.list(**where, order_by="create_time").remediations
    assert [each.id for each in oldest] == made
    page = calls.list(**where, page_size=3)
    assert (len(page.remediations), page.has_next) == (3, True)
    rest = calls.list(**where, page_size=3, page_token=page.next_page_token)
    assert ([each.id for each in rest.remediations], rest.has_next) == ([made[0]], False)
    wanted: Any = ["PENDING_APPROVAL", "RUNNING"]
    assert [each.id for each in calls.list(**where, state=wanted).remediations] == [made[3]]
    assert [e.id for e in calls.list(**where, mode=[MODES[3]]).remediations] == [made[3]]  # type: ignore[list-item]
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
    calls.approve(propose(emulator, cluster, fails="no host is free"), **where)
    control.advance(LONGEST)
    (found,) = calls.list(**where).remediations
    assert (found.state, found.error_message) == ("FAILED", "no host is free")
    after = together.clusters.retrieve(cluster.cluster_id).gpu_worker_nodes
    assert [each.node_id for each in after] == [e.node_id for e in cluster.gpu_worker_nodes]


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
def test_states_move_along_the_documented_arrows_alone(
    together: Together, control: Any, emulator: Server, cluster: Cluster, steps: list[str]
) -> None:
    calls = together.clusters.remediations
    there = together.clusters.retrieve(cluster.cluster_id)
    at = next(i for i, each in enumerate(there.gpu_worker_nodes))
    where = machine(there, at)
    seen: dict[str, str] = {}
    for step in steps:
        with suppress(ConflictError, NotFoundError):
            if step == "propose":
                if not any(s not in ("SUCCEEDED", "FAILED", "CANCELLED") for s in seen.values()):
                    seen[propose(emulator, there, at)] = "PENDING_APPROVAL"
            elif step == "create":
                made = calls.create(**where, mode=MODES[3])  # type: ignore[arg-type]
                seen[made.id] = made.state
            elif step.startswith("wait"):
                control.advance(30 if step == "wait" else LONGEST)
            elif seen:
                getattr(calls, step)([*seen][-1], **where)
        for id_, before in seen.items():
            now = calls.retrieve(id_, **where).state
            assert now == before or now in _reachable(before)
            seen[id_] = now
    control.advance(LONGEST)


def _reachable(state: str) -> set[str]:
    found = set(ARROWS.get(state, ()))
    for each in tuple(found):
        found |= _reachable(each)
    return found
