"""A cluster: what is known of it, how it progresses, and what it looks like at a time.

Nothing runs in the background: an operation writes down when which status comes, reading compares
those times with the clock. The order of statuses follows the SDK's enumeration, the durations are
ours: 20 minutes for a new cluster.
"""

from collections.abc import Callable, Collection
from typing import Any, Self

from pydantic import BaseModel

from gpuform.providers.emulator.clock import (
    Timeline,
    get_value_at,
    schedule_stages,
    select_past_steps,
)
from gpuform.providers.emulator.together.catalogue import DriverVersion
from gpuform.providers.emulator.together.nodes import (
    CONTROL_PLANE_SIZE,
    GPUS_PER_WORKER,
    Node,
    timestamp,
)
from gpuform.providers.emulator.together.volumes import Volume

PACE = 300.0
"""Seconds from one preemptible node to the next."""
COMEBACK = 3600.0
"""Seconds after which nodes that were taken back are replaced."""

NewId = Callable[[], str]


def filled(nodes: list[Node], gpus: int, name: str, since: float, new_id: NewId) -> list[Node]:
    """Towards `gpus` GPUs from `since` on: nodes are planned to join, or the newest leave.

    What was planned for later is dropped.
    """
    left = [node for node in nodes if node.has_left(since)]
    running = [node for node in nodes if node.runs(since)]
    wanted = gpus // GPUS_PER_WORKER
    leaving = [node.model_copy(update={"removed_at": since}) for node in running[wanted:]]
    first = 1 + max((node.index for node in nodes), default=-1)
    joining = [
        Node.started(
            (new_id(), new_id()),
            f"{name}-preemptible-{first + at}",
            first + at,
            (since, since + PACE * (at + 1)),
        )
        for at in range(wanted - len(running))
    ]
    return [*left, *running[:wanted], *leaving, *joining]


def taken_back(nodes: list[Node], gpus: int, name: str, now: float, new_id: NewId) -> list[Node]:
    """All running nodes leave now; as many come back later."""
    left = [node for node in nodes if node.has_left(now)]
    gone = [
        node.model_copy(update={"removed_at": now, "is_preempted": True})
        for node in nodes
        if node.runs(now)
    ]
    return filled([*left, *gone], gpus, name, now + COMEBACK, new_id)


SCHEDULING_SECONDS = 30.0
_CONTROL_PLANE = ("WaitingForControlPlaneNodes", 180.0)
_DATA_PLANE = ("WaitingForDataPlaneNodes", 420.0)
_NETWORK_AND_STORAGE = (("WaitingForSubnet", 30.0), ("WaitingForSharedVolume", 60.0))
_SOFTWARE = (("InstallingDrivers", 300.0), ("RunningAcceptanceTests", 180.0), ("Ready", 0.0))
_DELETION_SECONDS = 180.0
_DECOMMISSION_SECONDS = 3 * 86400.0

_PHASES = {
    "Scheduled": "CLUSTER_PHASE_SCHEDULED",
    "WaitingForControlPlaneNodes": "CLUSTER_PHASE_WAITING_FOR_CONTROL_PLANE_NODES",
    "WaitingForDataPlaneNodes": "CLUSTER_PHASE_WAITING_FOR_DATA_PLANE_NODES",
    "WaitingForSubnet": "CLUSTER_PHASE_WAITING_FOR_SUBNET",
    "WaitingForSharedVolume": "CLUSTER_PHASE_WAITING_FOR_SHARED_VOLUME",
    "InstallingDrivers": "CLUSTER_PHASE_INSTALLING_DRIVERS",
    "RunningAcceptanceTests": "CLUSTER_PHASE_RUNNING_ACCEPTANCE_TESTS",
    "Ready": "CLUSTER_PHASE_READY",
    "Degraded": "CLUSTER_PHASE_DEGRADED",
    "Paused": "CLUSTER_PHASE_PAUSED",
    "OnDemandComputePaused": "CLUSTER_PHASE_ON_DEMAND_COMPUTE_PAUSED",
    "Deleting": "CLUSTER_PHASE_DELETING",
}


def phase_of(status: str) -> str | None:
    """The phase that the history names for a status."""
    return _PHASES.get(status)


class AddOn(BaseModel, frozen=True):
    add_on_type: str
    name: str
    config: dict[str, dict[str, bool]]

    @property
    def is_enabled(self) -> bool:
        return self.config.get(self.add_on_type, {}).get("enabled", False)

    def view(self) -> dict[str, Any]:
        return {
            "add_on_type": self.add_on_type,
            "name": self.name,
            "config": self.config,
            "state": {self.add_on_type: {}},
        }


class Settings(BaseModel, frozen=True):
    """The part of a cluster that is shown as it was asked for."""

    cluster_name: str
    cluster_type: str
    region: str
    gpu_type: str
    num_gpus: int
    billing_type: str
    project_id: str
    num_reserved_gpus: int
    num_capacity_pool_gpus: int
    desired_preemptible_gpus: int
    capacity_pool_id: str | None = None
    duration_hours: int | None = None
    cluster_config: dict[str, Any]
    oidc_config: dict[str, Any] | None = None
    install_traefik: bool = False
    slurm_shm_size_gib: int | None = None


