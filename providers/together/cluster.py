"""Create, read, change and delete Together's GPU clusters.

`gpuform.providers.lifecycle` calls `ClusterOperations` through `ClusterLifecycle`, whose dotted
path is in state files. The work is in `client` (requests), `cluster_view` (answers), `node_removal`
(removal of nodes), `repairing` (repairs) and `workers` (Kubernetes and Slurm).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gpuform.providers.context import (
    PollResult,
    PollSchedule,
    ProviderContext,
    build_capacity_error,
    parse_wait_seconds,
    try_until_capacity,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import GpuformError, NotFound, NotReady, NotShown, OutOfCapacity
from gpuform.providers.http import build_contradiction_error
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import PROPAGATION_TIME_S, Drains, Intent, Repairs, Target
from gpuform.providers.together import regions
from gpuform.providers.together.client import (
    find_write_refusal,
    get_client,
    reject_unusable_volume,
    wait_until_volume_is_released,
)
from gpuform.providers.together.cluster_facts import (
    describe_cluster_access,
    describe_cluster_placement,
    describe_cluster_replacement,
    describe_cluster_usage,
    find_cluster_deletion_guard,
    list_cluster_nodes,
    list_reservations,
)
from gpuform.providers.together.cluster_view import (
    ObservedCluster,
    are_workers_accepted,
    build_node_event_notices,
    decode_kube_config,
    describe_cluster_credit,
    evaluate_cluster,
    find_node_count_notices,
    find_scaling_maximum,
    find_system_changes,
    is_elastic,
    is_within_scaling_range,
)
from gpuform.providers.together.node_removal import (
    ClusterNodeRemoval,
    get_slurm_inputs,
    parse_drain_inputs,
)
from gpuform.providers.together.regions import (
    complete_project,
    format_recorded_project,
    list_in_projects,
)
from gpuform.providers.together.repairing import ClusterRepairRun, add_faults
from gpuform.providers.together.repairs import (
    build_repair_notices,
    decide_cluster_repairs,
    list_remediations,
)
from gpuform.providers.together.workers import (
    add_worker_states,
    add_workers_to_poll,
    find_worker_notices,
)
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.policies.repair import iterate_alternatives
from gpuform.schemas.together import wire
from gpuform.schemas.together.inputs import ClusterInputs
from gpuform.schemas.together.outputs import (
    READY_CLUSTER_STATUSES,
    STUCK_CLUSTER_MESSAGES,
    ClusterOutputs,
    ClusterStatus,
)
from gpuform.schemas.values import parse_count, to_unix_time

POLL_INTERVAL_S = 30.0
"""Longest pause between two polls, in seconds: a create takes many minutes."""

DISTINGUISHING_FIELDS = (
    "cluster_type",
    "num_gpus",
    "billing_type",
    "cuda_version",
    "nvidia_driver_version",
    "project_id",
)
"""Fields that distinguish the cluster of our own request from another one of the name."""


class ClusterOperations:
    """The operations of a cluster."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._client = settings, get_client(settings)

    def find_planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Yield problems with the reservation, a kept volume, region, GPU type and drivers.

        A volume is only compared with the one that `rollout.keep_volume` keeps. Alternatives are
        checked only if the first choice has no problem. If Together does not answer, nothing is
        refused, and the context reports the missing check.
        """
        problems = [
            *_find_past_reservations(context, values),
            *_find_volume_problems(context, values),
            *regions.find_region_problems(self._client, context, values),
        ]
        yield from problems
        # problems of the first choice come first: alternatives repeat most of them
        for path, alternative in () if problems else iterate_alternatives(values):
            for problem in regions.find_region_problems(
                self._client, context, {**values, **alternative}
            ):
                name = problem.path if problem.path in alternative else next(iter(alternative))
                yield Problem(f"{path}.{name}", problem.reason)

    def create(self, context: ProviderContext, inputs: ClusterInputs) -> str:
        """Create a cluster with a usable shared volume, and return the id.

        Waits for capacity as declared. A cluster that an earlier attempt has created is found
        again.

        Raises:
            OutOfCapacity: every alternative was tried; the error names them.
            GpuformError: the volume is unusable, or Together refuses; see `create_once` for the
                others.
        """
        target = _build_target(context, inputs.cluster_name, inputs.region)
        creation = Creation(
            target,
            partial(self._list_candidates, context.intents.find(context.urn, target), inputs),
            exists=lambda cluster_id: self._find_cluster(cluster_id, inputs.project_id) is not None,
            attempts=[
                Attempt(
                    partial(self._client.create_cluster, placed_inputs),
                    placed_inputs.region,
                    placed_inputs.gpu_type,
                    _extract_sent_values(placed_inputs),
                )
                for placed_inputs in inputs.iterate_placements()
            ],
            # checked right before the request: no cluster is created that could not use its volume
            check_before_request=lambda: reject_unusable_volume(self._client, inputs),
            capacity_wait_s=_get_capacity_wait(inputs),
            clock_ahead=lambda: self._client.clock_ahead,
            project=format_recorded_project(context, inputs.project_id),
        )
        try:
            with context.extend_deadline(creation.capacity_wait_s):
                return create_once(context, creation)
        except OutOfCapacity as error:
            missing_capacity = [
                _describe_capacity(inputs, placed_inputs.gpu_type, placed_inputs.region)
                for placed_inputs in inputs.iterate_placements()
            ]
            raise _build_out_of_stock_error(error, inputs, missing_capacity, "created") from None

    def _list_candidates(
        self, earlier_intent: Intent | None, inputs: ClusterInputs
    ) -> list[Candidate]:
        """Return the clusters of the declared name, which the create may have made."""
        return [
            Candidate(
                cluster.cluster_id,
                to_unix_time(cluster.created_at),
                is_being_deleted=cluster.status == ClusterStatus.DELETING,
                is_elsewhere=is_elsewhere,
                region=cluster.region,
                gpu_type=cluster.gpu_type,
                reported_properties={
                    name: getattr(cluster, name) or None for name in DISTINGUISHING_FIELDS
                },
            )
            for cluster, is_elsewhere in list_in_projects(
                earlier_intent,
                inputs.project_id,
                lambda project_id: self._client.get_cluster_listing(project_id).read_all(),
            )
            if cluster.cluster_name == inputs.cluster_name
        ]

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> ObservedCluster:
        """Wait until a cluster is Ready with live workers for all GPUs; uncordon leftovers.

        With scaling or preemptible GPUs more workers are no reason to wait. Where workers were
        unusable before, the schedulers must be able to use them, too.

        Raises:
            NotReady: the cluster is gone or has failed, the time is over, nodes may stay cordoned,
                or somebody else has changed the size, which this call has not.
        """

        def poll() -> PollResult[ObservedCluster]:
            cluster = self._find_cluster(object_id, inputs.project_id)
            if cluster is None:
                raise NotShown(f"cluster {object_id} no longer exists on the platform")
            last_cluster[:] = [cluster]
            may_have_more = is_elastic(inputs.dump_declared(), cluster)
            poll_result = evaluate_cluster(cluster, inputs.num_gpus, may_have_more=may_have_more)
            if may_have_more or not keeps_size or cluster.num_gpus in (0, inputs.num_gpus):
                resized_since.clear()
                return poll_result
            resized_since[:] = resized_since or [context.clock.now()]
            # a list that lags behind may show the size before a request of this call
            if context.clock.now() - resized_since[0] < PROPAGATION_TIME_S:
                return poll_result
            return replace(poll_result, failure=_describe_resize(cluster, inputs.num_gpus))

        last_cluster: list[wire.Cluster] = []
        resized_since: list[float] = []
        # an update that declares another size than the state's requests this size itself
        keeps_size = parse_count(context.stored_properties.get("num_gpus")) == inputs.num_gpus
        label = f"cluster {inputs.cluster_name}"
        slurm = get_slurm_inputs(inputs.dump_declared())
        poll_with_workers = add_workers_to_poll(context, poll, last_cluster, slurm)
        observed = wait_until_done(
            context, poll_with_workers, label=label, interval=self._poll_schedule
        )
        try:
            # a run that was killed during a removal may have left nodes cordoned
            self._create_removal(
                context, last_cluster[0], inputs.dump_declared()
            ).finish_earlier_drain()
        except GpuformError as error:
            raise NotReady(f"{label}: {error}", last=observed) from None
        return observed

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedCluster | None:
        """Return the cluster as Together reports the values, or None for a missing cluster.

        Uncordons leftovers of an interrupted removal, except in a preview. Node counts that the
        platform changes on its own and the placement of the cluster are left out of the inputs, so
        that a plan shows no drift; an import keeps the placement. Only a call that changes nothing
        asks the schedulers and looks for faults.
        """
        cluster = self._find_cluster(object_id, known_inputs.get("project_id"))
        if cluster is None:
            return None
        self._uncordon_leftovers(context, cluster, known_inputs)
        has_elastic_nodes = is_elastic(known_inputs, cluster)
        standard_gpus = cluster.num_gpus - (
            cluster.allocated_preemptible_gpus if has_elastic_nodes else 0
        )
        observed = evaluate_cluster(cluster, standard_gpus, may_have_more=has_elastic_nodes).value
        inputs = dict(observed.inputs)
        if known_inputs:
            for name in _find_expected_placement(inputs, known_inputs, context.stored_properties):
                del inputs[name]
        if has_elastic_nodes and is_within_scaling_range(known_inputs, cluster):
            del inputs["num_gpus"]
        observed = Observed(inputs, observed.outputs)
        # an operation that changes the cluster asks its schedulers itself
        if not context.is_read_only:
            return observed
        observed = add_worker_states(context, observed, cluster, get_slurm_inputs(known_inputs))
        return add_faults(context, observed, cluster, known_inputs, self._settings, self._client)

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Send one request with the changed fields, then repair broken nodes a few at a time.

        A smaller cluster loses the nodes that the declaration names or that run the least, and none
        with a job. Growth may wait for capacity. A removal or repair of an interrupted run is
        finished.

        Raises:
            GpuformError: Together refuses, a repair fails, or jobs keep a node.
        """
        repairs = [change.repair for change in changes if change.repair is not None]
        other_changes = [change for change in changes if change.repair is None]
        repair_run = self._create_repair_run(context, object_id, inputs)
        # an interrupted repair has nodes cordoned: it is finished even if the new plan repairs
        # nothing
        if repairs or repair_run.is_interrupted:
            if other_changes:
                self._apply_changes(context, object_id, inputs, other_changes)
            repair_run.run(repairs)
        else:
            self._apply_changes(context, object_id, inputs, other_changes)

    def _apply_changes(
        self,
        context: ProviderContext,
        cluster_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Send the changed fields; drain the nodes first if the cluster gets smaller.

        Without changes an interrupted removal is finished. A removal under way is waited for.
        """
        wanted_gpus = (
            inputs.num_gpus
            if any(field_change.path == "num_gpus" for field_change in changes)
            else None
        )
        send = partial(self._send_changes, context, cluster_id, inputs)
        # without a new node count and without an interrupted drain no scheduler has to be asked
        if wanted_gpus is None and Drains.from_intents(context.intents).find(cluster_id) is None:
            send(changes)
            return
        cluster = self._find_cluster(cluster_id, inputs.project_id)
        if cluster is None:
            send(changes)  # the platform says that it is gone
            return
        removal = self._create_removal(context, cluster, inputs.dump_declared())
        # two removals at once could take nodes that nobody chose
        if changes and removal.is_under_way:
            removal = self._wait_for_earlier_removal(context, cluster_id, inputs)
        if changes:
            drained_count = removal.count_removed_nodes(wanted_gpus)
            removal.send_update(partial(send, changes, drained_count), wanted_gpus)
        else:
            removal.resume_earlier_drain(lambda change: send([change]), inputs.num_gpus)

    def _wait_for_earlier_removal(
        self, context: ProviderContext, cluster_id: str, inputs: ClusterInputs
    ) -> ClusterNodeRemoval:
        """Wait until the platform has ended the removal of an earlier run, and uncordon leftovers.

        Returns a removal for the cluster as read last. Raises GpuformError if the cluster is gone
        or nodes stay cordoned, and NotReady at the deadline.
        """

        def poll() -> PollResult[ClusterNodeRemoval]:
            cluster = self._require_cluster(cluster_id, inputs.project_id)
            removal = self._create_removal(context, cluster, inputs.dump_declared())
            return PollResult(removal, cluster.status, is_done=not removal.is_under_way)

        label = f"removal of nodes from cluster {inputs.cluster_name}"
        removal = wait_until_done(context, poll, label=label, interval=self._poll_schedule)
        removal.finish_earlier_drain()
        return removal

    def predict_removed_nodes(
        self, context: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> RemovedNodes | None:
        """Predict which nodes an update would now remove or repair; None for a missing cluster.

        Raises:
            InvalidNodeNames: declared names do not fit the nodes of the cluster.
        """
        cluster = self._find_cluster(object_id, inputs.project_id)
        if cluster is None:
            return None
        # an update sends the node count only if it differs from the stored one
        is_resized = parse_count(context.stored_properties.get("num_gpus")) != inputs.num_gpus
        decision = decide_cluster_repairs(context.stored_properties, inputs.dump_declared())
        repaired_nodes = [
            repair.node for repair in decision.due_repairs if not repair.is_withdrawal
        ]
        return self._create_removal(context, cluster, inputs.dump_declared()).predict_removed_nodes(
            inputs.num_gpus if is_resized else None, repaired_nodes
        )

    def predict_nodes_removed_with_object(
        self,
        context: ProviderContext,
        object_id: str,
        known_inputs: Mapping[str, Any],
        because: str,
    ) -> RemovedNodes | None:
        """Predict all nodes as removed with the cluster, for the reason `because`.

        None if the cluster is missing or is being deleted. The jobs are unknown without a control
        plane, or if no scheduler reports them, which is reported as a skipped check.
        """
        cluster = self._find_cluster(object_id, known_inputs.get("project_id"))
        if cluster is None or cluster.status == ClusterStatus.DELETING:
            return None
        return self._create_removal(context, cluster, known_inputs).predict_all_removed_nodes(
            because
        )

    def uncordon_leftover_nodes(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Do nothing: the nodes are deleted with their cluster."""

    def _send_changes(
        self,
        context: ProviderContext,
        cluster_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],
        drained_count: int = 0,
    ) -> None:
        """Send the changed fields in one request; retry while capacity is missing, as declared.

        Before each attempt the cluster is read again: a new node count may not remove more nodes
        than the `drained_count` ones.

        Raises:
            OutOfCapacity: there was no capacity in time.
            UnplannedRemoval: somebody has enlarged the cluster meanwhile.
        """

        def require_drained() -> None:
            cluster = self._find_cluster(cluster_id, inputs.project_id) if is_resized else None
            if cluster is not None:
                removal = self._create_removal(context, cluster, inputs.dump_declared())
                removal.require_drained(inputs.num_gpus, drained_count)

        is_resized = any(field_change.path == "num_gpus" for field_change in changes)
        send = partial(self._client.update_cluster, cluster_id, inputs, changes)
        try:
            with (
                context.extend_deadline(_get_capacity_wait(inputs)),
                context.run_before_each_change(require_drained),
            ):
                try_until_capacity(context, [send], _get_capacity_wait(inputs))
        except OutOfCapacity as error:
            cluster = self._find_cluster(cluster_id, inputs.project_id)
            region = cluster.region if cluster else inputs.region
            gpu_type = cluster.gpu_type if cluster else inputs.gpu_type
            missing_capacity = [_describe_capacity(inputs, gpu_type, region)]
            raise _build_out_of_stock_error(error, inputs, missing_capacity, "changed") from None

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Drain all nodes and delete the cluster, and wait for the release of volumes.

        A cluster that is being deleted already is not drained. Forgets the records of repairs. A
        missing cluster is no error, and a volume that is not released in time is a warning.

        Raises:
            GpuformError: jobs keep the nodes, Together refuses, or the time is over.
        """
        volume_ids = {known_inputs["volume_id"]} if known_inputs.get("volume_id") else set()
        project_id = known_inputs.get("project_id")

        def poll() -> PollResult[object] | None:
            cluster = self._find_cluster(object_id, project_id)
            if cluster is None:
                return None
            # a cluster may have volumes that the declaration does not name
            volume_ids.update(volume.volume_id for volume in cluster.volumes)
            return PollResult(None, cluster.status)

        label = f"cluster {known_inputs.get('cluster_name') or object_id}"
        request = partial(self._client.delete_cluster, object_id)
        existing_cluster = self._find_cluster(object_id, project_id)
        try:
            if existing_cluster is None or existing_cluster.status == ClusterStatus.DELETING:
                request()
            else:
                self._create_removal(context, existing_cluster, known_inputs).send_deletion(request)
        except NotFound as error:
            remaining_cluster = self._find_cluster(object_id, project_id)
            # a 404 alone proves nothing: a proxy may send it, too
            if remaining_cluster is not None and remaining_cluster.status != ClusterStatus.DELETING:
                raise build_contradiction_error(error, "it still exists") from None
        wait_until_gone(context, poll, label=label, interval=self._poll_schedule)
        Repairs.from_intents(context.intents).forget(object_id)
        # a volume is deleted right after its cluster: a volume still bound would refuse that
        for volume_id in sorted(volume_ids):
            wait_until_volume_is_released(
                context, self._client, volume_id, project_id, self._poll_schedule
            )

    @property
    def _poll_schedule(self) -> PollSchedule:
        """Return the poll schedule shared by all waiters for clusters."""
        return self._client.get_poll_schedule(POLL_INTERVAL_S)

    def _create_removal(
        self, context: ProviderContext, cluster: wire.Cluster, declared: Mapping[str, Any]
    ) -> ClusterNodeRemoval:
        """Create the removal of nodes from the cluster, under the declared `drain`."""
        kube_config = decode_kube_config(cluster.kube_config.get_secret_value())
        max_gpus = find_scaling_maximum(declared, cluster)
        drain_inputs = parse_drain_inputs(declared)
        return ClusterNodeRemoval(context, cluster, kube_config, drain_inputs, max_gpus)

    def _create_repair_run(
        self, context: ProviderContext, cluster_id: str, inputs: ClusterInputs
    ) -> ClusterRepairRun:
        """Create the run for an update's repairs; nothing is requested yet."""
        return ClusterRepairRun(
            context,
            self._client,
            self._settings,
            inputs,
            cluster_id,
            partial(self._require_cluster, cluster_id, inputs.project_id),
            lambda cluster: self._create_removal(context, cluster, inputs.dump_declared()),
            self._poll_schedule,
        )

    def _uncordon_leftovers(
        self, context: ProviderContext, cluster: wire.Cluster, known_inputs: Mapping[str, Any]
    ) -> None:
        """Uncordon the leftover nodes of an interrupted removal, except in a preview.

        A failure is only a warning.
        """
        if context.preview:
            return
        try:
            self._create_removal(context, cluster, known_inputs).finish_earlier_drain()
        # a read that fails for this would hide the cluster: the nodes stay cordoned, with a warning
        except GpuformError as error:
            context.on_warning(str(error))

    def _find_cluster(self, cluster_id: str, project_id: str | None) -> wire.Cluster | None:
        """Return the cluster, or None if Together has none with the id.

        A ready cluster that a list shows without a kubeconfig is read alone. Raises Contradicted if
        the cluster's own 404 disagrees with Together's list.
        """
        return self._client.get_cluster_listing(project_id).find_one(
            cluster_id,
            # No document says that lists have credentials: read the cluster alone.
            lambda cluster: (
                cluster.status not in READY_CLUSTER_STATUSES or bool(cluster.kube_config)
            ),
        )

    def _require_cluster(self, cluster_id: str, project_id: str | None) -> wire.Cluster:
        """Return the cluster. Raises GpuformError if Together has none with the id."""
        cluster = self._find_cluster(cluster_id, project_id)
        if cluster is None:
            raise GpuformError(f"cluster {cluster_id} no longer exists on the platform")
        return cluster


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """The resource kind of Together's GPU clusters."""

    platform = "together"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    timeouts = Timeouts(create=5400, update=5400, delete=3600)
    operations = ClusterOperations
    id_example = "0f11e35c-a155-4e89-9e21-3f8ed2f99a2d"
    relevant_permissions = (Permission.DESTROY_RESERVED,)
    is_eventually_consistent = True
    drift_outputs = frozenset({"installed_version_id", "os_image"})
    volatile_outputs = frozenset({"node_events"})
    hooks = KindHooks(
        find_observed_news=build_node_event_notices,
        find_planned_changes=find_system_changes,
        get_credit=describe_cluster_credit,
        find_kind_notices=lambda _inputs, outputs, now: (
            *find_worker_notices(outputs),
            *find_node_count_notices(outputs),
            *build_repair_notices(outputs, now),
        ),
        find_write_refusal=find_write_refusal,
        count_gpus=lambda properties: parse_count(properties.get("num_gpus")),
        compute_resource_usage=describe_cluster_usage,
        get_access=describe_cluster_access,
        get_placement=describe_cluster_placement,
        list_node_records=lambda _object_id, inputs, outputs: list_cluster_nodes(inputs, outputs),
        list_agenda_entries=list_reservations,
        list_observed_repairs=list_remediations,
        get_creation_time=lambda outputs: to_unix_time(outputs.get("created_at")),
        is_stuck=lambda old_outputs: old_outputs.get("status") in STUCK_CLUSTER_MESSAGES,
        is_accepted=are_workers_accepted,
        decide_repairs=decide_cluster_repairs,
        should_create_first=lambda declared: declared.get("rollout") is not None,
        describe_replacement=describe_cluster_replacement,
        find_deletion_guard=find_cluster_deletion_guard,
    )

    def _complete_inputs(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Problem]]:
        """Return the inputs with the project of the cluster, if one is known, and no problems."""
        name, region = str(values.get("cluster_name")), str(values.get("region"))
        target = _build_target(context, name, region)
        return complete_project(self._settings or Settings(), context, values, target), []


