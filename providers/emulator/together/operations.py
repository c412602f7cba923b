"""Do what Together's API does, without HTTP: check the documented rules, then change the store.

`routes` calls this module, and so do the emulated Kubernetes, Slurm and Lens for clusters, nodes
and volumes. Where the platform's documents are silent (which status code, what a second change does
to one under way) the choice is ours and named at the place.
"""

import base64
import json
import re
from typing import Any

from gpuform.providers.emulator.clock import get_value_at
from gpuform.providers.emulator.kubernetes.nodes import list_cordoned_hosts
from gpuform.providers.emulator.routing import FaultEffects, merge_deeply
from gpuform.providers.emulator.server import CA_CERTIFICATE
from gpuform.providers.emulator.store import Store, parse_stored
from gpuform.providers.emulator.together.catalogue import (
    DEFAULT_PROJECT,
    SSH_CLIENT_ID,
    SSH_PREFIX,
    TogetherApiError,
    make_not_found,
    require_region,
)
from gpuform.providers.emulator.together.clusters import (
    PAUSED_WITHOUT_CREDIT,
    SCHEDULING_SECONDS,
    Cluster,
)
from gpuform.providers.emulator.together.nodes import Volume, plan_creation
from gpuform.providers.emulator.together.remediations import Remediations
from gpuform.providers.emulator.together.requests import (
    CreateCluster,
    CreateVolume,
    UpdateCluster,
    UpdateVolume,
    build_add_ons,
    build_settings,
    check_change,
    check_new_cluster,
    merge_add_ons,
    resolve_driver,
)

_CLUSTER = "together.cluster"
_VOLUME = "together.volume"
_CREDIT = "together.credit"
_NONE = "none"


