"""The tree of a YAML file: values as people mean them, each with its place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.stacks.document.diagnostics import SourcePosition


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """Text, a number, true, false or null. `text` is what the file has; quoted is always text."""

    place: SourcePosition
    value: str | int | float | bool | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    place: SourcePosition
    items: "tuple[Node, ...]" = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping, where it is written, and its value."""

    place: SourcePosition
    node: "Node"


@dataclass(frozen=True, slots=True)
class MappingNode:
    """An object: entries by key, in their order."""

    place: SourcePosition
    entries: Mapping[str, Entry] = field(default_factory=dict)

    def get(self, key: str) -> "Node | None":
        """The value of a key, None when it is not there."""
        entry = self.entries.get(key)
        return entry.node if entry else None


Node = ScalarNode | SequenceNode | MappingNode


def find(node: Node, steps: Iterable[str | int]) -> Node:
    """The node that these keys and indexes lead to, or the last one on the way that is there."""
    for step in steps:
        inner: Node | None = None
        if isinstance(node, MappingNode):
            inner = node.get(str(step))
        elif isinstance(node, SequenceNode) and isinstance(step, int) and step < len(node.items):
            inner = node.items[step]
        if inner is None:
            return node
        node = inner
    return node


def reached(node: Node, steps: Iterable[str | int]) -> Node | None:
    """The node that all of these keys and indexes lead to; None when one is not there."""
    there: Node | None = node
    for step in steps:
        if isinstance(there, MappingNode):
            there = there.get(str(step))
        elif isinstance(there, SequenceNode) and isinstance(step, int) and step < len(there.items):
            there = there.items[step]
        else:
            return None
    return there


def find_key(node: Node, steps: Sequence[str | int]) -> SourcePosition:
    """Where the last key of these is written, or the last node on the way that is there."""
    parent = find(node, steps[:-1])
    key = str(steps[-1]) if steps else ""
    if isinstance(parent, MappingNode) and key in parent.entries:
        return parent.entries[key].place
    return parent.place


def plain(node: Node) -> Any:
    """The node's values as they are written."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, SequenceNode):
        return [plain(item) for item in node.items]
    return {key: plain(entry.node) for key, entry in node.entries.items()}


def scalars(node: Node) -> Iterator[ScalarNode]:
    """Every scalar inside, in order."""
    if isinstance(node, ScalarNode):
        yield node
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from scalars(item)
    else:
        for entry in node.entries.values():
            yield from scalars(entry.node)
