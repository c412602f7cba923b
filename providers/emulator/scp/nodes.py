"""Model GPU nodes and cluster fabrics: what is stored, how states change, what the API shows.

A fabric appears with the create that names it and ends with its last node. Nothing runs in the
background: an operation writes down when which state comes, reading compares those times with the
clock. The states are those of the official provider, the durations ours: 15 minutes for a new node.
`creating`, `operations`, `queries` and the emulated Lens use `ScpInventory`.
"""

from collections.abc import Sequence
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from gpuform.providers.emulator.clock import (
    Timeline,
    format_timestamp,
    get_value_at,
    schedule_stages,
    select_past_steps,
)
from gpuform.providers.emulator.scp.catalogue import (
    ACCOUNT_ID,
    POOLS,
    USER_ID,
    make_fabric_not_found,
    make_node_not_found,
)
from gpuform.providers.emulator.store import Store, parse_stored

T = TypeVar("T")

FABRIC_APPEARS_SECONDS = 120.0
"""Seconds from the create call until the nodes of a new fabric show its id; ours."""

GPUS_PER_NODE = 8
"""Every server type of the document is a machine with eight GPUs."""

_CREATION_STAGES = (("CREATING", 900.0), ("RUNNING", 0.0))
_FAILURE_STAGES = (("CREATING", 600.0), ("ERROR", 0.0))
_STOP_STAGES = (("STOPPING", 120.0), ("STOPPED", 0.0))
_START_STAGES = (("STARTING", 300.0), ("RUNNING", 0.0))
_TERMINATION_STAGES = (("TERMINATING", 180.0), ("TERMINATED", 0.0))
_NAT_SECONDS = 30.0
_MOVE_SECONDS = 60.0


class Membership(BaseModel, frozen=True):
    """The fabric of a node; `fabric_id` is None while a new fabric has not appeared."""

    fabric_id: str | None
    fabric_name: str


class Nat(BaseModel, frozen=True):
    """The public address that is translated to a node's own."""

    public_ip_address_id: str
    address: str


class Identity(BaseModel, frozen=True):
    """The part of a node that never changes, in the document's order."""

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


class ChangeTiming(BaseModel, frozen=True):
    """When a change takes place: accepted `now`, visible from `since`, never finished if stuck."""

    now: float
    since: float
    is_stuck: bool = False
    is_rolled_back: bool = False
    """The change of a public address ends without its effect."""


