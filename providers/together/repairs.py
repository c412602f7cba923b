"""What is broken in a cluster, and which of its nodes a run repairs: by what was last seen. Pure.

Remediations are of the platform's Go SDK (`betaclusterremediation.go`); the reference lacks them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gpuform.providers.lifetime import written
from gpuform.providers.records import Verdict
from gpuform.providers.repairing import (
    Decision,
    Fleet,
    decide,
    faults_in,
    is_unusable_for,
    repair_of,
)
from gpuform.schemas.policies.certification import NodeFailure
from gpuform.schemas.policies.repair import Cause, NodeFault
from gpuform.schemas.safe_text import truncate
from gpuform.schemas.together import wire
from gpuform.schemas.together.cluster_parts import REPAIR_MODES, ClusterRepairInputs
from gpuform.schemas.together.outputs import GpuWorkerNodeOutputs, RemediationOutputs
from gpuform.schemas.together.statuses import unix_time
from gpuform.schemas.together.wire import LinkedAlert, Remediation

PROPOSED: Final = "PENDING_APPROVAL"
UNDER_WAY: Final = frozenset({"PENDING", "QUARANTINING", "QUARANTINED", "RUNNING"})
_LONGEST: Final = 200
SUCCEEDED: Final = "SUCCEEDED"
ENDED: Final = frozenset({SUCCEEDED, "FAILED", "CANCELLED", "AUTO_RESOLVED"})

NOT_APPROVED: Final = ("HOST_POWER_CYCLE",)
"""What an approval cannot change a proposal to ('approve')."""


def cluster_repairs(old: Mapping[str, Any], declared: Mapping[str, Any]) -> Decision:
    """What a run does about the broken nodes of these outputs, by this declaration."""
    policy = repair_of(declared, ClusterRepairInputs)
    told = old.get("gpu_worker_nodes")
    nodes = [each for each in told if _is_standard(each)] if isinstance(told, list) else []
    fleet = Fleet(
        nodes=[each["host_name"] for each in nodes],
        modes=(policy and policy.modes) or REPAIR_MODES,
        every=REPAIR_MODES,
        own=NOT_APPROVED,
        unhealthy=[each["host_name"] for each in nodes if each.get("unusable_since")],
        under_way=[each["host_name"] for each in nodes if _state(each) in UNDER_WAY],
        instances={each["host_name"]: each.get("instance_id") or "" for each in nodes},
    )
    return decide(policy, faults_in(old), fleet)


def proposals(
    workers: Iterable[wire.GpuWorkerNode], told: Mapping[str, Remediation] = MappingProxyType({})
) -> list[NodeFault]:
    """The repairs that Together proposes. `told` are those that were read whole, by their ids."""
    found = []
    for worker in workers:
        latest = worker.latest_remediation
        if latest is None or latest.state != PROPOSED:
            continue
        whole = told.get(latest.id, latest)
        found.append(
            NodeFault(
                node=worker.host_name,
                cause=Cause.PLATFORM,
                because=_evidence(whole),
                since=_since(whole),
                mode=latest.mode,
                id=latest.id,
                instance=worker.instance_id or "",
            )
        )
    return found


def unusable(
    seen: Iterable[GpuWorkerNodeOutputs], patience: float, now: float
) -> Iterator[NodeFault]:
    """The workers that their scheduler cannot use for `patience` seconds at `now`."""
    for node in seen:
        if is_unusable_for(patience, since=unix_time(node.unusable_since), now=now):
            yield NodeFault(
                node=node.host_name,
                cause=Cause.NOT_READY,
                because=_trouble(node),
                since=node.unusable_since or "",
                instance=node.instance_id or "",
            )


def hot(seen: Iterable[GpuWorkerNodeOutputs], overheated: Mapping[str, str]) -> Iterator[NodeFault]:
    """The workers that are `overheated`, with what is measured."""
    for node in seen:
        if node.host_name in overheated:
            yield NodeFault(
                node=node.host_name,
                cause=Cause.OVERHEATED,
                because=overheated[node.host_name],
                instance=node.instance_id or "",
            )


def uncertified(
    workers: Iterable[wire.GpuWorkerNode], verdicts: Iterable[Verdict]
) -> Iterator[NodeFault]:
    """The workers whose machine has failed a certification, and was not repaired since."""
    there = {each.host_name: each for each in workers}
    for verdict in verdicts:
        for failure in map(NodeFailure.model_validate, verdict.failures):
            worker = there.get(failure.node)
            if worker is None or failure.machine not in {worker.instance_id, worker.node_id}:
                continue
            if not _is_repaired_since(worker, failure.at):
                yield NodeFault(
                    node=failure.node,
                    cause=Cause.FAILED_CERTIFICATION,
                    because=truncate(f"{failure.category}: {failure.because}", _LONGEST),
                    since=failure.at,
                    instance=worker.instance_id or "",
                )


def _is_repaired_since(worker: wire.GpuWorkerNode, at: str) -> bool:
    latest, failed_at = worker.latest_remediation, unix_time(at)
    if latest is None or latest.state != SUCCEEDED or failed_at is None:
        return False
    ended_at = unix_time(latest.end_time)
    return ended_at is not None and ended_at > failed_at


def is_repaired_now(worker: wire.GpuWorkerNode) -> bool:
    """Whether a repair of it has begun, whoever asked for it."""
    return worker.latest_remediation is not None and worker.latest_remediation.state in UNDER_WAY


def remediation_of(worker: wire.GpuWorkerNode) -> RemediationOutputs | None:
    """A worker's latest remediation, for the outputs."""
    latest = worker.latest_remediation
    if latest is None or not latest.id:
        return None
    return RemediationOutputs(
        id=latest.id,
        mode=latest.mode,
        state=latest.state,
        reason=latest.reason or None,
        error_message=latest.error_message or None,
        ended_at=latest.end_time or None,
    )


def _is_standard(node: Mapping[str, Any]) -> bool:
    """Preemptible nodes come and go by themselves (Together docs, 'Preemptible compute')."""
    name = str(node.get("host_name") or "")
    return bool(name) and "preemptible" not in name


def _trouble(node: GpuWorkerNodeOutputs) -> str:
    if node.kubernetes is not None and node.kubernetes.startswith("NotReady"):
        return f"{node.kubernetes} (Kubernetes)"
    return f"{node.slurm} (Slurm)"


def _state(node: Mapping[str, Any]) -> str:
    remediation = node.get("remediation")
    return str(remediation.get("state") or "") if isinstance(remediation, Mapping) else ""


def _evidence(remediation: Remediation) -> str:
    """`GpuPcieReplayRateHigh (critical)`, or the reason that it has."""
    alerts = _listed(_alert(each) for each in remediation.linked_alerts)
    told = alerts or remediation.reason or "Together proposes its repair"
    return truncate(" ".join(told.split()), _LONGEST)


def _alert(alert: LinkedAlert) -> str:
    name = alert.alert_name or "an alert without a name"
    return f"{name} ({alert.severity.lower()})" if alert.severity else name


def _since(remediation: Remediation) -> str:
    starts = [each.started_at for each in remediation.linked_alerts if each.started_at]
    since = unix_time(min(starts, default="") or remediation.create_time)
    return "" if since is None else written(since)


def _listed(texts: Iterable[str]) -> str:
    found: Sequence[str] = list(dict.fromkeys(texts))
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
