"""Bring a cluster to its declared state by stops and starts, one request at a time.

The lifecycle (`cluster`) calls `StartStopSequence` from each poll while it waits for a cluster.
Cores, memory, GPUs, storage and image change at a start only, and a start restores a snapshot
(documentation, 'Start Cluster').
"""

from collections.abc import Iterable

from gpuform.providers.context import (
    CAPACITY_ROUND_S,
    ProviderContext,
    build_capacity_error,
    format_duration,
    parse_wait_seconds,
)
from gpuform.providers.errors import ApiError, Conflict, OutOfCapacity
from gpuform.providers.permissions import Permission
from gpuform.providers.records import IdleStop, IdleStops
from gpuform.providers.tensorone.client import NO_CAPACITY_CODE, TensorOneClient
from gpuform.providers.tensorone.cluster_view import find_start_changes
from gpuform.providers.tensorone.idleness import describe_idle_stop, find_idle_stop_reason
from gpuform.schemas.policies.lifetime import read_idleness
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import ClusterInputs
from gpuform.schemas.tensorone.outputs import ClusterStatus, find_stopping_limit

RESEND_AFTER_S = 120.0
"""Seconds after which a request without any effect is sent again."""


class StartStopSequence:
    """The starts and stops of one cluster during one operation."""

    def __init__(
        self,
        client: TensorOneClient,
        context: ProviderContext,
        cluster_id: str,
        inputs: ClusterInputs,
    ) -> None:
        self._client = client
        self._context = context
        self._id = cluster_id
        self._inputs = inputs
        self._last_request: tuple[str, str | None] | None = None
        self._last_request_at = 0.0
        self._has_sent_changes = False
        self._short_of_capacity_since: float | None = None
        """When there were first no GPUs for its start."""
        restored_before = context.stored_properties.get("restored_snapshot")
        self.restored_snapshot: str | None = restored_before if inputs.restore_snapshot else None
        """The declared snapshot, once the cluster was started from it."""

    def request_next_step(self, cluster: wire.Cluster) -> str | None:
        """Request the next step to the declaration; return `start`, `stop`, or None if done.

        The caller has checked that the cluster is at rest. A step without effect so far is
        returned, and requested again only after a while.

        Raises:
            OutOfCapacity: there were no GPUs for a start within the declared wait.
            GpuformError: the platform refuses the step or does not answer.
        """
        step = self._choose_next_step(cluster)
        request = (step or "", cluster.status_details.last_status_change)
        now = self._context.clock.now()
        resend_after_s = (
            CAPACITY_ROUND_S if self._short_of_capacity_since is not None else RESEND_AFTER_S
        )
        # a cached answer may show the status from before the request: the same request is not sent
        # again at once
        if step is None or (
            request == self._last_request and now - self._last_request_at < resend_after_s
        ):
            return step
        self._last_request, self._last_request_at = request, now
        try:
            if step == "stop":
                # recorded before the request: a run that is killed after it still knows why the
                # cluster stopped
                self._record_idle_stop()
                self._client.stop(self._id)
            else:
                self._start_cluster(cluster)
        except OutOfCapacity as error:
            self._report_capacity_wait(error, cluster)
        except Conflict:
            pass  # the status is changing already: the next poll shows the new one
        return step

    def describe_unmet_inputs(self, cluster: wire.Cluster) -> str | None:
        """Return a sentence about declared start fields that the cluster lacks, or None.

        The caller has checked that no step remains, so the platform ignored these fields.
        """
        unmet_inputs = find_start_changes(cluster, self._inputs)
        if not unmet_inputs:
            return None
        unmet_text = ", ".join(f"{name} {value}" for name, value in unmet_inputs.items())
        return f"the platform started the cluster without {unmet_text}"

    def find_accepted_stop_reason(self, cluster: wire.Cluster) -> str | None:
        """Return why a cluster may stay stopped in spite of the declaration, or None.

        The reason is a stop by `gpuform expire`, or by limits of a cluster that ran at the last
        observation. With the permission `start-terminated` a cluster declared as running may not
        stay stopped.
        """
        outputs = self._context.stored_properties
        if self._inputs.idle is not None:
            idle_reason = find_idle_stop_reason(cluster, self._idle_stops, outputs)
            is_allowed = Permission.START_TERMINATED in self._context.run.permissions
            if idle_reason is not None and (self._inputs.state == "stopped" or not is_allowed):
                return idle_reason
        termination_reason = find_stopping_limit(cluster)
        is_stop_declared = outputs.get("state") == "stopped" or self._inputs.state == "stopped"
        # a cluster that was not running before cannot have been stopped by its limits since
        was_running = outputs.get("status") in (ClusterStatus.RUNNING, ClusterStatus.STOPPING)
        if (
            termination_reason is None
            or is_stop_declared
            or not (was_running or outputs.get("stopped_by"))
        ):
            return None
        return (
            None
            if Permission.START_TERMINATED in self._context.run.permissions
            else termination_reason
        )

    @property
    def _idle_stops(self) -> IdleStops:
        """Return the records of stops for idleness beside the run's intents."""
        return IdleStops.from_intents(self._context.intents)

    def _record_idle_stop(self) -> None:
        """Record why this run stops the cluster if the run is `gpuform expire`."""
        idleness = read_idleness(self._inputs.dump_declared())
        # a declaration with `idle` is never declared as stopped: only `gpuform expire` does that
        if idleness is not None and self._inputs.state == "stopped":
            now = self._context.clock.now()
            self._idle_stops.record(IdleStop(self._id, now, describe_idle_stop(idleness, now)))

    def _choose_next_step(self, cluster: wire.Cluster) -> str | None:
        """Return `start` or `stop`, the next step towards the declared state, or None if done.

        A running cluster with changes that only a start applies is stopped first. A stopped cluster
        with such changes is started, even if declared stopped. A snapshot is restored only if the
        cluster is declared running.
        """
        wants_running = self._inputs.state != "stopped"
        is_running = cluster.status == ClusterStatus.RUNNING
        has_changes = self._has_changes(cluster) or (
            wants_running and self._snapshot_to_restore is not None
        )
        if is_running:
            # these changes apply at a start only: a running cluster has to stop first
            return "stop" if has_changes or not wants_running else None
        if has_changes:
            return "start"
        may_stay_stopped = not wants_running or self.find_accepted_stop_reason(cluster) is not None
        return None if may_stay_stopped else "start"

    def _has_changes(self, cluster: wire.Cluster) -> bool:
        """Return True if a start would change something not sent with a start yet."""
        # sent once: a field that the platform ignores must not stop and start the cluster again and
        # again
        return not self._has_sent_changes and bool(find_start_changes(cluster, self._inputs))

    @property
    def _snapshot_to_restore(self) -> str | None:
        """Return the declared snapshot, unless an earlier start has restored this snapshot.

        None, too, if none is declared.
        """
        declared_snapshot = self._inputs.restore_snapshot
        return None if declared_snapshot == self.restored_snapshot else declared_snapshot

    def _report_capacity_wait(self, error: OutOfCapacity, cluster: wire.Cluster) -> None:
        """Report that a start waits for capacity; raise OutOfCapacity when the wait is over."""
        now = self._context.clock.now()
        if self._short_of_capacity_since is None:
            self._short_of_capacity_since = now
        remaining_s = self._short_of_capacity_since + get_capacity_wait(self._inputs) - now
        if remaining_s <= 0:
            configuration = cluster.configuration or wire.Configuration()
            placement = (
                configuration.gpu_type or self._inputs.gpu_type,
                configuration.region or self._inputs.region,
            )
            raise build_out_of_stock_error(error, self._inputs, [placement], "started") from None
        self._context.on_progress(
            f"out of capacity; trying again for {format_duration(remaining_s)}"
        )

    def _start_cluster(self, cluster: wire.Cluster) -> None:
        """Request the start with the changed fields and the snapshot, and note both as sent.

        Forgets the record of a stop for idleness.

        Raises:
            OutOfCapacity: there are no GPUs for the start.
        """
        changed_fields, snapshot = (
            find_start_changes(cluster, self._inputs),
            self._snapshot_to_restore,
        )
        try:
            self._client.start(self._id, wire.build_start(changed_fields, snapshot))
        except ApiError as error:
            raise to_out_of_capacity(error) from None
        self._has_sent_changes = True
        if self._inputs.idle is not None:
            # a started cluster has no idle stop any more, whoever stopped it next
            self._idle_stops.forget(self._id)
        if snapshot is not None:
            self.restored_snapshot = snapshot