class GpuNode(BaseModel, frozen=True):
    """A GPU node as it is stored. Timelines hold the past and what is planned."""

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
    """The time before which neither lists nor GET show the node."""

    @property
    def name(self) -> str:
        return self.identity.gpu_node_name

    def get_state(self, now: float) -> str:
        """Return the state of the node at `now`, such as RUNNING."""
        return get_value_at(self.states, now)

    def has_appeared(self, now: float) -> bool:
        """Return whether lists and GET show the node by now."""
        return self.appears_at <= now

    def is_live(self, now: float) -> bool:
        """Return whether the node is in any state but TERMINATED."""
        return self.get_state(now) != "TERMINATED"

    def get_membership(self, now: float) -> Membership:
        """Return the fabric membership of the node at `now`."""
        return get_value_at(self.memberships, now)

    def get_nat(self, now: float) -> Nat | None:
        """Return the public address of the node at `now`, or None."""
        return get_value_at(self.nats, now)

    def has_fabric(self, fabric_id: str, now: float) -> bool:
        """Return whether the live node is in the fabric, or is planned to move there."""
        return self.is_live(now) and fabric_id in {
            membership.fabric_id for membership in _list_current_and_planned(self.memberships, now)
        }

    def has_address(self, public_ip_address_id: str, now: float) -> bool:
        """Return whether the live node has the public IP, or is planned to get it."""
        return self.is_live(now) and public_ip_address_id in {
            nat.public_ip_address_id
            for nat in _list_current_and_planned(self.nats, now)
            if nat is not None
        }

    def plan_stop(self, change: ChangeTiming) -> Self:
        """Return the node with a planned stop: STOPPING, then STOPPED."""
        return self._plan_states(change, _STOP_STAGES)

    def plan_start(self, change: ChangeTiming) -> Self:
        """Return the node with a planned start: STARTING, then RUNNING."""
        return self._plan_states(change, _START_STAGES)

    def set_lock(self, now: float, *, enabled: bool) -> Self:
        """Return the node locked or unlocked; unchanged if already so."""
        if self.lock_enabled == enabled:
            return self
        return self.model_copy(update={"lock_enabled": enabled, "modified_at": now})

    def plan_nat(self, change: ChangeTiming, nat: Nat | None) -> Self:
        """Return the node with another public address from the end of the change on, or with none.

        The node is EDITING meanwhile. A change planned earlier does not come. A stuck or rolled
        back change leaves the address as it is.
        """
        node, done_at = self._plan_edit(change, _NAT_SECONDS)
        # A later change replaces a planned one: only what has happened stays.
        nats = select_past_steps(self.nats, change.now)
        if done_at is not None and not change.is_rolled_back:
            nats = [*nats, (done_at, nat)]
        return node.model_copy(update={"nats": nats})

    def plan_move(self, change: ChangeTiming, target: Membership) -> Self:
        """Return the node in another fabric from the end of the change on, and EDITING meanwhile.

        A move planned earlier does not come.
        """
        node, done_at = self._plan_edit(change, _MOVE_SECONDS)
        past_memberships = select_past_steps(self.memberships, change.now)
        memberships = (
            past_memberships if done_at is None else [*past_memberships, (done_at, target)]
        )
        return node.model_copy(update={"memberships": memberships})

    def plan_termination(self, change: ChangeTiming, visible_seconds: float) -> Self:
        """Return the node being terminated; whatever else was planned for the node does not come.

        `visible_seconds` is how long lists show the node as TERMINATED before it is gone.
        """
        node = self._plan_states(change, _TERMINATION_STAGES)
        # A stuck termination stays TERMINATING for ever.
        gone_at = None if change.is_stuck else node.states[-1][0] + visible_seconds
        return node.model_copy(
            update={
                "memberships": select_past_steps(self.memberships, change.now),
                "nats": select_past_steps(self.nats, change.now),
                "gone_at": gone_at,
            }
        )

    def set_state(self, now: float, state: str) -> Self:
        """Return the node in `state` from `now` on; states that were planned do not come."""
        return self.model_copy(
            update={"states": [*select_past_steps(self.states, now), (now, state)]}
        )

    def _plan_states(self, change: ChangeTiming, stages: tuple[tuple[str, float], ...]) -> Self:
        """Return the node with the planned `stages`: pairs of a state and its length in seconds.

        A stuck change stays in the first stage forever.
        """
        plan = schedule_stages(stages[:1] if change.is_stuck else stages, change.since)
        return self.model_copy(
            update={"states": [*select_past_steps(self.states, change.now), *plan]}
        )

    def _plan_edit(self, change: ChangeTiming, seconds: float) -> tuple[Self, float | None]:
        """Return the node EDITING for `seconds` and then in its old state, and the time of the end.

        The time is None for a stuck change, which never ends.
        """
        stages = (("EDITING", seconds), (self.get_state(change.now), 0.0))
        node = self._plan_states(change, stages)
        return node, None if change.is_stuck else node.states[-1][0]

    def to_json(self, now: float, *, with_zone: bool) -> dict[str, Any]:
        """Return the document's GPU node, without password, tags and public_ip_address_id.

        `with_zone` adds the zone, as API 1.3 does (official provider, `client/.../model.go`).
        """
        membership, nat = self.get_membership(now), self.get_nat(now)
        # A pool is in one zone, so nodes need not store their own.
        zone = {"zone": POOLS[self.identity.node_pool_id].zone} if with_zone else {}
        return {
            "account_id": ACCOUNT_ID,
            "cluster_fabric_id": membership.fabric_id,
            "cluster_fabric_name": membership.fabric_name,
            "created_at": format_timestamp(self.created_at),
            "created_by": USER_ID,
            "id": self.node_id,
            **self.identity.model_dump(),
            "lock_enabled": self.lock_enabled,
            "modified_at": format_timestamp(self._get_modified_at(now)),
            "modified_by": USER_ID,
            "os_type": "LINUX",
            "policy_nat": None if nat is None else nat.address,
            "policy_use_nat": nat is not None,
            "state": self.get_state(now),
            "time_zone": "Asia/Seoul",
            **zone,
        }

    def to_member_json(self, now: float) -> dict[str, Any]:
        """Return the node as the document's fabric lists its nodes."""
        return {
            "gpu_node_id": self.node_id,
            "gpu_node_name": self.name,
            "policy_ip": self.identity.policy_ip,
            "product_type_id": self.identity.product_type_id,
            "server_type": self.identity.server_type,
            "state": self.get_state(now),
        }

    def _get_modified_at(self, now: float) -> float:
        """Return the time of the node's last change until `now`, in unix seconds."""
        # Changes that are only planned have not modified the node yet.
        moments = [at for at, _ in (*self.states, *self.memberships, *self.nats) if at <= now]
        return max([self.modified_at, *moments])


