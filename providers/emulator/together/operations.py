"""What the API does, without HTTP: the documented rules, then the change to the store.

Where the platform's documents are silent (which status code, what a second change does to one under
way) the choice is ours and said at the place.
"""

import base64
import json
import re
from functools import lru_cache
from typing import Any

from gpuform.providers.emulator.clock import get_value_at
from gpuform.providers.emulator.kubernetes.nodes import cordoned
from gpuform.providers.emulator.routing import FaultEffects
from gpuform.providers.emulator.server import CA_CERTIFICATE
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.admission import (
    check_change,
    check_new_cluster,
    driver_of,
    merged,
    merged_add_ons,
    new_add_ons,
    settings_of,
)
from gpuform.providers.emulator.together.catalogue import (
    DEFAULT_PROJECT,
    ApiError,
    not_found,
    region_named,
)
from gpuform.providers.emulator.together.clusters import SCHEDULING_SECONDS, Cluster
from gpuform.providers.emulator.together.remediations import Remediation, Remediations
from gpuform.providers.emulator.together.requests import (
    ApproveRemediation,
    CreateCluster,
    CreateRemediation,
    CreateVolume,
    UpdateCluster,
    UpdateVolume,
)
from gpuform.providers.emulator.together.volumes import Volume, creation

_CLUSTER = "together.cluster"
_VOLUME = "together.volume"
_CREDIT = "together.credit"
_NONE = "none"


