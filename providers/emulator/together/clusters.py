"""Model a Together cluster: what is stored, how statuses follow each other, what the API shows.

Nothing runs in the background: a `plan_...` method writes down when which status comes, and reading
compares those times with the clock. The order of statuses follows the SDK's enumeration; the
durations are ours: 20 minutes for a new cluster. `operations` calls this module.
"""

import re
from collections.abc import Callable, Collection
from typing import Any, Self

from pydantic import BaseModel

from gpuform.providers.emulator.clock import (
    Timeline,
    get_value_at,
    schedule_stages,
    select_past_steps,
)
from gpuform.providers.emulator.routing import FleetNode
from gpuform.providers.emulator.together.catalogue import MACHINES, DriverVersion, Machine
from gpuform.providers.emulator.together.nodes import (
    CONTROL_PLANE_SIZE,
    Node,
    Volume,
    format_optional_time,
    format_timestamp,
)

PREEMPTIBLE_NODE_INTERVAL_S = 300.0
"""Seconds from one preemptible node to the next; ours."""
PREEMPTED_NODE_REPLACEMENT_S = 3600.0
"""Seconds after which preempted nodes are replaced; ours."""

IdFactory = Callable[[], str]


# Durations in seconds; ours, for the platform documents none.
SCHEDULING_SECONDS = 30.0
_CONTROL_PLANE = ("WaitingForControlPlaneNodes", 180.0)
_DATA_PLANE = ("WaitingForDataPlaneNodes", 420.0)
_NETWORK_AND_STORAGE = (("WaitingForSubnet", 30.0), ("WaitingForSharedVolume", 60.0))
_SOFTWARE = (("InstallingDrivers", 300.0), ("RunningAcceptanceTests", 180.0), ("Ready", 0.0))
_DELETION_SECONDS = 180.0
_DECOMMISSION_SECONDS = 3 * 86400.0
PAUSED_WITHOUT_CREDIT = "OnDemandComputePaused"

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
    PAUSED_WITHOUT_CREDIT: "CLUSTER_PHASE_ON_DEMAND_COMPUTE_PAUSED",
    "Deleting": "CLUSTER_PHASE_DELETING",
}


def status_to_phase(status: str) -> str | None:
    """Return the phase by which the history of a cluster names a status, or None for any other."""
    return _PHASES.get(status)


class AddOn(BaseModel, frozen=True):
    """An add-on of a cluster as it is stored."""

    add_on_type: str
    name: str
    config: dict[str, dict[str, bool]]

    @property
    def is_enabled(self) -> bool:
        """Return the flag `enabled` in the add-on's part of `config`; False if missing."""
        return self.config.get(self.add_on_type, {}).get("enabled", False)

    def to_json(self) -> dict[str, Any]:
        """Return the add-on in the JSON form of a cluster's answer."""
        return {
            "add_on_type": self.add_on_type,
            "name": self.name,
            "config": self.config,
            "state": {self.add_on_type: {}},
        }


class ClusterSettings(BaseModel, frozen=True):
    """The part of a cluster that the API shows as it was asked for."""

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

    @property
    def machine(self) -> Machine:
        """Return the host of the cluster's GPU type."""
        return MACHINES[self.gpu_type]

    @property
    def preemptible_node_count(self) -> int:
        """Return how many nodes the desired preemptible GPUs are."""
        return self.desired_preemptible_gpus // self.machine.num_gpus

    @property
    def host_prefix(self) -> str:
        """Return the cluster's name as the start of host names: `train-ing` for `Train ing`.

        Kubernetes takes a node's name as a label as well, with these characters only.
        """
        return re.sub(r"[^a-z0-9]+", "-", self.cluster_name.lower()).strip("-") or "cluster"


