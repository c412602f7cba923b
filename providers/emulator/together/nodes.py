"""Model the machines and shared volumes of Together: what is stored, and what the API shows when.

Nothing runs in the background: `clusters` and `operations` plan when which status comes, and
reading compares those times with the clock. The emulated Kubernetes and Slurm show the same nodes.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Self

from pydantic import BaseModel

from gpuform.providers.emulator.clock import (
    Timeline,
    get_value_at,
    schedule_stages,
    select_past_steps,
)
from gpuform.providers.emulator.together.catalogue import MACHINES

CONTROL_PLANE_SIZE = 3
# Shares of the time from the request to a running node; ours.
_START_STAGES = (
    ("NODE_PHASE_PENDING", 0.1),
    ("NODE_PHASE_SCHEDULING", 0.1),
    ("NODE_PHASE_BOOTING", 0.5),
    ("NODE_PHASE_BOOTSTRAPPING", 0.3),
    ("NODE_PHASE_RUNNING", 0.0),
)


@lru_cache(maxsize=4096)  # a list of clusters repeats few moments very often
def format_timestamp(moment: float) -> str:
    """Return unix seconds as Together writes times: ISO 8601 in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def format_optional_time(moment: float | None) -> str | None:
    """Return the time as a timestamp, or None without a time."""
    return None if moment is None else format_timestamp(moment)


class Node(BaseModel, frozen=True):
    """A machine as it is stored.

    `running_at` is None for a node that never comes up, `removed_at` is when the node leaves, if
    that is planned. `down` are the spans in which the machine restarts, and `revived_at` is when a
    restart last ended what was wrong with the node.
    """

    node_id: str
    instance_id: str
    host_name: str
    index: int
    phases: Timeline[str]
    running_at: float | None
    removed_at: float | None = None
    is_preempted: bool = False
    down: list[tuple[float, float]] = []
    revived_at: float | None = None

    @classmethod
    def create(
        cls, ids: tuple[str, str], host_name: str, index: int, span: tuple[float, float | None]
    ) -> Self:
        """Return a node, requested at `span[0]` and running from `span[1]` on (None: never).

        `ids` are the ids of the node and of its instance. Times are unix seconds.
        """
        start, running_at = span
        length = 0.0 if running_at is None else running_at - start
        stages = [(phase, share * length) for phase, share in _START_STAGES]
        # A node that never comes up stays in the first phase.
        phases = schedule_stages(stages[:1] if running_at is None else stages, start)
        return cls(
            node_id=ids[0],
            instance_id=ids[1],
            host_name=host_name,
            index=index,
            phases=phases,
            running_at=running_at,
        )

    @property
    def slurm_name(self) -> str:
        """Return the node's NodeName in Slurm: `slurm-worker-0` for the host `train-worker-0`."""
        return "-".join(["slurm", *self.host_name.rsplit("-", 2)[1:]])

    def is_running(self, now: float) -> bool:
        """Return whether the node has joined and not left; a machine that restarts counts."""
        return self.has_joined(now) and not self.has_left(now)

    def is_down(self, now: float) -> bool:
        """Return whether the machine restarts at this time."""
        return any(start <= now < end for start, end in self.down)

    def has_joined(self, now: float) -> bool:
        """Return whether the node has come up by now."""
        return self.running_at is not None and self.running_at <= now

    def has_left(self, now: float) -> bool:
        """Return whether the node has been removed by now."""
        # A planned removal in the future does not count.
        return self.removed_at is not None and self.removed_at <= now

    def to_control_plane_json(self, now: float) -> dict[str, Any]:
        """Return the SDK's control plane node."""
        return {
            "node_id": self.node_id,
            "host_name": self.host_name,
            "status": self._get_status(now),
            "num_cpu_cores": 8,
            "memory_gib": 32.0,
            "network": f"10.0.0.{10 + self.index}",
            # An address for documentation (RFC 5737), which leads nowhere.
            "public_ipv4": f"203.0.113.{10 + self.index}",
            "phase_transitions": self._transitions_to_json(now),
        }

    def to_worker_json(self, now: float, gpu_type: str) -> dict[str, Any]:
        """Return the SDK's GPU worker node."""
        machine = MACHINES[gpu_type]
        view: dict[str, Any] = {
            "node_id": self.node_id,
            "instance_id": self.instance_id,
            "host_name": self.host_name,
            "node_name": self.host_name,
            # As above: an address for documentation.
            "public_ipv4": f"203.0.113.{100 + self.index % 100}",
            "status": self._get_status(now),
            "num_gpus": machine.num_gpus,
            "num_cpu_cores": machine.num_cpu_cores,
            "memory_gib": machine.memory_gib,
            "networks": [f"10.1.{self.index // 250}.{1 + self.index % 250}"],
            "phase_transitions": self._transitions_to_json(now),
            "ephemeral_storage": "1Ti",
            "ib_hca_count": machine.num_gpus,
            "ib_hca_type": machine.ib_hca_type,
            "nvswitch_count": 4 if machine.nvswitch_type else 0,
            "nvswitch_type": machine.nvswitch_type,
            "auto_remediation_enabled": False,
            "marked_for_deletion": self.removed_at is not None,
            "slurm_worker_hostname": self.slurm_name,
        }
        if self.removed_at is not None and self.has_left(now):
            view["deleted_at"] = format_timestamp(self.removed_at)
        return view

    def _get_status(self, now: float) -> str:
        """Return the node's status in answers: the present phase, or `Booting` in a restart."""
        if self.is_down(now):
            # A restart leaves no phase: only the status shows that the machine is away.
            return "Booting"
        return get_value_at(self.phases, now).removeprefix("NODE_PHASE_").capitalize()

    def _transitions_to_json(self, now: float) -> list[dict[str, str]]:
        """Return the node's phases that have begun at `now`, with times, oldest first."""
        return [
            {"phase": phase, "transition_time": format_timestamp(moment)}
            for moment, phase in select_past_steps(self.phases, now)
        ]


