"""Repair workers' machines: the platform proposes repairs, users ask for, approve or reject them.

`operations` calls this module. The calls and words are of the platform's SDK
(`clusters.remediations`); its reference lacks them. How long each state lasts is ours, and that a
new machine is a new worker with a name of its own: the SDK says of a power cycle alone that it
keeps the node's identity, and of a reboot that it is in place.
"""

from collections.abc import Callable
from typing import Any, Final, Self

from pydantic import BaseModel

from gpuform.providers.emulator.clock import Timeline, get_value_at, select_past_steps
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.catalogue import TogetherApiError, make_not_found
from gpuform.providers.emulator.together.clusters import Cluster
from gpuform.providers.emulator.together.nodes import Node, format_optional_time, format_timestamp
from gpuform.providers.emulator.together.requests import (
    Alert,
    ApproveRemediation,
    CreateRemediation,
    ProposeRemediation,
)

_REMEDIATION_KIND: Final = "together.remediation"

PROPOSED: Final = "PENDING_APPROVAL"
_QUEUE_STAGES: Final = (("PENDING", 30.0), ("QUARANTINING", 30.0), ("QUARANTINED", 30.0))
# Seconds; ours.
_RUN_SECONDS: Final = {
    "REMEDIATION_MODE_VM_ONLY": 600.0,
    "REMEDIATION_MODE_HOST_AWARE": 900.0,
    "REMEDIATION_MODE_EVICT_WITHOUT_REPLACEMENT": 120.0,
    "REMEDIATION_MODE_REBOOT_VM": 300.0,
    "REMEDIATION_MODE_HOST_POWER_CYCLE": 900.0,
}
MODES: Final = frozenset(_RUN_SECONDS)
STATES: Final = frozenset(
    {
        *(PROPOSED, "PENDING", "QUARANTINING", "QUARANTINED", "RUNNING"),
        *("SUCCEEDED", "FAILED", "CANCELLED", "AUTO_RESOLVED"),
    }
)
_IN_PLACE_MODES: Final = ("REMEDIATION_MODE_REBOOT_VM", "REMEDIATION_MODE_HOST_POWER_CYCLE")
_REPLACEMENT_MODES: Final = ("REMEDIATION_MODE_VM_ONLY", "REMEDIATION_MODE_HOST_AWARE")
_POWER_CYCLE: Final = "REMEDIATION_MODE_HOST_POWER_CYCLE"
_XID_MNEMONICS: Final = {
    31: "ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT",
    64: "INFOROM_DRAM_RETIREMENT_FAILURE",
    79: "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS",
}
"""NVIDIA's names of the Xid errors of the tests; others have none here."""
_FINAL_STATES: Final = ("SUCCEEDED", "FAILED", "CANCELLED", "AUTO_RESOLVED")


