"""Create, read, change, start, stop and delete TensorOne's GPU clusters.

`gpuform.providers.lifecycle` calls `ClusterOperations` through `ClusterLifecycle`, whose dotted
path is in state files. The work is in `client` (requests), `cluster_view` (answers), `start_stop`
(starts and stops) and `repairing` (restarts).

Statuses and requests are from TensorOne's documentation ('GPU Clusters'). Auto-termination may stop
a cluster, as its declaration allows: that is not drift, the plan reports it, and a start needs the
permission `start-terminated`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from gpuform.providers.context import (
    PollResult,
    ProviderContext,
    get_current_context,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import (
    ApiError,
    Cancelled,
    Conflict,
    GpuformError,
    NotFound,
    NotShown,
    OutOfCapacity,
)
from gpuform.providers.evidence import Observation
from gpuform.providers.http import build_contradiction_error
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.lifetime import Power
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import IdleStops, Repairs, Target
from gpuform.providers.tensorone.client import ClusterReading, get_client
from gpuform.providers.tensorone.cluster_facts import (
    build_node_record,
    describe_cluster_access,
    describe_cluster_exposure,
    describe_cluster_usage,
    describe_start_effect,
    find_cluster_notices,
    plan_state_changes,
    read_live_figures,
)
from gpuform.providers.tensorone.cluster_view import (
    build_outputs,
    count_declined_gpus,
    extract_inputs,
    find_failed_checks,
    find_failure,
    get_gpu_count,
    merge_tags,
)
from gpuform.providers.tensorone.repairing import (
    ClusterRestart,
    decide_cluster_repairs,
    observe_use,
)
from gpuform.providers.tensorone.start_stop import (
    StartStopSequence,
    build_out_of_stock_error,
    evaluate_idleness,
    find_idle_stop_reason,
    get_capacity_wait,
    to_out_of_capacity,
)
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.changes import compute_changes as by_rules
from gpuform.schemas.policies.drain import RESIZED, RemovedNode, RemovedNodes
from gpuform.schemas.policies.repair import iterate_alternatives
from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.inputs import START_FIELDS, ClusterInputs
from gpuform.schemas.tensorone.outputs import (
    STABLE_STATUSES,
    ClusterOutputs,
    ClusterStatus,
    find_stopping_limit,
    read_credit,
)
from gpuform.schemas.values import RemovalCount, parse_count, to_unix_time

FIELDS_APPLIED_BY_START: Final = (*START_FIELDS, "restore_snapshot")
"""Fields with changes that a start applies."""
DISTINGUISHING_FIELDS: Final = ("gpu_type", "gpu_count", "storage_gb")
"""Fields that distinguish the cluster of our own request from another one of the name."""
FRESH_ANSWER_TIMEOUT_S = 300.0
"""Seconds in which a read is repeated until the answer is new enough."""
FRESH_ANSWER_PAUSE_S = 5.0
"""Seconds between two reads for a new enough answer."""

ObservedCluster = Observed[ClusterOutputs]


class ClusterOperations:
    """The operations of a cluster."""

    def __init__(self, settings: Settings) -> None:
        self._client = get_client(settings)

    def create(self, context: ProviderContext, inputs: ClusterInputs) -> str:
        """Create a cluster and return the new id.

        Waits for capacity as declared. A cluster that an earlier attempt has created is found
        again.

        Raises:
            OutOfCapacity: every alternative was tried; the error names them.
            GpuformError: TensorOne refuses; see `create_once` for the others.
        """
        target = Target(
            "tensorone", "Cluster", context.redact_for_record(inputs.name), inputs.region
        )

        def list_candidates() -> list[Candidate]:
            # A cached list may lack a cluster that an earlier request has just created: the search
            # for this cluster needs a list newer than the request.
            is_search = context.intents.find(context.urn, target) is not None
            readings = (
                self._list_fresh_clusters(context)
                if is_search
                else self._client.cluster_listing.read_all()
            )
            return [
                _to_candidate(reading)
                for reading in readings
                if reading.cluster.name == inputs.name
            ]

        creation = Creation(
            target,
            list_candidates,
            exists=lambda cluster_id: self._find_cluster(cluster_id) is not None,
            attempts=[
                Attempt(
                    partial(self._send_create, placed_inputs),
                    placed_inputs.region,
                    placed_inputs.gpu_type,
                    {name: getattr(placed_inputs, name) for name in DISTINGUISHING_FIELDS},
                )
                for placed_inputs in inputs.iterate_placements()
            ],
            capacity_wait_s=get_capacity_wait(inputs),
            clock_ahead=lambda: self._client.clock_ahead,
        )
        try:
            with context.extend_deadline(creation.capacity_wait_s):
                return create_once(context, creation)
        except OutOfCapacity as error:
            placements = [
                (placed_inputs.gpu_type, placed_inputs.region)
                for placed_inputs in inputs.iterate_placements()
            ]
            raise build_out_of_stock_error(error, inputs, placements, "created") from None

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> ObservedCluster:
        """Wait until a cluster runs or is stopped as declared, with all changes applied.

        Changes that only a start applies are applied by stops and starts. A running cluster also
        has to pass the declared health checks. A cluster that its own limits stopped may stay
        stopped. Records the end of a restart, and deletes the records of repairs if the cluster is
        healthy again.

        Raises:
            NotReady: the cluster is gone or has failed, ignores a field, or the time is over.
            OutOfCapacity: there are no GPUs for a start.
        """
        sequence = StartStopSequence(self._client, context, object_id, inputs)
        last_reading: list[ClusterReading] = []

        def poll() -> PollResult[ObservedCluster]:
            reading = self._find_cluster(object_id)
            if reading is None:
                raise NotShown(f"cluster {object_id} no longer exists on the platform")
            last_reading[:] = [reading]
            cluster = reading.cluster
            phase, failure_reason = cluster.status or "no status", find_failure(cluster)
            is_done = False
            # a cached answer from before our change would show the old status as if it were the
            # result
            if self._client.writes.is_stale(reading, context.stored_properties):
                phase, failure_reason = f"{phase}, as it was before the last change", None
            elif cluster.status in STABLE_STATUSES:
                step = sequence.request_next_step(cluster)
                phase = f"{phase}; requested to {step}" if step else phase
                failure_reason = None if step else sequence.describe_unmet_inputs(cluster)
                failed_checks = (
                    None
                    if step or failure_reason
                    else find_failed_checks(cluster, inputs.require_healthy or ())
                )
                phase = f"{phase}; {failed_checks}" if failed_checks else phase
                is_done = not (step or failure_reason or failed_checks)
            reason = None if is_done else failure_reason or phase
            stop_reason = sequence.find_accepted_stop_reason(cluster) if is_done else None
            created_version = context.stored_properties.get("made_from_version")
            outputs = build_outputs(
                cluster,
                reason,
                stop_reason,
                sequence.restored_snapshot,
                created_version=created_version,
            )
            return PollResult(Observed({}, outputs), phase, is_done=is_done, failure=failure_reason)

        with context.extend_deadline(get_capacity_wait(inputs)):
            observed = wait_until_done(
                context, poll, label=f"cluster {inputs.name}", interval=self._client.poll_schedule
            )
        restart = self._create_restart(context, object_id, inputs.name)
        # only a cluster that is as declared again ends the record of its restart
        restart.record_end()
        return restart.add_faults(last_reading[0], observed, context.stored_properties)

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedCluster | None:
        """Return the cluster as TensorOne reports the values, or None for a deleted one.

        A stop by the cluster's own limits or for idleness is no drift, nor is the placement by a
        search for capacity. An answer older than our last change is not believed: the cluster is
        read again, for at most `FRESH_ANSWER_TIMEOUT_S`. The records of repairs are deleted when
        the cluster is healthy again, except in a preview.

        Raises:
            GpuformError: no answer was new enough.
        """
        reading = self._find_fresh_cluster(context, object_id)
        if reading is None:
            return None
        cluster = reading.cluster
        inputs = extract_inputs(cluster, known_inputs)
        if known_inputs:
            inputs = _remove_placement(inputs, known_inputs, context.stored_properties)
        stop_reason = (
            find_stopping_limit(cluster)
            if known_inputs and known_inputs.get("state") != "stopped"
            else None
        )
        if stop_reason is None and known_inputs.get("idle") is not None:
            stop_reason = find_idle_stop_reason(
                cluster, IdleStops.from_intents(context.intents), context.stored_properties
            )
        if stop_reason is not None:
            # a stop by the cluster's own limits is no change of the declared state
            del inputs["state"]
        at_rest = cluster.status in STABLE_STATUSES
        failed_checks = find_failed_checks(cluster, known_inputs.get("require_healthy") or ())
        reason = (
            failed_checks
            if at_rest
            else find_failure(cluster) or f"it is {cluster.status or 'unknown'}"
        )
        restored_snapshot, created_version = map(
            context.stored_properties.get, ("restored_snapshot", "made_from_version")
        )
        outputs = build_outputs(
            cluster, reason, stop_reason, restored_snapshot, created_version=created_version
        )
        restart = self._create_restart(context, object_id, known_inputs.get("name") or cluster.name)
        return restart.add_faults(reading, Observed(inputs, outputs), context.stored_properties)

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Send the changes that need no start, and stop a broken cluster that is to be repaired.

        `wait_until_ready` applies the other changes and starts the cluster again.

        Raises:
            GpuformError: TensorOne refuses, or a cluster to restart may be in use.
        """
        body = wire.build_update(inputs, changes)
        if body.get("tags") is not None:
            # The request replaces all tags, and other people have tags of their own.
            reading = self._find_fresh_cluster(context, object_id)
            observed_tags = (reading and reading.cluster.tags) or {}
            known_tags = context.stored_properties.get("tags") or {}
            body["tags"] = merge_tags(body["tags"], observed_tags, known_tags)
        if body:
            self._client.update(object_id, body)
        if any(change.repair is not None for change in changes):
            self._create_restart(context, object_id, inputs.name).run()

    def predict_removed_nodes(
        self, context: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> RemovedNodes | None:
        """Predict the GPUs that the next start removes from the cluster.

        None for a missing cluster, or if TensorOne does not answer, which is reported as a skipped
        check.
        """
        reading = self._find_cluster_to_remove(context, object_id, inputs.name)
        if reading is None:
            return None
        gpus = count_declined_gpus(reading.cluster, inputs)
        node = RemovedNode(name=reading.cluster.name, because=RESIZED, gpus=gpus)
        return RemovedNodes(nodes=(node,) if gpus else ())

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,
    ) -> RemovedNodes | None:
        """Predict the cluster's one host as removed, with the GPUs that it has now.

        None for a missing cluster, or if TensorOne does not answer, which is reported as a skipped
        check.
        """
        name = known_inputs.get("name") or object_id
        reading = self._find_cluster_to_remove(context, object_id, name)
        if reading is None:
            return None
        gpus = get_gpu_count(reading.cluster)
        node = RemovedNode(name=reading.cluster.name, because=because, gpus=gpus)
        return RemovedNodes(nodes=(node,))

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Do nothing: a cluster of TensorOne has no scheduler that cordons its host."""

    def _find_cluster_to_remove(
        self, context: ProviderContext, cluster_id: str, name: str
    ) -> ClusterReading | None:
        """Return the cluster for a plan; None as `predict_removed_nodes`."""
        try:
            return self._find_cluster(cluster_id)
        except Cancelled:
            raise
        except GpuformError as error:
            context.on_skipped_check(f"the GPUs to remove from cluster {name}: {error.message}")
            return None

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Delete a cluster, after a stop where necessary, and wait for the platform's 404.

        Takes the declared final snapshot, and forgets the records. A missing cluster is no error.

        Raises:
            GpuformError: TensorOne refuses, or the time is over.
        """
        body = wire.build_delete(
            final_snapshot=bool(known_inputs.get("final_snapshot")),
            snapshot_name=known_inputs.get("final_snapshot_name"),
        )
        label = f"cluster {known_inputs.get('name') or object_id}"
        if context.planned_removal.gpus is not None:
            reading = self._find_cluster(object_id)
            gpus = get_gpu_count(reading.cluster) if reading else 0
            context.require_planned_removal(label, RemovalCount(1, gpus))
        refusal = self._begin_deletion(object_id, body)
        # the deletion is sent at once: whether a running cluster has to be stopped first, only the
        # platform knows
        was_stopped = False

        def poll() -> PollResult[object] | None:
            nonlocal refusal, was_stopped
            reading = self._find_cluster(object_id)
            if reading is None:
                return None
            status = reading.cluster.status
            is_stale = self._client.writes.is_stale(reading, {})
            # nothing to do but wait: the deletion runs, or the answer is older than the refusal
            if refusal is None or is_stale or status == ClusterStatus.DELETING:
                return PollResult(None, status)
            if status == ClusterStatus.RUNNING and not was_stopped:
                with suppress(Conflict):  # already stopping: the next poll shows the status
                    self._client.stop(object_id)
                was_stopped = True
            elif status in (ClusterStatus.STOPPED, ClusterStatus.ERROR):
                refusal = self._begin_deletion(object_id, body)
                if refusal is not None:
                    raise refusal
            return PollResult(None, status)

        wait_until_gone(context, poll, label=label, interval=self._client.poll_schedule)
        IdleStops.from_intents(context.intents).forget(object_id)
        Repairs.from_intents(context.intents).forget(object_id)

    def _create_restart(
        self, context: ProviderContext, cluster_id: str, name: str
    ) -> ClusterRestart:
        """Create the restart of a cluster for this operation; nothing is requested yet."""
        return ClusterRestart(
            context,
            self._client,
            cluster_id,
            name,
            partial(self._find_fresh_cluster, context, cluster_id),
        )

    def _send_create(self, inputs: ClusterInputs) -> str:
        """Send the create request, once, and return the id of the new cluster.

        Raises:
            OutOfCapacity: TensorOne has not enough GPUs.
        """
        try:
            return self._client.create(wire.build_create(inputs)).id
        except ApiError as error:
            raise to_out_of_capacity(error) from None

    def _begin_deletion(self, cluster_id: str, body: Mapping[str, Any]) -> Conflict | None:
        """Send the deletion and return the conflict of a cluster to be stopped first, or None.

        A missing cluster is no error. Raises GpuformError if a 404 contradicts what reads still
        show.
        """
        try:
            self._client.delete(cluster_id, body)
        except NotFound as error:
            remaining = self._find_cluster(cluster_id)
            if remaining is None or remaining.cluster.status == ClusterStatus.DELETING:
                return None
            # a 404 alone proves nothing: a proxy may send it, too
            if not self._client.writes.is_stale(remaining, {}):
                raise build_contradiction_error(error, "it still exists") from None
        except Conflict as error:
            return error
        return None

    def _find_cluster(self, cluster_id: str) -> ClusterReading | None:
        """Return the cluster, or None if deleted.

        A cluster in a stable status is read by an own request if the shared answer lacks parts of
        it. Raises Contradicted if the cluster's own 404 disagrees with TensorOne's list.
        """
        return self._client.cluster_listing.find_one(
            cluster_id,
            # No document says that lists have every field: read the cluster alone.
            lambda reading: (
                reading.cluster.status not in STABLE_STATUSES or reading.cluster.is_complete
            ),
        )

    def _find_fresh_cluster(
        self, context: ProviderContext, cluster_id: str
    ) -> ClusterReading | None:
        """Return the cluster from an answer newer than our last change; None if deleted.

        Raises:
            GpuformError: no answer was new enough within `FRESH_ANSWER_TIMEOUT_S`.
        """
        for _since in _repeat_until_fresh(context, f"cluster {cluster_id}"):
            reading = self._find_cluster(cluster_id)
            if reading is None or not self._client.writes.is_stale(
                reading, context.stored_properties
            ):
                return reading
        raise AssertionError("unreachable")

    def _list_fresh_clusters(self, context: ProviderContext) -> Sequence[ClusterReading]:
        """Return the clusters from a list newer than the call of this function.

        Raises:
            GpuformError: no list was new enough within `FRESH_ANSWER_TIMEOUT_S`.
        """
        for since in _repeat_until_fresh(context, "the list of clusters"):
            readings, as_of = self._client.list_clusters_with_age()
            if as_of is None or as_of > since:
                return readings
        raise AssertionError("unreachable")