# Seconds; ours, for the platform documents none.
_CREATION_STAGES = (("scheduled", 10.0), ("provisioning", 50.0), ("available", 0.0))
_RESIZE_SECONDS = 20.0
_DELETION_SECONDS = 30.0
_REVOCATION_SECONDS = 7 * 86400.0


class Volume(BaseModel, frozen=True):
    """A volume as it is stored.

    `holders` are the clusters that have the volume, each with the time at which the cluster gives
    up the volume (unix seconds; None: not known yet). `is_inline`: the volume was created with its
    cluster, and is deleted with its cluster unless lifecycle independent.
    """

    volume_id: str
    volume_name: str
    region: str
    project_id: str
    is_lifecycle_independent: bool
    is_inline: bool = False
    created_at: float
    statuses: Timeline[str]
    sizes: Timeline[int]
    holders: dict[str, float | None] = {}
    gone_at: float | None = None

    def get_status(self, now: float) -> str:
        """Return one of the SDK's statuses; an available volume of a cluster is `bound`."""
        status = get_value_at(self.statuses, now)
        return "bound" if status == "available" and self.is_attached(now) else status

    def is_attached(self, now: float) -> bool:
        """Return whether a cluster has the volume now."""
        return any(
            released_at is None or now < released_at for released_at in self.holders.values()
        )

    def is_available(self, now: float) -> bool:
        """Return whether the volume is available, also with clusters."""
        # The timeline alone: `bound` is an available volume as well.
        return get_value_at(self.statuses, now) == "available"

    def attach(self, cluster_id: str) -> Self:
        """Return the volume attached to a cluster, until `release` says when this ends."""
        return self.model_copy(update={"holders": {**self.holders, cluster_id: None}})

    def release(self, cluster_id: str, moment: float | None) -> Self:
        """Return the volume to be released by a cluster at `moment`; None: never.

        A volume that was created with the cluster is gone then, unless it is lifecycle independent.
        """
        is_deleted_too = self.is_inline and not self.is_lifecycle_independent
        return self.model_copy(
            update={
                "holders": {**self.holders, cluster_id: moment},
                "gone_at": moment if is_deleted_too else self.gone_at,
            }
        )

    def plan_resize(self, size_tib: int, now: float, *, is_stuck: bool) -> Self:
        """Return the volume with a new size in 20 seconds, or never if stuck.

        Sizes planned earlier are dropped.
        """
        # The old size shows until the new one is there: a resize takes time, and the status stays.
        sizes = [(now, get_value_at(self.sizes, now))]
        if not is_stuck:
            sizes.append((now + _RESIZE_SECONDS, size_tib))
        return self.model_copy(update={"sizes": sizes})

    def apply_credit(self, now: float, *, is_exhausted: bool) -> Self:
        """Return the volume with access revoked in a week, restored, or unchanged.

        Without credit, access to an available volume is revoked, also if a cluster has it, but not
        access to one that is being created or deleted. With credit again, a revocation is cancelled
        or undone.
        """
        past_statuses = select_past_steps(self.statuses, now)
        if is_exhausted and get_value_at(self.statuses, now) == "available":
            revocation = (now + _REVOCATION_SECONDS, "access_revoked")
            return self.model_copy(update={"statuses": [*past_statuses, revocation]})
        if not is_exhausted and get_value_at(self.statuses, now) in ("available", "access_revoked"):
            return self.model_copy(update={"statuses": [*past_statuses, (now, "available")]})
        return self

    def plan_deletion(self, now: float, *, is_stuck: bool) -> Self:
        """Return the volume `deleting`; a stuck one never disappears."""
        return self.model_copy(
            update={
                # A deletion forgets the history: no answer shows it.
                "statuses": [(now, "deleting")],
                "gone_at": None if is_stuck else now + _DELETION_SECONDS,
            }
        )

    def to_json(self, now: float) -> dict[str, Any]:
        """Return the SDK's ClusterStorage, without a region; clusters show their volumes alike."""
        return {
            "volume_id": self.volume_id,
            "volume_name": self.volume_name,
            "size_tib": get_value_at(self.sizes, now),
            "status": self.get_status(now),
        }


def plan_creation(now: float, *, is_stuck: bool) -> Timeline[str]:
    """Return the statuses of a new volume, available after a minute, or `scheduled` if stuck."""
    return schedule_stages(_CREATION_STAGES[:1] if is_stuck else _CREATION_STAGES, now)