class Remediation(BaseModel, frozen=True):
    """One repair as it is stored; `states` holds the planned ones as well.

    `fails` is the error message with which the run will fail; empty for a run that succeeds.
    """

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

    def get_state(self, now: float) -> str:
        """Return the repair's state at `now`; before the first step, the first state."""
        return get_value_at(self.states, now)

    def is_open(self, now: float) -> bool:
        """Return whether the repair has not ended: it is proposed, waits or runs."""
        return self.get_state(now) not in _FINAL_STATES

    def plan_run(self, now: float) -> Self:
        """Return the remediation queued from now on, then running, then succeeded or failed.

        A message in `fails` is the error of a run that fails.
        """
        states, moment = [*select_past_steps(self.states, now)], now
        run_seconds = _RUN_SECONDS[self.mode]
        for state, seconds in (*_QUEUE_STAGES, ("RUNNING", run_seconds)):
            states.append((moment, state))
            moment += seconds
        states.append((moment, "FAILED" if self.fails else "SUCCEEDED"))
        return self.model_copy(update={"states": states, "error_message": self.fails})

    def set_final_state(self, state: str, now: float) -> Self:
        """Return the remediation in a final `state` from now on."""
        return self.model_copy(
            update={"states": [*select_past_steps(self.states, now), (now, state)]}
        )

    def get_run_span(self) -> tuple[float, float]:
        """Return the beginning and the end of the planned run, in unix seconds.

        Only for a remediation with a run: StopIteration otherwise.
        """
        start = next(at for at, state in self.states if state == "RUNNING")
        return start, self.states[-1][0]

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the SDK's Remediation; fields without a value are left out."""
        past_states = select_past_steps(self.states, now)
        started = next((at for at, state in past_states if state == "RUNNING"), None)
        ended = next((at for at, state in past_states if state in _FINAL_STATES), None)
        optional = {
            "review_comment": self.review_comment,
            "reviewed_by": self.reviewed_by,
            "error_message": self.error_message if self.get_state(now) == "FAILED" else "",
            "review_time": format_optional_time(self.reviewed_at),
            "start_time": format_optional_time(started),
            "end_time": format_optional_time(ended),
        }
        # The source is an event of a passive health check or a run of an active one.
        is_checked = bool(self.alerts)
        return {
            "id": self.id,
            "cluster_id": self.cluster_id,
            "instance_id": self.instance_id,
            "instance_name": self.instance_name,
            "mode": self.mode,
            "state": self.get_state(now),
            "trigger": self.trigger,
            "reason": self.reason,
            "requested_by": self.requested_by,
            "create_time": format_timestamp(self.created_at),
            "update_time": format_timestamp(past_states[-1][0]),
            "linked_alerts": [self._alert_to_json(alert, now) for alert in self.alerts],
            **({"passive_health_check_event_id": f"event-{self.id}"} if is_checked else {}),
            **({} if is_checked else {"active_health_check_run_id": f"run-{self.id}"}),
            **{name: value for name, value in optional.items() if value},
        }

    def _alert_to_json(self, alert: Alert, now: float) -> dict[str, Any]:
        """Return the alert in the answer's form; `resolved_at` is there once resolved.

        The annotation has the GPU's Xid errors and Slurm's reason, where the alert has any.
        """
        resolved_at = self.alerts_resolved_at
        is_resolved = resolved_at is not None and resolved_at <= now
        events = [
            {"count": 1, "mnemonic": _XID_MNEMONICS.get(code, ""), "xid_code": str(code)}
            for code in alert.xid_codes
        ]
        evidence = {
            "xid": {"events": events} if events else None,
            "slurm_node_unavailable": {"reason": alert.slurm_reason}
            if alert.slurm_reason
            else None,
        }
        return {
            "alert_name": alert.alert_name,
            "severity": alert.severity,
            "cluster_id": self.cluster_id,
            "instance_id": self.instance_id,
            "target_vm": self.instance_name,
            "passive_health_check_alert_id": f"alert-{self.id}",
            "node_remediation_intent_id": f"intent-{self.id}",
            "started_at": format_timestamp(self.created_at),
            "annotation": {
                "title": alert.alert_name,
                "description": alert.description,
                "summary_line": f"{alert.alert_name} on {self.instance_name}",
                **{name: value for name, value in evidence.items() if value},
            },
            "annotations": {"summary": alert.alert_name},
            **({"resolved_at": format_timestamp(resolved_at or now)} if is_resolved else {}),
        }


