"""Together's GPU cluster: what it takes to make, change and delete one.

Statuses and the meaning of Ready are from the Together reference and the platform's SDK; there is
no "Failed" status, so failure is read from phases and nodes.
"""

import base64
import binascii
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpuform.providers.actions import Guard, Observed, Settings, Timeouts
from gpuform.providers.call import Call
from gpuform.providers.capacity import first_with_capacity
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.drains import Drains
from gpuform.providers.errors import GpuformError, NotFound, NotReady, OutOfCapacity
from gpuform.providers.intents import Target
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.permissions import Permission
from gpuform.providers.together import regions
from gpuform.providers.together.access import cluster_access
from gpuform.providers.together.client import client_for, write_refusal
from gpuform.providers.together.credit import cluster_credit
from gpuform.providers.together.footprint import cluster_footprint
from gpuform.providers.together.shrinking import Shrinking, scale_down_of
from gpuform.providers.waiting import Look, Rhythm, wait_until, wait_until_gone
from gpuform.schemas.access import Access
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.credit import Credit
from gpuform.schemas.footprint import Footprint
from gpuform.schemas.leaving import Leaving
from gpuform.schemas.models import Problem, WireModel
from gpuform.schemas.together import wire
from gpuform.schemas.together.drivers import driver_name, driver_pair
from gpuform.schemas.together.inputs import ClusterInputs
from gpuform.schemas.together.outputs import ClusterOutputs
from gpuform.schemas.together.statuses import (
    CLUSTER_FAILED,
    CLUSTER_READY,
    CLUSTER_STUCK,
    FAILED_CLUSTER_PHASES,
    FAILED_NODE_PHASES,
    PAUSED_PHASES,
    ClusterStatus,
    VolumeStatus,
)
from gpuform.schemas.together.timestamps import unix_time

GPUS_PER_NODE = 8
INTERVAL = 30.0
"""Seconds between looks at the most: creating one takes many minutes."""

VOLUME_RELEASE = 600.0
"""Seconds to wait for the volume of a deleted cluster."""

Seen = Observed[ClusterOutputs]


