"""Where the test files of a project name what its topology declares."""

from collections.abc import Iterator
from typing import Final

from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.document.nodes import MappingNode, Node, ScalarNode, SequenceNode

_KEYS_OF_EXPECT: Final = ("plan", "properties", "replaced_by", "resources")
_LISTS_OF_CASE: Final = ("target", "exclude", "replace")
_CONFIGURED: Final = ("config", "secrets")


def resource_names(root: MappingNode) -> Iterator[tuple[str, SourcePosition]]:
    """The resources that the cases of a file name, as they are written, each with its place."""
    for case in _cases(root):
        expect = case.get("expect")
        if isinstance(expect, MappingNode):
            for name in _KEYS_OF_EXPECT:
                yield from _keys(expect.get(name))
            yield from _items(expect.get("absent"))
        for name in _LISTS_OF_CASE:
            yield from _items(case.get(name))


def config_names(root: MappingNode) -> Iterator[tuple[str, SourcePosition]]:
    """The configuration keys that the cases of a file set."""
    defaults = root.get("defaults")
    for case in (*([defaults] if isinstance(defaults, MappingNode) else ()), *_cases(root)):
        for name in _CONFIGURED:
            yield from _keys(case.get(name))


def _cases(root: MappingNode) -> Iterator[MappingNode]:
    cases = root.get("cases")
    entries = cases.entries.values() if isinstance(cases, MappingNode) else ()
    yield from (each.node for each in entries if isinstance(each.node, MappingNode))


def _keys(node: Node | None) -> Iterator[tuple[str, SourcePosition]]:
    if isinstance(node, MappingNode):
        yield from ((key, entry.place) for key, entry in node.entries.items())


def _items(node: Node | None) -> Iterator[tuple[str, SourcePosition]]:
    if isinstance(node, SequenceNode):
        scalars = (each for each in node.items if isinstance(each, ScalarNode))
        yield from ((each.text, each.place) for each in scalars)
