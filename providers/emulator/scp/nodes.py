"""A GPU node: what is known of it, how it progresses, and what it looks like at a time.

Nothing runs in the background: an operation writes down when which state comes, reading compares
those times with the clock. The states are those of the official provider, the durations ours:
15 minutes for a new node.
"""

from datetime import UTC, datetime
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from gpuform.providers.emulator.scp.catalogue import ACCOUNT_ID, USER_ID
from gpuform.providers.emulator.timeline import Timeline, scheduled, until, value_at

T = TypeVar("T")

FABRIC_APPEARS_SECONDS = 120.0
"""From the create call until the nodes of a new fabric show its id."""

_CREATION = (("CREATING", 900.0), ("RUNNING", 0.0))
_FAILURE = (("CREATING", 600.0), ("ERROR", 0.0))
_STOP = (("STOPPING", 120.0), ("STOPPED", 0.0))
_START = (("STARTING", 300.0), ("RUNNING", 0.0))
_TERMINATION = (("TERMINATING", 180.0), ("TERMINATED", 0.0))
_NAT_SECONDS = 30.0
_MOVE_SECONDS = 60.0


class Membership(BaseModel, frozen=True):
    """`fabric_id` is None while a new fabric has not appeared."""

    fabric_id: str | None
    fabric_name: str


class Nat(BaseModel, frozen=True):
    public_ip_address_id: str
    address: str


class Identity(BaseModel, frozen=True):
    """What never changes."""

    gpu_node_name: str
    image_id: str
    image_version: str
    init_script: str
    root_account: str
    product_type_id: str
    server_type: str
    region_id: str
    vpc_id: str
    network_id: str
    node_pool_id: str
    policy_ip: str
    pfs_ip: list[str]


class Change(BaseModel, frozen=True):
    """How a change takes place: accepted `now`, seen from `since` on, never finished if stuck."""

    now: float
    since: float
    is_stuck: bool = False


class GpuNode(BaseModel, frozen=True):
    node_id: str
    identity: Identity
    lock_enabled: bool
    created_at: float
    modified_at: float
    states: Timeline[str]
    memberships: Timeline[Membership]
    nats: Timeline[Nat | None]
    gone_at: float | None = None
    appears_at: float = 0.0
    """Until then neither lists nor GET show it."""

    @property
    def name(self) -> str:
        return self.identity.gpu_node_name

    def state(self, now: float) -> str:
        return value_at(self.states, now)

    def has_appeared(self, now: float) -> bool:
        return self.appears_at <= now

    def is_live(self, now: float) -> bool:
        return self.state(now) != "TERMINATED"

    def membership(self, now: float) -> Membership:
        return value_at(self.memberships, now)

    def nat(self, now: float) -> Nat | None:
        return value_at(self.nats, now)

    def holds_fabric(self, fabric_id: str, now: float) -> bool:
        """Whether it is a member, or is on its way to be one."""
        return self.is_live(now) and fabric_id in {
            each.fabric_id for each in _from(self.memberships, now)
        }

    def holds_address(self, public_ip_address_id: str, now: float) -> bool:
        return self.is_live(now) and public_ip_address_id in {
            each.public_ip_address_id for each in _from(self.nats, now) if each is not None
        }

    def stopped(self, change: Change) -> Self:
        return self._planned(change, _STOP)

    def started(self, change: Change) -> Self:
        return self._planned(change, _START)

    def locked(self, now: float, *, enabled: bool) -> Self:
        if self.lock_enabled == enabled:
            return self
        return self.model_copy(update={"lock_enabled": enabled, "modified_at": now})

    def with_nat(self, change: Change, nat: Nat | None) -> Self:
        edited, end = self._edited(change, _NAT_SECONDS)
        nats = until(self.nats, change.now)
        return edited.model_copy(update={"nats": nats if end is None else [*nats, (end, nat)]})

    def moved(self, change: Change, target: Membership) -> Self:
        edited, end = self._edited(change, _MOVE_SECONDS)
        kept = until(self.memberships, change.now)
        memberships = kept if end is None else [*kept, (end, target)]
        return edited.model_copy(update={"memberships": memberships})

    def terminated(self, change: Change, shown_seconds: float) -> Self:
        """On its way out; whatever else was planned for it does not come."""
        planned = self._planned(change, _TERMINATION)
        end = None if change.is_stuck else planned.states[-1][0] + shown_seconds
        return planned.model_copy(
            update={
                "memberships": until(self.memberships, change.now),
                "nats": until(self.nats, change.now),
                "gone_at": end,
            }
        )

    def in_state(self, now: float, state: str) -> Self:
        """From `now` on, for good."""
        return self.model_copy(update={"states": [*until(self.states, now), (now, state)]})

    def _planned(self, change: Change, stages: tuple[tuple[str, float], ...]) -> Self:
        plan = scheduled(stages[:1] if change.is_stuck else stages, change.since)
        return self.model_copy(update={"states": [*until(self.states, change.now), *plan]})

    def _edited(self, change: Change, seconds: float) -> tuple[Self, float | None]:
        """EDITING, then the old state again; and the time of that."""
        stages = (("EDITING", seconds), (self.state(change.now), 0.0))
        planned = self._planned(change, stages)
        return planned, None if change.is_stuck else planned.states[-1][0]

    def view(self, now: float) -> dict[str, Any]:
        """The document's GPU node. It has no password, no tags and no public_ip_address_id."""
        membership, nat = self.membership(now), self.nat(now)
        return {
            "account_id": ACCOUNT_ID,
            "cluster_fabric_id": membership.fabric_id,
            "cluster_fabric_name": membership.fabric_name,
            "created_at": timestamp(self.created_at),
            "created_by": USER_ID,
            "id": self.node_id,
            **self.identity.model_dump(),
            "lock_enabled": self.lock_enabled,
            "modified_at": timestamp(self._modified_at(now)),
            "modified_by": USER_ID,
            "os_type": "LINUX",
            "policy_nat": None if nat is None else nat.address,
            "policy_use_nat": nat is not None,
            "state": self.state(now),
            "time_zone": "Asia/Seoul",
        }

    def fabric_view(self, now: float) -> dict[str, Any]:
        """How its fabric shows it."""
        return {
            "gpu_node_id": self.node_id,
            "gpu_node_name": self.name,
            "policy_ip": self.identity.policy_ip,
            "product_type_id": self.identity.product_type_id,
            "server_type": self.identity.server_type,
            "state": self.state(now),
        }

    def _modified_at(self, now: float) -> float:
        moments = [at for at, _ in (*self.states, *self.memberships, *self.nats) if at <= now]
        return max([self.modified_at, *moments])


def creation(change: Change, *, is_failing: bool) -> Timeline[str]:
    stages = _FAILURE if is_failing else _CREATION
    return scheduled(stages[:1] if change.is_stuck else stages, change.now)


def timestamp(moment: float) -> str:
    """Whole seconds, as in the document."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _from(timeline: Timeline[T], now: float) -> list[T]:
    """The value that holds now, and those planned."""
    return [value_at(timeline, now), *(value for at, value in timeline if at > now)]
