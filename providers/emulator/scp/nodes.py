"""Model GPU nodes and cluster fabrics: how they progress, and what they look like at a time.

A fabric appears with the create that names it and ends with its last node.

Nothing runs in the background: an operation writes down when which state comes, reading compares
those times with the clock. The states are those of the official provider, the durations ours: 15
minutes for a new node.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from gpuform.providers.emulator.clock import (
    Timeline,
    get_value_at,
    schedule_stages,
    select_past_steps,
)
from gpuform.providers.emulator.scp.catalogue import ACCOUNT_ID, USER_ID
from gpuform.providers.emulator.scp.errors import no_fabric, no_node
from gpuform.providers.emulator.store import Store

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
        return get_value_at(self.states, now)

    def has_appeared(self, now: float) -> bool:
        return self.appears_at <= now

    def is_live(self, now: float) -> bool:
        return self.state(now) != "TERMINATED"

    def membership(self, now: float) -> Membership:
        return get_value_at(self.memberships, now)

    def nat(self, now: float) -> Nat | None:
        return get_value_at(self.nats, now)

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
        nats = select_past_steps(self.nats, change.now)
        return edited.model_copy(update={"nats": nats if end is None else [*nats, (end, nat)]})

    def moved(self, change: Change, target: Membership) -> Self:
        edited, end = self._edited(change, _MOVE_SECONDS)
        kept = select_past_steps(self.memberships, change.now)
        memberships = kept if end is None else [*kept, (end, target)]
        return edited.model_copy(update={"memberships": memberships})

    def terminated(self, change: Change, shown_seconds: float) -> Self:
        """On its way out; whatever else was planned for it does not come."""
        planned = self._planned(change, _TERMINATION)
        end = None if change.is_stuck else planned.states[-1][0] + shown_seconds
        return planned.model_copy(
            update={
                "memberships": select_past_steps(self.memberships, change.now),
                "nats": select_past_steps(self.nats, change.now),
                "gone_at": end,
            }
        )

    def in_state(self, now: float, state: str) -> Self:
        """From `now` on, for good."""
        return self.model_copy(
            update={"states": [*select_past_steps(self.states, now), (now, state)]}
        )

    def _planned(self, change: Change, stages: tuple[tuple[str, float], ...]) -> Self:
        plan = schedule_stages(stages[:1] if change.is_stuck else stages, change.since)
        return self.model_copy(
            update={"states": [*select_past_steps(self.states, change.now), *plan]}
        )

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
    return schedule_stages(stages[:1] if change.is_stuck else stages, change.now)


def timestamp(moment: float) -> str:
    """Whole seconds, as in the document."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _from(timeline: Timeline[T], now: float) -> list[T]:
    """The value that holds now, and those planned."""
    return [get_value_at(timeline, now), *(value for at, value in timeline if at > now)]


CREATION_SECONDS = 30.0
"""From the time when it appears until it is RUNNING; ours."""


class Fabric(BaseModel, frozen=True):
    fabric_id: str
    name: str
    node_pool_id: str
    region_id: str
    product_id: str
    server_type: str
    states: Timeline[str]
    """The first one begins when the fabric appears."""

    @property
    def appears_at(self) -> float:
        return self.states[0][0]

    def has_appeared(self, now: float) -> bool:
        return self.appears_at <= now

    def state(self, now: float) -> str:
        return get_value_at(self.states, now)

    def membership(self) -> Membership:
        return Membership(fabric_id=self.fabric_id, fabric_name=self.name)

    def details(self) -> dict[str, str]:
        """How its node pool shows it: as a create names it (the document's example is empty)."""
        return {
            "cluster_fabric_id": self.fabric_id,
            "cluster_fabric_name": self.name,
            "node_pool_id": self.node_pool_id,
        }

    def view(self, now: float, members: Sequence[GpuNode]) -> dict[str, Any]:
        """The document's cluster fabric, whose name is `cluster_name` there."""
        return {
            "account_id": ACCOUNT_ID,
            "cluster_name": self.name,
            "created_at": timestamp(self.appears_at),
            "created_by": USER_ID,
            "description": f"fabric of {self.node_pool_id}",
            "gpu_node_details": [node.fabric_view(now) for node in members],
            "id": self.fabric_id,
            "modified_at": timestamp(select_past_steps(self.states, now)[-1][0]),
            "modified_by": USER_ID,
            "node_pool_id": self.node_pool_id,
            "pirp_id": "20",
            "product_id": self.product_id,
            "region_id": self.region_id,
            "server_type": self.server_type,
            "state": self.state(now),
            "used_server_count": len(members),
        }