class ClusterActions:
    """The verbs of a cluster."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(self, call: Call, values: Mapping[str, Any]) -> Iterator[Problem]:
        """The region, its GPU types and its drivers; then those of the alternatives."""
        found = list(regions.problems(self._client, call, values))
        yield from found
        search = values.get("on_no_capacity")
        alternatives = search.get("alternatives") if isinstance(search, Mapping) else None
        if found or not isinstance(alternatives, list):
            return
        for at, alternative in enumerate(alternatives):
            if isinstance(alternative, Mapping):
                for problem in regions.problems(self._client, call, {**values, **alternative}):
                    name = problem.path if problem.path in alternative else next(iter(alternative))
                    path = f"on_no_capacity.alternatives[{at}].{name}"
                    yield Problem(path, problem.reason)

    def create(self, call: Call, want: ClusterInputs) -> str:
        """Its shared volume has to be usable; OutOfCapacity names all that was tried."""

        def candidates() -> list[Candidate]:
            return [
                Candidate(
                    each.cluster_id,
                    unix_time(each.created_at),
                    leaving=each.status == ClusterStatus.DELETING,
                    region=each.region,
                    gpu_type=each.gpu_type,
                )
                for each in self._client.shared_clusters(want.project_id).all()
                if each.cluster_name == want.cluster_name
            ]

        creation = Creation(
            Target("together", "Cluster", want.cluster_name, want.region),
            candidates,
            attempts=[
                Attempt(partial(self._send, placed), placed.region, placed.gpu_type)
                for placed in want.placements()
            ],
            before=lambda: self._refuse_unusable_volume(want),
            patience=_patience(want),
        )
        try:
            with call.searching(creation.patience):
                return create_once(call, creation)
        except OutOfCapacity as error:
            wanted = [_capacity(want, each.gpu_type, each.region) for each in want.placements()]
            raise _out_of_stock(error, want, wanted, "created") from None

    def settle(self, call: Call, id_: str, want: ClusterInputs) -> Seen:
        """Ready, with a live worker for every 8 GPUs."""

        def probe() -> Look[Seen]:
            cluster = self._find(id_, want.project_id)
            if cluster is None:
                raise NotReady(f"cluster {id_} is gone from the platform")
            last[:] = [cluster]
            return look_at(cluster, want.num_gpus, is_elastic=_is_elastic(want.declared(), cluster))

        last: list[wire.Cluster] = []
        what = f"cluster {want.cluster_name}"
        seen = wait_until(call, probe, what=what, interval=self._rhythm)
        try:
            self._shrinking(call, last[0], want.declared()).conclude()
        except GpuformError as error:
            raise NotReady(f"{what}: {error}", last=seen) from None
        return seen

    def read(self, call: Call, id_: str, known: Mapping[str, Any]) -> Seen | None:
        """What the platform itself changes, and where it has put the cluster, is no drift."""
        cluster = self._find(id_, known.get("project_id"))
        if cluster is None:
            return None
        self._mend(call, cluster, known)
        is_elastic = _is_elastic(known, cluster)
        standard = cluster.num_gpus - (cluster.allocated_preemptible_gpus if is_elastic else 0)
        seen = look_at(cluster, standard, is_elastic=is_elastic).value
        inputs = dict(seen.inputs)
        if known:
            # Where it is may be an alternative to what is declared: outputs say so, no change.
            del inputs["region"], inputs["gpu_type"]
        if is_elastic and _explains(known, cluster):
            del inputs["num_gpus"]
        return Observed(inputs, seen.outputs)

    def update(
        self, call: Call, id_: str, want: ClusterInputs, changes: Sequence[FieldChange]
    ) -> None:
        """One request with the changed fields; growing may find no capacity.

        Shrinking takes the nodes that the stack names or needs least, and no job's.
        """
        count = want.num_gpus if any(each.path == "num_gpus" for each in changes) else None
        send = partial(self._send_changes, call, id_, want)
        if count is None and Drains.beside(call.intents).find(id_) is None:
            send(changes)
            return
        cluster = self._find(id_, want.project_id)
        if cluster is None:
            send(changes)  # the platform says that it is gone
            return
        shrinking = self._shrinking(call, cluster, want.declared())
        if changes and shrinking.is_under_way:
            shrinking = self._after_removal(call, id_, want)
        if changes:
            shrinking.send(partial(send, changes), count)
        else:
            shrinking.resume(lambda change: send([change]), want.num_gpus)

    def _after_removal(self, call: Call, id_: str, want: ClusterInputs) -> Shrinking:
        """The cluster once the platform is done with the removal that an earlier run asked for."""

        def probe() -> Look[Shrinking]:
            cluster = self._find(id_, want.project_id)
            if cluster is None:
                raise GpuformError(f"cluster {id_} is gone from the platform")
            found = self._shrinking(call, cluster, want.declared())
            return Look(found, cluster.status, done=not found.is_under_way)

        what = f"removal of nodes from cluster {want.cluster_name}"
        found = wait_until(call, probe, what=what, interval=self._rhythm)
        found.conclude()
        return found

    def leaving(self, call: Call, id_: str, want: ClusterInputs) -> Leaving | None:
        """The nodes that an update would take away now; None when it takes none."""
        cluster = self._find(id_, want.project_id)
        if cluster is None:
            return None
        return self._shrinking(call, cluster, want.declared()).leaving(want.num_gpus)

    def _send_changes(
        self, call: Call, id_: str, want: ClusterInputs, changes: Sequence[FieldChange]
    ) -> None:
        send = partial(self._client.update_cluster, id_, want, changes)
        try:
            with call.searching(_patience(want)):
                first_with_capacity(call, [send], _patience(want))
        except OutOfCapacity as error:
            cluster = self._find(id_, want.project_id)
            where = cluster.region if cluster else want.region
            kind = cluster.gpu_type if cluster else want.gpu_type
            wanted = [_capacity(want, kind, where)]
            raise _out_of_stock(error, want, wanted, "changed") from None

    def delete(self, call: Call, id_: str, known: Mapping[str, Any]) -> None:
        """Done when the cluster answers 404, and its volumes are free or still used by others."""
        volumes = {known["volume_id"]} if known.get("volume_id") else set()
        project_id = known.get("project_id")

        def probe() -> Look[object] | None:
            cluster = self._find(id_, project_id)
            if cluster is None:
                return None
            volumes.update(volume.volume_id for volume in cluster.volumes)
            return Look(None, cluster.status)

        what = f"cluster {known.get('cluster_name') or id_}"
        try:
            self._client.delete_cluster(id_)
        except NotFound:
            pass
        else:
            wait_until_gone(call, probe, what=what, interval=self._rhythm)
        for volume_id in sorted(volumes):
            self._wait_until_free(call, volume_id, project_id)

    @property
    def _rhythm(self) -> Rhythm:
        return self._client.rhythm(INTERVAL)

    def _shrinking(
        self, call: Call, cluster: wire.Cluster, declared: Mapping[str, Any]
    ) -> Shrinking:
        kube_config = decoded_kube_config(cluster.kube_config.get_secret_value())
        return Shrinking(call, cluster, kube_config, scale_down_of(declared))

    def _mend(self, call: Call, cluster: wire.Cluster, known: Mapping[str, Any]) -> None:
        """Uncordons what an interrupted removal has left, unless somebody only looks."""
        if call.preview:
            return
        try:
            self._shrinking(call, cluster, known).conclude()
        except GpuformError as error:
            call.on_warning(str(error))

    def _find(self, id_: str, project_id: str | None) -> wire.Cluster | None:
        try:
            cluster = self._client.shared_clusters(project_id).one(id_)
            if cluster.status in CLUSTER_READY and not cluster.kube_config:
                # Nothing says that lists have credentials: look at the cluster alone.
                cluster = self._client.cluster(id_)
        except NotFound:
            return None
        return cluster

    def _send(self, want: ClusterInputs) -> str:
        return self._client.create_cluster(want).cluster_id

    def _refuse_unusable_volume(self, want: ClusterInputs) -> None:
        volume_id = want.volume_id
        if volume_id is None:
            return
        try:
            status = self._client.shared_volumes(want.project_id).one(volume_id).status
        except NotFound:
            raise GpuformError(
                f"volume_id: there is no shared volume {volume_id}",
                hint="declare the id of a volume that exists, in the cluster's region",
            ) from None
        if status not in (VolumeStatus.AVAILABLE, VolumeStatus.BOUND):
            raise GpuformError(
                f"volume_id: the shared volume {volume_id} cannot be attached now: it is {status}",
                hint="a volume can be attached when it is available, or bound to other clusters",
            )

    def _wait_until_free(self, call: Call, volume_id: str, project_id: str | None) -> None:
        volumes = self._client.shared_volumes(project_id)
        if self._is_used(volume_id, project_id):
            return

        def probe() -> Look[object]:
            try:
                status = volumes.one(volume_id).status
            except NotFound:
                return Look(None, "gone", done=True)
            return Look(None, f"volume {status}", done=status != VolumeStatus.BOUND)

        what = f"release of volume {volume_id}"
        try:
            wait_until(call, probe, what=what, interval=self._rhythm, limit=VOLUME_RELEASE)
        except NotReady as error:
            # The cluster is gone; deleting the volume waits again.
            call.on_warning(error.reason)

    def _is_used(self, volume_id: str, project_id: str | None) -> bool:
        clusters = self._client.shared_clusters(project_id).all()
        return any(volume_id == each.volume_id for one in clusters for each in one.volumes)


class ClusterLifecycle(Lifecycle[ClusterInputs, ClusterOutputs]):
    """A GPU cluster of Together."""

    platform = "together"
    kind = "Cluster"
    inputs = ClusterInputs
    outputs = ClusterOutputs
    timeouts = Timeouts(create=5400, update=5400, delete=3600)
    actions = ClusterActions
    gpus_field = "num_gpus"

    @classmethod
    def credit(cls, values: Mapping[str, Any], seen: Mapping[str, Any]) -> Credit | None:
        """Compute on demand is paused, reserved compute is not."""
        return cluster_credit(values, seen)

    @classmethod
    def write_refusal(cls, settings: Settings) -> str | None:
        """Clusters and volumes are of the control plane, which a Member may only see."""
        return write_refusal(settings)

    @classmethod
    def footprint(cls, values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:
        """GPUs by the way they are paid for, and a volume that comes with it."""
        return cluster_footprint(values, seen)

    @classmethod
    def access(cls, seen: Mapping[str, Any]) -> Access | None:
        """Its kubeconfig, its workers by SSH, and Slurm's login node."""
        return cluster_access(seen)

    @classmethod
    def created_at(cls, seen: Mapping[str, Any]) -> float | None:
        """By the platform."""
        return unix_time(seen.get("created_at"))

    @classmethod
    def is_stuck(cls, old: Mapping[str, Any]) -> bool:
        """Degraded, or without credit."""
        return old.get("status") in CLUSTER_STUCK

    @classmethod
    def guarded(cls, old: Mapping[str, Any]) -> Guard | None:
        """A RESERVED cluster is paid for its whole time (Together reference, 'Billing')."""
        if old.get("billing_type") != "RESERVED":
            return None
        name = old.get("cluster_name", "")
        because = f"cluster {name} is RESERVED, which is prepaid and not refunded"
        return Guard(Permission.DESTROY_RESERVED, because)

    def _nodes_leaving(self, call: Call, id_: str, want: ClusterInputs) -> Leaving | None:
        return ClusterActions(self._settings or Settings()).leaving(call, id_, want)


