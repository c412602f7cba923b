"""What a place in a file must be: a list, an object. Null is an empty one."""

from collections.abc import Mapping

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry, MappingNode, Node, ScalarNode, SequenceNode


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
