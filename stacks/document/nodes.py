"""Define the node tree of a YAML file: each value with its position.

Plain scalars are read more narrowly than in YAML 1.1 and 1.2, so that no text turns into another
value unnoticed: `no`, `1e3`, `0o7`, `007`, `1_000`, `1:30`, dates and numbers outside a double's
range stay text. If a field requires a number or a boolean, the field's own check explains how to
write one. `reading` builds the tree; topologies, gates, prices and the language server use it.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition


@dataclass(frozen=True, slots=True)
class ScalarNode:
    """A text, number, boolean or null.

    `text` is the source text; a quoted scalar is always text.
    """

    position: SourcePosition
    value: str | int | float | bool | None
    text: str = ""


@dataclass(frozen=True, slots=True)
class SequenceNode:
    """A list."""

    position: SourcePosition
    items: "tuple[Node, ...]" = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """A mapping's entry: the position of its key, and its value."""

    position: SourcePosition
    node: "Node"


@dataclass(frozen=True, slots=True)
class MappingNode:
    """A mapping with its entries by key, in source order."""

    position: SourcePosition
    entries: Mapping[str, Entry] = field(default_factory=dict)

    def get(self, key: str) -> "Node | None":
        """Return the value of `key`, or None if `key` is missing."""
        entry = self.entries.get(key)
        return entry.node if entry else None


Node = ScalarNode | SequenceNode | MappingNode


def find_nearest_node(node: Node, steps: Iterable[str | int]) -> Node:
    """Return the node at the path `steps`, or the last existing node on the path."""
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


def find_node(node: Node, steps: Iterable[str | int]) -> Node | None:
    """Return the node at the path `steps`, or None if the path does not exist."""
    current: Node | None = node
    for step in steps:
        if isinstance(current, MappingNode):
            current = current.get(str(step))
        elif (
            isinstance(current, SequenceNode)
            and isinstance(step, int)
            and step < len(current.items)
        ):
            current = current.items[step]
        else:
            return None
    return current


def find_key_position(node: Node, steps: Sequence[str | int]) -> SourcePosition:
    """Return the position of the last key of `steps`, or of the last existing node on the path."""
    parent = find_nearest_node(node, steps[:-1])
    key = str(steps[-1]) if steps else ""
    if isinstance(parent, MappingNode) and key in parent.entries:
        return parent.entries[key].position
    # An unknown parent has no key to point at.
    return parent.position


def to_plain_value(node: Node) -> Any:
    """Convert a node to plain Python values, without positions."""
    if isinstance(node, ScalarNode):
        return node.value
    if isinstance(node, SequenceNode):
        return [to_plain_value(item) for item in node.items]
    return {key: to_plain_value(entry.node) for key, entry in node.entries.items()}


def list_scalars(node: Node) -> Iterator[ScalarNode]:
    """Yield every scalar inside `node` in source order."""
    if isinstance(node, ScalarNode):
        yield node
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from list_scalars(item)
    else:
        for entry in node.entries.values():
            yield from list_scalars(entry.node)


_STEP = re.compile(r"\[(\d+)\]|[^.\[\]]+")


def parse_path(path: str) -> Iterator[str | int]:
    """Yield the keys and indexes of a property path such as `nodes[0].name`."""
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
"""The largest magnitude up to which a double represents every integer."""


def parse_plain_scalar(text: str) -> str | int | float | bool | None:
    """Parse an unquoted scalar: null, a boolean, a number, or else the text itself.

    Only numbers like `-12` and `1.5` count, up to the digits that a double keeps; `yes` is text.
    """
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    # A larger number would lose digits as a double, so it stays text.
    if _INTEGER.fullmatch(text) and abs(int(text)) <= _LARGEST:
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return text


def get_entries(node: Node | None, label: str, problems: Diagnostics) -> Mapping[str, Entry]:
    """Return the entries of a mapping; empty for no node or null.

    Any other node is reported to `problems`; `label` names the value in the message.
    """
    if isinstance(node, MappingNode):
        return node.entries
    # A key without a value, such as `options:`, counts as an empty object.
    if node is not None and not is_null(node):
        problems.add(node.position, "shape", f"{label} must be an object")
    return {}


def get_items(node: Node | None, label: str, problems: Diagnostics) -> tuple[Node, ...]:
    """Return the items of a list; empty for no node or null.

    Any other node is reported to `problems`; `label` names the value in the message.
    """
    if isinstance(node, SequenceNode):
        return node.items
    # A key without a value, such as `include:`, counts as an empty list.
    if node is not None and not is_null(node):
        problems.add(node.position, "shape", f"{label} must be a list")
    return ()


def is_null(node: Node) -> bool:
    """Return True if `node` is null or has no value; `""`, [] and {} are not null."""
    return isinstance(node, ScalarNode) and node.value is None