def _patience(want: ClusterInputs) -> float:
    minutes = want.on_no_capacity.wait_minutes if want.on_no_capacity else None
    return 60.0 * (minutes or 0)


def _capacity(want: ClusterInputs, gpu_type: str, region: str) -> str:
    return f"{want.num_gpus} {gpu_type} GPUs free in {region}"


def _out_of_stock(
    error: OutOfCapacity, want: ClusterInputs, wanted: Sequence[str], done: str
) -> OutOfCapacity:
    """What Together has not got, and what to do."""
    advice = "try again later, or declare another region, another gpu_type or fewer num_gpus"
    if want.on_no_capacity is None:
        advice += "; on_no_capacity makes gpuform wait, or try alternatives"
    return OutOfCapacity(
        f"Together has no {' and no '.join(wanted)} now; nothing was {done}",
        method=error.method,
        path=error.path,
        status=error.status,
        code=error.code,
        request_id=error.request_id,
        hint=advice,
    )


def look_at(cluster: wire.Cluster, num_gpus: int, *, is_elastic: bool = False) -> Look[Seen]:
    """A cluster as seen by somebody who waits for `num_gpus` GPUs, or more if it is elastic."""
    nodes, wanted = _live_nodes(cluster), num_gpus // GPUS_PER_NODE
    is_ready = cluster.status in CLUSTER_READY
    has_nodes = nodes == wanted and cluster.num_gpus == num_gpus
    done = is_ready and (nodes >= wanted if is_elastic else has_nodes)
    phase = cluster.status or "no status"
    if is_ready and not done:
        phase = f"{phase} with {nodes} of {wanted} nodes"
    failed = None if done else _failure(cluster)
    outputs = ClusterOutputs(
        ready=done,
        not_ready_reason=None if done else (failed or phase),
        status=cluster.status,
        placed_region=cluster.region or None,
        placed_gpu_type=cluster.gpu_type or None,
        kube_config=decoded_kube_config(cluster.kube_config.get_secret_value()),
        control_plane_nodes=[each.model_dump() for each in cluster.control_plane_nodes],
        gpu_worker_nodes=[each.model_dump() for each in cluster.gpu_worker_nodes],
        volumes=[each.model_dump() for each in cluster.volumes],
        driver_version=_driver_version(cluster),
        allocated_preemptible_gpus=cluster.allocated_preemptible_gpus,
        duration_hours=cluster.duration_hours,
        created_at=cluster.created_at,
        first_ready_at=cluster.first_ready_at,
        paused_at=_paused_at(cluster),
        reserved_until=cluster.reservation_end_time,
    )
    return Look(Observed(_inputs(cluster), outputs), phase, done=done, failed=failed)