class Cluster(BaseModel, frozen=True):
    cluster_id: str
    settings: Settings
    driver: DriverVersion
    add_ons: list[AddOn]
    created_at: float
    volume_id: str | None = None
    reservation_start: float | None = None
    reservation_end: float | None = None
    statuses: Timeline[str] = []
    control_plane: list[Node] = []
    workers: list[Node] = []
    preemptible: list[Node] = []
    gone_at: float | None = None

    def status(self, now: float) -> str:
        return get_value_at(self.statuses, now)

    def has_control_plane(self, now: float) -> bool:
        return bool(self.control_plane) and all(node.runs(now) for node in self.control_plane)

    def is_progressing(self) -> bool:
        """Whether what is planned ends in `Ready`."""
        return bool(self.statuses) and self.statuses[-1][1] == "Ready"

    def brought_up(
        self, now: float, start: float, new_id: Callable[[], str], *, stuck: bool
    ) -> Self:
        """Planned from nothing: it leaves `Scheduled` at `start`, never if stuck."""
        kept = select_past_steps(self.statuses, now) if self.statuses else [(now, "Scheduled")]
        if stuck:
            return self.model_copy(update={"statuses": kept})
        plan = schedule_stages(
            (_CONTROL_PLANE, _DATA_PLANE, *_NETWORK_AND_STORAGE, *_SOFTWARE), start
        )
        control_plane_at, data_plane_at = plan[1][0], plan[2][0]
        control_plane = [
            Node.started(
                (new_id(), new_id()),
                f"{self.settings.cluster_name}-control-{index}",
                index,
                (start, control_plane_at),
            )
            for index in range(CONTROL_PLANE_SIZE)
        ]
        return (
            self._with_workers(control_plane_at, data_plane_at, new_id)
            .model_copy(update={"statuses": [*kept, *plan], "control_plane": control_plane})
            .with_preemptible(data_plane_at, new_id)
        )

    def scaled(
        self,
        now: float,
        new_id: Callable[[], str],
        taken_first: Collection[str],
        *,
        stuck: bool,
    ) -> Self:
        """Planned on towards the settings' numbers of GPUs, from a control plane that runs.

        When it shrinks, `taken_first` (host names) leave before the others, the newest first.
        """
        plan = schedule_stages((_DATA_PLANE, *_SOFTWARE), now)
        kept = select_past_steps(self.statuses, now)
        if stuck:
            left, running = self._workers_at(now)
            return self.model_copy(
                update={"statuses": [*kept, plan[0]], "workers": [*left, *running]}
            )
        data_plane_at = plan[1][0]
        return self._with_workers(now, data_plane_at, new_id, taken_first).model_copy(
            update={"statuses": [*kept, *plan]}
        )

    def with_preemptible(self, now: float, new_id: Callable[[], str]) -> Self:
        """The wanted preemptible nodes planned, from the time when there are workers."""
        starts = [node.running_at for node in self.workers if node.running_at is not None]
        if not starts:
            return self
        wanted, name = self.settings.desired_preemptible_gpus, self.settings.cluster_name
        since = max(now, min(starts))
        nodes = filled(self.preemptible, wanted, name, since, new_id)
        return self.model_copy(update={"preemptible": nodes})

    def preempted(self, now: float, new_id: Callable[[], str]) -> Self:
        """Without its preemptible nodes, for a while."""
        wanted, name = self.settings.desired_preemptible_gpus, self.settings.cluster_name
        nodes = taken_back(self.preemptible, wanted, name, now, new_id)
        return self.model_copy(update={"preemptible": nodes})

    def reinstalled(self, now: float, *, stuck: bool) -> Self:
        """Planned for another cluster type: the software again, on the same nodes."""
        plan = schedule_stages(_SOFTWARE, now)
        statuses = [*select_past_steps(self.statuses, now), *(plan[:1] if stuck else plan)]
        return self.model_copy(update={"statuses": statuses})

    def with_credit(self, now: float, *, exhausted: bool) -> Self:
        """Paused when there is no credit, unless all of it is reserved; Ready when there is again.

        What is on demand as a whole is gone after a while.
        """
        status, kept = self.status(now), select_past_steps(self.statuses, now)
        if exhausted and status == "Ready" and self.has_on_demand:
            paused = [*kept, (now, "OnDemandComputePaused")]
            is_all = self.settings.billing_type == "ON_DEMAND"
            gone_at = now + _DECOMMISSION_SECONDS if is_all else None
            return self.model_copy(update={"statuses": paused, "gone_at": gone_at})
        if not exhausted and status == "OnDemandComputePaused":
            ready = [*kept, (now, "Ready")]
            return self.model_copy(update={"statuses": ready, "gone_at": None})
        return self

    @property
    def has_on_demand(self) -> bool:
        """Whether some of its GPUs are paid by the hour."""
        settings = self.settings
        is_reserved = settings.billing_type != "ON_DEMAND"
        return not is_reserved or settings.num_reserved_gpus < settings.num_gpus

    def deleted(self, now: float, *, stuck: bool) -> Self:
        return self.model_copy(
            update={
                "statuses": [*select_past_steps(self.statuses, now), (now, "Deleting")],
                "gone_at": None if stuck else now + _DELETION_SECONDS,
            }
        )

    def _with_workers(
        self,
        now: float,
        then: float,
        new_id: Callable[[], str],
        taken_first: Collection[str] = (),
    ) -> Self:
        """Workers join or leave at `then`; an earlier plan for them is dropped."""
        left, running = self._workers_at(now)
        running.sort(key=lambda node: node.host_name in taken_first)  # stable: by age within each
        wanted = self.settings.num_gpus // GPUS_PER_WORKER
        leaving = [node.model_copy(update={"removed_at": then}) for node in running[wanted:]]
        first = 1 + max((node.index for node in (*left, *running)), default=-1)
        name = self.settings.cluster_name
        joining = [
            Node.started((new_id(), new_id()), f"{name}-worker-{index}", index, (now, then))
            for index in range(first, first + wanted - len(running))
        ]
        workers = sorted([*running[:wanted], *leaving], key=lambda node: node.index)
        return self.model_copy(update={"workers": [*left, *workers, *joining]})

    def _workers_at(self, now: float) -> tuple[list[Node], list[Node]]:
        """Those that have left and those that run, without what is planned for them."""
        left = [node for node in self.workers if node.has_left(now)]
        running = [node for node in self.workers if node.runs(now)]
        return left, [node.model_copy(update={"removed_at": None}) for node in running]

    def view(self, now: float, volume: Volume | None, kube_config: str) -> dict[str, Any]:
        """The SDK's Cluster; fields without a value are left out."""
        ready = [
            moment for moment, status in select_past_steps(self.statuses, now) if status == "Ready"
        ]
        optional = {
            "first_ready_at": timestamp(ready[0]) if ready else None,
            "reservation_start_time": _moment(self.reservation_start),
            "reservation_end_time": _moment(self.reservation_end),
        }
        return {
            "cluster_id": self.cluster_id,
            **self.settings.model_dump(exclude_none=True),
            "cuda_version": self.driver.cuda_version,
            "nvidia_driver_version": self.driver.nvidia_driver_version,
            "nvidia_driver_version_id": self.driver.key,
            "os_image": self.driver.os,
            "status": self.status(now),
            "phase_transitions": [
                {"phase": _PHASES[status], "transition_time": timestamp(moment)}
                for moment, status in select_past_steps(self.statuses, now)
            ],
            "kube_config": kube_config if self.has_control_plane(now) else "",
            "control_plane_ready": self.has_control_plane(now),
            "control_plane_nodes": [
                node.control_plane_view(now)
                for node in self.control_plane
                if node.phases[0][0] <= now
            ],
            "num_cpu_workers": 0,
            **self._workers_view(now),
            "allocated_preemptible_gpus": GPUS_PER_WORKER
            * sum(node.runs(now) for node in self.preemptible),
            "volumes": [] if volume is None else [volume.view(now)],
            "add_ons": [add_on.view() for add_on in self.add_ons if add_on.is_enabled],
            "created_at": timestamp(self.created_at),
            "is_in_substrate": True,
            "machine_cluster_id": f"machines-{self.cluster_id[:8]}",
            "ums_org_id": "org-emulated",
            "ums_project_id": f"ums-{self.settings.project_id}",
            **{name: value for name, value in optional.items() if value is not None},
        }

    def _workers_view(self, now: float) -> dict[str, Any]:
        gpu_type = self.settings.gpu_type
        nodes = [*self.workers, *self.preemptible]
        return {
            "gpu_worker_nodes": [
                node.worker_view(now, gpu_type) for node in nodes if node.runs(now)
            ],
            "deleted_gpu_worker_nodes": [
                node.worker_view(now, gpu_type) for node in nodes if node.has_left(now)
            ],
            "node_lifecycle_events": [event for node in nodes for event in self._events(node, now)],
        }

    def _events(self, node: Node, now: float) -> list[dict[str, str]]:
        """Joining counts as an event only after the cluster was first ready."""
        leaves_as = "TogetherPreempted" if node.is_preempted else "TogetherScaledDown"
        moments = {"TogetherScaledUp": node.running_at, leaves_as: node.removed_at}
        first_ready = next((at for at, status in self.statuses if status == "Ready"), now)
        return [
            {
                "node_id": node.node_id,
                "reason": reason,
                "message": f"{node.host_name} {'joined' if 'Up' in reason else 'left'}",
                "timestamp": timestamp(moment),
            }
            for reason, moment in moments.items()
            if moment is not None and first_ready < moment <= now
        ]


def _moment(moment: float | None) -> str | None:
    return None if moment is None else timestamp(moment)