def _describe_resize(cluster: wire.Cluster, num_gpus: int) -> str:
    """Return why waiting for a cluster of `num_gpus` GPUs is in vain, and what to do."""
    return (
        f"somebody else has changed num_gpus from {num_gpus} to {cluster.num_gpus} during this "
        f"run, which does not change it back: declare {cluster.num_gpus}, or run `gpuform up "
        "--refresh`, whose plan shows the change back"
    )


def _build_target(context: ProviderContext, cluster_name: str, region: str) -> Target:
    """Build the target of a cluster's create, under which the create is recorded."""
    return Target("together", "Cluster", context.redact_for_record(cluster_name), region)


def _find_expected_placement(
    inputs: Mapping[str, Any], known_inputs: Mapping[str, Any], known_outputs: Mapping[str, Any]
) -> list[str]:
    """Return which of region and GPU type, as Together reports them, are no drift.

    The placement of a known cluster may be a declared alternative: only outputs show it. The read
    of an import knows no placement yet, so that another one than the declared ones refuses it.
    """
    alternatives = [alternative for _, alternative in iterate_alternatives(known_inputs)]
    return [
        name
        for name in ("region", "gpu_type")
        if not inputs[name]  # not reported
        or known_outputs.get(f"placed_{name}") is not None
        or any(alternative.get(name) == inputs[name] for alternative in alternatives)
    ]


