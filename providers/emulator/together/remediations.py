"""Repairs of workers' machines, which the platform proposes and people ask for, approve or reject.

The calls and words are of the platform's SDK (`clusters.remediations`); its reference lacks them.
How long each state lasts is ours, and that a new machine is a new worker with a name of its own:
the SDK says of a power cycle alone that it keeps the node's identity, and of a reboot that it is in
place.
"""

from typing import Any, Final, Self

from pydantic import BaseModel

from gpuform.providers.emulator.clock import Timeline, get_value_at, select_past_steps
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.catalogue import ApiError, not_found
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.nodes import Node, timestamp
from gpuform.providers.emulator.together.requests import (
    Alert,
    ApproveRemediation,
    CreateRemediation,
    ProposeRemediation,
)

_KIND: Final = "together.remediation"

PROPOSED: Final = "PENDING_APPROVAL"
_QUEUE: Final = (("PENDING", 30.0), ("QUARANTINING", 30.0), ("QUARANTINED", 30.0))
_RUNNING: Final = {
    "REMEDIATION_MODE_VM_ONLY": 600.0,
    "REMEDIATION_MODE_HOST_AWARE": 900.0,
    "REMEDIATION_MODE_EVICT_WITHOUT_REPLACEMENT": 120.0,
    "REMEDIATION_MODE_REBOOT_VM": 300.0,
    "REMEDIATION_MODE_HOST_POWER_CYCLE": 900.0,
}
MODES: Final = frozenset(_RUNNING)
STATES: Final = frozenset(
    {
        *(PROPOSED, "PENDING", "QUARANTINING", "QUARANTINED", "RUNNING"),
        *("SUCCEEDED", "FAILED", "CANCELLED", "AUTO_RESOLVED"),
    }
)
_IN_PLACE: Final = ("REMEDIATION_MODE_REBOOT_VM", "REMEDIATION_MODE_HOST_POWER_CYCLE")
_NEW_MACHINE: Final = ("REMEDIATION_MODE_VM_ONLY", "REMEDIATION_MODE_HOST_AWARE")
_POWER_CYCLE: Final = "REMEDIATION_MODE_HOST_POWER_CYCLE"
_ENDED: Final = ("SUCCEEDED", "FAILED", "CANCELLED", "AUTO_RESOLVED")


class Remediation(BaseModel, frozen=True):
    """One of them; `states` has those to come as well. `fails`: its run will, with these words."""

    id: str
    cluster_id: str
    instance_id: str
    instance_name: str
    mode: str
    trigger: str
    reason: str
    requested_by: str
    created_at: float
    states: Timeline[str]
    reviewed_at: float | None = None
    reviewed_by: str = ""
    review_comment: str = ""
    error_message: str = ""
    fails: str = ""
    alerts: list[Alert] = []
    alerts_resolved_at: float | None = None

    def state(self, now: float) -> str:
        return get_value_at(self.states, now)

    def is_open(self, now: float) -> bool:
        return self.state(now) not in _ENDED

    def begun(self, now: float) -> Self:
        """Queued from now on, then run."""
        states, at = [*select_past_steps(self.states, now)], now
        length = _RUNNING[self.mode]
        for state, seconds in (*_QUEUE, ("RUNNING", length)):
            states.append((at, state))
            at += seconds
        states.append((at, "FAILED" if self.fails else "SUCCEEDED"))
        return self.model_copy(update={"states": states, "error_message": self.fails})

    def ended(self, state: str, now: float) -> Self:
        return self.model_copy(
            update={"states": [*select_past_steps(self.states, now), (now, state)]}
        )

    def span(self) -> tuple[float, float]:
        """When its run begins and ends."""
        start = next(at for at, state in self.states if state == "RUNNING")
        return start, self.states[-1][0]

    def view(self, now: float) -> dict[str, Any]:
        """The SDK's Remediation; fields without a value are left out."""
        happened = select_past_steps(self.states, now)
        started = next((at for at, state in happened if state == "RUNNING"), None)
        ended = next((at for at, state in happened if state in _ENDED), None)
        optional = {
            "review_comment": self.review_comment,
            "reviewed_by": self.reviewed_by,
            "error_message": self.error_message if self.state(now) == "FAILED" else "",
            "review_time": _moment(self.reviewed_at),
            "start_time": _moment(started),
            "end_time": _moment(ended),
        }
        is_checked = bool(self.alerts)
        return {
            "id": self.id,
            "cluster_id": self.cluster_id,
            "instance_id": self.instance_id,
            "instance_name": self.instance_name,
            "mode": self.mode,
            "state": self.state(now),
            "trigger": self.trigger,
            "reason": self.reason,
            "requested_by": self.requested_by,
            "create_time": timestamp(self.created_at),
            "update_time": timestamp(happened[-1][0]),
            "linked_alerts": [self._alert(each, now) for each in self.alerts],
            **({"passive_health_check_event_id": f"event-{self.id}"} if is_checked else {}),
            **({} if is_checked else {"active_health_check_run_id": f"run-{self.id}"}),
            **{name: value for name, value in optional.items() if value},
        }

    def _alert(self, alert: Alert, now: float) -> dict[str, Any]:
        resolved_at = self.alerts_resolved_at
        is_resolved = resolved_at is not None and resolved_at <= now
        return {
            "alert_name": alert.alert_name,
            "severity": alert.severity,
            "cluster_id": self.cluster_id,
            "instance_id": self.instance_id,
            "target_vm": self.instance_name,
            "passive_health_check_alert_id": f"alert-{self.id}",
            "node_remediation_intent_id": f"intent-{self.id}",
            "started_at": timestamp(self.created_at),
            "annotation": {
                "title": alert.alert_name,
                "description": alert.description,
                "summary_line": f"{alert.alert_name} on {self.instance_name}",
                "slurm_node_unavailable": {"reason": alert.description},
                "xid": {"events": [{"count": 1, "mnemonic": "GPU_FELL_OFF_BUS", "xid_code": "79"}]},
            },
            "annotations": {"summary": alert.alert_name},
            **({"resolved_at": timestamp(resolved_at or now)} if is_resolved else {}),
        }


