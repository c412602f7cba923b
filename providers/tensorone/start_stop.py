"""Bring a cluster to its declared state by stops and starts, and decide whether it is idle.

The lifecycle (`cluster`) calls `StartStopSequence` from each poll while it waits for a cluster.
Cores, memory, GPUs, storage and image change at a start only, and a start restores a snapshot
(documentation, 'Start Cluster').

`gpuform expire` asks through the lifecycle whether a cluster is idle: any doubt means that it is
not. `metrics.current`, `metrics.historical`, `metrics_window`, `last_accessed`, `uptime_seconds`,
`status_details` and `auto_terminate` are fields of TensorOne's documentation ('Get Cluster
Details', document 000). The platform reports one figure for all GPUs, which gpuform takes for their
mean: one GPU may do all the work, so the figure counts times their number.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from gpuform.providers.context import (
    CAPACITY_ROUND_S,
    ProviderContext,
    build_capacity_error,
    format_duration,
    get_current_context,
    parse_wait_seconds,
)
from gpuform.providers.errors import ApiError, Conflict, OutOfCapacity
from gpuform.providers.lifetime import (
    IDLENESS_CAUSE,
    IdlenessVerdict,
    format_moment,
    format_remaining_time,
    is_idleness_cause,
)
from gpuform.providers.permissions import Permission
from gpuform.providers.records import IdleStop, IdleStops
from gpuform.providers.tensorone.client import NO_CAPACITY_CODE, TensorOneClient
from gpuform.providers.tensorone.cluster_view import count_declined_gpus, find_start_changes
from gpuform.schemas.policies.lifetime import Idleness, read_idleness
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import ClusterInputs
from gpuform.schemas.tensorone.outputs import ClusterStatus, find_stopping_limit
from gpuform.schemas.values import RemovalCount, to_unix_time

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
            UnplannedRemoval: the plan of the run removes fewer GPUs.
            GpuformError: the platform refuses the step or does not answer.
        """
        step = self._choose_next_step(cluster)
        # before a stop, too: it serves the start that removes GPUs
        if self._has_changes(cluster):
            self._context.require_planned_removal(
                f"cluster {self._inputs.name}",
                RemovalCount(gpus=count_declined_gpus(cluster, self._inputs)),
            )
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


MAX_METRIC_AGE_S: Final = 900.0
"""Seconds after which a measurement says nothing about the present."""

MAX_CLOCK_SKEW_S: Final = 60.0
"""Seconds that the platform's clock may be ahead of ours."""

MAX_GPUS: Final = 8
"""Largest number of GPUs of a cluster ('Create Cluster'), assumed where the number is unknown."""

WINDOW_SECONDS: Final = {"1h": 3600.0, "6h": 6 * 3600.0, "24h": 24 * 3600.0, "7d": 7 * 86400.0}
"""Metrics window of the platform -> its seconds, from the shortest to the longest."""

MAX_STOP_DURATION_S: Final = 3600.0
"""Seconds within which the platform carries out a stop that gpuform requested."""


def evaluate_idleness(
    client: TensorOneClient, cluster_id: str, idleness: Idleness
) -> IdlenessVerdict:
    """Return whether a cluster is idle now and why, from one request.

    The mean use counts times the number of GPUs, for one GPU may do all the work. The required time
    is at most 7 days, the longest metrics window.

    Raises:
        GpuformError: the platform does not answer.
    """
    # the shortest window that covers the required time
    window = next(name for name, seconds in WINDOW_SECONDS.items() if seconds >= idleness.lasting)
    cluster = client.get_cluster(cluster_id, window).cluster
    now, _ = get_current_context().get_platform_time(client.clock_ahead)
    check = _IdlenessCheck(cluster, idleness, window, now)
    doubt = next(check.find_doubts(), None)
    if doubt is not None:
        return IdlenessVerdict(is_idle=False, because=doubt)
    within = "" if WINDOW_SECONDS[window] == idleness.lasting else f" (of its last {window})"
    reason = f"each GPU used {idleness.text}{within}, at {format_moment(now)}"
    return IdlenessVerdict(is_idle=True, because=reason)


def describe_idle_stop(idleness: Idleness, now: float) -> str:
    """Return the reason to record for a stop requested now because of idleness."""
    return f"{IDLENESS_CAUSE}, each GPU used {idleness.text} up to {format_moment(now)}"


def find_idle_stop_reason(
    cluster: wire.Cluster, stops: IdleStops, outputs: Mapping[str, Any]
) -> str | None:
    """Return the reason of a stop by `gpuform expire`; None for any other stop, or no stop.

    A recorded stop counts if the status changed about then, or at an unknown time.

    Args:
        cluster: the cluster as the platform reports it.
        stops: the stops that this stack recorded.
        outputs: earlier outputs; their reason holds while the status has not changed since.
    """
    if cluster.status not in (ClusterStatus.STOPPED, ClusterStatus.STOPPING):
        return None
    changed, recorded_reason = cluster.status_details.last_status_change, outputs.get("stopped_by")
    if is_idleness_cause(recorded_reason) and changed == outputs.get("last_status_change"):
        return str(recorded_reason)
    stop, changed_at = stops.find(cluster.id), to_unix_time(changed)
    if stop is None:
        return None
    # a status that changed long before or after our request is somebody else's stop
    is_our_stop = (
        changed_at is None
        or stop.at - MAX_CLOCK_SKEW_S <= changed_at <= stop.at + MAX_STOP_DURATION_S
    )
    return stop.because if is_our_stop else None