def decoded_kube_config(text: str) -> str | None:
    """The kubeconfig's YAML; the platform sends base64, and "" until there is one."""
    if not text:
        return None
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return text


def _inputs(cluster: wire.Cluster) -> dict[str, Any]:
    """What the platform returns of a declaration; "" is what it does not say."""
    cuda, driver = cluster.cuda_version, cluster.nvidia_driver_version
    if cluster.driver_version and not (cuda and driver):
        cuda, driver = driver_pair(cluster.driver_version)
    days = cluster.duration_hours
    has_add_ons = "add_ons" in cluster.model_fields_set
    found = {
        "cluster_name": cluster.cluster_name,
        "region": cluster.region,
        "gpu_type": cluster.gpu_type,
        "num_gpus": cluster.num_gpus or None,
        "cuda_version": cuda,
        "nvidia_driver_version": driver,
        "billing_type": cluster.billing_type,
        "duration_days": days // 24 if days and cluster.billing_type == "RESERVED" else None,
        "cluster_type": cluster.cluster_type,
        "volume_id": cluster.volumes[0].volume_id if cluster.volumes else None,
        "capacity_pool_id": cluster.capacity_pool_id,
        "num_capacity_pool_gpus": cluster.num_capacity_pool_gpus,
        "num_preemptible_gpus": cluster.desired_preemptible_gpus,
        "num_reserved_gpus": cluster.num_reserved_gpus,
        "reservation_start_time": cluster.reservation_start_time,
        "reservation_end_time": cluster.reservation_end_time,
        "project_id": cluster.project_id,
        "install_traefik": cluster.install_traefik,
        "oidc_config": _dumped(cluster.oidc_config),
        "cluster_config": _dumped(cluster.cluster_config),
        "add_ons": [_dumped(each) for each in cluster.add_ons] if has_add_ons else None,
        "slurm_shm_size_gib": cluster.slurm_shm_size_gib,
    }
    return {name: None if value == "" else value for name, value in found.items()}


