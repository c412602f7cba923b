"""Model a cluster of TensorOne: what is stored, how statuses change, when it stops by itself.

Nothing runs in the background: an operation writes down when which status comes, and reading a
record first applies the auto-termination that is due by then. The durations are ours: 3 minutes for
a new cluster. `operations` and `views` use this module.
"""

from collections.abc import Iterator
from typing import Any, Self

from pydantic import BaseModel

from gpuform.providers.emulator.clock import (
    Timeline,
    get_value_at,
    schedule_stages,
    select_past_steps,
)
from gpuform.providers.emulator.store import Store, parse_stored
from gpuform.providers.emulator.tensorone.catalogue import (
    CORE_HOURLY,
    GPU_TYPES,
    MEMORY_GB_HOURLY,
    NETWORK_HOURLY,
    STORAGE_GB_HOURLY,
    make_not_found,
)

# Statuses and their seconds; the seconds are ours.
_PENDING = ("pending", 30.0)
_STARTING = ("starting", 150.0)
_STOPPING = ("stopping", 45.0)
_FORCED_STOPPING = ("stopping", 10.0)
_DELETION_SECONDS = 60.0
_SECRET_SUFFIXES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


class Spec(BaseModel, frozen=True):
    """The hardware of a cluster."""

    gpu_type: str
    gpu_count: int
    cpu_cores: int
    memory_gb: int
    storage_gb: int
    region: str

    def compute_costs(self) -> dict[str, float]:
        """Return the price of an hour in USD, part by part."""
        return {
            "gpu_cost": round(GPU_TYPES[self.gpu_type].hourly * self.gpu_count, 2),
            "cpu_cost": round(CORE_HOURLY * self.cpu_cores, 2),
            "memory_cost": round(MEMORY_GB_HOURLY * self.memory_gb, 2),
            "storage_cost": round(STORAGE_GB_HOURLY * self.storage_gb, 2),
            "network_cost": NETWORK_HOURLY,
        }

    @property
    def hourly(self) -> float:
        """Return the price of an hour in USD."""
        return round(sum(self.compute_costs().values()), 2)


class Port(BaseModel, frozen=True):
    """A port mapping with both ports assigned."""

    internal_port: int
    external_port: int
    protocol: str
    description: str


class AutoTerminateLimits(BaseModel, frozen=True):
    """The limits at which a running cluster stops by itself."""

    enabled: bool = False
    idle_minutes: int | None = None
    max_runtime_hours: int | None = None
    cost_limit_usd: float | None = None

    def list_end_times(
        self, start: float, idle_since: float | None, hourly: float
    ) -> Iterator[Any]:
        """Yield when a session reaches each limit, with the reason, in any order.

        Whether the limits are enabled is not looked at.

        Args:
            start: when the session began, in unix seconds.
            idle_since: since when the cluster has had no work; None while it works.
            hourly: the cluster's price of an hour in USD.
        """
        if self.idle_minutes is not None and idle_since is not None:
            idle_at = max(start, idle_since) + self.idle_minutes * 60.0
            yield idle_at, f"idle for {self.idle_minutes} minutes"
        if self.max_runtime_hours is not None:
            end_at = start + self.max_runtime_hours * 3600.0
            yield end_at, f"running for {self.max_runtime_hours} hours"
        if self.cost_limit_usd is not None:
            end_at = start + self.cost_limit_usd / hourly * 3600.0
            yield end_at, f"session cost of {self.cost_limit_usd:.2f} USD"


class Details(BaseModel, frozen=True):
    """The part of a cluster that users ask for and an update may change."""

    name: str
    description: str
    environment_variables: dict[str, str]
    port_mappings: list[Port]
    security_groups: list[str]
    auto_terminate: AutoTerminateLimits
    tags: dict[str, str]


