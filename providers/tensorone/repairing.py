"""Repair TensorOne clusters: decide by what was last observed, then restart or recreate.

A record is kept before the stop, so that a run which was killed in between is gone on with, and so
that a restart which did not help is not repeated.

`status`, `status_details` and `metrics.current` are of TensorOne's document ('Get Cluster
Details'). It tells no scheduler: whether jobs run there, only the use of the GPUs tells.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.context import PollResult, ProviderContext, wait_until_done
from gpuform.providers.errors import Conflict, GpuformError, NotReady
from gpuform.providers.evidence import Observation
from gpuform.providers.lifetime import written
from gpuform.providers.operations import Observed
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Repair, Repairs
from gpuform.providers.repairing import Decision, Fleet, Held, decide, faults_in, repair_of
from gpuform.providers.tensorone.client import ClusterReading, TensorOneClient
from gpuform.providers.tensorone.idleness import MAX_CLOCK_SKEW_S, MAX_GPUS, MAX_METRIC_AGE_S
from gpuform.providers.tensorone.shown import find_failure
from gpuform.schemas.policies.repair import FaultCause, NodeFault, NodeRepair
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import ClusterRepairInputs
from gpuform.schemas.tensorone.outputs import ClusterOutputs
from gpuform.schemas.tensorone.statuses import ClusterStatus, to_unix_time

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
    seen: ClusterReading, name: str, known: Sequence[NodeFault], now: float, *, is_cut_off: bool
) -> list[NodeFault]:
    """What is wrong with a cluster, by an answer that is new enough; `known` was seen before.

    `is_cut_off`: a run has begun to restart it, and not ended that.
    """
    cluster = seen.cluster
    because = _trouble(cluster, is_cut_off=is_cut_off)
    if not because or (seen.as_of is not None and now - seen.as_of > MAX_METRIC_AGE_S):
        return []
    before = {each.because: each.since for each in known}
    since = cluster.status_details.last_status_change
    if cluster.status == ClusterStatus.RUNNING:  # it tells no date of its health
        since = before.get(because, written(now))
    return [
        NodeFault(
            node=name,
            cause=FaultCause.PLATFORM,
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
    used, at = current.gpu_utilization, to_unix_time(current.timestamp)
    gpus = (cluster.configuration and cluster.configuration.gpu_count) or MAX_GPUS
    if used is None or not 0 <= used <= 100:
        return "TensorOne does not tell the use of its GPUs"
    if at is None or not -MAX_CLOCK_SKEW_S <= now - at <= MAX_METRIC_AGE_S:
        return "TensorOne does not tell the use of its GPUs now"
    return f"a GPU may be used at {USED:g} % or more" if used * gpus >= USED else None


def _trouble(cluster: wire.Cluster, *, is_cut_off: bool) -> str:
    if is_cut_off:
        return "its restart was cut off"
    if cluster.status == ClusterStatus.ERROR:
        return find_failure(cluster) or ""
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


AGAIN: Final = 3600.0
"""Seconds in which a run that was cut off is believed to be the one that is run again."""

LONGEST: Final = 3600.0
"""Seconds that a stop may take: the platform's own limit ('Stop Cluster', `timeout_minutes`)."""

_BEGUN: Final = "begun"
_ENDED: Final = "ended"

Seen = Observed[ClusterOutputs]