def _measure_gpu_usage(settings: Settings, object_id: str) -> float | None:
    """Return the GPU use reported by the platform, from 0 to 1; never None.

    A stopped or missing cluster uses 0.

    Raises:
        GpuformError: the platform does not answer, or reports no use.
    """
    try:
        cluster = get_client(settings).cluster_listing.read_alone(object_id).cluster
    except NotFound:
        return 0.0
    if cluster.status == ClusterStatus.STOPPED:
        return 0.0
    used = cluster.metrics.current.gpu_utilization if cluster.metrics else None
    if used is None or not 0 <= used <= 100:
        raise GpuformError(f"tensorone: the answer about {object_id} reports no use of its GPUs")
    return used / 100


def _observe_gpu_work(settings: Settings, object_id: str) -> Observation | None:
    """Return what TensorOne's metrics show of the work on the cluster's GPUs.

    The gap of the observation says how the GPUs may be in use; a missing, stopped or idle cluster
    has none. Returns None for a running cluster without metrics: TensorOne reports nothing else
    about work.

    Raises:
        GpuformError: the platform does not answer.
    """
    client = get_client(settings)
    try:
        cluster = client.cluster_listing.read_alone(object_id).cluster
    except NotFound:
        return Observation("TensorOne")
    now, _ = get_current_context().get_platform_time(client.clock_ahead)
    return observe_use(cluster, now)


