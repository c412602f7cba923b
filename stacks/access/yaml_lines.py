"""Lines of YAML, and where its nodes end."""

import sys
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode


class _Dumper(yaml.SafeDumper):
    """Texts in quotes: YAML's versions differ in what a bare word is."""

    def represent_mapping(
        self, tag: str, mapping: Any, flow_style: bool | None = None
    ) -> MappingNode:
        node = super().represent_mapping(tag, mapping, flow_style)
        for key, _ in node.value:
            key.style = None
        return node


def _quoted(dumper: _Dumper, text: str) -> Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')


_Dumper.add_representer(str, _quoted)


def block(value: Any, column: int) -> list[str]:
    """Lines of YAML, so far from the left, without their breaks."""
    text = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=sys.maxsize)
    return [" " * column + line for line in text.splitlines()]


def end_of(node: Any) -> int:
    """Where its last character is: the end of a block is behind what follows it."""
    while isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(node, MappingNode) else last
    end = int(node.end_mark.index)
    is_open = isinstance(node, ScalarNode) and node.style in ("|", ">")
    return end - 1 if is_open else end