class Remediations:
    """The remediations of a store, at one moment; methods raise `Refusal`.

    `save_cluster` stores a cluster that a repair changes. The documents name no codes: 409 stands
    for a state in which something cannot be done.
    """

    def __init__(self, store: Store, now: float, save_cluster: Callable[[Cluster], None]) -> None:
        self._store, self._now, self._save_cluster = store, now, save_cluster

    def list_remediations(self, cluster_id: str, instance_id: str = "") -> list[Remediation]:
        """Return the remediations of a cluster or of one machine, the newest first."""
        remediations = (
            Remediation.model_validate_json(body)
            for body in self._store.list_all(_REMEDIATION_KIND)
        )
        selected = [
            remediation
            for remediation in remediations
            if remediation.cluster_id == cluster_id and instance_id in ("", remediation.instance_id)
        ]
        return sorted(selected, key=lambda remediation: (-remediation.created_at, remediation.id))

    def latest_to_json(self, cluster_id: str) -> dict[str, dict[str, Any]]:
        """Return the newest remediation of each machine, as JSON by instance id."""
        # Oldest first, so that the newest one of each machine is the one that stays in the
        # dictionary.
        oldest_first = reversed(self.list_remediations(cluster_id))
        return {
            remediation.instance_id: remediation.to_json(self._now) for remediation in oldest_first
        }

    def get(self, cluster_id: str, instance_id: str, remediation_id: str) -> Remediation:
        """Return a remediation of a machine. Raises `Refusal` 404."""
        matches = (
            candidate
            for candidate in self.list_remediations(cluster_id, instance_id)
            if candidate.id == remediation_id
        )
        remediation = next(matches, None)
        if remediation is None:
            raise make_not_found("remediation", remediation_id)
        return remediation

    def create(
        self,
        cluster: Cluster,
        instance_id: str,
        remediation_id: str | None,
        body: CreateRemediation,
    ) -> Remediation:
        """Begin the repair of a machine on a user's request, and return it.

        A second request of the same id, machine and mode gets the first repair. Raises `Refusal`:
        404 without the running machine, also for a second request, 409 if another repair has the id
        or is open on the machine.
        """
        worker = require_worker(cluster, instance_id, self._now)
        for other in self.list_remediations(cluster.cluster_id):
            # A client that lost the answer asks again with its own id, and must not repair twice.
            if other.id == remediation_id and (other.instance_id, other.mode) == (
                instance_id,
                body.mode,
            ):
                return other
            if other.id == remediation_id:
                raise TogetherApiError(
                    409, f"remediation {remediation_id!r} exists and is another one"
                )
            if other.instance_id == instance_id and other.is_open(self._now):
                raise TogetherApiError(
                    409, f"instance {instance_id!r} has remediation {other.id} open"
                )
        remediation = Remediation(
            id=remediation_id or self._store.create_id(),
            cluster_id=cluster.cluster_id,
            instance_id=instance_id,
            instance_name=worker.host_name,
            mode=body.mode,
            trigger="REMEDIATION_TRIGGER_MANUAL",
            reason=body.reason or "",
            requested_by="api",
            created_at=self._now,
            states=[(self._now, "PENDING")],
            fails=self._store.get(f"{_REMEDIATION_KIND}.fails", worker.host_name) or "",
        )
        return self._begin(remediation, cluster)

    def propose(self, cluster: Cluster, proposal: ProposeRemediation) -> Remediation:
        """Store and return a repair for a test: a proposal, or one shown in another `state`.

        A repair in another state has no effect on the machine. Raises `Refusal` 404 without the
        worker.
        """
        worker = next(
            (node for node in _list_workers(cluster) if node.host_name == proposal.instance_name),
            None,
        )
        if worker is None:
            raise make_not_found("worker", proposal.instance_name)
        is_proposed = proposal.state == PROPOSED
        remediation = Remediation(
            id=proposal.id or self._store.create_id(),
            cluster_id=cluster.cluster_id,
            instance_id=worker.instance_id,
            instance_name=worker.host_name,
            mode=proposal.mode,
            trigger=proposal.trigger,
            reason=proposal.reason,
            requested_by=proposal.requested_by,
            created_at=self._now,
            # Any other state than a proposal shows a run before it, so that there is a start time.
            states=[(self._now, state) for state in ("RUNNING", proposal.state)][is_proposed:],
            reviewed_at=None if is_proposed else self._now,
            reviewed_by=proposal.reviewed_by,
            review_comment=proposal.review_comment,
            error_message=proposal.error_message,
            fails=proposal.fails,
            alerts=proposal.alerts,
            alerts_resolved_at=self._now if proposal.are_resolved else None,
        )
        self._save(remediation)
        return remediation

    def approve(
        self, cluster: Cluster, remediation: Remediation, body: ApproveRemediation
    ) -> Remediation:
        """Begin a proposed repair, in the body's mode if any, and return the repair.

        Raises `Refusal`: 409 unless proposed, 400 for a power cycle as the body's mode.
        """
        if body.mode == _POWER_CYCLE:
            raise TogetherApiError(400, "mode HOST_POWER_CYCLE cannot be set by an approval")
        self._require_state(remediation, PROPOSED)
        reviewed = self._with_review(remediation, body.comment)
        mode = body.mode or remediation.mode
        return self._begin(reviewed.model_copy(update={"mode": mode}), cluster)

    def reject(self, remediation: Remediation, comment: str | None) -> Remediation:
        """Cancel a proposed repair, with the reviewer's comment, and return the repair.

        Raises `Refusal` 409 unless proposed.
        """
        self._require_state(remediation, PROPOSED)
        rejected = self._with_review(remediation, comment).set_final_state("CANCELLED", self._now)
        self._save(rejected)
        return rejected

    def cancel(self, cluster: Cluster, remediation: Remediation) -> Remediation:
        """Cancel a repair that is proposed or waits, and return it.

        Raises `Refusal` 409 in another state.
        """
        self._require_state(remediation, PROPOSED, "PENDING")
        cancelled = remediation.set_final_state("CANCELLED", self._now)
        self._save(cancelled)
        self._save_cluster(_cancel_repair(cluster, remediation))
        return cancelled

    def resolve(self, remediation_id: str) -> Remediation:
        """End a proposal as AUTO_RESOLVED, because its alerts have ended; return the proposal.

        Raises `Refusal`: 404, 409 unless proposed.
        """
        body = self._store.get(_REMEDIATION_KIND, remediation_id)
        if body is None:
            raise make_not_found("remediation", remediation_id)
        remediation = Remediation.model_validate_json(body)
        self._require_state(remediation, PROPOSED)
        resolved = remediation.set_final_state("AUTO_RESOLVED", self._now)
        resolved = resolved.model_copy(update={"alerts_resolved_at": self._now})
        self._save(resolved)
        return resolved

    def set_failure(self, name: str, message: str) -> None:
        """Let all repairs of the worker `name` requested from now on fail with `message`; "": none.

        Proposed repairs have a message of their own.
        """
        self._store.put(f"{_REMEDIATION_KIND}.fails", name, message)

    def _begin(self, remediation: Remediation, cluster: Cluster) -> Remediation:
        """Store the repair with a planned run, and the cluster with the run's effects."""
        begun = remediation.plan_run(self._now)
        self._save(begun)
        self._save_cluster(_plan_repair(cluster, begun, self._store))
        return begun

    def _with_review(self, remediation: Remediation, comment: str | None) -> Remediation:
        """Return a copy of the remediation with the time, reviewer and comment of a review."""
        review = {"reviewed_at": self._now, "reviewed_by": "api", "review_comment": comment or ""}
        return remediation.model_copy(update=review)

    def _require_state(self, remediation: Remediation, *states: str) -> None:
        """Raise `Refusal` 409 unless the remediation is in one of `states`."""
        if remediation.get_state(self._now) not in states:
            raise TogetherApiError(
                409, f"remediation {remediation.id!r} is {remediation.get_state(self._now)}"
            )

    def _save(self, remediation: Remediation) -> None:
        """Store a new or changed repair."""
        self._store.put(_REMEDIATION_KIND, remediation.id, remediation.model_dump_json())


