"""Repair TensorOne clusters: decide from the last observation, then restart or recreate.

The lifecycle (`cluster`) calls `decide_cluster_repairs` while planning and runs a `ClusterRestart`
for an update. A record is written before the stop, so that the next run continues a run that was
killed in between, and so that a restart without effect is not repeated.

`status`, `status_details` and `metrics.current` are fields of TensorOne's documentation ('Get
Cluster Details', document 000). The platform has no scheduler: only the use of the GPUs shows
whether jobs run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpuform.providers.context import PollResult, ProviderContext, get_run_context, wait_until_done
from gpuform.providers.errors import Conflict, GpuformError, NotReady
from gpuform.providers.evidence import Observation
from gpuform.providers.lifetime import format_moment
from gpuform.providers.operations import Observed
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Repair, Repairs
from gpuform.providers.repairing import (
    Fleet,
    RepairDecision,
    UnrepairedFault,
    choose_repairs,
    parse_faults,
    parse_repair_policy,
)
from gpuform.providers.tensorone.client import ClusterReading, TensorOneClient
from gpuform.providers.tensorone.cluster_view import find_failure
from gpuform.providers.tensorone.start_stop import MAX_CLOCK_SKEW_S, MAX_GPUS, MAX_METRIC_AGE_S
from gpuform.schemas.policies.repair import FaultCause, NodeFault, NodeRepair
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import ClusterRepairInputs
from gpuform.schemas.tensorone.outputs import ClusterOutputs, ClusterStatus
from gpuform.schemas.values import to_unix_time

RESTART: Final = "RESTART"
"""The one way to repair a cluster: its own stop, then its own start."""

BUSY_PERCENT: Final = 5.0
"""Use of one GPU, in percent, from which on a cluster counts as busy."""

_MODES: Final = (RESTART,)


def decide_cluster_repairs(
    outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> RepairDecision:
    """Return whether a run restarts the cluster of these outputs under the declared `repair`.

    A restart that would be no help, or might end work, is returned as an unrepaired fault with the
    reason, unless people ask for the cluster by name.

    Raises:
        GpuformError: people request a mode of repair other than a restart.
    """
    name = outputs.get("name") or declared.get("name")
    is_observed = isinstance(name, str) and outputs.get("status") is not None
    fleet = Fleet([str(name)] if is_observed else [], _MODES, _MODES)
    decision = choose_repairs(
        parse_repair_policy(declared, ClusterRepairInputs), parse_faults(outputs), fleet
    )
    hold_reason = _explain_hold(outputs)
    # people who name the cluster get the repair in spite of the reasons to hold it
    requested_names = get_run_context().requested_repairs
    postponed_repairs = [
        repair
        for repair in decision.due_repairs
        if hold_reason and repair.node not in requested_names
    ]
    due_repairs = [repair for repair in decision.due_repairs if repair not in postponed_repairs]
    return replace(
        decision,
        due_repairs=due_repairs,
        unrepaired=[
            *decision.unrepaired,
            *(_to_unrepaired_fault(repair, hold_reason) for repair in postponed_repairs),
        ],
    )


def find_faults(
    reading: ClusterReading,
    name: str,
    known_faults: Sequence[NodeFault],
    now: float,
    *,
    is_interrupted: bool,
) -> list[NodeFault]:
    """Return the faults of a cluster; none from a reading older than `MAX_METRIC_AGE_S`.

    Args:
        reading: the cluster as one answer shows it.
        name: name of the cluster.
        known_faults: faults of earlier observations, whose start times are kept.
        now: in Unix seconds of the platform.
        is_interrupted: a run has begun to restart the cluster and was killed before the end.
    """
    cluster = reading.cluster
    trouble = _describe_trouble(cluster, is_interrupted=is_interrupted)
    if not trouble or (reading.as_of is not None and now - reading.as_of > MAX_METRIC_AGE_S):
        return []
    since_by_reason = {fault.because: fault.since for fault in known_faults}
    since = cluster.status_details.last_status_change
    # the time of a health check is not reported: the first observation counts
    if cluster.status == ClusterStatus.RUNNING:
        since = since_by_reason.get(trouble, format_moment(now))
    return [
        NodeFault(
            node=name,
            cause=FaultCause.PLATFORM,
            because=trouble,
            since=since or since_by_reason.get(trouble, format_moment(now)),
            instance=cluster.id,
        )
    ]


def observe_use(cluster: wire.Cluster, now: float) -> Observation | None:
    """Return an observation whose gap says how the cluster's GPUs may be used at `now`.

    None for a running cluster without metrics. An idle or stopped cluster gives no gap.
    """
    if cluster.metrics is None and cluster.status == ClusterStatus.RUNNING:
        return None
    possible_use, gpu_use = describe_possible_use(cluster, now), None
    if possible_use is not None and cluster.metrics is not None:
        gpu_use = cluster.metrics.current.gpu_utilization
    if possible_use is None or gpu_use is None or not 0 <= gpu_use <= 100:
        return Observation("TensorOne", [] if possible_use is None else [possible_use])
    return Observation("TensorOne", [f"the cluster uses {gpu_use:g} % of its GPUs: {possible_use}"])


def describe_possible_use(cluster: wire.Cluster, now: float) -> str | None:
    """Return why a GPU of a cluster may be in use, or None for an idle or a stopped cluster.

    An unknown or old measurement is a reason. TensorOne reports one figure for all GPUs, and one of
    them may do all the work.
    """
    if cluster.status in (ClusterStatus.STOPPED, ClusterStatus.STOPPING):
        return None
    current = (cluster.metrics or wire.Metrics()).current
    gpu_use, measured_at = current.gpu_utilization, to_unix_time(current.timestamp)
    gpu_count = (cluster.configuration and cluster.configuration.gpu_count) or MAX_GPUS
    if gpu_use is None or not 0 <= gpu_use <= 100:
        return "TensorOne does not report the use of its GPUs"
    if measured_at is None or not -MAX_CLOCK_SKEW_S <= now - measured_at <= MAX_METRIC_AGE_S:
        return "TensorOne does not report the use of its GPUs now"
    # the mean times the number of GPUs is the most that one GPU can do
    return (
        f"a GPU may be used at {BUSY_PERCENT:g} % or more"
        if gpu_use * gpu_count >= BUSY_PERCENT
        else None
    )


def _describe_trouble(cluster: wire.Cluster, *, is_interrupted: bool) -> str:
    """Return why a cluster needs a repair, by status and GPU health; "" for a healthy one.

    An interrupted restart is the reason before all others.
    """
    if is_interrupted:
        return "the restart was interrupted"
    if cluster.status == ClusterStatus.ERROR:
        return find_failure(cluster) or ""
    health = cluster.status_details.health_checks.gpu_health
    if cluster.status == ClusterStatus.RUNNING and health not in (None, "healthy"):
        return f"the health of its GPUs is {health}"
    return ""


def _explain_hold(outputs: Mapping[str, Any]) -> str:
    """Return why a broken cluster is not restarted now; "" if a restart may run.

    The reasons are a restart that did not help, and possible use without the permission to evict
    jobs.
    """
    # a second restart would not help either: people have to decide
    if outputs.get("restarted_at"):
        return f"the cluster was restarted at {outputs['restarted_at']}, without success"
    possible_use = outputs.get("maybe_busy")
    if possible_use and Permission.EVICT_JOBS not in get_run_context().permissions:
        return f"{possible_use}; --allow {Permission.EVICT_JOBS} restarts it anyway"
    return ""


def _to_unrepaired_fault(repair: NodeRepair, reason: str) -> UnrepairedFault:
    """Return a due repair as an unrepaired fault, with the reason why the repair is not done."""
    fault = NodeFault(
        node=repair.node,
        cause=repair.cause,
        because=repair.because,
        since=repair.since,
        instance=repair.instance,
    )
    return UnrepairedFault(fault, reason)


REPEAT_WINDOW_S: Final = 3600.0
"""Seconds after which a run no longer counts as the continuation of a killed one."""

STOP_TIMEOUT_S: Final = 3600.0
"""Seconds for a stop, which is the platform's own limit ('Stop Cluster', `timeout_minutes`)."""

