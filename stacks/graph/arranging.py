"""Arrange the nodes of a diagram in boxes, and merge like nodes where there are too many.

`gpuform graph` calls `build_drawing`; `diagrams` and `page` draw the result.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuform.stacks.graph.nodes import GraphNode

MAX_SHAPES: Final = 60
"""More shapes than this nobody takes in at once."""

_MAX_SINGLE_NODES: Final = 8
_MAX_DEPTH: Final = 8
"""Levels of boxes inside each other; deeper nodes are drawn beside their parent."""

_KINDS: Final = (
    "Cluster",
    "NodePool",
    "GpuNode",
    "Fabric",
    "SharedVolume",
    "VolumeClaim",
    "Certification",
    "HealthGate",
)


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
    return Drawing(
        title,
        list(boxes.values()),
        arrows,
        [node for stack_nodes in ordered for node in stack_nodes],
    )


def _group_stacks(stacks: Sequence[Sequence[GraphNode]], max_shapes: int) -> list[dict[str, int]]:
    """Return the group number of each node, for each stack. All stacks follow one rule.

    The rule is the finest with at most `max_shapes` groups, or else the coarsest.
    """
    groups_by_stack: list[dict[str, int]] = []
    for rule in (_keep_single, _merge_parts, _merge_many, _merge_all):
        groups_by_stack = [assign_group_numbers(nodes, rule(nodes)) for nodes in stacks]
        # The first rule that is coarse enough keeps most detail.
        if sum(len(set(groups.values())) for groups in groups_by_stack) <= max_shapes:
            break
    return groups_by_stack


SimilarityKey = Callable[[GraphNode, bool], Hashable]
"""Returns what nodes of one shape have in common; the second argument: it has contents."""


def _keep_single(_nodes: Sequence[GraphNode]) -> SimilarityKey:
    """Return the key of the finest rule: no nodes are merged."""
    return lambda thing, _holds: thing.key


def _merge_parts(_nodes: Sequence[GraphNode]) -> SimilarityKey:
    """Return a key for merging nodes of one type, action and dependencies.

    Nodes with contents stay single.
    """
    return _get_part_key


def _merge_all(_nodes: Sequence[GraphNode]) -> SimilarityKey:
    """Return the key of the coarsest rule: all nodes of one type and action are merged."""
    return _get_type_key


def _get_part_key(node: GraphNode, holds: bool) -> Hashable:
    """Return a node's type, action and dependencies, or the key of a node with contents."""
    return node.key if holds else (node.type, node.action, node.dependencies)


def _merge_many(nodes: Sequence[GraphNode]) -> SimilarityKey:
    """Return a key for merging nodes of one type and parent, but only many of them."""
    count = Counter((node.parent, _get_type_key(node, False)) for node in nodes)

    def get_key(node: GraphNode, _holds: bool) -> Hashable:
        common = _get_type_key(node, False)
        return common if count[node.parent, common] > _MAX_SINGLE_NODES else node.key

    return get_key


def _get_type_key(node: GraphNode, _holds: bool) -> Hashable:
    """Return the type and the action of a node."""
    return node.type, node.action


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
            group_key = (
                member.platform,
                group_numbers.get(member.parent),
                get_similarity_key(member, member.key in holders),
            )
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
        items = {group: self._create_shape(group_nodes) for group, group_nodes in members.items()}
        outer_of = {
            group: groups[item.nodes[0].parent]
            for group, item in items.items()
            if item.nodes[0].parent in groups
        }
        for group, item in items.items():
            platform = item.nodes[0].platform
            if _is_shallow(group, outer_of):
                outer = items[outer_of[group]]
            else:
                outer = boxes.get(platform) or boxes.setdefault(
                    platform, self._create_box(platform)
                )
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

    def _create_shape(self, nodes: Sequence[GraphNode]) -> Shape:
        """Create a shape for the nodes with the next key: `n1`, `n2`."""
        self.items += 1
        return Shape(f"n{self.items}", nodes)

    def _create_box(self, platform: str) -> Shape:
        """Create an empty box for a platform with the next key: `p1`, `p2`."""
        self.boxes += 1
        return Shape(f"p{self.boxes}", box=platform)


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
