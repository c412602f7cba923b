"""Plan how the nodes that exist become those that are declared, in batches of 2 to 5 (SCP
reference, 'Create GPU Nodes'). Pure.

The same plan is shown before an update and carried out by it.

That a single server may join a fabric is not documented; it is asked for only when one is left
alone anyway.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as numbers
from itertools import pairwise
from typing import Any, Final, TypeVar

from gpuform.schemas.scp.node_rules import node_name
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NODE_FAILED, NODE_LEAVING, NodeState

T = TypeVar("T")

MOST: Final = 5
LEAST: Final = 2
"""The fewest servers that make a new fabric."""


def batches(items: Sequence[T]) -> list[Sequence[T]]:
    """The items in as few calls as possible, in their order, as even as possible.

    No call has one item, unless that is all there is.
    """
    calls = -(-len(items) // MOST)
    if not calls:
        return []
    least, more = divmod(len(items), calls)
    ends = [least * at + min(at, more) for at in range(calls + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


_POWER: Final[Mapping[str, str]] = {
    NodeState.RUNNING: "RUNNING",
    NodeState.CREATING: "RUNNING",
    NodeState.STARTING: "RUNNING",
    NodeState.RESTARTING: "RUNNING",
    NodeState.STOPPED: "STOPPED",
    NodeState.STOPPING: "STOPPED",
}


def is_leaving(state: str) -> bool:
    """Whether a node of this state is deleted, or about to be."""
    return state in NODE_LEAVING


def power_of(state: str) -> str | None:
    """RUNNING or STOPPED: what a node of this state is or becomes; None when that is open."""
    return _POWER.get(state)


ROLLED: Final = ("image_id", "server_type_id")
"""What a pool with a `rollout` changes node by node."""

REPAIR: Final = "repair"
"""The field of the replacements that are repairs."""


@dataclass(frozen=True)
class DeclaredNode:
    """A node as declared; None where nothing is declared.

    An image and a type are there where another one replaces the node alone, and not the pool.
    """

    key: str
    name: str
    image_id: str | None = None
    server_type_id: str | None = None
    ip_address: str | None = None
    nat_enabled: bool | None = None
    public_ip_address_id: str | None = None
    lock_enabled: bool | None = None
    state: str = "RUNNING"
    remade: Collection[str] = ()
    """The ids of the nodes that are made anew because somebody wants it."""
    keeps_failed: bool = False
    """A failed node stays, unless it is `remade`."""


@dataclass(frozen=True)
class Fabric:
    """The fabric where nodes are to be: by its id, else by its name."""

    name: str | None = None
    id: str | None = None

    def has(self, node: NodeOutputs) -> bool:
        """Whether the node is in it, as far as the platform tells that yet."""
        if self.id is not None:
            return node.cluster_fabric_id in (None, self.id)
        return self.name is None or node.cluster_fabric_name in (None, self.name)


@dataclass(frozen=True)
class DeclaredPool:
    """The declaration of a pool: `nodes` by their names, or a `count` of equal ones."""

    fabric: Fabric
    prefix: str
    count: int | None = None
    nodes: Mapping[str, DeclaredNode] = field(default_factory=dict)
    remove: Sequence[str] = ()
    cleared: Sequence[str] = ()
    """The names of the nodes that go before all others, because no job runs on them."""
    image_id: str | None = None
    server_type_id: str | None = None
    lock_enabled: bool | None = None
    state: str = "RUNNING"
    is_asked: bool = False
    """Which nodes go is not decided before their scheduler has said what runs on them."""
    remade: Collection[str] = ()
    """The ids of the nodes whose repair is due."""
    keeps_failed: bool = False
    """A `repair` says which failed nodes are made anew, and when."""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "DeclaredPool":
        """From canonical inputs without unknown values."""
        lock, state = values.get("lock_enabled"), values.get("state", "RUNNING")
        prefix, count = values["gpu_node_name_prefix"], values.get("count")
        drain = values.get("drain") or {}
        named = drain.get("nodes") or ()
        has_scheduler = any(drain.get(name) for name in ("kubernetes", "slurm"))
        is_rolled = values.get("rollout") is not None
        image, server_type = (values.get(name) if is_rolled else None for name in ROLLED)
        nodes = {}
        for key, node in (values.get("nodes") or {}).items():
            own = {"lock_enabled": lock, "state": state, **node}
            own.pop("gpu_node_name", None)
            wanted = DeclaredNode(key, node_name(key, node, prefix), image, server_type, **own)
            nodes[wanted.name] = wanted
        return cls(
            fabric=Fabric(values["cluster_fabric_name"], values.get("cluster_fabric_id")),
            prefix=prefix,
            count=None if count is None else int(count),
            nodes=nodes,
            remove=[*named, *(values.get("remove") or ())],
            is_asked=has_scheduler and count is not None and not named,
            image_id=image,
            server_type_id=server_type,
            lock_enabled=lock,
            state=state,
            keeps_failed=values.get("repair") is not None,
        )

    def has(self, name: str) -> bool:
        """Whether a node of this name can be one that is declared."""
        return self.count is not None or name in self.nodes

    def wanted(self, name: str) -> DeclaredNode:
        """What is declared of the node of this name."""
        if self.count is None:
            own = self.nodes[name]
            return replace(own, remade=self.remade, keeps_failed=self.keeps_failed)
        return DeclaredNode(
            key=name,
            name=name,
            image_id=self.image_id,
            server_type_id=self.server_type_id,
            lock_enabled=self.lock_enabled,
            state=self.state,
            remade=self.remade,
            keeps_failed=self.keeps_failed,
        )

    def key_of(self, name: str) -> str:
        """Under which key a node is shown: its own, else its name."""
        return self.nodes[name].key if name in self.nodes else name


@dataclass(frozen=True)
class Replacement:
    """A node that is deleted and made again, because `field` cannot be changed in place."""

    node: NodeOutputs
    wanted: DeclaredNode
    field: str
    before: str | None
    after: str | None

    @property
    def name(self) -> str:
        """The node's."""
        return self.node.gpu_node_name

    @property
    def is_repair(self) -> bool:
        """Whether it is due by a `repair`, or asked for by name."""
        return self.field == REPAIR

    @property
    def because(self) -> str:
        """For people."""
        if self.field == "state":
            return "it failed: it is deleted and made again"
        return "cannot be changed in place: the node is deleted and made again"