def get_capacity_wait(inputs: ClusterInputs) -> float:
    """Return how long a search for capacity may take, in seconds."""
    return parse_wait_seconds(inputs.dump_declared().get("on_no_capacity"))


def to_out_of_capacity(error: ApiError) -> ApiError:
    """Return OutOfCapacity for a 422 about missing GPUs ('Error Handling'), or the error itself."""
    if error.status != 422 or error.code != NO_CAPACITY_CODE:
        return error
    return OutOfCapacity(
        error.message,
        method=error.method,
        path=error.path,
        status=error.status,
        code=error.code,
        request_id=error.request_id,
    )


def build_out_of_stock_error(
    error: OutOfCapacity, inputs: ClusterInputs, placements: Iterable[tuple[str, str]], verb: str
) -> OutOfCapacity:
    """Return the error about the GPU types and regions in which TensorOne has no capacity.

    `placements` are pairs of GPU type and region. `verb` says what failed: `created` or `started`.
    """
    plural = "s" * (inputs.gpu_count != 1)
    requested_capacity = [
        f"{inputs.gpu_count} {gpu_type} GPU{plural} free in {region}"
        for gpu_type, region in placements
    ]
    hint = "try again later, or declare another region, another gpu_type or a smaller gpu_count"
    is_searched = inputs.on_no_capacity is not None
    return build_capacity_error(
        error, "TensorOne", requested_capacity, verb, hint, is_searched=is_searched
    )
