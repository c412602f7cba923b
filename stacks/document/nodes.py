"""The tree of a YAML file: values as people mean them, each with its place."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuform.stacks.document.diagnostics import Place


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """Text, a number, true, false or null. `text` is what the file has; quoted is always text."""

    place: Place
    value: str | int | float | bool | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    place: Place
    items: "tuple[Node, ...]" = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping, where it is written, and its value."""

    place: Place
    node: "Node"


@dataclass(frozen=True, slots=True)
class MappingNode:
    """An object: entries by key, in their order."""

    place: Place
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