class Operations:
    """Together's clusters and volumes in a store, at one moment.

    One request's worth, within one transaction, on a store swept for `now`. Methods raise
    `ApiError`. `address` is where clients find the emulator.
    """

    def __init__(self, store: Store, now: float, address: str = "") -> None:
        self._store = store
        self._address = address
        self.now = now

    # Clusters.

    def create_cluster(self, body: CreateCluster, trouble: FaultEffects) -> Cluster:
        now = self.now
        self._refuse_without_credit()
        check_new_cluster(body, now)
        held = None if body.volume_id is None else self._usable_volume(body)
        if trouble.is_out_of_stock:
            raise ApiError(409, "Out of stock")
        start = body.reservation_start_time
        planned = Cluster(
            cluster_id=self._store.create_id(),
            settings=settings_of(body),
            driver=driver_of(body),
            add_ons=new_add_ons(body.add_ons or []),
            created_at=now,
            **_reservation(body, now),
        ).brought_up(
            now,
            max(now + SCHEDULING_SECONDS, start.timestamp() if start else 0.0),
            self._store.create_id,
            stuck=trouble.is_stuck,
        )
        if body.shared_volume is not None:
            made = self.create_volume(body.shared_volume, FaultEffects())
            held = made.model_copy(update={"is_inline": True})
        if held is not None:
            self._keep_volume(held.attached(planned.cluster_id))
            planned = planned.model_copy(update={"volume_id": held.volume_id})
        self._keep_cluster(planned)
        return planned

    def cluster(self, cluster_id: str) -> Cluster:
        body = self._store.get(_CLUSTER, cluster_id)
        if body is None:
            raise not_found("cluster", cluster_id)
        return _read_cluster(body)

    def list_clusters(self, project: str | None = None) -> list[Cluster]:
        found = (_read_cluster(body) for body in self._store.list_all(_CLUSTER))
        return [each for each in found if project in {None, each.settings.project_id}]

    def update_cluster(
        self, cluster_id: str, body: UpdateCluster, trouble: FaultEffects
    ) -> Cluster:
        """Set the given fields; a change of size while one is under way starts that anew (ours)."""
        old = self.cluster(cluster_id)
        if old.status(self.now) == "Deleting":
            raise ApiError(409, f"cluster {cluster_id!r} is being deleted")
        check_change(body, old.settings)
        new = _with_changes(old, body)
        if trouble.is_out_of_stock and new.settings.num_gpus > old.settings.num_gpus:
            raise ApiError(409, "Out of stock")
        planned = self._planned(old, new, trouble)
        wanted = planned.settings.desired_preemptible_gpus
        if wanted != old.settings.desired_preemptible_gpus:
            planned = planned.with_preemptible(self.now, self._store.create_id)
        self._keep_cluster(planned)
        return planned

    @property
    def remediations(self) -> Remediations:
        """The repairs of workers' machines, at this moment."""
        return Remediations(self._store, self.now)

    def create_remediation(
        self, cluster_id: str, instance_id: str, id_: str | None, body: CreateRemediation
    ) -> Remediation:
        cluster = self.cluster(cluster_id)
        made, planned = self.remediations.create(cluster, instance_id, id_, body)
        self._keep_cluster(planned)
        return made

    def approve_remediation(self, found: Remediation, body: ApproveRemediation) -> Remediation:
        approved, planned = self.remediations.approve(self.cluster(found.cluster_id), found, body)
        self._keep_cluster(planned)
        return approved

    def cancel_remediation(self, found: Remediation) -> Remediation:
        cancelled, planned = self.remediations.cancel(self.cluster(found.cluster_id), found)
        self._keep_cluster(planned)
        return cancelled

    def preempt(self, cluster: Cluster) -> Cluster:
        """Take its preemptible nodes back."""
        left = cluster.preempted(self.now, self._store.create_id)
        self._keep_cluster(left)
        return left

    def _planned(self, old: Cluster, new: Cluster, trouble: FaultEffects) -> Cluster:
        now = self.now
        if new.settings.num_gpus != old.settings.num_gpus or not old.is_progressing():
            if new.has_control_plane(now):
                first = self._taken_first(old, trouble)
                return new.scaled(now, self._store.create_id, first, stuck=trouble.is_stuck)
            start = max(now, new.reservation_start or 0.0)
            return new.brought_up(now, start, self._store.create_id, stuck=trouble.is_stuck)
        is_other_type = new.settings.cluster_type != old.settings.cluster_type
        if is_other_type and old.status(now) == "Ready":
            return new.reinstalled(now, stuck=trouble.is_stuck)
        return new

    def _taken_first(self, cluster: Cluster, trouble: FaultEffects) -> frozenset[str]:
        """The workers that go first when it shrinks: cordoned ones ('Targeted Scale-down')."""
        if trouble.removed_first_pattern is None:
            return cordoned(self._store, cluster.cluster_id, self.now)
        names = (worker.host_name for worker in cluster.workers)
        return frozenset(name for name in names if re.search(trouble.removed_first_pattern, name))

    def delete_cluster(self, cluster_id: str, trouble: FaultEffects) -> None:
        """Its volume is free when it is gone; an inline one goes with it unless independent."""
        cluster = self.cluster(cluster_id)
        if cluster.gone_at is not None:
            return
        deleted = cluster.deleted(self.now, stuck=trouble.is_stuck)
        self._keep_cluster(deleted)
        if cluster.volume_id is not None:
            self._keep_volume(self.volume(cluster.volume_id).released(cluster_id, deleted.gone_at))

    def cluster_view(self, cluster: Cluster, volume: Volume | None) -> dict[str, Any]:
        """What the API shows of a cluster, with the volume of its `volume_id`."""
        token = self._store.derive_token(cluster.cluster_id)
        server = f"{self._address}/kubernetes/{cluster.cluster_id}"
        credential = kubeconfig(server, cluster.settings.cluster_name, token)
        view = cluster.view(self.now, volume, credential)
        latest = self.remediations.latest(cluster.cluster_id)
        for worker in (*view["gpu_worker_nodes"], *view["deleted_gpu_worker_nodes"]):
            if worker["instance_id"] in latest:
                worker["latest_remediation"] = latest[worker["instance_id"]]
        return view

    # Volumes.

    def create_volume(self, body: CreateVolume, trouble: FaultEffects) -> Volume:
        now = self.now
        self._refuse_without_credit()
        region_named(body.region)
        if body.instance_cluster_id is not None:
            beside = self.cluster(body.instance_cluster_id)
            if beside.settings.region != body.region:
                raise ApiError(400, "instance_cluster_id names a cluster of another region")
        volume = Volume(
            volume_id=self._store.create_id(),
            volume_name=body.volume_name,
            region=body.region,
            project_id=body.project_id or DEFAULT_PROJECT,
            is_lifecycle_independent=bool(body.is_lifecycle_independent),
            created_at=now,
            statuses=creation(now, stuck=trouble.is_stuck),
            sizes=[(now, body.size_tib)],
        )
        self._keep_volume(volume)
        return volume

    def volume(self, volume_id: str) -> Volume:
        body = self._store.get(_VOLUME, volume_id)
        if body is None:
            raise not_found("volume", volume_id)
        return _read_volume(body)

    def list_volumes(self, project: str | None = None) -> list[Volume]:
        found = (_read_volume(body) for body in self._store.list_all(_VOLUME))
        return [each for each in found if project in {None, each.project_id}]

    def update_volume(self, body: UpdateVolume, trouble: FaultEffects) -> Volume:
        now = self.now
        volume = self.volume(body.volume_id)
        size = get_value_at(volume.sizes, now)
        if body.size_tib is None or body.size_tib == size:
            return volume
        if body.size_tib < size:
            raise ApiError(400, f"a volume cannot shrink: {size} TiB to {body.size_tib} TiB")
        if not volume.is_settled(now):
            raise ApiError(409, f"volume is {volume.status(now)}: it cannot be resized now")
        resized = volume.resized(body.size_tib, now, stuck=trouble.is_stuck)
        self._keep_volume(resized)
        return resized

    def delete_volume(self, volume_id: str, trouble: FaultEffects) -> None:
        """Refused with 409 while a cluster holds it (the platform documents no code)."""
        volume = self.volume(volume_id)
        if volume.is_held(self.now):
            raise ApiError(409, f"volume {volume_id!r} is attached to a cluster")
        if volume.gone_at is None:
            self._keep_volume(volume.deleted(self.now, stuck=trouble.is_stuck))

    # Credit (platform document, 'Credit Exhaustion').

    def set_credit(self, *, exhausted: bool) -> None:
        """Without any, compute on demand is paused, later gone, and volumes are shut in the end."""
        if exhausted == self._is_exhausted:
            return
        for cluster in self.list_clusters():
            self._keep_credit_of(cluster, exhausted=exhausted)
        for volume in self.list_volumes():
            if volume.gone_at is None or not exhausted:
                self._keep_volume(volume.with_credit(self.now, exhausted=exhausted))
        self._store.put(_CREDIT, _CREDIT, _NONE if exhausted else "some")

    @property
    def _is_exhausted(self) -> bool:
        return self._store.get(_CREDIT, _CREDIT) == _NONE

    def _keep_credit_of(self, cluster: Cluster, *, exhausted: bool) -> None:
        changed = cluster.with_credit(self.now, exhausted=exhausted)
        self._keep_cluster(changed)
        if changed.gone_at != cluster.gone_at and cluster.volume_id is not None:
            held = self.volume(cluster.volume_id)
            released = held.released(cluster.cluster_id, changed.gone_at)
            self._keep_volume(released)

    def _refuse_without_credit(self) -> None:
        """The platform documents no code; 402 is what the status is for."""
        if self._is_exhausted:
            raise ApiError(402, "Insufficient credits")

    def _usable_volume(self, body: CreateCluster) -> Volume:
        volume = self.volume(str(body.volume_id))
        if volume.region != body.region:
            raise ApiError(400, "Shared volume does not exist in the datacenter")
        status = volume.status(self.now)
        if status not in ("available", "bound"):
            raise ApiError(409, f"volume {volume.volume_id!r} is {status}, not available")
        return volume

    def _keep_cluster(self, cluster: Cluster) -> None:
        self._store.put(
            _CLUSTER, cluster.cluster_id, cluster.model_dump_json(), gone_at=cluster.gone_at
        )

    def _keep_volume(self, volume: Volume) -> None:
        self._store.put(_VOLUME, volume.volume_id, volume.model_dump_json(), gone_at=volume.gone_at)


