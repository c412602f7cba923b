"""What brings a cluster to its declared state: stops and starts, one at a time.

Cores, memory, GPUs, storage and image change at a start alone, and a snapshot is restored by one
(documentation, 'Start Cluster').
"""

from collections.abc import Iterable

from gpuform.providers import permissions
from gpuform.providers.context import ProviderContext, format_duration
from gpuform.providers.creating import ROUND, none_free, patience_of
from gpuform.providers.errors import ApiError, Conflict, OutOfCapacity
from gpuform.providers.permissions import Permission
from gpuform.providers.records import IdleStop, IdleStops
from gpuform.providers.tensorone.client import NO_CAPACITY, TensorOneClient
from gpuform.providers.tensorone.idleness import because_of, stopped_for
from gpuform.providers.tensorone.shown import differences
from gpuform.schemas.policies.lifetime import idleness_of
from gpuform.schemas.tensorone import requests, wire
from gpuform.schemas.tensorone.inputs import ClusterInputs
from gpuform.schemas.tensorone.statuses import ClusterStatus
from gpuform.schemas.tensorone.termination import stopped_by

PATIENCE = 120.0
"""Seconds until a request that shows no effect is sent again."""


class Course:
    """The way of one cluster during one call."""

    def __init__(
        self, client: TensorOneClient, call: ProviderContext, cluster_id: str, want: ClusterInputs
    ) -> None:
        self._client = client
        self._call = call
        self._id = cluster_id
        self._want = want
        self._asked: tuple[str, str | None] | None = None
        self._asked_at = 0.0
        self._is_configured = False
        self._short_since: float | None = None
        """When there were first no GPUs for its start."""
        known = call.known.get("restored_snapshot")
        self.restored: str | None = known if want.restore_snapshot else None
        """The declared snapshot, once the cluster was started from it."""

    def go_on(self, cluster: wire.Cluster) -> str | None:
        """Asks a cluster at rest for its next step, and says which; None when it has arrived.

        Raises OutOfCapacity when there are no GPUs for a start, and other `GpuformError`s.
        """
        step = self._next(cluster)
        asked = (step or "", cluster.status_details.last_status_change)
        now = self._call.clock.now()
        pause = ROUND if self._short_since is not None else PATIENCE
        if step is None or (asked == self._asked and now - self._asked_at < pause):
            return step
        self._asked, self._asked_at = asked, now
        try:
            if step == "stop":
                self._remember_idleness()
                self._client.stop(self._id)
            else:
                self._start(cluster)
        except OutOfCapacity as error:
            self._wait_for_capacity(error, cluster)
        except Conflict:
            pass  # it is on its way already: the next look shows where to
        return step

    def unmet(self, cluster: wire.Cluster) -> str | None:
        """What the platform has not done although it was asked, if so."""
        left = differences(cluster, self._want)
        if not left:
            return None
        wanted = ", ".join(f"{name} {value}" for name, value in left.items())
        return f"the platform started it without {wanted}"

    def left_stopped_by(self, cluster: wire.Cluster) -> str | None:
        """What has stopped it, when it stays so: until its start is allowed."""
        known = self._call.known
        if self._want.idle is not None:
            idle = stopped_for(cluster, self._idle_stops, known)
            is_allowed = Permission.START_TERMINATED in permissions.given()
            if idle is not None and (self._want.state == "stopped" or not is_allowed):
                return idle
        by = stopped_by(cluster)
        was_meant = known.get("state") == "stopped" or self._want.state == "stopped"
        ran = known.get("status") in (ClusterStatus.RUNNING, ClusterStatus.STOPPING)
        if by is None or was_meant or not (ran or known.get("stopped_by")):
            return None
        return None if Permission.START_TERMINATED in permissions.given() else by

    @property
    def _idle_stops(self) -> IdleStops:
        return IdleStops.beside(self._call.intents)

    def _remember_idleness(self) -> None:
        """What declares idle is never declared to be stopped: `gpuform expire` alone does that."""
        idleness = idleness_of(self._want.dump_declared())
        if idleness is not None and self._want.state == "stopped":
            now = self._call.clock.now()
            self._idle_stops.record(IdleStop(self._id, now, because_of(idleness, now)))

    def _next(self, cluster: wire.Cluster) -> str | None:
        wants_running = self._want.state != "stopped"
        is_running = cluster.status == ClusterStatus.RUNNING
        has_changes = self._has_changes(cluster) or (wants_running and self._snapshot is not None)
        if is_running:
            return "stop" if has_changes or not wants_running else None
        if has_changes:
            return "start"
        is_meant = not wants_running or self.left_stopped_by(cluster) is not None
        return None if is_meant else "start"

    def _has_changes(self, cluster: wire.Cluster) -> bool:
        """Whether there is something that a start would change, which is asked for once."""
        return not self._is_configured and bool(differences(cluster, self._want))

    @property
    def _snapshot(self) -> str | None:
        """The snapshot to restore: one that was declared since the last time."""
        wanted = self._want.restore_snapshot
        return None if wanted == self.restored else wanted

    def _wait_for_capacity(self, error: OutOfCapacity, cluster: wire.Cluster) -> None:
        """Raises the error when it is not to be waited for, or no longer."""
        now = self._call.clock.now()
        if self._short_since is None:
            self._short_since = now
        left = self._short_since + patience(self._want) - now
        if left <= 0:
            place = cluster.configuration or wire.Configuration()
            where = (place.gpu_type or self._want.gpu_type, place.region or self._want.region)
            raise out_of_stock(error, self._want, [where], "started") from None
        self._call.on_progress(f"out of stock; trying again for {format_duration(left)}")

    def _start(self, cluster: wire.Cluster) -> None:
        changed, snapshot = differences(cluster, self._want), self._snapshot
        try:
            self._client.start(self._id, requests.cluster_start(changed, snapshot))
        except ApiError as error:
            raise shortage(error) from None
        self._is_configured = True
        if self._want.idle is not None:
            self._idle_stops.forget(self._id)
        if snapshot is not None:
            self.restored = snapshot


def patience(want: ClusterInputs) -> float:
    """How long it is waited for capacity, in seconds."""
    return patience_of(want.dump_declared().get("on_no_capacity"))


def shortage(error: ApiError) -> ApiError:
    """OutOfCapacity for the answer that says so ('Error Handling'); another error as it is."""
    if error.status != 422 or error.code != NO_CAPACITY:
        return error
    return OutOfCapacity(
        error.message,
        method=error.method,
        path=error.path,
        status=error.status,
        code=error.code,
        request_id=error.request_id,
    )


def out_of_stock(
    error: OutOfCapacity, want: ClusterInputs, places: Iterable[tuple[str, str]], done: str
) -> OutOfCapacity:
    """What TensorOne has not got: types of GPU, each in a region."""
    many = "s" * (want.gpu_count != 1)
    wanted = [f"{want.gpu_count} {type_} GPU{many} free in {region}" for type_, region in places]
    hint = "try again later, or declare another region, another gpu_type or a smaller gpu_count"
    is_searched = want.on_no_capacity is not None
    return none_free(error, "TensorOne", wanted, done, hint, is_searched=is_searched)
