"""Plan how a pool's existing nodes become the declared ones. Pure: nothing is requested.

The same plan is shown before an update and carried out by the update. Creates go out in batches of
2 to 5 servers (SCP reference, 'Create GPU Nodes'). That a single server may join a fabric is not
documented: one is requested only when it is left alone anyway.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count as numbers
from itertools import pairwise
from typing import Any, Final, TypeVar

from gpuform.schemas.scp.node_rules import get_node_name
from gpuform.schemas.scp.outputs import (
    DELETING_NODE_STATES,
    FAILED_NODE_STATES,
    NodeOutputs,
    NodeState,
)

T = TypeVar("T")

MAX_BATCH_SIZE: Final = 5
"""The most servers in one create request (SCP reference, 'Create GPU Nodes')."""
MIN_FABRIC_SIZE: Final = 2
"""The fewest servers that form a new fabric."""


def split_into_batches(items: Sequence[T]) -> list[Sequence[T]]:
    """Split the items, in order, into few and even batches of at most five.

    No batch has one item, unless there is only one.
    """
    batch_count = -(-len(items) // MAX_BATCH_SIZE)
    if not batch_count:
        return []
    # Even batches: five and one would send a server alone.
    base_size, larger_count = divmod(len(items), batch_count)
    ends = [base_size * index + min(index, larger_count) for index in range(batch_count + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


def parse_stored_nodes(outputs: Mapping[str, Any]) -> list[NodeOutputs] | None:
    """Parse the nodes in a pool's outputs; None if no run has seen a node yet.

    A run that saw none of the nodes in `node_ids`, as right after their create, proves nothing.
    A node stored without image or server type has those of the pool.
    """
    nodes = outputs.get("gpu_nodes")
    if not isinstance(nodes, Mapping) or (not nodes and outputs.get("node_ids")):
        return None
    # States of older versions do not say what each node was made with: as all of them.
    pool_values = {
        "image_id": outputs.get("image_id"),
        "product_type_id": outputs.get("server_type_id"),
    }
    stored_values = ({k: v for k, v in node.items() if v is not None} for node in nodes.values())
    return [NodeOutputs.model_validate({**pool_values, **node}) for node in stored_values]


_POWER: Final[Mapping[str, str]] = {
    NodeState.RUNNING: "RUNNING",
    NodeState.CREATING: "RUNNING",
    NodeState.STARTING: "RUNNING",
    NodeState.RESTARTING: "RUNNING",
    NodeState.STOPPED: "STOPPED",
    NodeState.STOPPING: "STOPPED",
}


def is_terminating(state: str) -> bool:
    """Return True if a node of this state is being deleted or was deleted."""
    return state in DELETING_NODE_STATES


def get_power_state(state: str) -> str | None:
    """Return RUNNING or STOPPED for a present or coming power state; None for any other state."""
    return _POWER.get(state)


ROLLOUT_FIELDS: Final = ("image_id", "server_type_id")
"""The inputs that a pool with a `rollout` changes node by node."""

REPAIR_FIELD: Final = "repair"
"""The `field` of a replacement that is a repair."""


@dataclass(frozen=True)
class DeclaredNode:
    """One node as declared; None where nothing is declared.

    `image_id` and `server_type_id` are set where a change of them replaces the node alone, and not
    the pool.
    """

    key: str
    name: str
    image_id: str | None = None
    server_type_id: str | None = None
    ip_address: str | None = None
    zone: str | None = None
    nat_enabled: bool | None = None
    public_ip_address_id: str | None = None
    lock_enabled: bool | None = None
    state: str = "RUNNING"
    recreated_ids: Collection[str] = ()
    """The ids of the nodes that a repair recreates."""
    keeps_failed: bool = False
    """Whether a failed node stays, unless its id is in `recreated_ids`."""


@dataclass(frozen=True)
class TargetFabric:
    """The fabric where nodes should be: identified by `id`, else by `name`."""

    name: str | None = None
    id: str | None = None

    def contains(self, node: NodeOutputs) -> bool:
        """Return True if the node is in the fabric, or shows none yet, or none is declared."""
        # A new fabric has no id in the first answers (`cluster_fabric_id` is absent).
        if self.id is not None:
            return node.cluster_fabric_id in (None, self.id)
        return self.name is None or node.cluster_fabric_name in (None, self.name)


@dataclass(frozen=True)
class DeclaredPool:
    """The declaration of a pool: `nodes` by their names, or a `count` of equal nodes."""

    fabric: TargetFabric
    prefix: str
    count: int | None = None
    nodes: Mapping[str, DeclaredNode] = field(default_factory=dict)
    remove: Sequence[str] = ()
    drained_names: Sequence[str] = ()
    """The names of the nodes that are removed first, because no job runs on them."""
    image_id: str | None = None
    server_type_id: str | None = None
    zone: str | None = None
    lock_enabled: bool | None = None
    state: str = "RUNNING"
    is_chosen_by_scheduler: bool = False
    """Whether the nodes' scheduler decides which nodes are removed, by the jobs on them."""
    recreated_ids: Collection[str] = ()
    """The ids of the nodes whose repair is due."""
    keeps_failed: bool = False
    """Whether a declared `repair` decides which failed nodes are recreated, and when."""

    @classmethod
    def from_inputs(cls, values: Mapping[str, Any]) -> "DeclaredPool":
        """Build the declaration from canonical inputs without unknown values.

        Image and server type are None without a `rollout`, even if declared: a change of them then
        replaces the pool, and nodes need not be compared.
        """
        lock_enabled, state = values.get("lock_enabled"), values.get("state", "RUNNING")
        prefix, count = values["gpu_node_name_prefix"], values.get("count")
        drain = values.get("drain") or {}
        named_removals = drain.get("nodes") or ()
        has_scheduler = any(drain.get(name) for name in ("kubernetes", "slurm"))
        has_rollout = values.get("rollout") is not None
        # Without a rollout another image or type replaces the whole pool: nodes need not be
        # compared.
        image_id, server_type_id = (
            values.get(name) if has_rollout else None for name in ROLLOUT_FIELDS
        )
        nodes = {}
        for key, node in (values.get("nodes") or {}).items():
            settings = {
                "zone": values.get("zone"),
                "lock_enabled": lock_enabled,
                "state": state,
                **node,
            }
            # The full name comes from the prefix and the key, or is this one.
            settings.pop("gpu_node_name", None)
            declared_node = DeclaredNode(
                key, get_node_name(key, node, prefix), image_id, server_type_id, **settings
            )
            nodes[declared_node.name] = declared_node
        return cls(
            fabric=TargetFabric(values["cluster_fabric_name"], values.get("cluster_fabric_id")),
            prefix=prefix,
            count=None if count is None else int(count),
            nodes=nodes,
            remove=[*named_removals, *(values.get("remove") or ())],
            is_chosen_by_scheduler=has_scheduler and count is not None and not named_removals,
            image_id=image_id,
            server_type_id=server_type_id,
            zone=values.get("zone"),
            lock_enabled=lock_enabled,
            state=state,
            keeps_failed=values.get("repair") is not None,
        )

    def has_node(self, name: str) -> bool:
        """Return True if a node of this name is declared; always True for a pool with a count."""
        return self.count is not None or name in self.nodes

    def get_declared_node(self, name: str) -> DeclaredNode:
        """Return the declaration of the node of this name.

        For a pool with a `count`, that is the common one. The caller has checked `has_node`.
        """
        if self.count is None:
            declared_node = self.nodes[name]
            return replace(
                declared_node, recreated_ids=self.recreated_ids, keeps_failed=self.keeps_failed
            )
        return DeclaredNode(
            key=name,
            name=name,
            image_id=self.image_id,
            server_type_id=self.server_type_id,
            zone=self.zone,
            lock_enabled=self.lock_enabled,
            state=self.state,
            recreated_ids=self.recreated_ids,
            keeps_failed=self.keeps_failed,
        )

    def get_key(self, name: str) -> str:
        """Return the key of a node in the outputs: its declared key, else its name."""
        return self.nodes[name].key if name in self.nodes else name