class TogetherOperations:
    """Together's clusters and volumes in a store, at one moment.

    Created for one request, within one transaction, on a store from which expired objects have been
    removed. Methods raise `Refusal`. `address` is the URL at which clients find the emulator.
    """

    def __init__(self, store: Store, now: float, address: str = "") -> None:
        self._store = store
        self._address = address
        self.now = now

    # Clusters.

    def create_cluster(self, body: CreateCluster, effects: FaultEffects) -> Cluster:
        """Store and return a new cluster, with a new or an existing volume attached if asked for.

        Raises `Refusal`: 400 for a broken rule, 402 without credit, 404 for a missing volume, 409
        for a volume in another status or out of stock.
        """
        now = self.now
        self._refuse_without_credit()
        check_new_cluster(body, now)
        volume = None if body.volume_id is None else self._require_usable_volume(body)
        # After the rules: a request that the platform would refuse anyway says nothing of its
        # stock.
        if effects.is_out_of_stock:
            raise TogetherApiError(409, "Out of stock")
        start = body.reservation_start_time
        planned = Cluster(
            cluster_id=self._store.create_id(),
            settings=build_settings(body),
            driver=resolve_driver(body),
            add_ons=build_add_ons(body.add_ons or []),
            created_at=now,
            **_compute_reservation(body, now),
        ).plan_creation(
            now,
            max(now + SCHEDULING_SECONDS, start.timestamp() if start else 0.0),
            self._store.create_id,
            is_stuck=effects.is_stuck,
        )
        # The volume last: a refused cluster must not leave one behind.
        if body.shared_volume is not None:
            inline_volume = self.create_volume(body.shared_volume, FaultEffects())
            volume = inline_volume.model_copy(update={"is_inline": True})
        if volume is not None:
            self._save_volume(volume.attach(planned.cluster_id))
            planned = planned.model_copy(update={"volume_id": volume.volume_id})
        self._save_cluster(planned)
        return planned

    def get_cluster(self, cluster_id: str) -> Cluster:
        """Return a cluster. Raises `Refusal` 404."""
        body = self._store.get(_CLUSTER, cluster_id)
        if body is None:
            raise make_not_found("cluster", cluster_id)
        return parse_stored(Cluster, body)

    def list_clusters(self, project: str | None = None) -> list[Cluster]:
        """Return the clusters of a project or all, oldest first."""
        clusters = (parse_stored(Cluster, body) for body in self._store.list_all(_CLUSTER))
        return [cluster for cluster in clusters if project in {None, cluster.settings.project_id}]

    def update_cluster(
        self, cluster_id: str, body: UpdateCluster, effects: FaultEffects
    ) -> Cluster:
        """Set the fields of `body`, plan the resulting changes, and return the cluster.

        A change of size during another one starts again (ours), and so does any update of a cluster
        not on its way to Ready, such as a stuck one. A cluster paused without credit stays paused.
        Raises `Refusal`: 404, 409 for a cluster being deleted or, if it grows, out of stock, 400
        for a broken rule, 402 for another size or type of a paused cluster.
        """
        old = self.get_cluster(cluster_id)
        # Ours: the document does not say what an update does to a cluster that is leaving.
        if old.get_status(self.now) == "Deleting":
            raise TogetherApiError(409, f"cluster {cluster_id!r} is being deleted")
        check_change(body, old.settings)
        new = _apply_changes(old, body)
        self._refuse_resize_while_paused(old, new)
        if effects.is_out_of_stock and new.settings.num_gpus > old.settings.num_gpus:
            raise TogetherApiError(409, "Out of stock")
        planned = self._plan_update(old, new, effects)
        desired_gpus = planned.settings.desired_preemptible_gpus
        if desired_gpus != old.settings.desired_preemptible_gpus:
            planned = planned.plan_preemptible(self.now, self._store.create_id)
        self._save_cluster(planned)
        return planned

    @property
    def remediations(self) -> Remediations:
        """Return the repairs of workers' machines, at this moment."""
        return Remediations(self._store, self.now, self._save_cluster)

    def preempt(self, cluster: Cluster) -> Cluster:
        """Remove the running preemptible nodes of the cluster; store and return the cluster.

        New ones are planned in an hour.
        """
        preempted = cluster.plan_preemption(self.now, self._store.create_id)
        self._save_cluster(preempted)
        return preempted

    def _plan_update(self, old: Cluster, new: Cluster, effects: FaultEffects) -> Cluster:
        """Return `new` with the scaling, creation or reinstallation that a change from `old` needs.

        A cluster that is not on its way to Ready is scaled again even if the size is the same; if
        it has no control plane, its creation begins again instead. Another type is installed only
        on a Ready cluster. If nothing of this is needed, or the cluster is paused without credit,
        `new` is returned unchanged.
        """
        now = self.now
        if old.get_status(now) == PAUSED_WITHOUT_CREDIT:
            return new
        if new.settings.num_gpus != old.settings.num_gpus or not old.is_progressing():
            if new.has_control_plane(now):
                removed_first = self._choose_removed_first(old, effects)
                return new.plan_scaling(
                    now, self._store.create_id, removed_first, is_stuck=effects.is_stuck
                )
            # Without a control plane there is nothing to scale: the creation begins again with the
            # new size.
            start = max(now, new.reservation_start or 0.0)
            return new.plan_creation(now, start, self._store.create_id, is_stuck=effects.is_stuck)
        is_other_type = new.settings.cluster_type != old.settings.cluster_type
        if is_other_type and old.get_status(now) == "Ready":
            return new.plan_reinstallation(now, is_stuck=effects.is_stuck)
        return new

    def _choose_removed_first(self, cluster: Cluster, effects: FaultEffects) -> frozenset[str]:
        """Return the host names of the workers to remove first when the cluster shrinks.

        Cordoned ones, as the document says ('Targeted Scale-down'), or the ones that a fault names.
        """
        if effects.removed_first_pattern is None:
            return list_cordoned_hosts(self._store, cluster.cluster_id, self.now)
        names = (worker.host_name for worker in cluster.workers)
        return frozenset(name for name in names if re.search(effects.removed_first_pattern, name))

    def delete_cluster(self, cluster_id: str, effects: FaultEffects) -> None:
        """Begin to delete a cluster; its volume is free again when the cluster is gone.

        A volume that was created with the cluster is deleted, too, unless it is lifecycle
        independent. A cluster paused without credit is deleted as any other. A second delete
        changes nothing (ours), but begins a stuck deletion again. Raises `Refusal` 404.
        """
        cluster = self.get_cluster(cluster_id)
        # A stuck deletion has no `gone_at`: the second delete begins it again.
        if cluster.get_status(self.now) == "Deleting" and cluster.gone_at is not None:
            return
        deleted = cluster.plan_deletion(self.now, is_stuck=effects.is_stuck)
        self._save_cluster(deleted)
        if cluster.volume_id is not None:
            self._save_volume(
                self.get_volume(cluster.volume_id).release(cluster_id, deleted.gone_at)
            )

    def cluster_to_json(self, cluster: Cluster, volume: Volume | None) -> dict[str, Any]:
        """Return the API's view of a cluster with `volume`, kubeconfig and latest repairs.

        A cluster with an SSH CA and no `oidc_config` of its own shows that of the emulator's
        sign-in.
        """
        token = self._store.derive_token(cluster.cluster_id)
        server = f"{self._address}/kubernetes/{cluster.cluster_id}"
        credential = build_kubeconfig(server, cluster.settings.cluster_name, token)
        view = cluster.to_json(self.now, volume, credential)
        if cluster.settings.cluster_config.get("ssh_ca_enabled") and "oidc_config" not in view:
            view["oidc_config"] = _build_oidc_config(cluster, self._address)
        latest = self.remediations.latest_to_json(cluster.cluster_id)
        for worker in (*view["gpu_worker_nodes"], *view["deleted_gpu_worker_nodes"]):
            if worker["instance_id"] in latest:
                worker["latest_remediation"] = latest[worker["instance_id"]]
        return view

    # Volumes.

    def create_volume(self, body: CreateVolume, effects: FaultEffects) -> Volume:
        """Store and return a new volume.

        A cluster in the body only has to exist; it does not get the volume. Raises `Refusal`: 402
        without credit, 400 for an unknown region or another one than the named cluster's, 404 for a
        missing cluster.
        """
        now = self.now
        self._refuse_without_credit()
        require_region(body.region)
        if body.instance_cluster_id is not None:
            cluster = self.get_cluster(body.instance_cluster_id)
            if cluster.settings.region != body.region:
                raise TogetherApiError(400, "instance_cluster_id names a cluster of another region")
        volume = Volume(
            volume_id=self._store.create_id(),
            volume_name=body.volume_name,
            region=body.region,
            project_id=body.project_id or DEFAULT_PROJECT,
            is_lifecycle_independent=bool(body.is_lifecycle_independent),
            created_at=now,
            statuses=plan_creation(now, is_stuck=effects.is_stuck),
            sizes=[(now, body.size_tib)],
        )
        self._save_volume(volume)
        return volume

    def get_volume(self, volume_id: str) -> Volume:
        """Return a volume. Raises `Refusal` 404."""
        body = self._store.get(_VOLUME, volume_id)
        if body is None:
            raise make_not_found("volume", volume_id)
        return parse_stored(Volume, body)

    def list_volumes(self, project: str | None = None) -> list[Volume]:
        """Return the volumes of a project or all, oldest first."""
        volumes = (parse_stored(Volume, body) for body in self._store.list_all(_VOLUME))
        return [volume for volume in volumes if project in {None, volume.project_id}]

    def update_volume(self, body: UpdateVolume, effects: FaultEffects) -> Volume:
        """Begin to resize a volume, and return it.

        An equal or missing size changes nothing. Raises `Refusal`: 404, 400 for a smaller size
        (ours), 409 while the volume is not available.
        """
        now = self.now
        volume = self.get_volume(body.volume_id)
        size = get_value_at(volume.sizes, now)
        if body.size_tib is None or body.size_tib == size:
            return volume
        # Ours: a volume only grows.
        if body.size_tib < size:
            raise TogetherApiError(
                400, f"a volume cannot shrink: {size} TiB to {body.size_tib} TiB"
            )
        if not volume.is_available(now):
            raise TogetherApiError(
                409, f"volume is {volume.get_status(now)}: it cannot be resized now"
            )
        resized = volume.plan_resize(body.size_tib, now, is_stuck=effects.is_stuck)
        self._save_volume(resized)
        return resized

    def delete_volume(self, volume_id: str, effects: FaultEffects) -> None:
        """Begin to delete a volume; a second delete changes nothing, unless the first is stuck.

        Raises `Refusal`: 404, 409 while a cluster has the volume (the code is ours).
        """
        volume = self.get_volume(volume_id)
        if volume.is_attached(self.now):
            raise TogetherApiError(409, f"volume {volume_id!r} is attached to a cluster")
        if volume.gone_at is None:
            self._save_volume(volume.plan_deletion(self.now, is_stuck=effects.is_stuck))

    # Credit (platform document, 'Credit Exhaustion').

    def set_credit(self, *, is_exhausted: bool) -> None:
        """Exhaust or restore the account's credit, with all consequences for clusters and volumes.

        Without credit, Ready clusters with compute on demand are paused at once; those completely
        on demand are deleted later, and access to volumes that are available or bound is revoked
        after a week. With credit again, paused clusters and revoked volumes that still exist
        resume. The same value again changes nothing.
        """
        # A second time would begin the periods until revocation again.
        if is_exhausted == self._is_exhausted:
            return
        for cluster in self.list_clusters():
            self._apply_credit(cluster, is_exhausted=is_exhausted)
        for volume in self.list_volumes():
            if volume.gone_at is None or not is_exhausted:
                self._save_volume(volume.apply_credit(self.now, is_exhausted=is_exhausted))
        self._store.put(_CREDIT, _CREDIT, _NONE if is_exhausted else "some")

    @property
    def _is_exhausted(self) -> bool:
        """Return whether the account's credit is used up; False until a test sets the credit."""
        return self._store.get(_CREDIT, _CREDIT) == _NONE

    def _apply_credit(self, cluster: Cluster, *, is_exhausted: bool) -> None:
        """Pause or resume a cluster by the account's credit, and store it.

        A planned deletion of the cluster also plans the release of the volume; a cancelled one
        cancels the release.
        """
        changed = cluster.apply_credit(self.now, is_exhausted=is_exhausted)
        self._save_cluster(changed)
        # A volume stays attached until its cluster is gone; credit has just moved that time.
        if changed.gone_at != cluster.gone_at and cluster.volume_id is not None:
            volume = self.get_volume(cluster.volume_id)
            released = volume.release(cluster.cluster_id, changed.gone_at)
            self._save_volume(released)

    def _refuse_resize_while_paused(self, old: Cluster, new: Cluster) -> None:
        """Raise `Refusal` 402 if a cluster paused without credit gets another size or type (ours).

        The document says only that the compute is paused.
        """
        sizes = {
            (cluster.num_gpus, cluster.desired_preemptible_gpus, cluster.cluster_type)
            for cluster in (old.settings, new.settings)
        }
        if old.get_status(self.now) == PAUSED_WITHOUT_CREDIT and len(sizes) > 1:
            raise TogetherApiError(402, "Insufficient credits")

    def _refuse_without_credit(self) -> None:
        """Raise `Refusal` 402 without credit (the platform documents no code)."""
        if self._is_exhausted:
            raise TogetherApiError(402, "Insufficient credits")

    def _require_usable_volume(self, body: CreateCluster) -> Volume:
        """Return the volume that the body names; other clusters may have it, too.

        Raises `Refusal`: 404, 400 in another region, 409 if neither available nor bound.
        """
        volume = self.get_volume(str(body.volume_id))
        if volume.region != body.region:
            raise TogetherApiError(400, "Shared volume does not exist in the datacenter")
        status = volume.get_status(self.now)
        # Bound to another cluster is no obstacle: volumes are shared.
        if status not in ("available", "bound"):
            raise TogetherApiError(409, f"volume {volume.volume_id!r} is {status}, not available")
        return volume

    def _save_cluster(self, cluster: Cluster) -> None:
        """Store a new or changed cluster, until its `gone_at` if set."""
        self._store.put(
            _CLUSTER, cluster.cluster_id, cluster.model_dump_json(), gone_at=cluster.gone_at
        )

    def _save_volume(self, volume: Volume) -> None:
        """Store a new or changed volume, until its `gone_at` if set."""
        self._store.put(_VOLUME, volume.volume_id, volume.model_dump_json(), gone_at=volume.gone_at)