_NODE = "scp.gpu_node"
_FABRIC = "scp.fabric"


class Estate:
    """To be used within one transaction. Fabrics that have lost their last node are forgotten."""

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self.now = now
        store.remove_expired(now)
        self._nodes = {each.node_id: each for each in map(_read_node, store.list_all(_NODE))}
        self._fabrics = {
            each.fabric_id: each for each in map(_read_fabric, store.list_all(_FABRIC))
        }
        for fabric in list(self._fabrics.values()):
            if not self._is_held(fabric):
                del self._fabrics[fabric.fabric_id]
                store.put(_FABRIC, fabric.fabric_id, fabric.model_dump_json(), gone_at=now)

    def new_id(self) -> str:
        """32 hexadecimal digits, as the platform's ids."""
        return self._store.create_id().replace("-", "")

    # Nodes, oldest first.

    def nodes(self) -> list[GpuNode]:
        """Those that are shown, TERMINATED ones among them."""
        return [node for node in self._nodes.values() if node.has_appeared(self.now)]

    def live_nodes(self) -> list[GpuNode]:
        """Also before they appear: a create has taken their names and servers."""
        return [node for node in self._nodes.values() if node.is_live(self.now)]

    def node(self, node_id: str) -> GpuNode:
        node = self._nodes.get(node_id)
        if node is None or not node.has_appeared(self.now):
            raise no_node(node_id)
        return node

    def keep_node(self, node: GpuNode) -> None:
        self._nodes[node.node_id] = node
        self._store.put(_NODE, node.node_id, node.model_dump_json(), gone_at=node.gone_at)

    def remove_node(self, node_id: str) -> None:
        """At once, without a trace."""
        node = self.node(node_id).model_copy(update={"gone_at": self.now})
        self.keep_node(node)
        self._store.remove_expired(self.now)

    # Fabrics.

    def fabrics(self) -> list[Fabric]:
        """Those that have appeared, oldest first."""
        return [each for each in self._fabrics.values() if each.has_appeared(self.now)]

    def fabric(self, fabric_id: str) -> Fabric:
        fabric = self._fabrics.get(fabric_id)
        if fabric is None or not fabric.has_appeared(self.now):
            raise no_fabric(fabric_id)
        return fabric

    def has_fabric_named(self, name: str, node_pool_id: str) -> bool:
        """Also before it appears: the create that names it has taken the name."""
        return any(
            (each.name, each.node_pool_id) == (name, node_pool_id)
            for each in self._fabrics.values()
        )

    def members(self, fabric: Fabric) -> list[GpuNode]:
        return [
            node
            for node in self.live_nodes()
            if node.has_appeared(self.now)
            and node.membership(self.now).fabric_id == fabric.fabric_id
        ]

    def keep_fabric(self, fabric: Fabric) -> None:
        self._fabrics[fabric.fabric_id] = fabric
        self._store.put(_FABRIC, fabric.fabric_id, fabric.model_dump_json())

    def _is_held(self, fabric: Fabric) -> bool:
        return any(node.holds_fabric(fabric.fabric_id, self.now) for node in self._nodes.values())


# Kept, for records are immutable and most requests read what others have read before.
@lru_cache(maxsize=4096)
def _read_node(body: str) -> GpuNode:
    return GpuNode.model_validate_json(body)


@lru_cache(maxsize=4096)
def _read_fabric(body: str) -> Fabric:
    return Fabric.model_validate_json(body)