class _IdlenessCheck:
    """One answer about a cluster, and every reason in it not to call the cluster idle."""

    def __init__(self, cluster: wire.Cluster, idleness: Idleness, window: str, now: float) -> None:
        self._cluster, self._idleness, self._window, self._now = cluster, idleness, window, now
        self._metrics = cluster.metrics or wire.Metrics()

    def find_doubts(self) -> Iterator[str]:
        """Yield every reason against idleness: the cluster is busy, or a measurement is missing."""
        cluster = self._cluster
        if cluster.status != ClusterStatus.RUNNING:
            yield f"the cluster is {cluster.status or 'of unknown status'}"
        yield from self._find_current_doubts()
        yield from self._find_past_doubts()
        yield from self._find_activity_doubts()

    def _find_current_doubts(self) -> Iterator[str]:
        """Yield why current metrics prove no idleness: absent, old, or GPUs used or unhealthy.

        Running GPUs that draw no power are a reason, too.
        """
        current = self._metrics.current
        gpu_use, watts = current.gpu_utilization, current.power_usage_watts
        measured_at = to_unix_time(current.timestamp)
        if gpu_use is None or not 0 <= gpu_use <= 100:
            yield "the use of the GPUs is unknown"
        elif measured_at is None:
            yield "the use of the GPUs has no date"
        elif not -MAX_CLOCK_SKEW_S <= self._now - measured_at <= MAX_METRIC_AGE_S:
            yield f"the use of the GPUs was measured at {format_moment(measured_at)}, not now"
        # the GPUs of a running cluster take power: 0 W shows that the measurement is wrong
        elif watts is not None and watts <= 0:
            yield "the GPUs draw no power although the cluster runs"
        elif self._compute_max_gpu_use(gpu_use) >= self._idleness.below:
            yield self._format_use(gpu_use, "now")
        health = self._cluster.status_details.health_checks.gpu_health
        # the measurements of an unhealthy GPU prove nothing
        if health is not None and health != "healthy":
            yield f"the health of its GPUs is {health}"

    def _find_past_doubts(self) -> Iterator[str]:
        """Yield why the metrics of the whole window do not prove idleness.

        Metrics of another window than the requested one prove nothing.
        """
        historical = self._metrics.historical
        gpu_use = historical.gpu_utilization
        minimum, mean, maximum = gpu_use.min, gpu_use.avg, gpu_use.max
        # the platform may answer with another window than the requested one
        if historical.window != self._window or minimum is None or mean is None or maximum is None:
            yield f"the use of the last {self._window} is unknown"
        elif not 0 <= minimum <= mean <= maximum <= 100:
            yield f"the use of the last {self._window} has impossible numbers"
        elif self._compute_max_gpu_use(maximum) >= self._idleness.below:
            yield self._format_use(maximum, f"within the last {self._window}")

    def _find_activity_doubts(self) -> Iterator[str]:
        """Yield activity within the required idle time: a start, an access, or a short idle count.

        A cluster that reports neither uptime nor its last change of status is a doubt, too.
        """
        cluster, required_s = self._cluster, self._idleness.lasting
        changed, uptime = cluster.status_details.last_status_change, cluster.uptime_seconds
        # without either, the cluster may have been started a minute ago
        if changed is None and uptime is None:
            yield "the start of the cluster is unknown"
        if uptime is not None and not required_s <= uptime < float("inf"):
            yield f"the cluster has run for only {format_remaining_time(max(uptime, 0))}"
        limits = cluster.auto_terminate
        # TensorOne counts idle minutes for its own auto-termination
        idle_minutes = None if limits is None else limits.current_idle_minutes
        if idle_minutes is not None and idle_minutes * 60 < required_s:
            yield self._format_idle_count(idle_minutes * 60)
        timestamp_by_event = {
            "was started or stopped": changed,
            "was created": cluster.created_at,
            "was accessed": cluster.last_accessed,
        }
        for event, timestamp in timestamp_by_event.items():
            happened_at = to_unix_time(timestamp)
            if timestamp is not None and happened_at is None:
                yield f"the cluster {event} at an unknown time"
            elif happened_at is not None and self._now - happened_at < required_s:
                yield f"the cluster {event} at {format_moment(happened_at)}"

    def _format_idle_count(self, idle_s: float) -> str:
        """Return TensorOne's idle time in words, and when the required time would be reached."""
        idle_s = max(idle_s, 0)
        due = format_moment(self._now + self._idleness.lasting - idle_s)
        return (
            f"idle for {format_remaining_time(idle_s)} by TensorOne's count, so that it may be "
            f"due at {due}"
        )

    def _format_use(self, gpu_use: float, when: str) -> str:
        """Return the GPU use in words, with the highest possible use of one of several GPUs."""
        count = self._gpu_count
        single_gpu_text = (
            f": one of its {count} GPUs up to {self._compute_max_gpu_use(gpu_use):g}%"
            if count > 1
            else ""
        )
        return f"used {gpu_use:g}% {when}{single_gpu_text}"

    def _compute_max_gpu_use(self, gpu_use: float) -> float:
        """Return the highest possible use of a single GPU, in percent."""
        return min(100.0, gpu_use * self._gpu_count)

    @property
    def _gpu_count(self) -> int:
        """Return the reported number of GPUs; `MAX_GPUS` if unknown or impossible."""
        configuration = self._cluster.configuration
        reported_count = configuration.gpu_count if configuration else None
        return reported_count if reported_count and 0 < reported_count <= MAX_GPUS else MAX_GPUS
