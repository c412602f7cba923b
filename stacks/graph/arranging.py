"""Build the nodes of a diagram, arrange them in boxes, and merge like nodes where there are many.

`gpuform graph` builds nodes from a state or a plan, with the fabrics that resources share, and
calls `build_drawing`; `drawing` renders the result. Secrets are never included.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.catalog import Summary, summarize_resource
from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.state import ResourceState, find_dependency_urns
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_REFERENCE_TYPE, is_noise, is_urn, name_of
from gpuform.stacks.review.value_text import counted, short_type, to_display_value

_CLUSTER_PARTS: Final = ("GpuNode", "NodePool")
"""Kinds that are drawn inside the cluster they belong to."""
_OTHER_PLATFORM: Final = "other"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """Hold one resource, or one fabric that resources share.

    `type` is short (`together:Cluster`). `parent` and `dependencies` are keys of other nodes;
    `action` is what a plan does to the resource, None without a plan.
    """

    key: str
    type: str
    name: str
    facts: tuple[str, ...] = ()
    gpus: int = 0
    parent: str = ""
    dependencies: frozenset[str] = field(default_factory=frozenset)
    action: PlanAction | None = None

    @property
    def platform(self) -> str:
        """Return the name of the outermost box around the node."""
        if self.type == short_type(MODULE_TYPE):
            return "modules"
        platform, separator, _ = self.type.partition(":")
        return platform if platform and separator and platform != "dynamic" else _OTHER_PLATFORM

    @property
    def is_resource(self) -> bool:
        """Return True for a resource of the stack, False for a fabric known by name only."""
        return is_urn(self.key)

    @property
    def kind(self) -> str:
        """Return the last part of the type: `Cluster` of `together:Cluster`."""
        return self.type.rpartition(":")[2]


def build_state_nodes(entries: Iterable[ResourceState]) -> list[GraphNode]:
    """Build the nodes of a state. Old objects that wait for their deletion are left out."""
    live = [entry for entry in entries if _is_shown(entry)]
    return _connect_nodes([_build_entry_node(entry) for entry in live], _map_fabrics(live))


def build_plan_nodes(plan: Plan, entries: Iterable[ResourceState] = ()) -> list[GraphNode]:
    """Build the nodes of a plan with the planned actions, and the nodes of unchanged resources.

    `entries` are the entries of the state, which a plan read from JSON does not contain.
    """
    live = {e.urn: e for e in entries if _is_shown(e)}
    nodes: dict[str, GraphNode] = {}
    for change in plan.changes:
        if not _is_hidden_type(change.type):
            nodes.setdefault(change.urn, _build_change_node(change, live.get(change.urn)))
    # A preview's JSON leaves out what stays as it is.
    for urn, entry in live.items():
        nodes.setdefault(urn, _build_entry_node(entry))
    fabrics = _map_fabrics(live.values())
    for change in plan.changes:
        for planned in change.changes:
            if planned.path == _FABRIC and isinstance(planned.after, str):
                # A planned fabric comes before the current one.
                fabrics[change.urn] = planned.after
    return _connect_nodes(list(nodes.values()), fabrics)


def _is_shown(entry: ResourceState) -> bool:
    """Return False for an old object before its deletion, and for a type left out of diagrams."""
    return not (entry.delete or entry.pending_replacement or _is_hidden_type(entry.type))


def _is_hidden_type(type_: str) -> bool:
    """Return True for the stack, providers and stack references: the diagram leaves them out."""
    return is_noise(type_) or type_ == STACK_REFERENCE_TYPE


def _build_entry_node(entry: ResourceState) -> GraphNode:
    """Build the node of a resource in the state.

    Its facts are region, GPU type, GPUs, state, `not ready` and `protected`, as far as known. The
    parent is not among the dependencies.
    """
    type_, values = short_type(entry.type), _get_values(entry)
    platform, _, kind = type_.partition(":")
    summary = summarize_resource(platform, kind, values) if values else Summary()
    facts = (
        *_find_location(values),
        counted(summary.gpus, "GPU") if summary.gpus else "",
        summary.state,
        "not ready" if summary.ready is False else "",
        "protected" if entry.protect else "",
    )
    return GraphNode(
        key=entry.urn,
        type=type_,
        name=name_of(entry.urn),
        facts=tuple(fact for fact in facts if fact),
        gpus=summary.gpus,
        parent=entry.parent,
        # The parent is drawn around the node, without an arrow.
        dependencies=frozenset(find_dependency_urns(entry, provider=False) - {entry.parent}),
    )


def _build_change_node(change: ResourceChange, entry: ResourceState | None) -> GraphNode:
    """Build the node of a planned change, with the planned values.

    A deleted or unchanged resource has the current values of its `entry`.
    """
    if entry is not None and change.action in (PlanAction.DELETE, PlanAction.SAME):
        return replace(_build_entry_node(entry), action=change.action)
    values = {planned.path: planned.after for planned in change.changes if not planned.secret}
    facts = [*_find_location({**(_get_values(entry) if entry else {}), **values})]
    facts += [f"-{counted(change.gpus_removed, 'GPU')}"] if change.gpus_removed else []
    facts += [f"+{counted(change.gpus_added, 'GPU')}"] if change.gpus_added else []
    return GraphNode(
        key=change.urn,
        type=short_type(change.type),
        name=change.name,
        facts=tuple(fact for fact in facts if fact),
        gpus=(change.gpus_added or 0) - (change.gpus_removed or 0),
        parent=change.parent,
        # A preview's JSON has no dependencies.
        dependencies=frozenset(
            change.dependencies or (find_dependency_urns(entry, provider=False) if entry else ())
        ),
        action=change.action,
    )


def _get_values(entry: ResourceState) -> dict[str, Any]:
    """Return the outputs of an entry, with declared inputs in place of missing outputs."""
    return {**_get_public_values(entry.inputs), **_get_public_values(entry.outputs)}


def _get_public_values(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties as plain values, without secrets."""
    # The SDK stores the code of a dynamic resource under this key.
    own = {key: value for key, value in properties.items() if key != "__provider"}
    return {key: value for key, value in to_display_value(own).items() if value != MASK}