@dataclass(frozen=True)
class Replacement:
    """A node that is deleted and created again, because `field` cannot change in place."""

    node: NodeOutputs
    declared_node: DeclaredNode
    field: str
    before: str | None
    after: str | None

    @property
    def name(self) -> str:
        """Return the name of the replaced node."""
        return self.node.gpu_node_name

    @property
    def is_repair(self) -> bool:
        """Return True if a `repair` policy, or a person by name, asks for the replacement."""
        return self.field == REPAIR_FIELD

    @property
    def reason(self) -> str:
        """Return for people why the node is recreated: it has failed, or its field is fixed.

        Not for repairs, which have reasons of their own.
        """
        if self.field == "state":
            return "the node has failed: gpuform deletes and recreates it"
        return "cannot be changed in place: gpuform deletes and recreates the node"


@dataclass(frozen=True)
class PoolPlan:
    """What to do with the nodes of one pool; `waiting` has the replacements whose turn comes later.

    A replaced node is only deleted by this plan: the plan after its deletion creates it, like any
    missing node.
    """

    create: Sequence[DeclaredNode] = ()
    delete: Sequence[NodeOutputs] = ()
    replace: Sequence[Replacement] = ()
    waiting: Sequence[Replacement] = ()
    keep: Sequence[tuple[NodeOutputs, DeclaredNode]] = ()

    @property
    def deleted_nodes(self) -> list[NodeOutputs]:
        """Return the deleted nodes: removed ones, and replaced ones."""
        return [*self.delete, *(replacement.node for replacement in self.replace)]