def _extract_sent_values(inputs: ClusterInputs) -> dict[str, Any]:
    """Return the values of `DISTINGUISHING_FIELDS` in the create request, without absent ones."""
    body = wire.build_cluster_create(inputs)
    return {name: body[name] for name in DISTINGUISHING_FIELDS if body.get(name) is not None}


def _find_past_reservations(
    context: ProviderContext, values: Mapping[str, Any]
) -> Iterator[Problem]:
    """Yield a problem if a new cluster's reservation has ended already."""
    end = values.get("reservation_end_time")
    moment = to_unix_time(end)
    if moment is not None and not context.stored_properties and moment <= context.clock.now():
        yield Problem(
            "reservation_end_time",
            f"{end} is in the past: declare a later end, or remove the cluster",
        )


def _find_volume_problems(context: ProviderContext, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem if `rollout.keep_volume` is declared with another volume than before."""
    rollout, known_volume_id = values.get("rollout"), context.stored_properties.get("volume_id")
    keeps_volume = isinstance(rollout, Mapping) and rollout.get("keep_volume") is True
    if keeps_volume and known_volume_id not in (None, values.get("volume_id")):
        reason = (
            "rollout.keep_volume keeps the volume: declare the same volume, or remove keep_volume"
        )
        yield Problem("volume_id", reason)


def _get_capacity_wait(inputs: ClusterInputs) -> float:
    """Return how many seconds the declaration lets a request wait for capacity."""
    return parse_wait_seconds(inputs.dump_declared().get("on_no_capacity"))


def _describe_capacity(inputs: ClusterInputs, gpu_type: str, region: str) -> str:
    """Return the requested capacity in words, as `8 h100 GPUs free in us-east`."""
    return f"{inputs.num_gpus} {gpu_type} GPU{'s' * (inputs.num_gpus != 1)} free in {region}"


def _build_out_of_stock_error(
    error: OutOfCapacity, inputs: ClusterInputs, missing_capacity: Sequence[str], verb: str
) -> OutOfCapacity:
    """Build the error about missing capacity; `verb` is `created` or `changed`."""
    hint = "try again later, or declare another region, another gpu_type or fewer num_gpus"
    is_searched = inputs.on_no_capacity is not None
    return build_capacity_error(
        error, "Together", missing_capacity, verb, hint, is_searched=is_searched
    )