def _find_planned_changes(
    old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
) -> Iterator[FieldChange]:
    """Yield a start or stop, and the changes applied by a start, with the effect of each."""
    yield from plan_state_changes(old_outputs, declared)
    parts = (
        {k: v for k, v in values.items() if k in FIELDS_APPLIED_BY_START}
        for values in (old_outputs, declared)
    )
    for change in by_rules(ClusterInputs, *parts):
        if change.action is Action.KEEP:
            if change.path in FIELDS_APPLIED_BY_START:
                yield change
        else:
            because = change.because or describe_start_effect(change.path, old_outputs, declared)
            yield replace(change, because=because)


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """The resource kind of TensorOne's GPU clusters."""

    platform = "tensorone"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    # The limits of a free key are renewed every hour.
    timeouts = Timeouts(create=7200, update=7200, delete=7200)
    operations = ClusterOperations
    id_example = "cluster_7c2e81b0a4f3"
    relevant_permissions = (Permission.START_TERMINATED, Permission.EVICT_JOBS)
    is_eventually_consistent = True
    planned_fields = frozenset({"state", *FIELDS_APPLIED_BY_START})
    power = Power("state", "running", "stopped")
    drift_outputs = frozenset({"firewall_rules"})
    volatile_outputs = frozenset({"alerts", "estimated_termination", "updated_at"})
    hooks = KindHooks(
        count_gpus=lambda properties: parse_count(properties.get("gpu_count")),
        compute_resource_usage=describe_cluster_usage,
        get_access=describe_cluster_access,
        list_node_records=lambda object_id, inputs, outputs: (
            (build_node_record(object_id, inputs, outputs),) if outputs else ()
        ),
        measure_gpu_usage=_measure_gpu_usage,
        observe_gpu_work=_observe_gpu_work,
        judge_idleness=lambda settings, object_id, idleness: evaluate_idleness(
            get_client(settings), object_id, idleness
        ),
        read_live_metrics=lambda settings, ids: read_live_figures(get_client(settings), ids),
        get_owner_name=lambda outputs: str(
            outputs.get("owner_email") or outputs.get("owner_id") or ""
        ),
        is_off=lambda outputs: (
            outputs.get("status") in (ClusterStatus.STOPPED, ClusterStatus.STOPPING)
        ),
        decide_repairs=decide_cluster_repairs,
        get_credit=lambda _inputs, outputs: read_credit(outputs),
        find_kind_notices=lambda _inputs, outputs, now: find_cluster_notices(outputs, now),
        get_exposure=describe_cluster_exposure,
        get_creation_time=lambda outputs: to_unix_time(outputs.get("created_at")),
        is_stuck=lambda old_outputs: old_outputs.get("status") == ClusterStatus.ERROR,
        find_planned_changes=_find_planned_changes,
    )