class Cluster(BaseModel, frozen=True, ser_json_inf_nan="constants"):
    """A cluster as it is stored. `statuses` holds the past and what is planned."""

    cluster_id: str
    number: int
    """A number counted from 1, of which addresses and ports are made."""
    spec: Spec
    details: Details
    project_id: str
    template_id: str | None
    docker_image: str
    has_ssh: bool
    created_at: float
    changed_at: float
    statuses: Timeline[str]
    message: str = ""
    """The platform's own words about a failure or an auto-termination."""
    idle_since: float | None = None
    shown: dict[str, Any] = {}
    """Values that answers have instead of the true ones, part by part: a test's choice."""
    hidden: list[str] = []
    """Members that answers leave out, such as `metrics.current`: a test's choice."""
    gone_at: float | None = None

    def get_status(self, now: float) -> str:
        """Return the cluster's status at `now`; before the first step, the first status."""
        return get_value_at(self.statuses, now)

    def get_last_change(self, now: float) -> float:
        """Return when the present status began, in unix seconds."""
        return select_past_steps(self.statuses, now)[-1][0]

    def get_updated_at(self, now: float) -> float:
        """Return the time of the last update or change of status, in unix seconds."""
        return max(self.changed_at, self.get_last_change(now))

    def list_sessions(self, now: float) -> list[tuple[float, float]]:
        """Return the spans in which the cluster has run, oldest first, the last until `now`."""
        sessions, start = [], None
        for moment, status in select_past_steps(self.statuses, now):
            if status == "running" and start is None:
                start = moment
            elif status != "running" and start is not None:
                sessions.append((start, moment))
                start = None
        return [*sessions, (start, now)] if start is not None else sessions

    def compute_cost(self, spans: list[tuple[float, float]]) -> float:
        """Return the cost in USD of running in `spans` (unix seconds) at the present price."""
        return round(self.spec.hourly * sum(end - start for start, end in spans) / 3600.0, 2)

    def get_visible_variables(self) -> dict[str, str]:
        """Return the environment variables that answers show: all but the secret ones."""
        pairs = self.details.environment_variables.items()
        return {name: value for name, value in pairs if not name.endswith(_SECRET_SUFFIXES)}

    def list_secret_variables(self) -> list[str]:
        """Return the names of secret environment variables, such as `HF_TOKEN`."""
        return [
            name for name in self.details.environment_variables if name.endswith(_SECRET_SUFFIXES)
        ]

    def compute_idle_minutes(self, now: float) -> int:
        """Return the minutes without work in the last session; 0 for a cluster with work."""
        sessions = self.list_sessions(now)
        if self.idle_since is None or not sessions:
            return 0
        # Idleness before the last start does not count.
        start, end = sessions[-1]
        # Half a second: sums of times are not exact.
        return max(0, int((end + 0.5 - max(start, self.idle_since)) // 60))

    def find_auto_stop(self) -> tuple[float, str] | None:
        """Return when the cluster stops by itself, in Unix seconds, and the reason.

        Returns None if no limit is enabled, or if the last planned status is not `running`.
        """
        since, status = self.statuses[-1]
        limits = self.details.auto_terminate
        if status != "running" or not limits.enabled:
            return None
        return min(limits.list_end_times(since, self.idle_since, self.spec.hourly), default=None)

    def apply_auto_stop(self, now: float) -> Self:
        """Return the cluster as of `now`: stopping since a limit was reached, or unchanged.

        The stop begins no earlier than the last update of the cluster. Nothing is stored.
        """
        auto_stop = self.find_auto_stop()
        # Nothing is due: the record is as it was stored.
        if auto_stop is None or auto_stop[0] > now:
            return self
        moment, reason = auto_stop
        # A limit that an update has lowered cannot have stopped the cluster before the update.
        moment = max(moment, self.changed_at)
        plan = schedule_stages((_STOPPING, ("stopped", 0.0)), moment)
        return self.model_copy(
            update={
                "statuses": [*self.statuses, *plan],
                "message": f"Stopped by auto-termination: {reason}",
            }
        )

    def plan_start(self, now: float, *, is_new: bool, is_stuck: bool, is_failing: bool) -> Self:
        """Return the cluster with a start planned: `starting`, then `running`.

        A new cluster is `pending` first. A stuck cluster stays in the first of these statuses, a
        failing one ends in `error`.
        """
        last_stage = ("error", 0.0) if is_failing else ("running", 0.0)
        stages = (_PENDING, _STARTING, last_stage) if is_new else (_STARTING, last_stage)
        message = "The container did not start" if is_failing else ""
        return self._plan_statuses(now, stages, is_stuck=is_stuck, message=message, idle_since=None)

    def plan_stopped_creation(self, now: float, *, is_stuck: bool) -> Self:
        """Return the new cluster `pending`, and then `stopped` without a start unless stuck."""
        return self._plan_statuses(now, (_PENDING, ("stopped", 0.0)), is_stuck=is_stuck)

    def plan_stop(self, now: float, *, is_forced: bool, is_stuck: bool) -> Self:
        """Return the cluster `stopping`, and then `stopped`: sooner if forced, never if stuck."""
        stages = (_FORCED_STOPPING if is_forced else _STOPPING, ("stopped", 0.0))
        return self._plan_statuses(now, stages, is_stuck=is_stuck, message="")

    def plan_deletion(self, now: float, *, is_stuck: bool) -> Self:
        """Return the cluster `deleting`, to be removed after a minute, or never if stuck."""
        gone_at = None if is_stuck else now + _DELETION_SECONDS
        return self._plan_statuses(now, (("deleting", 0.0),), is_stuck=False, gone_at=gone_at)

    def apply_changes(self, now: float, **changes: Any) -> Self:
        """Return the cluster with changed fields, and `now` as the time of the change."""
        return self.model_copy(update={"changed_at": now, **changes})

    def _plan_statuses(
        self, now: float, stages: tuple[tuple[str, float], ...], *, is_stuck: bool, **changes: Any
    ) -> Self:
        """Return the cluster with `stages` (status, seconds) planned from `now` on, and `changes`.

        Statuses planned earlier are dropped. A stuck cluster stays in the first stage.
        """
        past_statuses = select_past_steps(self.statuses, now) if self.statuses else []
        plan = schedule_stages(stages[:1] if is_stuck else stages, now)
        return self.apply_changes(now, statuses=[*past_statuses, *plan], **changes)


class Snapshot(BaseModel, frozen=True):
    """A snapshot of a cluster's storage."""

    snapshot_id: str
    cluster_id: str
    name: str
    size_gb: int
    created_at: float


_CLUSTER = "tensorone.cluster"
_SNAPSHOT = "tensorone.snapshot"


class TensorOneInventory:
    """All clusters and snapshots of the store at one moment, within one transaction.

    Methods raise `Refusal` 404 for a missing object.
    """

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self.now = now
        store.remove_expired(now)

    def list_clusters(self) -> list[Cluster]:
        """Return all clusters, oldest first, stopped where a limit was reached."""
        return [
            parse_stored(Cluster, body).apply_auto_stop(self.now)
            for body in self._store.list_all(_CLUSTER)
        ]

    def get_cluster(self, cluster_id: str) -> Cluster:
        """Return a cluster, stopped if a limit was reached. Raises `Refusal` 404."""
        body = self._store.get(_CLUSTER, cluster_id)
        if body is None:
            raise make_not_found("cluster", cluster_id)
        return parse_stored(Cluster, body).apply_auto_stop(self.now)

    def save_cluster(self, cluster: Cluster) -> None:
        """Store a new or changed cluster, until its `gone_at` if set."""
        body = cluster.model_dump_json()
        self._store.put(_CLUSTER, cluster.cluster_id, body, gone_at=cluster.gone_at)

    def list_snapshots(self, cluster_id: str | None = None) -> list[Snapshot]:
        """Return the snapshots of a cluster, also of a deleted one; None: of all clusters."""
        snapshots = [Snapshot.model_validate_json(body) for body in self._store.list_all(_SNAPSHOT)]
        return [snapshot for snapshot in snapshots if cluster_id in {None, snapshot.cluster_id}]

    def get_snapshot(self, snapshot_id: str) -> Snapshot:
        """Return a snapshot. Raises `Refusal` 404."""
        body = self._store.get(_SNAPSHOT, snapshot_id)
        if body is None:
            raise make_not_found("snapshot", snapshot_id)
        return Snapshot.model_validate_json(body)

    def save_snapshot(self, snapshot: Snapshot) -> None:
        """Store a new or changed snapshot."""
        self._store.put(_SNAPSHOT, snapshot.snapshot_id, snapshot.model_dump_json())

    def delete_snapshots(self, cluster_id: str) -> None:
        """Delete all snapshots of a cluster at once."""
        for snapshot in self.list_snapshots(cluster_id):
            body = snapshot.model_dump_json()
            self._store.put(_SNAPSHOT, snapshot.snapshot_id, body, gone_at=self.now)
        # At once, so that the same request does not list them any more.
        self._store.remove_expired(self.now)

    def create_id(self, prefix: str) -> str:
        """Return a new id with a prefix: `cluster_0f3a9c51d2e8`."""
        return f"{prefix}_{self._store.create_id().replace('-', '')[:12]}"
