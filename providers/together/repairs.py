"""Decide which broken nodes of a cluster a run repairs, from the last observed outputs.

The lifecycle (`cluster`) calls `decide_cluster_repairs` while planning; `repairing` calls the
functions that find faults. This module sends no request.

Remediations are from the platform's SDK (`clusters.remediations`); the API reference lacks them.

`advise_repair` chooses a repair by the Xid errors that a node's alerts name. The actions are those
of NVIDIA's Xid catalogue ("XID Errors", table of immediate actions for Ampere and newer GPUs). The
modes for them are ours: a reboot of the machine resets its GPUs, and only a power cycle of the host
restarts the bare metal below.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.context import get_run_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifetime import format_moment
from gpuform.providers.records import RecordedVerdict
from gpuform.providers.repairing import (
    Fleet,
    RepairDecision,
    choose_repairs,
    is_unusable_for,
    parse_faults,
    parse_repair_policy,
)
from gpuform.schemas.policies.certification import NodeFailure
from gpuform.schemas.policies.repair import (
    CANCEL,
    NO_REPAIR,
    REJECT,
    WITHDRAWALS,
    FaultCause,
    NodeFault,
    NodeRepair,
)
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.safe_text import truncate
from gpuform.schemas.together import wire
from gpuform.schemas.together.cluster_parts import REPAIR_MODES, ClusterRepairInputs
from gpuform.schemas.together.outputs import GpuWorkerNodeOutputs, RemediationOutputs
from gpuform.schemas.together.wire import LinkedAlert, Remediation, XidEvent
from gpuform.schemas.values import to_unix_time

if TYPE_CHECKING:
    from gpuform.schemas.timeline import ExplainedRepair

_CODES_BY_ACTION: Final[Mapping[str, Sequence[int]]] = {
    "IGNORE": (14, 37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 161),
    "RESTART_APP": (
        *(8, 11, 13, 25, 31, 32, 39, 40, 41, 60, *range(68, 73), 75, 76, 77, 80, *range(82, 87)),
        *(88, 89, 94, *range(96, 106), *range(126, 136), 139),
    ),
    "WORKFLOW_XID_45": (45,),
    "RESET_GPU": (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 162),
    "WORKFLOW_XID_48": (48,),
    "WORKFLOW_NVLINK_ERR": (74,),
    "WORKFLOW_NVLINK5_ERR": tuple(range(144, 151)),
    "RESTART_VM": (151,),
    "RESTART_BM": (79, 160),
}
_ACTION_BY_CODE: Final = {
    str(code): action for action, codes in _CODES_BY_ACTION.items() for code in codes
}
_MODE_BY_ACTION: Final[Mapping[str, str]] = {
    # Errors of applications, and errors that the GPU has handled: the node is sound.
    **dict.fromkeys(("IGNORE", "RESTART_APP", "WORKFLOW_XID_45"), NO_REPAIR),
    **dict.fromkeys(("RESET_GPU", "WORKFLOW_XID_48", "RESTART_VM"), "REBOOT_VM"),
    **dict.fromkeys(("WORKFLOW_NVLINK_ERR", "WORKFLOW_NVLINK5_ERR"), "REBOOT_VM"),
    "RESTART_BM": "HOST_POWER_CYCLE",
}
_MODES_BY_EFFECT: Final = ("HOST_POWER_CYCLE", "REBOOT_VM", NO_REPAIR)
"""The modes of the rules; the first that any error asks for serves all of a node's errors."""


@dataclass(frozen=True, slots=True)
class RepairAdvice:
    """The mode of repair that the Xid errors of a node ask for, and the rule in words.

    The mode is NO_REPAIR where a repair of the node would not help.
    """

    mode: str
    rule: str


def list_xid_events(alert: LinkedAlert) -> Sequence[XidEvent]:
    """Return the Xid errors named in an alert; none for an alert about something else."""
    xid = alert.annotation.xid if alert.annotation else None
    return xid.events if xid else ()


