"""A shared volume: what is known of it, and what it looks like at a time.

Nothing runs in the background: an operation writes down when which status comes, reading compares
those times with the clock.
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
_CREATION = (("scheduled", 10.0), ("provisioning", 50.0), ("available", 0.0))
_RESIZE = 20.0
_DELETION = 30.0
_REVOCATION = 7 * 86400.0


class Volume(BaseModel, frozen=True):
    """`holders` are clusters that have the volume, each with the time it lets go, if that is known.

    `is_inline`: it was made with its cluster, and goes with it unless lifecycle independent.
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

    def status(self, now: float) -> str:
        """One of the SDK's statuses; `bound` is an available volume that a cluster holds."""
        status = get_value_at(self.statuses, now)
        return "bound" if status == "available" and self.is_held(now) else status

    def is_held(self, now: float) -> bool:
        return any(until is None or now < until for until in self.holders.values())

    def is_settled(self, now: float) -> bool:
        return get_value_at(self.statuses, now) == "available"

    def attached(self, cluster_id: str) -> Self:
        return self.model_copy(update={"holders": {**self.holders, cluster_id: None}})

    def released(self, cluster_id: str, moment: float | None) -> Self:
        """Let go, or gone with its cluster, at `moment` (None: never)."""
        goes_along = self.is_inline and not self.is_lifecycle_independent
        return self.model_copy(
            update={
                "holders": {**self.holders, cluster_id: moment},
                "gone_at": moment if goes_along else self.gone_at,
            }
        )

    def resized(self, size_tib: int, now: float, *, stuck: bool) -> Self:
        sizes = [(now, get_value_at(self.sizes, now))]
        if not stuck:
            sizes.append((now + _RESIZE, size_tib))
        return self.model_copy(update={"sizes": sizes})

    def with_credit(self, now: float, *, exhausted: bool) -> Self:
        """Access to it ends a while after the credit, and comes back with it."""
        kept = select_past_steps(self.statuses, now)
        if exhausted and get_value_at(self.statuses, now) == "available":
            shut = (now + _REVOCATION, "access_revoked")
            return self.model_copy(update={"statuses": [*kept, shut]})
        if not exhausted and get_value_at(self.statuses, now) in ("available", "access_revoked"):
            return self.model_copy(update={"statuses": [*kept, (now, "available")]})
        return self

    def deleted(self, now: float, *, stuck: bool) -> Self:
        return self.model_copy(
            update={
                "statuses": [(now, "deleting")],
                "gone_at": None if stuck else now + _DELETION,
            }
        )

    def view(self, now: float) -> dict[str, Any]:
        """The SDK's ClusterStorage, which is also how a cluster shows it. It has no region."""
        return {
            "volume_id": self.volume_id,
            "volume_name": self.volume_name,
            "size_tib": get_value_at(self.sizes, now),
            "status": self.status(now),
        }


def creation(now: float, *, stuck: bool) -> Timeline[str]:
    return schedule_stages(_CREATION[:1] if stuck else _CREATION, now)