def _find_location(values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the region and the GPU type in a resource's values; each empty if unknown."""
    region = _find_text(values, "region") or _find_text(values, "region_id")
    return region, _find_text(values, "gpu_type")


def _find_text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) and value != MASK else ""


_FABRIC: Final = "cluster_fabric_name"


def _map_fabrics(entries: Iterable[ResourceState]) -> dict[str, str]:
    return {
        entry.urn: fabric
        for entry in entries
        if (fabric := _find_text(_get_public_values(entry.inputs), _FABRIC))
    }


def _connect_nodes(nodes: list[GraphNode], fabrics: Mapping[str, str]) -> list[GraphNode]:
    """Return the nodes with their parents set, and a further node for each named fabric.

    A resource on a fabric depends on the fabric's node. `fabrics` maps URNs to names of fabrics.
    Dependencies on resources without a node are removed.
    """
    by_key = {node.key: node for node in nodes}
    # A fabric that is a resource of the stack is drawn as this resource.
    fabric_keys = {
        (node.platform, fabrics[node.key]): node.key
        for node in nodes
        if node.kind == "Fabric" and node.key in fabrics
    }
    connected: dict[str, GraphNode] = {}
    for node in nodes:
        fabric = fabrics.get(node.key)
        dependencies = {key for key in node.dependencies if key in by_key}
        if fabric and node.kind != "Fabric":
            new_key = f"fabric {node.platform} {fabric}"
            key = fabric_keys.setdefault((node.platform, fabric), new_key)
            if key not in by_key:
                connected.setdefault(key, GraphNode(key, f"{node.platform}:Fabric", fabric))
            dependencies.add(key)
        parent = node.parent if node.parent in by_key else _find_cluster(node, by_key)
        connected[node.key] = replace(
            node, parent=parent, dependencies=frozenset(dependencies - {parent})
        )
    return list(connected.values())


def _find_cluster(node: GraphNode, by_key: Mapping[str, GraphNode]) -> str:
    """Return the key of the cluster that a node pool or GPU node depends on.

    Returns "" for other kinds, and for a part of several clusters or of none.
    """
    if node.kind not in _CLUSTER_PARTS:
        return ""
    clusters = [
        key
        for key in node.dependencies
        if key in by_key and by_key[key].type == f"{node.platform}:Cluster"
    ]
    # A part of several clusters is drawn inside none.
    return clusters[0] if len(clusters) == 1 else ""


MAX_SHAPES: Final = 60
"""More shapes than this nobody takes in at once."""

_MAX_SINGLE_NODES: Final = 8
_MAX_DEPTH: Final = 8
"""Levels of boxes inside each other; deeper nodes are drawn beside their parent."""

_KINDS: Final = (
    *("Cluster", "NodePool", "GpuNode", "Fabric"),
    *("SharedVolume", "VolumeClaim", "Certification", "HealthGate"),
)
"""The order of kinds inside a box."""