class Remediations:
    """Those of a store, at one moment; methods raise `ApiError`.

    The documents name no codes: 409 stands for a state in which something cannot be done.
    """

    def __init__(self, store: Store, now: float) -> None:
        self._store, self._now = store, now

    def of(self, cluster_id: str, instance_id: str = "") -> list[Remediation]:
        """Those of a cluster or of one machine, the newest first."""
        found = (Remediation.model_validate_json(body) for body in self._store.list_all(_KIND))
        those = [
            each
            for each in found
            if each.cluster_id == cluster_id and instance_id in ("", each.instance_id)
        ]
        return sorted(those, key=lambda each: (-each.created_at, each.id))

    def latest(self, cluster_id: str) -> dict[str, dict[str, Any]]:
        """What each machine of a cluster shows, by its id."""
        found = reversed(self.of(cluster_id))
        return {each.instance_id: each.view(self._now) for each in found}

    def one(self, cluster_id: str, instance_id: str, id_: str) -> Remediation:
        found = (each for each in self.of(cluster_id, instance_id) if each.id == id_)
        remediation = next(found, None)
        if remediation is None:
            raise not_found("remediation", id_)
        return remediation

    def create(
        self, cluster: Cluster, instance_id: str, id_: str | None, body: CreateRemediation
    ) -> tuple[Remediation, Cluster]:
        """A second request of the same id answers the first one's; for an open one it is 409."""
        worker = worker_of(cluster, instance_id, self._now)
        for each in self.of(cluster.cluster_id):
            if each.id == id_ and (each.instance_id, each.mode) == (instance_id, body.mode):
                return each, cluster
            if each.id == id_:
                raise ApiError(409, f"remediation {id_!r} exists and is another one")
            if each.instance_id == instance_id and each.is_open(self._now):
                raise ApiError(409, f"instance {instance_id!r} has remediation {each.id} open")
        asked = Remediation(
            id=id_ or self._store.create_id(),
            cluster_id=cluster.cluster_id,
            instance_id=instance_id,
            instance_name=worker.host_name,
            mode=body.mode,
            trigger="REMEDIATION_TRIGGER_MANUAL",
            reason=body.reason or "",
            requested_by="api",
            created_at=self._now,
            states=[(self._now, "PENDING")],
            fails=self._planned_failure(worker.host_name),
        )
        return self._begun(asked, cluster)

    def propose(self, cluster: Cluster, wanted: ProposeRemediation) -> Remediation:
        """The platform proposes one, or shows one in another state, which does nothing."""
        worker = next(
            (each for each in _workers(cluster) if each.host_name == wanted.instance_name), None
        )
        if worker is None:
            raise not_found("worker", wanted.instance_name)
        is_proposed = wanted.state == PROPOSED
        proposed = Remediation(
            id=wanted.id or self._store.create_id(),
            cluster_id=cluster.cluster_id,
            instance_id=worker.instance_id,
            instance_name=worker.host_name,
            mode=wanted.mode,
            trigger=wanted.trigger,
            reason=wanted.reason,
            requested_by=wanted.requested_by,
            created_at=self._now,
            states=[(self._now, state) for state in ("RUNNING", wanted.state)][is_proposed:],
            reviewed_at=None if is_proposed else self._now,
            reviewed_by=wanted.reviewed_by,
            review_comment=wanted.review_comment,
            error_message=wanted.error_message,
            fails=wanted.fails,
            alerts=wanted.alerts,
            alerts_resolved_at=self._now if wanted.are_resolved else None,
        )
        self._keep(proposed)
        return proposed

    def approve(
        self, cluster: Cluster, found: Remediation, body: ApproveRemediation
    ) -> tuple[Remediation, Cluster]:
        if body.mode == _POWER_CYCLE:
            raise ApiError(400, "mode HOST_POWER_CYCLE cannot be set by an approval")
        self._require(found, PROPOSED)
        reviewed = self._reviewed(found, body.comment)
        mode = body.mode or found.mode
        return self._begun(reviewed.model_copy(update={"mode": mode}), cluster)

    def reject(self, found: Remediation, comment: str | None) -> Remediation:
        self._require(found, PROPOSED)
        rejected = self._reviewed(found, comment).ended("CANCELLED", self._now)
        self._keep(rejected)
        return rejected

    def cancel(self, cluster: Cluster, found: Remediation) -> tuple[Remediation, Cluster]:
        self._require(found, PROPOSED, "PENDING")
        cancelled = found.ended("CANCELLED", self._now)
        self._keep(cancelled)
        return cancelled, _without_plan(cluster, found)

    def resolve(self, id_: str) -> Remediation:
        """Its alerts have ended: what was only proposed is not needed any more."""
        body = self._store.get(_KIND, id_)
        if body is None:
            raise not_found("remediation", id_)
        found = Remediation.model_validate_json(body)
        self._require(found, PROPOSED)
        resolved = found.ended("AUTO_RESOLVED", self._now)
        resolved = resolved.model_copy(update={"alerts_resolved_at": self._now})
        self._keep(resolved)
        return resolved

    def _planned_failure(self, name: str) -> str:
        """Why the next one asked for fails, if a test has said so."""
        return self._store.get(f"{_KIND}.fails", name) or ""

    def fail_next(self, name: str, why: str) -> None:
        """What is asked for this worker fails from now on; empty: no longer."""
        self._store.put(f"{_KIND}.fails", name, why)

    def _begun(self, found: Remediation, cluster: Cluster) -> tuple[Remediation, Cluster]:
        begun = found.begun(self._now)
        self._keep(begun)
        return begun, _planned(cluster, begun, self._store)

    def _reviewed(self, found: Remediation, comment: str | None) -> Remediation:
        told = {"reviewed_at": self._now, "reviewed_by": "api", "review_comment": comment or ""}
        return found.model_copy(update=told)

    def _require(self, found: Remediation, *states: str) -> None:
        if found.state(self._now) not in states:
            raise ApiError(409, f"remediation {found.id!r} is {found.state(self._now)}")

    def _keep(self, remediation: Remediation) -> None:
        self._store.put(_KIND, remediation.id, remediation.model_dump_json())


