"""The clusters and snapshots in the store, as they are at one moment."""

from functools import lru_cache

from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone.clusters import Cluster, Snapshot
from gpuform.providers.emulator.tensorone.errors import not_found

_CLUSTER = "tensorone.cluster"
_SNAPSHOT = "tensorone.snapshot"


class Estate:
    """One request's view, within one transaction. What is missing raises `ApiError` 404."""

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self.now = now
        store.sweep(now)

    def clusters(self) -> list[Cluster]:
        """Oldest first."""
        return [_read_cluster(body).at(self.now) for body in self._store.all(_CLUSTER)]

    def cluster(self, cluster_id: str) -> Cluster:
        body = self._store.get(_CLUSTER, cluster_id)
        if body is None:
            raise not_found("cluster", cluster_id)
        return _read_cluster(body).at(self.now)

    def keep(self, cluster: Cluster) -> None:
        body = cluster.model_dump_json()
        self._store.put(_CLUSTER, cluster.cluster_id, body, gone_at=cluster.gone_at)

    def snapshots(self, cluster_id: str | None = None) -> list[Snapshot]:
        """All, or those of a cluster; they outlive it."""
        found = [Snapshot.model_validate_json(body) for body in self._store.all(_SNAPSHOT)]
        return [each for each in found if cluster_id in {None, each.cluster_id}]

    def snapshot(self, snapshot_id: str) -> Snapshot:
        body = self._store.get(_SNAPSHOT, snapshot_id)
        if body is None:
            raise not_found("snapshot", snapshot_id)
        return Snapshot.model_validate_json(body)

    def keep_snapshot(self, snapshot: Snapshot) -> None:
        self._store.put(_SNAPSHOT, snapshot.snapshot_id, snapshot.model_dump_json())

    def forget_snapshots(self, cluster_id: str) -> None:
        for each in self.snapshots(cluster_id):
            body = each.model_dump_json()
            self._store.put(_SNAPSHOT, each.snapshot_id, body, gone_at=self.now)
        self._store.sweep(self.now)

    def new_id(self, prefix: str) -> str:
        """Such as cluster_0f3a9c51d2e8."""
        return f"{prefix}_{self._store.new_id().replace('-', '')[:12]}"


# Kept, for records are immutable and most requests read what others have read before.
@lru_cache(maxsize=4096)
def _read_cluster(body: str) -> Cluster:
    return Cluster.model_validate_json(body)
