"""Together's GPU cluster: what it takes to make, change and delete one."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpuform.providers.context import (
    PollResult,
    PollSchedule,
    ProviderContext,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.creating import (
    Attempt,
    Candidate,
    Creation,
    create_once,
    first_with_capacity,
    none_free,
    patience_of,
)
from gpuform.providers.errors import GpuformError, NotFound, NotReady, OutOfCapacity
from gpuform.providers.http import contradicted
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Guard, Observed, Settings, Timeouts
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Drains, Repairs, Target
from gpuform.providers.repairing import Decision
from gpuform.providers.together import regions
from gpuform.providers.together.client import (
    client_for,
    find_write_refusal,
    reject_unusable_volume,
    wait_until_volume_is_released,
)
from gpuform.providers.together.cluster_facts import (
    describe_cluster_access,
    describe_cluster_placement,
    describe_cluster_usage,
)
from gpuform.providers.together.cluster_view import (
    ObservedCluster,
    are_workers_accepted,
    decode_kube_config,
    describe_cluster_credit,
    evaluate_cluster,
    is_elastic,
    is_gpu_count_explained,
)
from gpuform.providers.together.repairing import Repairing, with_faults
from gpuform.providers.together.repairs import decide_cluster_repairs
from gpuform.providers.together.shrinking import Shrinking, drain_of, slurm_of
from gpuform.providers.together.workers import (
    has_failing_workers,
    look_at_workers,
    waited_for,
    with_workers,
    worker_notices,
)
from gpuform.schemas.access import Access
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.policies.repair import iterate_alternatives
from gpuform.schemas.resource_facts import Credit, Notice, ResourcePlacement, ResourceUsage
from gpuform.schemas.together import requests, wire
from gpuform.schemas.together.inputs import ClusterInputs
from gpuform.schemas.together.outputs import ClusterOutputs
from gpuform.schemas.together.statuses import (
    READY_CLUSTER_STATUSES,
    STUCK_CLUSTER_MESSAGES,
    ClusterStatus,
    to_unix_time,
)

INTERVAL = 30.0
"""Seconds between looks at the most: creating one takes many minutes."""

SHOWN = ("num_gpus", "billing_type", "cuda_version", "nvidia_driver_version")
"""What tells a cluster that we have asked for from another one of its name."""


class ClusterActions:
    """The verbs of a cluster."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._client = settings, client_for(settings)

    def planning_problems(
        self, call: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """The region, its GPU types and its drivers; then those of the alternatives."""
        found = [
            *_volume_problems(call, values),
            *regions.find_region_problems(self._client, call, values),
        ]
        yield from found
        for place, alternative in () if found else iterate_alternatives(values):
            for problem in regions.find_region_problems(
                self._client, call, {**values, **alternative}
            ):
                name = problem.path if problem.path in alternative else next(iter(alternative))
                yield Problem(f"{place}.{name}", problem.reason)

    def create(self, call: ProviderContext, inputs: ClusterInputs) -> str:
        """Its shared volume has to be usable; OutOfCapacity names all that was tried."""

        def candidates() -> list[Candidate]:
            return [
                Candidate(
                    each.cluster_id,
                    to_unix_time(each.created_at),
                    leaving=each.status == ClusterStatus.DELETING,
                    region=each.region,
                    gpu_type=each.gpu_type,
                    shown={name: getattr(each, name) or None for name in SHOWN},
                )
                for each in self._client.get_shared_clusters(inputs.project_id).all()
                if each.cluster_name == inputs.cluster_name
            ]

        creation = Creation(
            Target(
                "together", "Cluster", call.redact_for_record(inputs.cluster_name), inputs.region
            ),
            candidates,
            exists=lambda id_: self._find(id_, inputs.project_id) is not None,
            attempts=[
                Attempt(partial(self._send, placed), placed.region, placed.gpu_type, _sent(placed))
                for placed in inputs.iterate_placements()
            ],
            before=lambda: reject_unusable_volume(self._client, inputs),
            patience=_patience(inputs),
            clock_ahead=lambda: self._client.clock_ahead,
        )
        try:
            with call.extend_deadline(creation.patience):
                return create_once(call, creation)
        except OutOfCapacity as error:
            wanted = [
                _capacity(inputs, each.gpu_type, each.region)
                for each in inputs.iterate_placements()
            ]
            raise _out_of_stock(error, inputs, wanted, "created") from None

    def wait_until_ready(
        self, call: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> ObservedCluster:
        """Ready, with a live worker for every 8 GPUs."""

        def probe() -> PollResult[ObservedCluster]:
            cluster = self._find(object_id, inputs.project_id)
            if cluster is None:
                raise NotReady(f"cluster {object_id} is gone from the platform")
            last[:] = [cluster]
            may_have_more = is_elastic(inputs.dump_declared(), cluster)
            return evaluate_cluster(cluster, inputs.num_gpus, may_have_more=may_have_more)

        last: list[wire.Cluster] = []
        what = f"cluster {inputs.cluster_name}"
        look = self._with_workers(call, inputs, probe, last)
        seen = wait_until_done(call, look, label=what, interval=self._rhythm)
        try:
            self._shrinking(call, last[0], inputs.dump_declared()).conclude()
        except GpuformError as error:
            raise NotReady(f"{what}: {error}", last=seen) from None
        return seen

    def read(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedCluster | None:
        """What the platform itself changes, and where it has put the cluster, is no drift."""
        cluster = self._find(object_id, known_inputs.get("project_id"))
        if cluster is None:
            return None
        self._mend(call, cluster, known_inputs)
        changes_itself = is_elastic(known_inputs, cluster)
        standard = cluster.num_gpus - (cluster.allocated_preemptible_gpus if changes_itself else 0)
        seen = evaluate_cluster(cluster, standard, may_have_more=changes_itself).value
        inputs = dict(seen.inputs)
        if known_inputs:
            # Where it is may be an alternative to what is declared: outputs say so, no change.
            del inputs["region"], inputs["gpu_type"]
        if changes_itself and is_gpu_count_explained(known_inputs, cluster):
            del inputs["num_gpus"]
        seen = Observed(inputs, seen.outputs)
        if not call.is_read_only:
            return seen
        seen = with_workers(call, seen, cluster, slurm_of(known_inputs))
        return with_faults(call, seen, cluster, known_inputs, self._settings, self._client)

    def update(
        self,
        call: ProviderContext,
        object_id: str,
        inputs: ClusterInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """One request with the changed fields; growing may find no capacity.

        Shrinking takes the nodes that the stack names or needs least, and no job's. Then broken
        nodes are repaired, one after the other.
        """
        repairs = [each.repair for each in changes if each.repair is not None]
        others = [each for each in changes if each.repair is None]
        repairing = self._repairing(call, object_id, inputs)
        if repairs or repairing.is_interrupted:
            if others:
                self._change(call, object_id, inputs, others)
            repairing.run(repairs)
        else:
            self._change(call, object_id, inputs, others)

    def _change(
        self, call: ProviderContext, id_: str, want: ClusterInputs, changes: Sequence[FieldChange]
    ) -> None:
        count = want.num_gpus if any(each.path == "num_gpus" for each in changes) else None
        send = partial(self._send_changes, call, id_, want)
        if count is None and Drains.beside(call.intents).find(id_) is None:
            send(changes)
            return
        cluster = self._find(id_, want.project_id)
        if cluster is None:
            send(changes)  # the platform says that it is gone
            return
        shrinking = self._shrinking(call, cluster, want.dump_declared())
        if changes and shrinking.is_under_way:
            shrinking = self._after_removal(call, id_, want)
        if changes:
            shrinking.send(partial(send, changes), count)
        else:
            shrinking.resume(lambda change: send([change]), want.num_gpus)

    def _after_removal(self, call: ProviderContext, id_: str, want: ClusterInputs) -> Shrinking:
        """The cluster once the platform is done with the removal that an earlier run asked for."""

        def probe() -> PollResult[Shrinking]:
            cluster = self._find(id_, want.project_id)
            if cluster is None:
                raise GpuformError(f"cluster {id_} is gone from the platform")
            found = self._shrinking(call, cluster, want.dump_declared())
            return PollResult(found, cluster.status, is_done=not found.is_under_way)

        what = f"removal of nodes from cluster {want.cluster_name}"
        found = wait_until_done(call, probe, label=what, interval=self._rhythm)
        found.conclude()
        return found

    def predict_removed_nodes(
        self, call: ProviderContext, object_id: str, inputs: ClusterInputs
    ) -> RemovedNodes | None:
        """The nodes that an update would take away now; None when it takes none."""
        cluster = self._find(object_id, inputs.project_id)
        if cluster is None:
            return None
        decided = decide_cluster_repairs(call.stored_properties, inputs.dump_declared())
        repaired = [each.node for each in decided.due]
        return self._shrinking(call, cluster, inputs.dump_declared()).leaving(
            inputs.num_gpus, repaired
        )

    def predict_nodes_removed_with_object(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any], because: str
    ) -> RemovedNodes | None:
        """All nodes, which go with the cluster."""
        cluster = self._find(object_id, known_inputs.get("project_id"))
        if cluster is None or cluster.status == ClusterStatus.DELETING:
            return None
        return self._shrinking(call, cluster, known_inputs).all_leaving(because)

    def uncordon_leftover_nodes(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Nothing: who could be cordoned has gone with the cluster."""

    def _send_changes(
        self, call: ProviderContext, id_: str, want: ClusterInputs, changes: Sequence[FieldChange]
    ) -> None:
        send = partial(self._client.update_cluster, id_, want, changes)
        try:
            with call.extend_deadline(_patience(want)):
                first_with_capacity(call, [send], _patience(want))
        except OutOfCapacity as error:
            cluster = self._find(id_, want.project_id)
            where = cluster.region if cluster else want.region
            kind = cluster.gpu_type if cluster else want.gpu_type
            wanted = [_capacity(want, kind, where)]
            raise _out_of_stock(error, want, wanted, "changed") from None

    def delete(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """When no job runs on its nodes; done when it answers 404 and its volumes are released."""
        volumes = {known_inputs["volume_id"]} if known_inputs.get("volume_id") else set()
        project_id = known_inputs.get("project_id")

        def probe() -> PollResult[object] | None:
            cluster = self._find(object_id, project_id)
            if cluster is None:
                return None
            volumes.update(volume.volume_id for volume in cluster.volumes)
            return PollResult(None, cluster.status)

        what = f"cluster {known_inputs.get('cluster_name') or object_id}"
        request = partial(self._client.delete_cluster, object_id)
        there = self._find(object_id, project_id)
        try:
            if there is None or there.status == ClusterStatus.DELETING:
                request()
            else:
                self._shrinking(call, there, known_inputs).send_deletion(request)
        except NotFound as error:
            left = self._find(object_id, project_id)
            if left is not None and left.status != ClusterStatus.DELETING:
                raise contradicted(error, "it is still there") from None
        wait_until_gone(call, probe, label=what, interval=self._rhythm)
        Repairs.beside(call.intents).forget(object_id)
        for volume_id in sorted(volumes):
            wait_until_volume_is_released(call, self._client, volume_id, project_id, self._rhythm)

    def _with_workers(
        self,
        call: ProviderContext,
        want: ClusterInputs,
        probe: Callable[[], PollResult[ObservedCluster]],
        last: Sequence[wire.Cluster],
    ) -> Callable[[], PollResult[ObservedCluster]]:
        """`probe`, which asks for the workers, too, where one could not be used before."""
        if not has_failing_workers(call.stored_properties):
            return probe
        began: list[float] = []

        def look() -> PollResult[ObservedCluster]:
            seen = probe()
            if not seen.is_done:
                return seen
            found = look_at_workers(call, last[0], slurm_of(want.dump_declared()))
            began[:] = began or [call.clock.now()]
            return waited_for(seen, found, call.clock.now() - began[0])

        return look

    @property
    def _rhythm(self) -> PollSchedule:
        return self._client.get_poll_schedule(INTERVAL)

    def _shrinking(
        self, call: ProviderContext, cluster: wire.Cluster, declared: Mapping[str, Any]
    ) -> Shrinking:
        kube_config = decode_kube_config(cluster.kube_config.get_secret_value())
        return Shrinking(call, cluster, kube_config, drain_of(declared))

    def _repairing(self, call: ProviderContext, id_: str, want: ClusterInputs) -> Repairing:
        def find() -> wire.Cluster:
            cluster = self._find(id_, want.project_id)
            if cluster is None:
                raise GpuformError(f"cluster {id_} is gone from the platform")
            return cluster

        return Repairing(
            call,
            self._client,
            self._settings,
            want,
            id_,
            find,
            lambda cluster: self._shrinking(call, cluster, want.dump_declared()),
            self._rhythm,
        )

    def _mend(self, call: ProviderContext, cluster: wire.Cluster, known: Mapping[str, Any]) -> None:
        """Uncordons what an interrupted removal has left, unless somebody only looks."""
        if call.preview:
            return
        try:
            self._shrinking(call, cluster, known).conclude()
        except GpuformError as error:
            call.on_warning(str(error))

    def _find(self, id_: str, project_id: str | None) -> wire.Cluster | None:
        try:
            cluster = self._client.get_shared_clusters(project_id).one(id_)
            if cluster.status in READY_CLUSTER_STATUSES and not cluster.kube_config:
                # Nothing says that lists have credentials: look at the cluster alone.
                cluster = self._client.get_shared_clusters(project_id).alone(id_)
        except NotFound:
            return None
        return cluster

    def _send(self, want: ClusterInputs) -> str:
        return self._client.create_cluster(want).cluster_id


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """A GPU cluster of Together."""

    platform = "together"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    timeouts = Timeouts(create=5400, update=5400, delete=3600)
    operations = ClusterActions
    id_example = "0f11e35c-a155-4e89-9e21-3f8ed2f99a2d"
    relevant_permissions = (Permission.DESTROY_RESERVED,)
    is_eventually_consistent = True
    gpus_field = "num_gpus"

    @classmethod
    def get_credit(cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Credit | None:
        """Compute on demand is paused, reserved compute is not."""
        return describe_cluster_credit(inputs, outputs)

    @classmethod
    def list_notices(
        cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any], now: float
    ) -> Iterable[Notice]:
        """Its end, and the workers that take no new work."""
        return (*super().list_notices(inputs, outputs, now), *worker_notices(outputs))

    @classmethod
    def find_write_refusal(cls, settings: Settings) -> str:
        """Clusters and volumes are of the control plane, which a Member may only see."""
        return find_write_refusal(settings)

    @classmethod
    def compute_resource_usage(
        cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
    ) -> ResourceUsage:
        """GPUs by the way they are paid for, and a volume that comes with it."""
        return describe_cluster_usage(inputs, outputs)

    @classmethod
    def get_access(cls, outputs: Mapping[str, Any]) -> Access | None:
        """Its kubeconfig, its workers by SSH, and Slurm's login node."""
        return describe_cluster_access(outputs)

    @classmethod
    def get_placement(cls, outputs: Mapping[str, Any]) -> ResourcePlacement | None:
        """Its region; Together tells no fabric and no switch."""
        return describe_cluster_placement(outputs)

    @classmethod
    def get_creation_time(cls, outputs: Mapping[str, Any]) -> float | None:
        """By the platform."""
        return to_unix_time(outputs.get("created_at"))

    @classmethod
    def is_stuck(cls, old_outputs: Mapping[str, Any]) -> bool:
        """Degraded, or without credit."""
        return old_outputs.get("status") in STUCK_CLUSTER_MESSAGES

    @classmethod
    def is_accepted(cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> bool:
        """By `acceptance_tests_params`."""
        return are_workers_accepted(inputs, outputs)

    @classmethod
    def decide_repairs(
        cls, old_outputs: Mapping[str, Any], declared: Mapping[str, Any]
    ) -> Decision:
        """Its broken nodes, as `repair` has it."""
        return decide_cluster_repairs(old_outputs, declared)

    @classmethod
    def should_create_first(cls, declared: Mapping[str, Any]) -> bool:
        """With a rollout: jobs can move before the old one goes."""
        return declared.get("rollout") is not None

    @classmethod
    def describe_replacement(cls, names: Collection[str], declared: Mapping[str, Any]) -> str:
        """Which of the two is there first."""
        if cls.should_create_first(declared):
            return (
                "the new cluster is made first, and the old one goes when no job runs on it; both "
                "cost money until then"
            )
        if "volume_id" in names:  # its data goes, whichever is there first
            return ""
        return "with a `rollout` the new cluster is made before the old one goes"

    @classmethod
    def find_deletion_guard(cls, old_outputs: Mapping[str, Any]) -> Guard | None:
        """A RESERVED cluster is paid for its whole time (Together reference, 'Billing')."""
        if old_outputs.get("billing_type") != "RESERVED":
            return None
        name = old_outputs.get("cluster_name", "")
        because = f"cluster {name} is RESERVED, which is prepaid and not refunded"
        return Guard(Permission.DESTROY_RESERVED, because)


def _sent(want: ClusterInputs) -> dict[str, Any]:
    body = requests.build_cluster_create(want)
    return {name: body[name] for name in SHOWN if body.get(name) is not None}


def _volume_problems(call: ProviderContext, values: Mapping[str, Any]) -> Iterator[Problem]:
    """A volume that is to be kept is not another one."""
    rollout, before = values.get("rollout"), call.stored_properties.get("volume_id")
    keeps = isinstance(rollout, Mapping) and rollout.get("keep_volume") is True
    if keeps and before not in (None, values.get("volume_id")):
        reason = "is to stay with rollout.keep_volume: keep the volume, or take keep_volume out"
        yield Problem("volume_id", reason)


def _patience(want: ClusterInputs) -> float:
    return patience_of(want.dump_declared().get("on_no_capacity"))


def _capacity(want: ClusterInputs, gpu_type: str, region: str) -> str:
    return f"{want.num_gpus} {gpu_type} GPU{'s' * (want.num_gpus != 1)} free in {region}"


def _out_of_stock(
    error: OutOfCapacity, want: ClusterInputs, wanted: Sequence[str], done: str
) -> OutOfCapacity:
    hint = "try again later, or declare another region, another gpu_type or fewer num_gpus"
    is_searched = want.on_no_capacity is not None
    return none_free(error, "Together", wanted, done, hint, is_searched=is_searched)