def require_worker(cluster: Cluster, instance_id: str, now: float) -> Node:
    """Return the running worker of a machine. Raises `Refusal` 404."""
    for node in _list_workers(cluster):
        if node.instance_id == instance_id and node.is_running(now):
            return node
    raise make_not_found("instance", instance_id)


def _list_workers(cluster: Cluster) -> list[Node]:
    """Return the cluster's worker nodes, then the preemptible ones."""
    return [*cluster.workers, *cluster.preemptible]


def _plan_repair(cluster: Cluster, remediation: Remediation, store: Store) -> Cluster:
    """Return the cluster with the effects of the repair's run planned: a restart or a removal.

    A restart is for modes in place and for a repair that fails. Else the worker leaves when the run
    begins; with VM_ONLY and HOST_AWARE a new worker of its kind joins when the run ends. The SDK
    makes no exception of preemptible workers.
    """
    return cluster.model_copy(
        update={
            "workers": _plan_nodes(cluster, cluster.workers, "worker", remediation, store),
            "preemptible": _plan_nodes(
                cluster, cluster.preemptible, "preemptible", remediation, store
            ),
        }
    )


def _plan_nodes(
    cluster: Cluster, nodes: list[Node], name_part: str, remediation: Remediation, store: Store
) -> list[Node]:
    """Return `nodes` with the effects of a repair's run, as `_plan_repair`.

    `name_part` is between the cluster's name and the number in host names of these nodes.
    """
    start, end = remediation.get_run_span()
    replacements: list[Node] = []
    index = 1 + max((node.index for node in nodes), default=-1)

    def plan_node(node: Node) -> Node:
        if node.instance_id != remediation.instance_id or node.has_left(start):
            return node
        # A repair that fails restarts the machine in vain, whatever its mode.
        if remediation.mode in _IN_PLACE_MODES or remediation.fails:
            revived_at = node.revived_at if remediation.fails else end
            down = [*node.down, (start, end)]
            return node.model_copy(update={"down": down, "revived_at": revived_at})
        if remediation.mode in _REPLACEMENT_MODES:
            name = f"{cluster.settings.host_prefix}-{name_part}-{index}"
            replacements.append(
                Node.create((store.create_id(), store.create_id()), name, index, (start, end))
            )
        # The old machine leaves when the run begins; its replacement joins when the run ends.
        return node.model_copy(update={"removed_at": start})

    return [*[plan_node(node) for node in nodes], *replacements]


def _cancel_repair(cluster: Cluster, remediation: Remediation) -> Cluster:
    """Return the cluster without the effects that were planned for a repair, if any."""
    run_starts = [at for at, state in remediation.states if state == "RUNNING"]
    if not run_starts:
        return cluster
    start, end = remediation.get_run_span()

    def cancel(node: Node) -> Node:
        down = [span for span in node.down if span != (start, end)]
        is_repaired = node.instance_id == remediation.instance_id
        removed_at = None if is_repaired and node.removed_at == start else node.removed_at
        return node.model_copy(update={"down": down, "removed_at": removed_at})

    def is_replacement(node: Node) -> bool:
        return node.running_at == end and node.phases[0][0] == start

    return cluster.model_copy(
        update={
            "workers": [cancel(node) for node in cluster.workers if not is_replacement(node)],
            "preemptible": [
                cancel(node) for node in cluster.preemptible if not is_replacement(node)
            ],
        }
    )