def plan_creation(change: ChangeTiming, *, is_failing: bool) -> Timeline[str]:
    """Return the states of a new node: CREATING, then RUNNING, or ERROR if `is_failing`.

    A stuck node stays CREATING.
    """
    stages = _FAILURE_STAGES if is_failing else _CREATION_STAGES
    return schedule_stages(stages[:1] if change.is_stuck else stages, change.now)


def _list_current_and_planned(timeline: Timeline[T], now: float) -> list[T]:
    """Return the value of `timeline` at `now` and all later ones."""
    return [get_value_at(timeline, now), *(value for at, value in timeline if at > now)]


FABRIC_CREATION_SECONDS = 30.0
"""Seconds from the time when a fabric appears until it is RUNNING; ours."""


class Fabric(BaseModel, frozen=True):
    """A cluster fabric as it is stored."""

    fabric_id: str
    name: str
    node_pool_id: str
    region_id: str
    product_id: str
    server_type: str
    states: Timeline[str]
    """The states of the fabric; the first one begins when the fabric appears."""

    @property
    def appears_at(self) -> float:
        """Return the time of the fabric's first state; the fabric is not shown before."""
        return self.states[0][0]

    def has_appeared(self, now: float) -> bool:
        """Return whether lists and GET show the fabric by now."""
        return self.appears_at <= now

    def get_state(self, now: float) -> str:
        """Return the fabric's state at `now`; before the first step, the first state."""
        return get_value_at(self.states, now)

    def to_membership(self) -> Membership:
        """Return the membership of nodes in this fabric."""
        return Membership(fabric_id=self.fabric_id, fabric_name=self.name)

    def to_pool_json(self) -> dict[str, str]:
        """Return the fabric as node pools show fabrics (the document's example is empty)."""
        return {
            "cluster_fabric_id": self.fabric_id,
            "cluster_fabric_name": self.name,
            "node_pool_id": self.node_pool_id,
        }

    def to_json(self, now: float, members: Sequence[GpuNode]) -> dict[str, Any]:
        """Return the document's cluster fabric, in which the name is called `cluster_name`."""
        return {
            "account_id": ACCOUNT_ID,
            "cluster_name": self.name,
            "created_at": format_timestamp(self.appears_at),
            "created_by": USER_ID,
            "description": f"fabric of {self.node_pool_id}",
            "gpu_node_details": [node.to_member_json(now) for node in members],
            "id": self.fabric_id,
            "modified_at": format_timestamp(select_past_steps(self.states, now)[-1][0]),
            "modified_by": USER_ID,
            "node_pool_id": self.node_pool_id,
            "pirp_id": "20",
            "product_id": self.product_id,
            "region_id": self.region_id,
            "server_type": self.server_type,
            "state": self.get_state(now),
            "used_server_count": len(members),
        }