def worker_of(cluster: Cluster, instance_id: str, now: float) -> Node:
    """The worker on a machine. Raises `ApiError` where there is none."""
    for each in _workers(cluster):
        if each.instance_id == instance_id and each.runs(now):
            return each
    raise not_found("instance", instance_id)


def _workers(cluster: Cluster) -> list[Node]:
    return [*cluster.workers, *cluster.preemptible]


def _planned(cluster: Cluster, repair: Remediation, store: Store) -> Cluster:
    """The cluster with what the repair does to its worker."""
    start, end = repair.span()
    new: list[Node] = []
    index = 1 + max(each.index for each in cluster.workers)

    def changed(node: Node) -> Node:
        if node.instance_id != repair.instance_id or node.has_left(start):
            return node
        if repair.mode in _IN_PLACE or repair.fails:
            revived_at = node.revived_at if repair.fails else end
            down = [*node.down, (start, end)]
            return node.model_copy(update={"down": down, "revived_at": revived_at})
        if repair.mode in _NEW_MACHINE:
            name = f"{cluster.settings.cluster_name}-worker-{index}"
            new.append(
                Node.started((store.create_id(), store.create_id()), name, index, (start, end))
            )
        return node.model_copy(update={"removed_at": start})

    workers = [changed(each) for each in cluster.workers]
    return cluster.model_copy(update={"workers": [*workers, *new]})


def _without_plan(cluster: Cluster, repair: Remediation) -> Cluster:
    """The cluster without what a repair would have done that has not begun."""
    spans = [at for at, state in repair.states if state == "RUNNING"]
    if not spans:
        return cluster
    start, end = repair.span()
    workers = []
    for node in cluster.workers:
        if node.running_at == end and node.phases[0][0] == start:
            continue  # the new machine
        down = [each for each in node.down if each != (start, end)]
        is_it = node.instance_id == repair.instance_id
        removed = None if is_it and node.removed_at == start else node.removed_at
        workers.append(node.model_copy(update={"down": down, "removed_at": removed}))
    return cluster.model_copy(update={"workers": workers})


def _moment(moment: float | None) -> str:
    return "" if moment is None else timestamp(moment)