def plan_pool(
    declared: DeclaredPool, nodes: Sequence[NodeOutputs], spared_ids: Collection[str] = ()
) -> PoolPlan:
    """Plan the creates, deletions and replacements from `nodes` to the declared pool.

    Nodes under deletion count as gone. Nodes whose ids are in `spared_ids` are not replaced.
    """
    # Nodes that are being deleted count as gone, but their names are free only later.
    live_nodes = [node for node in nodes if not is_terminating(node.state)]
    if declared.count is None:
        removed_nodes = [node for node in live_nodes if node.gpu_node_name not in declared.nodes]
        names = list(declared.nodes)
    else:
        surplus_count = max(0, len(live_nodes) - declared.count)
        removed_nodes = sort_for_removal(live_nodes, declared)[:surplus_count]
        names = list(_choose_names(declared, live_nodes, declared.count))
    removed_ids = {node.id for node in removed_nodes}
    remaining_nodes = [node for node in live_nodes if node.id not in removed_ids]
    existing_names = {node.gpu_node_name for node in live_nodes}
    replacements, kept_nodes = [], []
    for node in remaining_nodes:
        declared_node = declared.get_declared_node(node.gpu_node_name)
        replacement = None if node.id in spared_ids else find_replacement(node, declared_node)
        if replacement:
            replacements.append(replacement)
        else:
            kept_nodes.append((node, declared_node))
    missing_nodes = [
        declared.get_declared_node(name) for name in names if name not in existing_names
    ]
    return PoolPlan(missing_nodes, removed_nodes, replacements, keep=kept_nodes)


def find_replacement(node: NodeOutputs, declared_node: DeclaredNode) -> Replacement | None:
    """Return the replacement of a node to be created again, or None.

    That is a node whose repair is due, a failed node unless a `repair` is declared, or one with
    another ip_address, zone, image or server type than declared. A value that the platform does not
    show counts as right.
    """
    # By id: the node that came in its place is not replaced again.
    if node.id in declared_node.recreated_ids:
        return Replacement(node, declared_node, REPAIR_FIELD, node.state, declared_node.state)
    if node.state in FAILED_NODE_STATES and not declared_node.keeps_failed:
        return Replacement(node, declared_node, "state", node.state, declared_node.state)
    # These are fixed at creation: SCP has no call that changes them.
    fixed_values = {
        "ip_address": (node.policy_ip, declared_node.ip_address),
        "zone": (node.zone, declared_node.zone),
        "image_id": (node.image_id, declared_node.image_id),
        "server_type_id": (node.product_type_id, declared_node.server_type_id),
    }
    for name, (before, after) in fixed_values.items():
        if before and after and before != after:
            return Replacement(node, declared_node, name, before, after)
    return None