_BEGUN: Final = "begun"
_ENDED: Final = "ended"

ObservedCluster = Observed[ClusterOutputs]


@dataclass(frozen=True)
class ClusterRestart:
    """The restart of one cluster during one operation.

    `find_cluster` returns a fresh reading of the cluster, or None for a deleted one.
    """

    context: ProviderContext
    client: TensorOneClient
    cluster_id: str
    cluster_name: str
    find_cluster: Callable[[], ClusterReading | None]

    def run(self) -> None:
        """Stop a broken or named cluster, for `wait_until_ready` to start again.

        Records the restart before the stop, and waits for the stop. A restart no longer needed is
        only a warning. Does nothing for a missing or a stopped cluster.

        Raises:
            GpuformError: the cluster may be in use, or cannot be stopped.
        """
        reading = self.find_cluster()
        if reading is None or not self._is_due(reading):
            return
        status = reading.cluster.status
        if status != ClusterStatus.STOPPED:
            self._refuse_while_used(reading)
            # written before the stop: a run killed after it leaves a stopped cluster with a known
            # reason
            self._record_phase(_BEGUN)
            self._stop_cluster(reading)

    def record_end(self) -> None:
        """Record the end of a cluster's restart by gpuform, if a restart is recorded as begun.

        The caller has seen the cluster as declared again.
        """
        last_repair = self._last_repair
        if last_repair is not None and last_repair.repair == _BEGUN:
            self._records.record(replace(last_repair, repair=_ENDED))

    def add_faults(
        self, reading: ClusterReading, observed: ObservedCluster, known_outputs: Mapping[str, Any]
    ) -> ObservedCluster:
        """Return an observed cluster with faults, possible use and the time of a restart.

        Deletes the records of repairs if the cluster is healthy again, except in a preview.
        """
        now, _ = self.context.get_platform_time(self.client.clock_ahead)
        is_stop_accepted = (
            known_outputs.get("state") == "stopped" or observed.outputs.stopped_by is not None
        )
        is_interrupted = not is_stop_accepted and self._is_interrupted(reading)
        known_faults = parse_faults(known_outputs)
        faults = find_faults(
            reading, self.cluster_name, known_faults, now, is_interrupted=is_interrupted
        )
        restarted_at = self._find_restart_time(reading) if faults else ""
        is_healthy = not faults and reading.cluster.status == ClusterStatus.RUNNING
        # a healthy cluster may be restarted again if it breaks later
        if (
            is_healthy
            and (known_faults or known_outputs.get("restarted_at"))
            and not self.context.preview
        ):
            self._records.forget(self.cluster_id)
        outputs = observed.outputs.model_copy(
            update={
                "faults": faults,
                "maybe_busy": describe_possible_use(reading.cluster, now) if faults else None,
                "restarted_at": restarted_at or None,
            }
        )
        return Observed(observed.inputs, outputs)

    @property
    def _records(self) -> Repairs:
        """Return the records of repairs beside the run's intents."""
        return Repairs.from_intents(self.context.intents)

    @property
    def _last_repair(self) -> Repair | None:
        """Return the record of the cluster's last repair, or None."""
        return self._records.find(self.cluster_id, self.cluster_name)

    def _is_interrupted(self, reading: ClusterReading) -> bool:
        """Return True for a cluster stopped by a killed restart and not started since.

        False for a stop later than `STOP_TIMEOUT_S` after the restart's record, or at an unknown
        time.
        """
        if reading.cluster.status not in (ClusterStatus.STOPPED, ClusterStatus.STOPPING):
            return False
        last_repair = self._last_repair
        if last_repair is None or last_repair.repair != _BEGUN:
            return False
        changed_at = to_unix_time(reading.cluster.status_details.last_status_change)
        return (
            changed_at is not None and changed_at <= last_repair.at + STOP_TIMEOUT_S
        )  # a later stop is somebody else's

    def _find_restart_time(self, reading: ClusterReading) -> str:
        """Return when the last recorded restart began, if the restart is over; else ""."""
        last_repair = self._last_repair
        if last_repair is None:
            return ""
        changed_at = to_unix_time(reading.cluster.status_details.last_status_change)
        is_running = reading.cluster.status == ClusterStatus.RUNNING
        is_done = last_repair.repair == _ENDED or (
            is_running and changed_at is not None and changed_at > last_repair.at
        )
        return format_moment(last_repair.at) if is_done else ""

    def _is_due(self, reading: ClusterReading) -> bool:
        """Return whether a restart is still needed, by request or by fault; warn if not.

        A request is done if an interrupted run has restarted the cluster within `REPEAT_WINDOW_S`.
        """
        if self.cluster_name in self.context.run.requested_repairs:
            restarted_at, last_repair = self._find_restart_time(reading), self._last_repair
            if last_repair is None or last_repair.repair == _ENDED or not restarted_at:
                return True
            # a request from people this long after the last one is a new one
            if self.context.clock.now() - last_repair.at >= REPEAT_WINDOW_S:
                return True
            self._warn_left_alone(
                f"was restarted already, by the interrupted run of {restarted_at}"
            )
            return False
        now, _ = self.context.get_platform_time(self.client.clock_ahead)
        if find_faults(
            reading, self.cluster_name, (), now, is_interrupted=self._is_interrupted(reading)
        ):
            return True
        self._warn_left_alone("is no longer broken")
        return False

    def _warn_left_alone(self, reason: str) -> None:
        """Warn about a cluster left alone, with the reason."""
        self.context.on_warning(f"cluster {self.cluster_name} {reason}: it stays as it is")

    def _refuse_while_used(self, reading: ClusterReading) -> None:
        """Raise GpuformError if the cluster may be in use and the run may not evict jobs.

        With the permission, possible use is only a warning.
        """
        now, _ = self.context.get_platform_time(self.client.clock_ahead)
        possible_use = describe_possible_use(reading.cluster, now)
        if possible_use is None:
            return
        if Permission.EVICT_JOBS in self.context.run.permissions:
            self.context.on_warning(
                f"cluster {self.cluster_name}: restarting it, although {possible_use}"
            )
            return
        raise GpuformError(
            f"cluster {self.cluster_name}: not restarted: {possible_use}",
            hint="run the command again when its work has ended, or restart the cluster anyway "
            f"with --allow {Permission.EVICT_JOBS}",
        )

    def _record_phase(self, phase: str) -> None:
        """Record the restart durably with its phase and the platform's time."""
        now, _ = self.context.get_platform_time(self.client.clock_ahead)
        self._records.record(
            Repair(self.cluster_id, self.cluster_name, phase, self.cluster_id, RESTART, now)
        )

    def _stop_cluster(self, reading: ClusterReading) -> None:
        """Stop the cluster, unless already stopping, and wait at most `STOP_TIMEOUT_S`.

        Raises:
            GpuformError: TensorOne refuses the stop; the record of the restart is deleted.
            NotReady: the cluster is gone, or has not stopped in time.
        """
        try:
            if reading.cluster.status != ClusterStatus.STOPPING:
                self.client.stop(self.cluster_id)
        # the cluster may have stopped by itself, or the reading was too old: only a second look
        # tells
        except Conflict as error:
            second_reading = self.find_cluster()
            if second_reading is None or second_reading.cluster.status not in (
                ClusterStatus.STOPPING,
                ClusterStatus.STOPPED,
            ):
                self._records.forget(self.cluster_id)
                raise GpuformError(
                    f"TensorOne does not stop cluster {self.cluster_name}: {error.message}",
                    hint="to recreate the cluster, run `gpuform up --replace` with its name; to "
                    "recreate it from a snapshot, declare restore_snapshot",
                ) from None
        label = f"stop of cluster {self.cluster_name}"
        with self.context.extend_deadline(STOP_TIMEOUT_S):
            wait_until_done(
                self.context,
                self._poll,
                label=label,
                interval=self.client.poll_schedule,
                limit=STOP_TIMEOUT_S,
            )

    def _poll(self) -> PollResult[None]:
        """Read the cluster; done once stopped, by an answer newer than our request.

        Raises:
            NotReady: the cluster is gone.
        """
        reading = self.find_cluster()
        if reading is None:
            raise NotReady(f"cluster {self.cluster_name} no longer exists on the platform")
        status = reading.cluster.status
        is_done = status == ClusterStatus.STOPPED and not self.client.writes.is_stale(reading, {})
        return PollResult(None, f"{status}, to be restarted", is_done=is_done)