@dataclass(frozen=True)
class Plan:
    """`waiting` are replacements whose turn has not come.

    A replaced node is made by the plan that follows its deletion, as any missing one.
    """

    create: Sequence[DeclaredNode] = ()
    delete: Sequence[NodeOutputs] = ()
    replace: Sequence[Replacement] = ()
    waiting: Sequence[Replacement] = ()
    keep: Sequence[tuple[NodeOutputs, DeclaredNode]] = ()

    @property
    def ending(self) -> list[NodeOutputs]:
        """The nodes that are deleted."""
        return [*self.delete, *(each.node for each in self.replace)]


def plan(declared: DeclaredPool, nodes: Sequence[NodeOutputs], spare: Collection[str] = ()) -> Plan:
    """The plan for the pool's nodes. Those of the ids `spare` are not replaced."""
    live = [node for node in nodes if not is_leaving(node.state)]
    if declared.count is None:
        delete = [node for node in live if node.gpu_node_name not in declared.nodes]
        names = list(declared.nodes)
    else:
        surplus = max(0, len(live) - declared.count)
        delete = removal_order(live, declared)[:surplus]
        names = list(_names(declared, live, declared.count))
    gone = {node.id for node in delete}
    stay = [node for node in live if node.id not in gone]
    there = {node.gpu_node_name for node in live}
    replaced, keep = [], []
    for node in stay:
        wanted = declared.wanted(node.gpu_node_name)
        found = None if node.id in spare else replacement(node, wanted)
        if found:
            replaced.append(found)
        else:
            keep.append((node, wanted))
    create = [declared.wanted(name) for name in names if name not in there]
    return Plan(create, delete, replaced, keep=keep)


