"""A broken TensorOne cluster: what is wrong with it, and whether a run restarts it. Pure.

`status`, `status_details` and `metrics.current` are of TensorOne's document ('Get Cluster
Details'). It tells no scheduler: whether jobs run there, only the use of the GPUs tells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.evidence import Observation
from gpuform.providers.lifetime import written
from gpuform.providers.permissions import Permission
from gpuform.providers.repairing import Decision, Fleet, Held, decide, faults_in, repair_of
from gpuform.providers.tensorone.freshness import Sighting
from gpuform.providers.tensorone.idleness import AHEAD, MOST_GPUS, STALE
from gpuform.providers.tensorone.shown import failure
from gpuform.schemas.repair import Cause, NodeFault, NodeRepair
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import ClusterRepairInputs
from gpuform.schemas.tensorone.moments import unix_time
from gpuform.schemas.tensorone.statuses import ClusterStatus

RESTART: Final = "RESTART"
"""The one way to repair a cluster: its own stop, then its own start."""

USED: Final = 5.0
"""The use of one GPU, in percent, from which on a cluster is taken to be at work."""

_MODES: Final = (RESTART,)


def cluster_repairs(old: Mapping[str, Any], declared: Mapping[str, Any]) -> Decision:
    """What a run does about the cluster of these outputs, by this declaration."""
    name = old.get("name") or declared.get("name")
    is_there = isinstance(name, str) and old.get("status") is not None
    fleet = Fleet([str(name)] if is_there else [], _MODES, _MODES)
    decision = decide(repair_of(declared, ClusterRepairInputs), faults_in(old), fleet)
    why = _why_not(old)
    asked = permissions.repairs_asked()
    held = [each for each in decision.due if why and each.node not in asked]
    due = [each for each in decision.due if each not in held]
    return replace(decision, due=due, held=[*decision.held, *(_held(each, why) for each in held)])


def faults_of(
    seen: Sighting, name: str, known: Sequence[NodeFault], now: float, *, is_cut_off: bool
) -> list[NodeFault]:
    """What is wrong with a cluster, by an answer that is new enough; `known` was seen before.

    `is_cut_off`: a run has begun to restart it, and not ended that.
    """
    cluster = seen.cluster
    because = _trouble(cluster, is_cut_off=is_cut_off)
    if not because or (seen.as_of is not None and now - seen.as_of > STALE):
        return []
    before = {each.because: each.since for each in known}
    since = cluster.status_details.last_status_change
    if cluster.status == ClusterStatus.RUNNING:  # it tells no date of its health
        since = before.get(because, written(now))
    return [
        NodeFault(
            node=name,
            cause=Cause.PLATFORM,
            because=because,
            since=since or before.get(because, written(now)),
            instance=cluster.id,
        )
    ]


def observe_use(cluster: wire.Cluster, now: float) -> Observation | None:
    """Return what TensorOne measures of a cluster's GPUs at `now`; None if it measures nothing."""
    if cluster.metrics is None and cluster.status == ClusterStatus.RUNNING:
        return None
    why, used = use_of(cluster, now), None
    if why is not None and cluster.metrics is not None:
        used = cluster.metrics.current.gpu_utilization
    if why is None or used is None or not 0 <= used <= 100:
        return Observation("TensorOne", [] if why is None else [why])
    return Observation("TensorOne", [f"it uses {used:g} % of its GPUs: {why}"])


def use_of(cluster: wire.Cluster, now: float) -> str | None:
    """Why it may have work, or nobody knows; None where it has none.

    TensorOne tells one figure for all GPUs, and one of them may do all the work.
    """
    if cluster.status in (ClusterStatus.STOPPED, ClusterStatus.STOPPING):
        return None
    current = (cluster.metrics or wire.Metrics()).current
    used, at = current.gpu_utilization, unix_time(current.timestamp)
    gpus = (cluster.configuration and cluster.configuration.gpu_count) or MOST_GPUS
    if used is None or not 0 <= used <= 100:
        return "TensorOne does not tell the use of its GPUs"
    if at is None or not -AHEAD <= now - at <= STALE:
        return "TensorOne does not tell the use of its GPUs now"
    return f"a GPU may be used at {USED:g} % or more" if used * gpus >= USED else None


def _trouble(cluster: wire.Cluster, *, is_cut_off: bool) -> str:
    if is_cut_off:
        return "its restart was cut off"
    if cluster.status == ClusterStatus.ERROR:
        return failure(cluster) or ""
    health = cluster.status_details.health_checks.gpu_health
    if cluster.status == ClusterStatus.RUNNING and health not in (None, "healthy"):
        return f"the health of its GPUs is {health}"
    return ""


def _why_not(old: Mapping[str, Any]) -> str:
    if old.get("restarted_at"):
        return f"it was restarted at {old['restarted_at']}, and that did not help"
    use = old.get("maybe_busy")
    if use and Permission.EVICT_JOBS not in permissions.given():
        return f"{use}; --allow {Permission.EVICT_JOBS} restarts it all the same"
    return ""


def _held(repair: NodeRepair, why: str) -> Held:
    fault = NodeFault(
        node=repair.node,
        cause=repair.cause,
        because=repair.because,
        since=repair.since,
        instance=repair.instance,
    )
    return Held(fault, why)