def sort_for_removal(nodes: Sequence[NodeOutputs], declared: DeclaredPool) -> list[NodeOutputs]:
    """Sort the nodes in the order of removal: drained, named, failed, stopped, then the newest.

    Stopped nodes come early only in a pool that is declared RUNNING.
    """
    first_names = [*declared.drained_names, *declared.remove]

    def rank(node: NodeOutputs) -> tuple[int, int]:
        if node.gpu_node_name in first_names:
            return 0, first_names.index(node.gpu_node_name)
        if node.state in FAILED_NODE_STATES:
            return 1, 0
        is_stopped_early = declared.state == "RUNNING" and get_power_state(node.state) == "STOPPED"
        return (2, 0) if is_stopped_early else (3, 0)

    # Sorting is stable: nodes of one rank stay in this order.
    newest_first = sorted(
        nodes, key=lambda node: (node.created_at or "", node.gpu_node_name), reverse=True
    )
    return sorted(newest_first, key=rank)


def _choose_names(
    declared: DeclaredPool, live_nodes: Sequence[NodeOutputs], count: int
) -> Iterator[str]:
    """Yield the existing names, then free names PREFIX-001 and on, up to `count` nodes.

    All existing names are yielded, in no order, even if there are more than `count`. A name that
    the declaration removes is not given to a new node.
    """
    existing_names = {node.gpu_node_name for node in live_nodes}
    yield from existing_names
    missing_count = count - len(live_nodes)
    for number in numbers(1):
        if missing_count <= 0:
            return
        name = f"{declared.prefix}-{number:03}"
        # A name that is to be removed must not be created again by the same update.
        if name not in existing_names and name not in declared.remove:
            missing_count -= 1
            yield name


@dataclass(frozen=True)
class NodeDifference:
    """One declared value that a node does not have."""

    field: str
    before: Any
    after: Any


def find_differences(
    node: NodeOutputs, declared_node: DeclaredNode, fabric: TargetFabric
) -> Iterator[NodeDifference]:
    """Yield the differences between a node and the declaration, in the order of plans.

    A node whose power state is open (such as EDITING) has no difference of state. Undeclared
    inputs, and a fabric that the node does not show, are no difference.
    """
    if not fabric.contains(node):
        if fabric.id is not None:
            yield NodeDifference("cluster_fabric_id", node.cluster_fabric_id, fabric.id)
        else:
            yield NodeDifference("cluster_fabric_name", node.cluster_fabric_name, fabric.name)
    if declared_node.nat_enabled is not None and declared_node.nat_enabled != node.policy_use_nat:
        yield NodeDifference("nat_enabled", node.policy_use_nat, declared_node.nat_enabled)
    # NAT stays on, but by another public IP.
    elif declared_node.nat_enabled and has_other_public_ip(node, declared_node):
        yield NodeDifference(
            "public_ip_address_id", node.public_ip_address_id, declared_node.public_ip_address_id
        )
    if declared_node.lock_enabled is not None and declared_node.lock_enabled != node.lock_enabled:
        yield NodeDifference("lock_enabled", node.lock_enabled, declared_node.lock_enabled)
    power_state = get_power_state(node.state)
    if power_state is not None and power_state != declared_node.state:
        yield NodeDifference("state", power_state, declared_node.state)


def has_other_public_ip(node: NodeOutputs, declared_node: DeclaredNode) -> bool:
    """Return True if the node's public IP is known and not the declared one.

    The platform returns no id of a public IP: gpuform knows the ids that it has assigned.
    """
    public_ip_ids = (node.public_ip_address_id, declared_node.public_ip_address_id)
    return None not in public_ip_ids and public_ip_ids[0] != public_ip_ids[1]


def format_locked_nodes(names: Sequence[str]) -> str:
    """Return a sentence with the locked nodes: the first five names, and how many more."""
    listed_names = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (
        f"GPU node {listed_names} is locked"
        if len(names) == 1
        else f"GPU nodes {listed_names} are locked"
    )


def is_switched_while_locked(node: NodeOutputs, declared_node: DeclaredNode) -> bool:
    """Return True if the declaration starts or stops a locked node without unlocking the node.

    SCP refuses both for a locked node (Samsung's Terraform provider v6, `gpunode_resource.go`).
    """
    switches = {("RUNNING", "STOPPED"), ("STOPPED", "RUNNING")}
    is_switched = (get_power_state(node.state), declared_node.state) in switches
    return is_switched and node.lock_enabled and declared_node.lock_enabled is not False