@dataclass(frozen=True)
class Restarting:
    """The restart of one cluster in one call. `find` looks at it; None: it is gone."""

    call: ProviderContext
    client: TensorOneClient
    id: str
    name: str
    find: Callable[[], ClusterReading | None]

    def run(self) -> None:
        """Stop the cluster if it is broken yet, or asked for by name; `wait_until_ready` starts it.

        Raises GpuformError where it may have work, and where it cannot be stopped.
        """
        seen = self.find()
        if seen is None or not self._is_due(seen):
            return
        status = seen.cluster.status
        if status != ClusterStatus.STOPPED:
            self._refuse_used(seen)
            self._keep(_BEGUN)
            self._stop(seen)

    def end(self) -> None:
        """It is as declared again."""
        last = self._last
        if last is not None and last.repair == _BEGUN:
            self._records.record(replace(last, repair=_ENDED))

    def inspected(self, seen: ClusterReading, found: Seen, known: Mapping[str, Any]) -> Seen:
        """What was seen of the cluster, with what is broken about it."""
        now, _ = self.call.get_platform_time(self.client.clock_ahead)
        is_meant = known.get("state") == "stopped" or found.outputs.stopped_by is not None
        is_cut_off = not is_meant and self._is_cut_off(seen)
        before = faults_in(known)
        faults = faults_of(seen, self.name, before, now, is_cut_off=is_cut_off)
        restarted = self._restarted(seen) if faults else ""
        is_well = not faults and seen.cluster.status == ClusterStatus.RUNNING
        if is_well and (before or known.get("restarted_at")) and not self.call.preview:
            self._records.forget(self.id)
        outputs = found.outputs.model_copy(
            update={
                "faults": faults,
                "maybe_busy": use_of(seen.cluster, now) if faults else None,
                "restarted_at": restarted or None,
            }
        )
        return Observed(found.inputs, outputs)

    @property
    def _records(self) -> Repairs:
        return Repairs.beside(self.call.intents)

    @property
    def _last(self) -> Repair | None:
        return self._records.find(self.id, self.name)

    def _is_cut_off(self, seen: ClusterReading) -> bool:
        """Whether a run has stopped it to restart it, and nobody has started it since."""
        if seen.cluster.status not in (ClusterStatus.STOPPED, ClusterStatus.STOPPING):
            return False
        last = self._last
        if last is None or last.repair != _BEGUN:
            return False
        changed = to_unix_time(seen.cluster.status_details.last_status_change)
        return changed is not None and changed <= last.at + LONGEST  # later, it was somebody else

    def _restarted(self, seen: ClusterReading) -> str:
        """When it was restarted because it was broken; empty if it was not."""
        last = self._last
        if last is None:
            return ""
        changed = to_unix_time(seen.cluster.status_details.last_status_change)
        is_running = seen.cluster.status == ClusterStatus.RUNNING
        is_done = last.repair == _ENDED or (
            is_running and changed is not None and changed > last.at
        )
        return written(last.at) if is_done else ""

    def _is_due(self, seen: ClusterReading) -> bool:
        if self.name in permissions.repairs_asked():
            restarted, last = self._restarted(seen), self._last
            if last is None or last.repair == _ENDED or not restarted:
                return True
            if self.call.clock.now() - last.at >= AGAIN:
                return True
            self._leave(f"was restarted already, by the run of {restarted} that was cut off")
            return False
        now, _ = self.call.get_platform_time(self.client.clock_ahead)
        if faults_of(seen, self.name, (), now, is_cut_off=self._is_cut_off(seen)):
            return True
        self._leave("is no longer broken")
        return False

    def _leave(self, why: str) -> None:
        self.call.on_warning(f"cluster {self.name} {why}: it is left as it is")

    def _refuse_used(self, seen: ClusterReading) -> None:
        now, _ = self.call.get_platform_time(self.client.clock_ahead)
        use = use_of(seen.cluster, now)
        if use is None:
            return
        if Permission.EVICT_JOBS in permissions.given():
            self.call.on_warning(f"cluster {self.name} is restarted, although {use}")
            return
        raise GpuformError(
            f"cluster {self.name} is not restarted: {use}",
            hint="run it again when its work has ended; --allow "
            f"{Permission.EVICT_JOBS} restarts it all the same",
        )

    def _keep(self, phase: str) -> None:
        now, _ = self.call.get_platform_time(self.client.clock_ahead)
        self._records.record(Repair(self.id, self.name, phase, self.id, RESTART, now))

    def _stop(self, seen: ClusterReading) -> None:
        try:
            if seen.cluster.status != ClusterStatus.STOPPING:
                self.client.stop(self.id)
        except Conflict as error:
            again = self.find()
            if again is None or again.cluster.status not in (
                ClusterStatus.STOPPING,
                ClusterStatus.STOPPED,
            ):
                self._records.forget(self.id)
                raise GpuformError(
                    f"TensorOne does not stop cluster {self.name}: {error.message}",
                    hint="`gpuform up --replace` with its name makes it anew, from its snapshots "
                    "if you declare restore_snapshot",
                ) from None
        what = f"stop of cluster {self.name}"
        with self.call.extend_deadline(LONGEST):
            wait_until_done(
                self.call,
                self._probe,
                label=what,
                interval=self.client.poll_schedule,
                limit=LONGEST,
            )

    def _probe(self) -> PollResult[None]:
        seen = self.find()
        if seen is None:
            raise NotReady(f"cluster {self.name} is gone from the platform")
        status = seen.cluster.status
        is_done = status == ClusterStatus.STOPPED and not self.client.writes.is_stale(seen, {})
        return PollResult(None, f"{status}, to be restarted", is_done=is_done)