_NODE = "scp.gpu_node"
_FABRIC = "scp.fabric"


class ScpInventory:
    """All nodes and fabrics of the store at one moment, to be used within one transaction.

    Fabrics that have lost their last node are removed.
    """

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self.now = now
        store.remove_expired(now)
        self._nodes = {
            node.node_id: node
            for node in (parse_stored(GpuNode, body) for body in store.list_all(_NODE))
        }
        self._fabrics = {
            fabric.fabric_id: fabric
            for fabric in (parse_stored(Fabric, body) for body in store.list_all(_FABRIC))
        }
        for fabric in list(self._fabrics.values()):
            # A fabric has no delete of its own: it ends with its last node.
            if not any(node.has_fabric(fabric.fabric_id, now) for node in self._nodes.values()):
                del self._fabrics[fabric.fabric_id]
                store.put(_FABRIC, fabric.fabric_id, fabric.model_dump_json(), gone_at=now)

    def create_id(self) -> str:
        """Return a new id: 32 hexadecimal digits, as the platform's ids."""
        return self._store.create_id().replace("-", "")

    # Nodes, oldest first.

    def list_nodes(self) -> list[GpuNode]:
        """Return the visible emulated nodes, oldest first, including TERMINATED nodes."""
        return [node for node in self._nodes.values() if node.has_appeared(self.now)]

    def list_live_nodes(self) -> list[GpuNode]:
        """Return the live nodes, also before the appearance: names and servers are taken."""
        return [node for node in self._nodes.values() if node.is_live(self.now)]

    def get_node(self, node_id: str) -> GpuNode:
        """Return a visible node. Raises `Refusal` 404."""
        node = self._nodes.get(node_id)
        if node is None or not node.has_appeared(self.now):
            raise make_node_not_found(node_id)
        return node

    def save_node(self, node: GpuNode) -> None:
        """Store a new or changed node, until its `gone_at` if set."""
        self._nodes[node.node_id] = node
        self._store.put(_NODE, node.node_id, node.model_dump_json(), gone_at=node.gone_at)

    def remove_node(self, node_id: str) -> None:
        """Remove a visible node at once, without TERMINATING. Raises `Refusal` 404."""
        node = self.get_node(node_id).model_copy(update={"gone_at": self.now})
        self.save_node(node)
        self._store.remove_expired(self.now)

    # Fabrics.

    def list_fabrics(self) -> list[Fabric]:
        """Return the visible fabrics, oldest first."""
        return [fabric for fabric in self._fabrics.values() if fabric.has_appeared(self.now)]

    def get_fabric(self, fabric_id: str) -> Fabric:
        """Return a visible fabric. Raises `Refusal` 404."""
        fabric = self._fabrics.get(fabric_id)
        if fabric is None or not fabric.has_appeared(self.now):
            raise make_fabric_not_found(fabric_id)
        return fabric

    def has_fabric_named(self, name: str, node_pool_id: str) -> bool:
        """Return whether a fabric of the pool has the name, whether visible yet or not."""
        return any(
            (fabric.name, fabric.node_pool_id) == (name, node_pool_id)
            for fabric in self._fabrics.values()
        )

    def list_members(self, fabric: Fabric) -> list[GpuNode]:
        """Return the live and visible nodes of the fabric."""
        return [
            node
            for node in self.list_live_nodes()
            if node.has_appeared(self.now)
            and node.get_membership(self.now).fabric_id == fabric.fabric_id
        ]

    def save_fabric(self, fabric: Fabric) -> None:
        """Store a new or changed fabric."""
        self._fabrics[fabric.fabric_id] = fabric
        self._store.put(_FABRIC, fabric.fabric_id, fabric.model_dump_json())