def _compute_reservation(body: CreateCluster, now: float) -> dict[str, float | None]:
    """Return start and end of a reservation in unix seconds; {} for ON_DEMAND billing.

    Without a start time the reservation begins `now`. `duration_days`, if any, decide the end; an
    end of None is not known.
    """
    if body.billing_type == "ON_DEMAND":
        return {}
    start = body.reservation_start_time.timestamp() if body.reservation_start_time else now
    end = body.reservation_end_time.timestamp() if body.reservation_end_time else None
    if body.duration_days is not None:
        end = start + body.duration_days * 86400.0
    return {"reservation_start": start, "reservation_end": end}


def _apply_changes(cluster: Cluster, body: UpdateCluster) -> Cluster:
    """Return the cluster with the body's fields set; statuses and nodes stay.

    Raises `Refusal` 400 for an add-on that the cluster does not have.
    """
    new_values = body.model_dump(exclude_none=True)
    names = ("num_gpus", "cluster_type", "num_capacity_pool_gpus", "num_reserved_gpus")
    changed = {name: new_values[name] for name in names if name in new_values}
    if "num_preemptible_gpus" in new_values:
        changed["desired_preemptible_gpus"] = new_values["num_preemptible_gpus"]
    if "cluster_config" in new_values:
        changed["cluster_config"] = merge_deeply(
            cluster.settings.cluster_config, new_values["cluster_config"]
        )
    update: dict[str, Any] = {
        "settings": cluster.settings.model_copy(update=changed),
        "add_ons": merge_add_ons(cluster.add_ons, body.add_ons or []),
    }
    if body.reservation_end_time is not None:
        update["reservation_end"] = body.reservation_end_time.timestamp()
    return cluster.model_copy(update=update)