def _dumped(part: WireModel | None) -> dict[str, Any] | None:
    return None if part is None else part.model_dump(exclude_none=True)


def _is_elastic(declared: Mapping[str, Any], cluster: wire.Cluster) -> bool:
    """Whether the platform changes the number of nodes by itself.

    Preemptible nodes come and go beside the standard ones that num_gpus counts (Together docs,
    'Preemptible compute').
    """
    return bool(
        declared.get("auto_scale")
        or declared.get("num_preemptible_gpus")
        or cluster.desired_preemptible_gpus
        or cluster.allocated_preemptible_gpus
    )


def _explains(known: Mapping[str, Any], cluster: wire.Cluster) -> bool:
    """Whether the platform's own doing explains its GPU count, given the declared one."""
    declared = known.get("num_gpus")
    if declared is None:
        return False
    coming = max(cluster.desired_preemptible_gpus or 0, cluster.allocated_preemptible_gpus)
    most = declared + coming
    if known.get("auto_scale"):
        most = max(most, (known.get("auto_scale_max_gpus") or math.inf) + coming)
    return bool(declared <= cluster.num_gpus <= most)


def _live_nodes(cluster: wire.Cluster) -> int:
    return sum(
        not (node.deleted_at or node.marked_for_deletion) for node in cluster.gpu_worker_nodes
    )


def _failure(cluster: wire.Cluster) -> str | None:
    """Why the cluster will not become Ready by itself, if so."""
    if cluster.status in CLUSTER_FAILED:
        return CLUSTER_STUCK.get(cluster.status, f"its status is {cluster.status}")
    if _last_phase(cluster.phase_transitions) in FAILED_CLUSTER_PHASES:
        return f"it is in {_last_phase(cluster.phase_transitions)}"
    nodes: tuple[wire.ControlPlaneNode | wire.GpuWorkerNode, ...]
    nodes = (*cluster.control_plane_nodes, *cluster.gpu_worker_nodes)
    for node in nodes:
        if _last_phase(node.phase_transitions) in FAILED_NODE_PHASES:
            return f"its node {node.host_name or node.node_id} failed"
    return None


def _last_phase(transitions: Sequence[wire.PhaseTransition]) -> str:
    last = _last(transitions)
    return last.phase if last else ""


def _last(transitions: Iterable[wire.PhaseTransition]) -> wire.PhaseTransition | None:
    return max(transitions, key=lambda each: unix_time(each.transition_time) or 0, default=None)


def _paused_at(cluster: wire.Cluster) -> str | None:
    """When the phase began that a pause is told by; None for what is not paused."""
    phase = PAUSED_PHASES.get(cluster.status)
    last = _last(each for each in cluster.phase_transitions if each.phase == phase)
    return last.transition_time if last else None


def _driver_version(cluster: wire.Cluster) -> str | None:
    try:
        return driver_name(cluster.cuda_version, cluster.nvidia_driver_version)
    except ValueError:
        return cluster.driver_version or None