class Cluster(BaseModel, frozen=True):
    """A cluster as it is stored. Timelines hold the past and what is planned."""

    cluster_id: str
    settings: ClusterSettings
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

    def get_status(self, now: float) -> str:
        """Return the cluster's status at `now`; before the first step, the first status."""
        return get_value_at(self.statuses, now)

    def has_control_plane(self, now: float) -> bool:
        """Return whether all control plane nodes run, and thus an API server answers."""
        return bool(self.control_plane) and all(node.is_running(now) for node in self.control_plane)

    def is_progressing(self) -> bool:
        """Return whether the last planned status is `Ready`: the cluster is usable or will be."""
        return bool(self.statuses) and self.statuses[-1][1] == "Ready"

    def list_fleet_nodes(self, now: float) -> list[FleetNode]:
        """Return the workers that the platform charges, with those that are still to come.

        A worker works from the time when the cluster was first Ready, and not while the cluster is
        paused or being deleted. Ours: the platform charges workers from the request on.
        """
        status, gpus = self.get_status(now), self.settings.machine.num_gpus
        has_been_ready = any(
            at_status == "Ready" for _, at_status in select_past_steps(self.statuses, now)
        )
        is_off = status in ("Deleting", "Paused", PAUSED_WITHOUT_CREDIT)
        return [
            FleetNode(
                self.settings.cluster_name,
                node.host_name,
                gpus,
                works=has_been_ready and not is_off and node.is_running(now),
                is_billed=not is_off,
            )
            for node in (*self.workers, *self.preemptible)
            if not node.has_left(now)
        ]

    def plan_creation(self, now: float, start: float, new_id: IdFactory, *, is_stuck: bool) -> Self:
        """Return the cluster with a planned creation: `Scheduled` until `start`, for ever if stuck.

        Workers, control plane and preemptible nodes are planned with it, with ids from `new_id`;
        none for a stuck creation. A creation that begins again keeps the past statuses. Times are
        unix seconds.
        """
        # A creation that begins again keeps its history.
        past_statuses = (
            select_past_steps(self.statuses, now) if self.statuses else [(now, "Scheduled")]
        )
        if is_stuck:
            return self.model_copy(update={"statuses": past_statuses})
        plan = schedule_stages(
            (_CONTROL_PLANE, _DATA_PLANE, *_NETWORK_AND_STORAGE, *_SOFTWARE), start
        )
        # The times when the second and the third stage begin: each kind of node runs once its stage
        # is over.
        control_plane_at, data_plane_at = plan[1][0], plan[2][0]
        control_plane = [
            Node.create(
                (new_id(), new_id()),
                f"{self.settings.host_prefix}-control-{index}",
                index,
                (start, control_plane_at),
            )
            for index in range(CONTROL_PLANE_SIZE)
        ]
        return (
            self._plan_workers(control_plane_at, data_plane_at, new_id)
            .model_copy(
                update={"statuses": [*past_statuses, *plan], "control_plane": control_plane}
            )
            # Preemptible nodes come when there are workers to join.
            .plan_preemptible(data_plane_at, new_id)
        )

    def plan_scaling(
        self,
        now: float,
        new_id: IdFactory,
        removed_first: Collection[str],
        *,
        is_stuck: bool,
    ) -> Self:
        """Return the cluster with workers planned for `num_gpus`; the control plane runs on.

        When the cluster shrinks, the hosts named in `removed_first` are removed before the others,
        the newest first. A stuck change stays `WaitingForDataPlaneNodes`, and adds and removes no
        worker, not even one planned earlier.
        """
        plan = schedule_stages((_DATA_PLANE, *_SOFTWARE), now)
        past_statuses = select_past_steps(self.statuses, now)
        if is_stuck:
            # A stuck change adds and removes nobody, and the status stays WaitingForDataPlaneNodes.
            departed_nodes, running = self._split_workers(now)
            return self.model_copy(
                update={
                    "statuses": [*past_statuses, plan[0]],
                    "workers": [*departed_nodes, *running],
                }
            )
        data_plane_at = plan[1][0]
        return self._plan_workers(now, data_plane_at, new_id, removed_first).model_copy(
            update={"statuses": [*past_statuses, *plan]}
        )

    def plan_preemptible(self, now: float, new_id: IdFactory) -> Self:
        """Return the cluster with the desired preemptible nodes planned from `now` on.

        They join after the first worker; a cluster without any planned worker is returned
        unchanged.
        """
        starts = [node.running_at for node in self.workers if node.running_at is not None]
        if not starts:
            return self
        return self._plan_preemptible_since(self.preemptible, max(now, min(starts)), new_id)

    def plan_preemption(self, now: float, new_id: IdFactory) -> Self:
        """Return the cluster without its preemptible nodes, and new ones planned in an hour.

        Nodes that have not joined yet are dropped.
        """
        departed_nodes = [node for node in self.preemptible if node.has_left(now)]
        preempted_nodes = [
            node.model_copy(update={"removed_at": now, "is_preempted": True})
            for node in self.preemptible
            if node.is_running(now)
        ]
        return self._plan_preemptible_since(
            [*departed_nodes, *preempted_nodes], now + PREEMPTED_NODE_REPLACEMENT_S, new_id
        )

    def _plan_preemptible_since(self, nodes: list[Node], since: float, new_id: IdFactory) -> Self:
        """Return the cluster with the desired number of preemptible nodes from `since` on.

        The newest of `nodes`, the present and past ones, leave, or new ones join one after the
        other, every `PREEMPTIBLE_NODE_INTERVAL_S`. Joins planned for later are dropped.
        """
        node_count = self.settings.preemptible_node_count
        departed_nodes = [node for node in nodes if node.has_left(since)]
        running = [node for node in nodes if node.is_running(since)]
        removed_nodes = [
            node.model_copy(update={"removed_at": since}) for node in running[node_count:]
        ]
        # Numbers are never used again, also not of removed nodes: a host name stands for one
        # machine.
        first_index = 1 + max((node.index for node in nodes), default=-1)
        new_nodes = [
            Node.create(
                (new_id(), new_id()),
                f"{self.settings.host_prefix}-preemptible-{first_index + offset}",
                first_index + offset,
                (since, since + PREEMPTIBLE_NODE_INTERVAL_S * (offset + 1)),
            )
            for offset in range(node_count - len(running))
        ]
        preemptible = [*departed_nodes, *running[:node_count], *removed_nodes, *new_nodes]
        return self.model_copy(update={"preemptible": preemptible})

    def plan_reinstallation(self, now: float, *, is_stuck: bool) -> Self:
        """Return the cluster with the software planned to be installed again; never done if stuck.

        The caller has set another cluster type.
        """
        plan = schedule_stages(_SOFTWARE, now)
        statuses = [*select_past_steps(self.statuses, now), *(plan[:1] if is_stuck else plan)]
        return self.model_copy(update={"statuses": statuses})

    def apply_credit(self, now: float, *, is_exhausted: bool) -> Self:
        """Return the cluster paused without credit, Ready when credit is there again, or unchanged.

        Only a Ready cluster with compute on demand is paused. A paused cluster that is completely
        on demand is deleted after a while, unless credit comes back before (platform document,
        'Credit Exhaustion': "paused then decommissioned"; the time is ours).
        """
        status, past_statuses = self.get_status(now), select_past_steps(self.statuses, now)
        # Only a Ready cluster is paused: the document is silent on one whose status is changing.
        if is_exhausted and status == "Ready" and self.has_on_demand:
            paused = [*past_statuses, (now, PAUSED_WITHOUT_CREDIT)]
            is_completely_on_demand = self.settings.billing_type == "ON_DEMAND"
            gone_at = now + _DECOMMISSION_SECONDS if is_completely_on_demand else None
            return self.model_copy(update={"statuses": paused, "gone_at": gone_at})
        if not is_exhausted and status == PAUSED_WITHOUT_CREDIT:
            ready = [*past_statuses, (now, "Ready")]
            return self.model_copy(update={"statuses": ready, "gone_at": None})
        return self

    @property
    def has_on_demand(self) -> bool:
        """Return whether some GPUs of the cluster are paid by the hour.

        These are all GPUs of an ON_DEMAND cluster, and those beyond `num_reserved_gpus` of a
        RESERVED one. SCHEDULED_CAPACITY is reserved for its time window (SDK, `billing_type`), and
        "reserved compute runs until end date" (platform document, 'Credit Exhaustion').
        """
        settings = self.settings
        if settings.billing_type == "RESERVED":
            return settings.num_reserved_gpus < settings.num_gpus
        return settings.billing_type == "ON_DEMAND"

    def plan_deletion(self, now: float, *, is_stuck: bool) -> Self:
        """Return the cluster being deleted; a stuck one never disappears."""
        return self.model_copy(
            update={
                "statuses": [*select_past_steps(self.statuses, now), (now, "Deleting")],
                "gone_at": None if is_stuck else now + _DELETION_SECONDS,
            }
        )

    def _plan_workers(
        self,
        now: float,
        change_at: float,
        new_id: IdFactory,
        removed_first: Collection[str] = (),
    ) -> Self:
        """Return the cluster with as many workers as `num_gpus` needs from `change_at` on.

        Removals and joins planned earlier are dropped. The workers named in `removed_first` (host
        names) leave before the others.
        """
        departed_nodes, running = self._split_workers(now)
        running.sort(key=lambda node: node.host_name in removed_first)  # stable: by age within each
        target_count = self.settings.num_gpus // self.settings.machine.num_gpus
        removed_nodes = [
            node.model_copy(update={"removed_at": change_at}) for node in running[target_count:]
        ]
        first = 1 + max((node.index for node in (*departed_nodes, *running)), default=-1)
        name = self.settings.host_prefix
        new_nodes = [
            Node.create((new_id(), new_id()), f"{name}-worker-{index}", index, (now, change_at))
            for index in range(first, first + target_count - len(running))
        ]
        # Answers show workers by number, whoever leaves first.
        workers = sorted([*running[:target_count], *removed_nodes], key=lambda node: node.index)
        return self.model_copy(update={"workers": [*departed_nodes, *workers, *new_nodes]})

    def _split_workers(self, now: float) -> tuple[list[Node], list[Node]]:
        """Return the workers that have left, and the running ones, without planned removals.

        Workers that have not joined yet are dropped.
        """
        departed_nodes = [node for node in self.workers if node.has_left(now)]
        running = [node for node in self.workers if node.is_running(now)]
        # A worker whose removal was only planned stays, for a new plan replaces the old one.
        return departed_nodes, [node.model_copy(update={"removed_at": None}) for node in running]

    def to_json(self, now: float, volume: Volume | None, kube_config: str) -> dict[str, Any]:
        """Return the cluster in the SDK's JSON form, without fields that have no value.

        `kube_config` is shown once the control plane runs, and "" until then.
        """
        ready_times = [
            moment for moment, status in select_past_steps(self.statuses, now) if status == "Ready"
        ]
        optional = {
            "first_ready_at": format_timestamp(ready_times[0]) if ready_times else None,
            "reservation_start_time": format_optional_time(self.reservation_start),
            "reservation_end_time": format_optional_time(self.reservation_end),
        }
        return {
            "cluster_id": self.cluster_id,
            **self.settings.model_dump(exclude_none=True),
            "cuda_version": self.driver.cuda_version,
            "nvidia_driver_version": self.driver.nvidia_driver_version,
            "nvidia_driver_version_id": self.driver.key,
            "os_image": self.driver.os,
            "status": self.get_status(now),
            "phase_transitions": [
                {"phase": _PHASES[status], "transition_time": format_timestamp(moment)}
                for moment, status in select_past_steps(self.statuses, now)
            ],
            # The credential is empty until an API server runs that would accept it.
            "kube_config": kube_config if self.has_control_plane(now) else "",
            "control_plane_ready": self.has_control_plane(now),
            "control_plane_nodes": [
                node.to_control_plane_json(now)
                for node in self.control_plane
                if node.phases[0][0] <= now
            ],
            "num_cpu_workers": 0,
            **self._workers_to_json(now),
            "allocated_preemptible_gpus": self.settings.machine.num_gpus
            * sum(node.is_running(now) for node in self.preemptible),
            "volumes": [] if volume is None else [volume.to_json(now)],
            "add_ons": [add_on.to_json() for add_on in self.add_ons if add_on.is_enabled],
            "created_at": format_timestamp(self.created_at),
            "is_in_substrate": True,
            "machine_cluster_id": f"machines-{self.cluster_id[:8]}",
            "ums_org_id": "org-emulated",
            "ums_project_id": f"ums-{self.settings.project_id}",
            **{name: value for name, value in optional.items() if value is not None},
        }

    def _workers_to_json(self, now: float) -> dict[str, Any]:
        """Return the answer's lists of running workers, departed workers and nodes' events."""
        gpu_type = self.settings.gpu_type
        nodes = [*self.workers, *self.preemptible]
        return {
            "gpu_worker_nodes": [
                node.to_worker_json(now, gpu_type) for node in nodes if node.is_running(now)
            ],
            "deleted_gpu_worker_nodes": [
                node.to_worker_json(now, gpu_type) for node in nodes if node.has_left(now)
            ],
            "node_lifecycle_events": [
                event for node in nodes for event in self._list_events(node, now)
            ],
        }

    def _list_events(self, node: Node, now: float) -> list[dict[str, str]]:
        """Return a node's past events: joined, scaled down or preempted.

        Events before the cluster was first ready are left out.
        """
        leaves_as = "TogetherPreempted" if node.is_preempted else "TogetherScaledDown"
        moments = {"TogetherScaledUp": node.running_at, leaves_as: node.removed_at}
        # Nodes of the creation join without an event; a cluster that was never Ready has none.
        first_ready = next((at for at, status in self.statuses if status == "Ready"), now)
        return [
            {
                "node_id": node.node_id,
                "reason": reason,
                "message": f"{node.host_name} {'joined' if 'Up' in reason else 'left'}",
                "timestamp": format_timestamp(moment),
            }
            for reason, moment in moments.items()
            if moment is not None and first_ready < moment <= now
        ]
