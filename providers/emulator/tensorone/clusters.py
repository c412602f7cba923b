"""Model a cluster: how it progresses, when it stops by itself, and all clusters at one moment.

Nothing runs in the background: an operation writes down when which status comes, and whoever reads
a record first asks what it has become `at` that time. The durations are ours: 3 minutes for a new
cluster.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Self

from pydantic import BaseModel

from gpuform.providers.emulator.clock import (
    Timeline,
    get_value_at,
    schedule_stages,
    select_past_steps,
)
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone.catalogue import (
    CORE_HOURLY,
    GPU_TYPES,
    MEMORY_GB_HOURLY,
    NETWORK_HOURLY,
    STORAGE_GB_HOURLY,
    not_found,
)

_PENDING = ("pending", 30.0)
_STARTING = ("starting", 150.0)
_STOPPING = ("stopping", 45.0)
_FORCED = ("stopping", 10.0)
_DELETION_SECONDS = 60.0
_HIDDEN = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")


class Spec(BaseModel, frozen=True):
    gpu_type: str
    gpu_count: int
    cpu_cores: int
    memory_gb: int
    storage_gb: int
    region: str

    def costs(self) -> dict[str, float]:
        """What an hour costs, by what it is for."""
        return {
            "gpu_cost": round(GPU_TYPES[self.gpu_type].hourly * self.gpu_count, 2),
            "cpu_cost": round(CORE_HOURLY * self.cpu_cores, 2),
            "memory_cost": round(MEMORY_GB_HOURLY * self.memory_gb, 2),
            "storage_cost": round(STORAGE_GB_HOURLY * self.storage_gb, 2),
            "network_cost": NETWORK_HOURLY,
        }

    @property
    def hourly(self) -> float:
        return round(sum(self.costs().values()), 2)


class Port(BaseModel, frozen=True):
    internal_port: int
    external_port: int
    protocol: str
    description: str


class Limits(BaseModel, frozen=True):
    """When it stops by itself."""

    enabled: bool = False
    idle_minutes: int | None = None
    max_runtime_hours: int | None = None
    cost_limit_usd: float | None = None

    def moments(self, start: float, idle_since: float | None, hourly: float) -> Iterator[Any]:
        """When a session that began at `start` reaches which limit, in any order."""
        if self.idle_minutes is not None and idle_since is not None:
            idle_at = max(start, idle_since) + self.idle_minutes * 60.0
            yield idle_at, f"idle for {self.idle_minutes} minutes"
        if self.max_runtime_hours is not None:
            end = start + self.max_runtime_hours * 3600.0
            yield end, f"running for {self.max_runtime_hours} hours"
        if self.cost_limit_usd is not None:
            end = start + self.cost_limit_usd / hourly * 3600.0
            yield end, f"session cost of {self.cost_limit_usd:.2f} USD"


class Details(BaseModel, frozen=True):
    """What was asked for and can be changed by an update."""

    name: str
    description: str
    environment_variables: dict[str, str]
    port_mappings: list[Port]
    security_groups: list[str]
    auto_terminate: Limits
    tags: dict[str, str]


class Cluster(BaseModel, frozen=True, ser_json_inf_nan="constants"):
    cluster_id: str
    number: int
    """Counted from 1: addresses and ports are made of it."""
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
    """What the platform says when it was not asked: a failure, an auto-termination."""
    idle_since: float | None = None
    shown: dict[str, Any] = {}
    """What its answers have instead of what is so, part by part."""
    hidden: list[str] = []
    """What its answers leave out, such as `metrics.current`."""
    gone_at: float | None = None

    def status(self, now: float) -> str:
        return get_value_at(self.statuses, now)

    def last_change(self, now: float) -> float:
        return select_past_steps(self.statuses, now)[-1][0]

    def updated_at(self, now: float) -> float:
        return max(self.changed_at, self.last_change(now))

    def sessions(self, now: float) -> list[tuple[float, float]]:
        """From when to when it has run, oldest first; a running one until now."""
        found, start = [], None
        for at, status in select_past_steps(self.statuses, now):
            if status == "running" and start is None:
                start = at
            elif status != "running" and start is not None:
                found.append((start, at))
                start = None
        return [*found, (start, now)] if start is not None else found

    def cost(self, spans: list[tuple[float, float]]) -> float:
        """Of these sessions, at the present rate."""
        return round(self.spec.hourly * sum(end - start for start, end in spans) / 3600.0, 2)

    def variables(self) -> dict[str, str]:
        """Those whose values are shown."""
        pairs = self.details.environment_variables.items()
        return {name: value for name, value in pairs if not name.endswith(_HIDDEN)}

    def hidden_variables(self) -> list[str]:
        """The names of the others: keys, tokens and passwords, by their names."""
        return [name for name in self.details.environment_variables if name.endswith(_HIDDEN)]

    def idle_minutes(self, now: float) -> int:
        """How long without work, or how long it was when it stopped."""
        sessions = self.sessions(now)
        if self.idle_since is None or not sessions:
            return 0
        start, end = sessions[-1]
        # Half a second: sums of times are not exact.
        return max(0, int((end + 0.5 - max(start, self.idle_since)) // 60))

    def runs_out_at(self) -> tuple[float, str] | None:
        """When it stops by itself, and why; None while it does not run, or has no limit."""
        since, status = self.statuses[-1]
        limits = self.details.auto_terminate
        if status != "running" or not limits.enabled:
            return None
        return min(limits.moments(since, self.idle_since, self.spec.hourly), default=None)

    def at(self, now: float) -> Self:
        """What it has become: stopped, where a limit was reached."""
        found = self.runs_out_at()
        if found is None or found[0] > now:
            return self
        moment, why = found
        moment = max(moment, self.changed_at)
        plan = schedule_stages((_STOPPING, ("stopped", 0.0)), moment)
        return self.model_copy(
            update={
                "statuses": [*self.statuses, *plan],
                "message": f"Stopped by auto-termination: {why}",
            }
        )

    def started(self, now: float, *, is_new: bool, is_stuck: bool, is_failing: bool) -> Self:
        """On its way to run; never beyond the first status if stuck, to an error if failing."""
        end = ("error", 0.0) if is_failing else ("running", 0.0)
        stages = (_PENDING, _STARTING, end) if is_new else (_STARTING, end)
        message = "The container did not start" if is_failing else ""
        return self._planned(now, stages, is_stuck=is_stuck, message=message, idle_since=None)

    def created_stopped(self, now: float, *, is_stuck: bool) -> Self:
        return self._planned(now, (_PENDING, ("stopped", 0.0)), is_stuck=is_stuck)

    def stopped(self, now: float, *, is_forced: bool, is_stuck: bool) -> Self:
        stages = (_FORCED if is_forced else _STOPPING, ("stopped", 0.0))
        return self._planned(now, stages, is_stuck=is_stuck, message="")

    def deleted(self, now: float, *, is_stuck: bool) -> Self:
        gone_at = None if is_stuck else now + _DELETION_SECONDS
        return self._planned(now, (("deleting", 0.0),), is_stuck=False, gone_at=gone_at)

    def changed(self, now: float, **changes: Any) -> Self:
        return self.model_copy(update={"changed_at": now, **changes})

    def _planned(
        self, now: float, stages: tuple[tuple[str, float], ...], *, is_stuck: bool, **changes: Any
    ) -> Self:
        kept = select_past_steps(self.statuses, now) if self.statuses else []
        plan = schedule_stages(stages[:1] if is_stuck else stages, now)
        return self.changed(now, statuses=[*kept, *plan], **changes)


class Snapshot(BaseModel, frozen=True):
    snapshot_id: str
    cluster_id: str
    name: str
    size_gb: int
    created_at: float


_CLUSTER = "tensorone.cluster"
_SNAPSHOT = "tensorone.snapshot"


class Estate:
    """One request's view, within one transaction. What is missing raises `ApiError` 404."""

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self.now = now
        store.remove_expired(now)

    def clusters(self) -> list[Cluster]:
        """Oldest first."""
        return [_read_cluster(body).at(self.now) for body in self._store.list_all(_CLUSTER)]

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
        found = [Snapshot.model_validate_json(body) for body in self._store.list_all(_SNAPSHOT)]
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
        self._store.remove_expired(self.now)

    def new_id(self, prefix: str) -> str:
        """Such as cluster_0f3a9c51d2e8."""
        return f"{prefix}_{self._store.create_id().replace('-', '')[:12]}"


# Kept, for records are immutable and most requests read what others have read before.
@lru_cache(maxsize=4096)
def _read_cluster(body: str) -> Cluster:
    return Cluster.model_validate_json(body)