@dataclass(slots=True, eq=False)
class Shape:
    """Hold one shape: a node, or like nodes as one. `key` is short and unique in the drawing.

    A `box` is a platform, or with `is_stack` a complete stack; it has no nodes of its own. `note`
    is the text beside it.
    """

    key: str
    nodes: Sequence[GraphNode] = ()
    box: str = ""
    is_stack: bool = False
    note: str = ""
    children: list["Shape"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Arrow:
    """Connect `source` to its dependency `target`; `count` dependencies share the arrow."""

    source: Shape
    target: Shape
    count: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """Hold the outermost boxes with their contents, and the arrows between shapes.

    The outermost boxes are platforms, or stacks with platforms inside.
    """

    title: str
    boxes: Sequence[Shape]
    arrows: Sequence[Arrow]
    nodes: Sequence[GraphNode]

    def list_boxes(self) -> list[Shape]:
        """List every box, outer boxes before inner ones."""
        return [shape for shape in self._list_all() if shape.box]

    def list_shapes(self) -> list[Shape]:
        """List every shape except the boxes, outer shapes before inner ones."""
        return [shape for shape in self._list_all() if not shape.box]

    def list_stacks(self) -> list[Shape]:
        """List the boxes of stacks; empty in a drawing of one stack."""
        return [box for box in self.boxes if box.is_stack]

    def _list_all(self) -> list[Shape]:
        """List every box and shape, each before its contents."""
        shapes: list[Shape] = []
        # Without recursion: a state may nest deeper than Python's stack.
        waiting = [*reversed(self.boxes)]
        while waiting:
            shapes.append(waiting.pop())
            waiting += reversed(shapes[-1].children)
        return shapes


@dataclass(frozen=True, slots=True)
class StackPart:
    """Hold one of several stacks to draw: its nodes, and the names of the stacks it depends on.

    `note` is the text of a stack without nodes.
    """

    name: str
    nodes: Sequence[GraphNode] = ()
    dependencies: Sequence[str] = ()
    note: str = ""


def build_drawing(title: str, nodes: Iterable[GraphNode], max_shapes: int = MAX_SHAPES) -> Drawing:
    """Arrange the nodes in a drawing, one by one for at most `max_shapes` shapes.

    Otherwise like parts of one cluster become one shape with a count; if that is not enough, all
    nodes of one type, parent and action: first where they are many, then everywhere.
    """
    ordered = sorted(nodes, key=_get_sort_key)
    (groups,) = _group_stacks([ordered], max_shapes)
    boxes, arrows = _ShapeNumbering().build_shapes(ordered, groups)
    return Drawing(title, boxes, arrows, ordered)


def build_multi_stack_drawing(
    title: str, parts: Sequence[StackPart], max_shapes: int = MAX_SHAPES
) -> Drawing:
    """Arrange several stacks, each as a box with nodes. `max_shapes` is for all stacks together."""
    ordered = [sorted(part.nodes, key=_get_sort_key) for part in parts]
    numbers = _ShapeNumbering()
    boxes: dict[str, Shape] = {}
    arrows: list[Arrow] = []
    for part, nodes, groups in zip(parts, ordered, _group_stacks(ordered, max_shapes), strict=True):
        inner, stack_arrows = numbers.build_shapes(nodes, groups)
        # The letters of nodes (n), platforms (p) and stacks (s) keep keys apart.
        key = f"s{len(boxes) + 1}"
        boxes[part.name] = Shape(key, box=part.name, is_stack=True, note=part.note, children=inner)
        arrows += stack_arrows
    arrows += [
        Arrow(boxes[part.name], boxes[dependency], 1)
        for part in parts
        for dependency in part.dependencies
        if dependency in boxes and dependency != part.name
    ]
    all_nodes = [node for stack_nodes in ordered for node in stack_nodes]
    return Drawing(title, list(boxes.values()), arrows, all_nodes)


def _group_stacks(stacks: Sequence[Sequence[GraphNode]], max_shapes: int) -> list[dict[str, int]]:
    """Return the group number of each node, for each stack. All stacks follow one rule.

    The rule is the finest with at most `max_shapes` groups, or else the coarsest.
    """
    groups_by_stack: list[dict[str, int]] = []
    for rule in _MERGE_RULES:
        groups_by_stack = [assign_group_numbers(nodes, rule(nodes)) for nodes in stacks]
        # The first rule that is coarse enough keeps most detail.
        if sum(len(set(groups.values())) for groups in groups_by_stack) <= max_shapes:
            break
    return groups_by_stack


SimilarityKey = Callable[[GraphNode, bool], Hashable]
"""Returns what nodes of one shape have in common; the second argument: it has contents."""


def _merge_many(nodes: Sequence[GraphNode]) -> SimilarityKey:
    """Return a key for merging nodes of one type and parent, but only many of them."""
    count = Counter((node.parent, node.type, node.action) for node in nodes)

    def get_key(node: GraphNode, _holds: bool) -> Hashable:
        is_one_of_many = count[node.parent, node.type, node.action] > _MAX_SINGLE_NODES
        return (node.type, node.action) if is_one_of_many else node.key

    return get_key


_MERGE_RULES: Final[Sequence[Callable[[Sequence[GraphNode]], SimilarityKey]]] = (
    # No nodes are merged.
    lambda _nodes: lambda node, _holds: node.key,
    # Nodes of one type, action and dependencies are merged; nodes with contents stay single.
    lambda _nodes: (
        lambda node, holds: node.key if holds else (node.type, node.action, node.dependencies)
    ),
    _merge_many,
    # All nodes of one type and action are merged.
    lambda _nodes: lambda node, _holds: (node.type, node.action),
)
"""What nodes are merged, the finest rule first."""


def assign_group_numbers(
    nodes: Sequence[GraphNode], get_similarity_key: SimilarityKey
) -> dict[str, int]:
    """Return the group number of each node, with like nodes of one parent in one group."""
    by_key = {node.key: node for node in nodes}
    holders = {node.parent for node in nodes}
    numbers: dict[Hashable, int] = {}
    group_numbers: dict[str, int] = {}
    for node in nodes:
        for member in _iterate_outermost_first(node, by_key, group_numbers):
            # Nodes of different platforms or parents never merge.
            similarity = get_similarity_key(member, member.key in holders)
            group_key = (member.platform, group_numbers.get(member.parent), similarity)
            group_numbers[member.key] = numbers.setdefault(group_key, len(numbers))
    return group_numbers


def _iterate_outermost_first(
    node: GraphNode, by_key: Mapping[str, GraphNode], group_numbers: Mapping[str, int]
) -> Iterator[GraphNode]:
    """Yield a node's ancestors without a group, the outermost first, then the node."""
    path: dict[str, GraphNode] = {}
    ancestor: GraphNode | None = node
    # A damaged state may have cycles, which end here.
    while ancestor and ancestor.key not in group_numbers and ancestor.key not in path:
        path[ancestor.key] = ancestor
        ancestor = by_key.get(ancestor.parent)
    yield from reversed(path.values())


@dataclass(slots=True)
class _ShapeNumbering:
    """Number the shapes of one drawing, of one or several stacks."""

    items: int = 0
    boxes: int = 0

    def build_shapes(
        self, nodes: Sequence[GraphNode], groups: Mapping[str, int]
    ) -> tuple[list[Shape], list[Arrow]]:
        """Build the boxes of the platforms with all contents, and the arrows between shapes."""
        members: dict[int, list[GraphNode]] = {}
        for node in nodes:
            members.setdefault(groups[node.key], []).append(node)
        boxes: dict[str, Shape] = {}
        # The numbers continue over all stacks of the drawing.
        items = {
            group: Shape(f"n{number}", group_nodes)
            for number, (group, group_nodes) in enumerate(members.items(), self.items + 1)
        }
        self.items += len(items)
        outer_of = {
            group: groups[item.nodes[0].parent]
            for group, item in items.items()
            if item.nodes[0].parent in groups
        }
        for group, item in items.items():
            platform = item.nodes[0].platform
            if _is_shallow(group, outer_of):
                outer = items[outer_of[group]]
            elif platform in boxes:
                outer = boxes[platform]
            else:
                self.boxes += 1
                outer = boxes[platform] = Shape(f"p{self.boxes}", box=platform)
            outer.children.append(item)
        arrows = Counter(
            (groups[node.key], groups[dependency])
            for node in nodes
            for dependency in sorted(node.dependencies)
            # Merged nodes can depend on each other: an arrow from a shape to itself says nothing.
            if dependency in groups and groups[dependency] != groups[node.key]
        )
        arrow_list = [
            Arrow(items[source], items[target], count) for (source, target), count in arrows.items()
        ]
        return list(boxes.values()), arrow_list


def _is_shallow(group: int, outer_of: Mapping[int, int]) -> bool:
    """Return True if the group is drawn inside its parent.

    False without a parent, deeper than `_MAX_DEPTH`, and in a cycle of parents.
    """
    if group not in outer_of:
        return False
    for _ in range(_MAX_DEPTH):
        if group not in outer_of:
            return True
        group = outer_of[group]
    return False


def _get_sort_key(node: GraphNode) -> tuple[str, int, list[tuple[int, str]], str]:
    """Return a sort key: platform, kind, then name as people count (2 before 10)."""
    kind = _KINDS.index(node.kind) if node.kind in _KINDS else len(_KINDS)
    parts = re.split(r"([0-9]+)", node.name)
    name = [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts]
    return node.platform, kind, name, node.key
