"""Model a shared volume of Together: what is stored, and what the API shows at a time.

Nothing runs in the background: a `plan_...` method writes down when which status comes, and reading
compares those times with the clock. `operations` calls this module.
"""

from typing import Any, Self

from pydantic import BaseModel

from gpuform.providers.emulator.clock import (
    Timeline,
    get_value_at,
    schedule_stages,
    select_past_steps,
)

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
