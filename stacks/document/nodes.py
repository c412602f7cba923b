"""Hold the tree of a YAML file: values as people mean them, each with its place.

Plain scalars are read more narrowly than by YAML 1.1 and 1.2, so that nothing turns into something
else unnoticed: `no`, `1e3`, `0o7`, `007`, `1_000`, `1:30`, dates and numbers that a double cannot
hold stay the text they are. Where a field wants a number or true and false, its own check then says
how to write it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition


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


_STEP = re.compile(r"\[(\d+)\]|[^.\[\]]+")


def steps_of(path: str) -> Iterator[str | int]:
    """The keys and indexes of a property path."""
    for match in _STEP.finditer(path):
        yield int(match[1]) if match[1] else match[0]


_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,15})")
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,15})\.[0-9]{1,15}")
_LARGEST: Final = 2**53


def value_of(text: str) -> str | int | float | bool | None:
    """What a plain scalar means."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INTEGER.fullmatch(text) and abs(int(text)) <= _LARGEST:
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return text


def entries(node: Node | None, what: str, problems: Diagnostics) -> Mapping[str, Entry]:
    """The entries of an object; anything else goes to `problems`."""
    if isinstance(node, MappingNode):
        return node.entries
    if node is not None and not is_null(node):
        problems.add(node.place, "shape", f"{what} must be an object")
    return {}


def items(node: Node | None, what: str, problems: Diagnostics) -> tuple[Node, ...]:
    """The items of a list; anything else goes to `problems`."""
    if isinstance(node, SequenceNode):
        return node.items
    if node is not None and not is_null(node):
        problems.add(node.place, "shape", f"{what} must be a list")
    return ()


def is_null(node: Node) -> bool:
    """Whether nothing is written there, or null."""
    return isinstance(node, ScalarNode) and node.value is None