def format_xid_event(event: XidEvent) -> str:
    """Return an Xid error in words: `Xid 79 GPU_FELL_OFF_BUS, 3 times`."""
    name = f"Xid {event.xid_code} {event.mnemonic or ''}".rstrip()
    return f"{name}, {event.count} times" if (event.count or 0) > 1 else name


def advise_repair(alerts: Sequence[LinkedAlert]) -> RepairAdvice | None:
    """Return the repair for a node's alerts by NVIDIA's catalogue, or None without a rule.

    None if an alert names no Xid error, or an error whose action is a person's decision: Together
    has proposed its repair for more than the catalogue knows.
    """
    events = [event for alert in alerts for event in list_xid_events(alert)]
    actions = {event.xid_code: _ACTION_BY_CODE.get(event.xid_code, "") for event in events}
    is_explained = all(list_xid_events(alert) for alert in alerts) and all(actions.values())
    if not actions or not is_explained:
        return None
    mode_by_code = {code: _MODE_BY_ACTION[action] for code, action in actions.items()}
    mode = min(mode_by_code.values(), key=_MODES_BY_EFFECT.index)
    rules = [f"Xid {code}: {actions[code]}" for code in actions if mode_by_code[code] == mode]
    return RepairAdvice(mode, f"{', '.join(rules)} in NVIDIA's Xid catalogue")


PROPOSED: Final = "PENDING_APPROVAL"
UNDER_WAY: Final = frozenset({"PENDING", "QUARANTINING", "QUARANTINED", "RUNNING"})
_MAX_EVIDENCE_LENGTH: Final = 200
SUCCEEDED: Final = "SUCCEEDED"
ENDED: Final = frozenset({SUCCEEDED, "FAILED", "CANCELLED", "AUTO_RESOLVED"})

MODES_BEYOND_APPROVAL: Final = ("HOST_POWER_CYCLE",)
"""Modes that the approval of a proposal cannot change the proposal to (SDK, 'approve')."""

STATES_BEFORE_RUN: Final[Mapping[str, Sequence[str]]] = {
    REJECT: (PROPOSED,),
    CANCEL: (PROPOSED, "PENDING"),
}
"""The states in which a repair can be rejected and cancelled (SDK, 'reject' and 'cancel')."""
WITHDRAWN: Final = ("CANCELLED", "AUTO_RESOLVED")
"""The states of a repair that ended before its run."""