def replacement(node: NodeOutputs, wanted: DeclaredNode) -> Replacement | None:
    """Why a node has to be made again, if it has; what the platform does not tell is right."""
    if node.id in wanted.remade:
        return Replacement(node, wanted, REPAIR, node.state, wanted.state)
    if node.state in NODE_FAILED and not wanted.keeps_failed:
        return Replacement(node, wanted, "state", node.state, wanted.state)
    made = {
        "ip_address": (node.policy_ip, wanted.ip_address),
        "image_id": (node.image_id, wanted.image_id),
        "server_type_id": (node.product_type_id, wanted.server_type_id),
    }
    for name, (before, after) in made.items():
        if before and after and before != after:
            return Replacement(node, wanted, name, before, after)
    return None


def removal_order(nodes: Sequence[NodeOutputs], declared: DeclaredPool) -> list[NodeOutputs]:
    """Who goes first: the named ones, then failed, then stopped, then the newest."""
    named = [*declared.cleared, *declared.remove]

    def rank(node: NodeOutputs) -> tuple[int, int]:
        if node.gpu_node_name in named:
            return 0, named.index(node.gpu_node_name)
        if node.state in NODE_FAILED:
            return 1, 0
        is_idle = declared.state == "RUNNING" and power_of(node.state) == "STOPPED"
        return (2, 0) if is_idle else (3, 0)

    newest = sorted(
        nodes, key=lambda node: (node.created_at or "", node.gpu_node_name), reverse=True
    )
    return sorted(newest, key=rank)


def _names(declared: DeclaredPool, live: Sequence[NodeOutputs], count: int) -> Iterator[str]:
    """The names that are there, and the lowest free ones that are not to be removed."""
    there = {node.gpu_node_name for node in live}
    yield from there
    missing = count - len(live)
    for number in numbers(1):
        if missing <= 0:
            return
        name = f"{declared.prefix}-{number:03}"
        if name not in there and name not in declared.remove:
            missing -= 1
            yield name


@dataclass(frozen=True)
class Difference:
    """One declared value that a node does not have."""

    field: str
    before: Any
    after: Any


def differences(node: NodeOutputs, wanted: DeclaredNode, fabric: Fabric) -> Iterator[Difference]:
    """In the order in which they are shown. A state that is open differs from nothing."""
    if not fabric.has(node):
        if fabric.id is not None:
            yield Difference("cluster_fabric_id", node.cluster_fabric_id, fabric.id)
        else:
            yield Difference("cluster_fabric_name", node.cluster_fabric_name, fabric.name)
    if wanted.nat_enabled is not None and wanted.nat_enabled != node.policy_use_nat:
        yield Difference("nat_enabled", node.policy_use_nat, wanted.nat_enabled)
    elif wanted.nat_enabled and has_other_public_ip(node, wanted):
        yield Difference(
            "public_ip_address_id", node.public_ip_address_id, wanted.public_ip_address_id
        )
    if wanted.lock_enabled is not None and wanted.lock_enabled != node.lock_enabled:
        yield Difference("lock_enabled", node.lock_enabled, wanted.lock_enabled)
    power = power_of(node.state)
    if power is not None and power != wanted.state:
        yield Difference("state", power, wanted.state)


def has_other_public_ip(node: NodeOutputs, wanted: DeclaredNode) -> bool:
    """Whether its public IP is known not to be the wanted one: the platform does not tell."""
    ids = (node.public_ip_address_id, wanted.public_ip_address_id)
    return None not in ids and ids[0] != ids[1]


def locked(names: Sequence[str]) -> str:
    """What to say of locked nodes."""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"GPU node {shown} is locked" if len(names) == 1 else f"GPU nodes {shown} are locked"


def is_stopped_by_force(node: NodeOutputs, wanted: DeclaredNode) -> bool:
    """Whether it is to be stopped while it is locked, and stays so."""
    is_stopped = wanted.state == "STOPPED" and power_of(node.state) == "RUNNING"
    return is_stopped and node.lock_enabled and wanted.lock_enabled is not False