def _remove_placement(
    inputs: Mapping[str, Any], known_inputs: Mapping[str, Any], known_outputs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return inputs without a region or GPU type of the known or an alternative placement.

    Both are no change of the declaration: outputs show the placement.
    """
    alternatives = [alternative for _, alternative in iterate_alternatives(known_inputs)]
    placement_fields = {
        name
        for name in ("region", "gpu_type")
        if inputs.get(name) == known_outputs.get(f"placed_{name}")
        or any(other.get(name) == inputs.get(name) for other in alternatives)
    }
    return {name: value for name, value in inputs.items() if name not in placement_fields}


def _to_candidate(reading: ClusterReading) -> Candidate:
    """Convert a reading to a candidate of an exactly-once create."""
    cluster = reading.cluster
    configuration = cluster.configuration or wire.Configuration()
    return Candidate(
        cluster.id,
        to_unix_time(cluster.created_at),
        is_being_deleted=cluster.status == ClusterStatus.DELETING,
        region=configuration.region or "",
        gpu_type=configuration.gpu_type or "",
        reported_properties={
            name: getattr(cluster.configuration, name, None) for name in DISTINGUISHING_FIELDS
        },
    )


def _repeat_until_fresh(context: ProviderContext, label: str) -> Iterator[float]:
    """Yield before each attempt to read a new enough answer, with pauses; the caller ends the loop.

    Each value is the time of the first attempt, which an answer has to be newer than.

    Raises:
        GpuformError: no answer was new enough within `FRESH_ANSWER_TIMEOUT_S`.
    """
    began_at = context.clock.now()
    while True:
        yield began_at
        if context.clock.now() >= began_at + FRESH_ANSWER_TIMEOUT_S:
            raise GpuformError(
                f"TensorOne repeats the state from before the last change ({label})",
                hint="run the command again in a few minutes",
            )
        context.on_progress("the answer is older than the last change; asking again")
        context.sleep(FRESH_ANSWER_PAUSE_S)