def decide_cluster_repairs(
    outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> RepairDecision:
    """Return which broken nodes a run repairs under the declared `repair`, which not, and why.

    Preemptible nodes are left out: Together replaces these itself. Nodes that people request by
    name are repaired whatever the policy says, unless their repair has begun. Repairs that people
    request to reject or cancel come first; a repair that has ended that way is left alone. If such
    a repair is missing or has begun, the decision has the error as `refusal`.

    Raises:
        GpuformError: a requested mode of repair does not exist, or does not fit Together's
            proposal.
    """
    policy = parse_repair_policy(declared, ClusterRepairInputs)
    reported_workers = outputs.get("gpu_worker_nodes")
    # the platform replaces preemptible nodes itself
    nodes = (
        [worker for worker in reported_workers if _is_standard(worker)]
        if isinstance(reported_workers, list)
        else []
    )
    fleet = Fleet(
        node_names=[node["host_name"] for node in nodes],
        allowed_modes=(policy and policy.modes) or REPAIR_MODES,
        all_modes=REPAIR_MODES,
        create_only_modes=MODES_BEYOND_APPROVAL,
        unhealthy_names=[node["host_name"] for node in nodes if node.get("unusable_since")],
        repairing_names=[
            node["host_name"] for node in nodes if _get_remediation_state(node) in UNDER_WAY
        ],
        instance_ids={node["host_name"]: node.get("instance_id") or "" for node in nodes},
        withdrawal_modes=WITHDRAWALS,
    )
    faults = parse_faults(outputs)
    decision = choose_repairs(policy, faults, fleet)
    withdrawals: list[NodeRepair] = []
    try:
        withdrawals += _build_withdrawals(nodes, faults)
    except GpuformError as error:
        # a state may be older than the proposal: only a plan or an update refuses
        decision = replace(decision, refusal=error)
    return replace(decision, due_repairs=(*withdrawals, *decision.due_repairs))


def _build_withdrawals(
    nodes: Iterable[Mapping[str, Any]], faults: Iterable[NodeFault]
) -> Iterator[NodeRepair]:
    """Yield each requested rejection or cancellation of an open repair, for the plan.

    Raises:
        GpuformError: a requested node has no repair that can be ended.
    """
    because_by_id = {fault.id: fault for fault in faults if fault.id}
    requested_modes = get_run_context().requested_repairs
    for node in nodes:
        name, state = node["host_name"], _get_remediation_state(node)
        mode = requested_modes.get(name, "")
        # a repair that was rejected, cancelled or resolved is as requested already
        if mode not in WITHDRAWALS or state in WITHDRAWN:
            continue
        if state not in STATES_BEFORE_RUN[mode]:
            raise build_late_withdrawal_error(name, mode, state)
        remediation = node["remediation"]
        fault = because_by_id.get(remediation["id"])
        evidence = fault.because if fault else remediation.get("reason") or "an open repair"
        yield NodeRepair(
            node=name,
            mode=mode,
            cause=FaultCause.ASKED,
            because="; ".join(filter(None, (evidence, describe_review(remediation)))),
            proposed=remediation["mode"],
            id=remediation["id"],
            instance=node.get("instance_id") or "",
        )


def build_late_withdrawal_error(name: str, mode: str, state: str) -> GpuformError:
    """Build the error about a repair in a `state` in which `mode` cannot end the repair.

    An empty `state` means that the node has no repair.
    """
    verb = "rejected" if mode == REJECT else "cancelled"
    if not state:
        return GpuformError(
            f"node {name} has no repair that could be {verb}",
            hint="nothing was done; `gpuform status --refresh` shows the repairs of nodes",
        )
    hint = "nothing was done; a repair that has begun ends by itself"
    if state in STATES_BEFORE_RUN[CANCEL]:
        hint = "somebody has approved the repair: cancel it with --mode CANCEL"
    return GpuformError(
        f"node {name}: its repair is {state} and cannot be {verb} any more", hint=hint
    )


def describe_review(remediation: Mapping[str, Any]) -> str:
    """Return who requested and reviewed a repair of the outputs, and when; "" if unknown.

    The text is one line, shortened to 200 characters.
    """
    requester, reviewer = remediation.get("requested_by"), remediation.get("reviewed_by")
    reviewed_at, comment = remediation.get("reviewed_at"), remediation.get("review_comment")
    parts = [f"requested by {requester}"] if requester else []
    if reviewer or reviewed_at:
        review = f"reviewed by {reviewer}" if reviewer else "reviewed"
        review += f" at {reviewed_at}" if reviewed_at else ""
        parts.append(f"{review} ({comment})" if comment else review)
    return shorten_to_line(", ".join(parts))


_RECENT_S: Final = 24 * 3600.0
"""How long notices show a repair after its end."""


def build_repair_notices(outputs: Mapping[str, Any], now: float) -> Iterator[Notice]:
    """Yield a notice for each repair under way, or ended less than a day before `now`.

    A notice says who requested and reviewed the repair. `now` is in Unix seconds.
    """
    workers = outputs.get("gpu_worker_nodes")
    for node in workers if isinstance(workers, list) else ():
        state, remediation = _get_remediation_state(node), node.get("remediation")
        ended_at = to_unix_time(remediation.get("ended_at")) if state in ENDED else None
        is_recent = ended_at is not None and now - ended_at < _RECENT_S
        if state in UNDER_WAY or is_recent:
            details = [describe_review(remediation), remediation.get("error_message") or ""]
            message = f"node {node.get('host_name')}: repair {remediation.get('mode')} is {state}"
            yield Notice(
                kind=NoticeKind.WORKERS,
                text="; ".join(filter(None, (message, *map(shorten_to_line, details)))),
                at=str(remediation.get("ended_at") or ""),
            )


def find_proposed_repairs(
    workers: Iterable[wire.GpuWorkerNode],
    detailed_remediations: Mapping[str, Remediation] = MappingProxyType({}),
) -> list[NodeFault]:
    """Return a fault for each repair proposed by Together and not approved yet.

    Args:
        workers: the workers of a cluster.
        detailed_remediations: complete remediations by id; the answer about a cluster may
            lack their alerts.
    """
    faults = []
    for worker in workers:
        latest = worker.latest_remediation
        if latest is None or latest.state != PROPOSED:
            continue
        remediation = detailed_remediations.get(latest.id, latest)
        advice = advise_repair(remediation.linked_alerts)
        faults.append(
            NodeFault(
                node=worker.host_name,
                cause=FaultCause.PLATFORM,
                because=_format_evidence(remediation),
                since=_find_start_time(remediation),
                mode=latest.mode,
                id=latest.id,
                instance=worker.instance_id or "",
                advised=advice.mode if advice else "",
                rule=advice.rule if advice else "",
            )
        )
    return faults


def find_unusable_workers(
    workers: Iterable[GpuWorkerNodeOutputs], not_ready_limit_s: float, now: float
) -> Iterator[NodeFault]:
    """Yield a fault for each worker unusable for a scheduler for `not_ready_limit_s` seconds.

    `now` is in Unix seconds; the outputs say since when a worker is unusable.
    """
    for worker in workers:
        if is_unusable_for(
            not_ready_limit_s, unusable_since=to_unix_time(worker.unusable_since), now=now
        ):
            yield NodeFault(
                node=worker.host_name,
                cause=FaultCause.NOT_READY,
                because=_describe_scheduler_trouble(worker),
                since=worker.unusable_since or "",
                instance=worker.instance_id or "",
            )


def find_uncertified_workers(
    workers: Iterable[wire.GpuWorkerNode], verdicts: Iterable[RecordedVerdict]
) -> Iterator[NodeFault]:
    """Yield a fault for each recorded failure of a present machine without a later repair."""
    worker_by_name = {live_worker.host_name: live_worker for live_worker in workers}
    for verdict in verdicts:
        for failure in map(NodeFailure.model_validate, verdict.failures):
            worker = worker_by_name.get(failure.node)
            # another machine may have got the host name: its predecessor's failure says nothing
            # about it
            if worker is None or failure.machine not in {worker.instance_id, worker.node_id}:
                continue
            if not _is_repaired_since(worker, failure.at):
                yield NodeFault(
                    node=failure.node,
                    cause=FaultCause.FAILED_CERTIFICATION,
                    because=truncate(
                        f"{failure.category}: {failure.because}", _MAX_EVIDENCE_LENGTH
                    ),
                    since=failure.at,
                    instance=worker.instance_id or "",
                )


def _is_repaired_since(worker: wire.GpuWorkerNode, failed_text: str) -> bool:
    """Return True if a repair of the worker succeeded after the failed certification's time.

    False if either time is unknown.
    """
    latest, failed_at = worker.latest_remediation, to_unix_time(failed_text)
    # without both times nobody knows which came first: the failure stands
    if latest is None or latest.state != SUCCEEDED or failed_at is None:
        return False
    ended_at = to_unix_time(latest.end_time)
    return ended_at is not None and ended_at > failed_at


def is_under_repair(worker: wire.GpuWorkerNode) -> bool:
    """Return True if a repair of the worker is under way, whoever requested it."""
    return worker.latest_remediation is not None and worker.latest_remediation.state in UNDER_WAY


def build_remediation_outputs(worker: wire.GpuWorkerNode) -> RemediationOutputs | None:
    """Return a worker's latest repair as outputs, or None if there was none."""
    latest = worker.latest_remediation
    if latest is None or not latest.id:
        return None
    return RemediationOutputs(
        id=latest.id,
        mode=latest.mode,
        state=latest.state,
        reason=latest.reason or None,
        error_message=latest.error_message or None,
        requested_by=latest.requested_by or None,
        reviewed_by=latest.reviewed_by or None,
        review_comment=latest.review_comment or None,
        reviewed_at=latest.review_time or None,
        ended_at=latest.end_time or None,
    )


def list_remediations(outputs: Mapping[str, Any]) -> "list[ExplainedRepair]":
    """Return the latest remediation of each worker in a cluster's outputs."""
    from gpuform.schemas.timeline import ExplainedRepair  # noqa: PLC0415 - only explanations

    return [
        ExplainedRepair(
            node=str(worker.get("host_name") or ""),
            mode=str(remediation.get("mode") or ""),
            evidence=str(remediation.get("reason") or ""),
            id=str(remediation.get("id") or ""),
            state=str(remediation.get("state") or ""),
            requested_by=str(remediation.get("requested_by") or ""),
            reviewed_by=str(remediation.get("reviewed_by") or ""),
            at=str(remediation.get("ended_at") or remediation.get("reviewed_at") or ""),
        )
        for worker in outputs.get("gpu_worker_nodes") or ()
        if isinstance(worker, Mapping)
        and isinstance(remediation := worker.get("remediation"), Mapping)
    ]


def _is_standard(node: Mapping[str, Any]) -> bool:
    """Return True for a named worker other than a preemptible one (Together docs)."""
    name = str(node.get("host_name") or "")
    return bool(name) and "preemptible" not in name


def _describe_scheduler_trouble(node: GpuWorkerNodeOutputs) -> str:
    """Return why an unusable worker is so: Kubernetes' reason if NotReady there, else Slurm's."""
    if node.kubernetes is not None and node.kubernetes.startswith("NotReady"):
        return f"{node.kubernetes} (Kubernetes)"
    return f"{node.slurm} (Slurm)"


def _get_remediation_state(node: Mapping[str, Any]) -> str:
    """Return the state of a worker's latest repair in the outputs; empty without a repair."""
    remediation = node.get("remediation")
    return str(remediation.get("state") or "") if isinstance(remediation, Mapping) else ""


def _format_evidence(remediation: Remediation) -> str:
    """Return why Together proposes a repair, as `GpuPcieReplayRateHigh (critical)`."""
    alert_list = _join_unique(_format_alert(alert) for alert in remediation.linked_alerts)
    evidence = alert_list or remediation.reason or "Together proposes its repair"
    return shorten_to_line(evidence)


def shorten_to_line(text: str) -> str:
    """Return a text of the platform as one line, shortened to 200 characters."""
    return truncate(" ".join(text.split()), _MAX_EVIDENCE_LENGTH)


def _format_alert(alert: LinkedAlert) -> str:
    """Return an alert in words: name, severity, the Xid errors and Slurm's reason, if reported."""
    name = alert.alert_name or "an alert without a name"
    title = f"{name} ({alert.severity.lower()})" if alert.severity else name
    details = [format_xid_event(event) for event in list_xid_events(alert)]
    slurm = alert.annotation.slurm_node_unavailable if alert.annotation else None
    if slurm and slurm.reason:
        details.append(f"Slurm: {slurm.reason}")
    return f"{title}: {_join_unique(details)}" if details else title


def _find_start_time(remediation: Remediation) -> str:
    """Return when the earliest alert of a repair began, else the repair's creation; or ""."""
    starts = [alert.started_at for alert in remediation.linked_alerts if alert.started_at]
    started_at = to_unix_time(min(starts, default="") or remediation.create_time)
    return "" if started_at is None else format_moment(started_at)


def _join_unique(texts: Iterable[str]) -> str:
    """Join the first three different texts, and say how many more there are."""
    unique_texts: Sequence[str] = list(dict.fromkeys(texts))
    # a plan shows the fault on one line: three alerts are enough to look up the others
    return ", ".join(unique_texts[:3]) + (
        f" and {len(unique_texts) - 3} more" if len(unique_texts) > 3 else ""
    )