# Kept, for records are immutable and most requests read what others have read before.
@lru_cache(maxsize=4096)
def _read_cluster(body: str) -> Cluster:
    return Cluster.model_validate_json(body)


@lru_cache(maxsize=4096)
def _read_volume(body: str) -> Volume:
    return Volume.model_validate_json(body)


def _reservation(body: CreateCluster, now: float) -> dict[str, float | None]:
    if body.billing_type == "ON_DEMAND":
        return {}
    start = body.reservation_start_time.timestamp() if body.reservation_start_time else now
    end = body.reservation_end_time.timestamp() if body.reservation_end_time else None
    if body.duration_days is not None:
        end = start + body.duration_days * 86400.0
    return {"reservation_start": start, "reservation_end": end}


def _with_changes(cluster: Cluster, body: UpdateCluster) -> Cluster:
    given = body.model_dump(exclude_none=True)
    names = ("num_gpus", "cluster_type", "num_capacity_pool_gpus", "num_reserved_gpus")
    changed = {name: given[name] for name in names if name in given}
    if "num_preemptible_gpus" in given:
        changed["desired_preemptible_gpus"] = given["num_preemptible_gpus"]
    if "cluster_config" in given:
        changed["cluster_config"] = merged(cluster.settings.cluster_config, given["cluster_config"])
    update: dict[str, Any] = {
        "settings": cluster.settings.model_copy(update=changed),
        "add_ons": merged_add_ons(cluster.add_ons, body.add_ons or []),
    }
    if body.reservation_end_time is not None:
        update["reservation_end"] = body.reservation_end_time.timestamp()
    return cluster.model_copy(update=update)


_AUTHORITY = base64.b64encode(CA_CERTIFICATE.encode()).decode()
_TEMPLATE = """\
apiVersion: v1
kind: Config
clusters:
- name: {name}
  cluster:
    server: {server}
    certificate-authority-data: {authority}
contexts:
- name: {name}
  context:
    cluster: {name}
    user: {user}
current-context: {name}
users:
- name: {user}
  user:
    token: {token}
"""


def kubeconfig(server: str, cluster_name: str, token: str) -> str:
    """The kubeconfig YAML in base64 (SDK 3.1.1, `clusters get-credentials`)."""
    text = _TEMPLATE.format(
        # A JSON string is a YAML string whatever the name holds.
        name=json.dumps(cluster_name),
        user=json.dumps(f"{cluster_name}-admin"),
        server=json.dumps(server),
        authority=_AUTHORITY,
        token=token,
    )
    return base64.b64encode(text.encode()).decode()