_ENCODED_CA_CERTIFICATE = base64.b64encode(CA_CERTIFICATE.encode()).decode()
_KUBECONFIG_TEMPLATE = """\
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


def build_kubeconfig(server: str, cluster_name: str, token: str) -> str:
    """Return a kubeconfig in base64, with a token for the API at `server`.

    The form is the one that `clusters get-credentials` of SDK 3.1.1 reads.
    """
    content = _KUBECONFIG_TEMPLATE.format(
        # A JSON string is a YAML string whatever the name holds.
        name=json.dumps(cluster_name),
        user=json.dumps(f"{cluster_name}-admin"),
        server=json.dumps(server),
        authority=_ENCODED_CA_CERTIFICATE,
        token=token,
    )
    return base64.b64encode(content.encode()).decode()


def _build_oidc_config(cluster: Cluster, address: str) -> dict[str, Any]:
    """Return the OIDC settings that the API shows for a cluster with an SSH CA of its own."""
    # The client gets no certificate authority for the issuer: plain HTTP, on this machine alone.
    origin = address.replace("https://", "http://", 1)
    return {
        "issuer_url": f"{origin}{SSH_PREFIX}/{cluster.cluster_id}",
        "client_id": SSH_CLIENT_ID,
        "username_claim": "email",
        "username_prefix": "oidc:",
        "group_claim": "groups",
        "group_prefix": "oidc:",
    }
