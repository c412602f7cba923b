"""Edit text in place: an edit changes no other character.

The editors of topologies, of stacks' settings and of kubeconfigs call this module with the nodes
that PyYAML composes of the text; the editor of Python programs uses only the spans. An edit does
not know the meaning of the text: each editor reads the result and compares it with its intention.

ruamel.yaml's round trip cannot do the same. It moves aligned values, indents whole files alike, and
takes a comment above the next section for a part of the section before.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

Span: TypeAlias = tuple[int, int]
"""The first character of a part of a text, and the character after its last one."""

_DASH: Final = re.compile(r"^ *-(?=\s)", re.MULTILINE)
_LINE: Final = re.compile(r"[^\n]*\n?")


def remove_spans(source: str, spans: Iterable[Span]) -> str:
    """Return `source` without the characters of `spans`. Spans must not overlap."""
    # From the end of the text on: the earlier spans keep their positions.
    for begin, end in sorted(spans, reverse=True):
        source = source[:begin] + source[end:]
    return source


def insert_lines(text: str, at: int, lines: Sequence[str]) -> str:
    """Return the text with lines inserted at the beginning of a line or at the end of the text.

    Behind a last line without a line break, the inserted last line has none either.
    """
    line_break = find_line_break(text)
    if at and text[at - 1] != "\n":
        return line_break.join([text[:at], *lines]) + text[at:]
    return text[:at] + "".join(line + line_break for line in lines) + text[at:]


def find_line_break(text: str) -> str:
    """Return the line break which `text` uses."""
    return "\r\n" if "\r\n" in text else "\n"


def find_line_start(text: str, at: int) -> int:
    """Return the index of the first character of the line that contains the index `at`."""
    return text.rfind("\n", 0, at) + 1


def find_next_line(text: str, at: int) -> int:
    """Return the index of the line after the line that contains `at`, or the end of the text."""
    return text.find("\n", at) + 1 or len(text)


def find_lines(text: str, begin: int, end: int) -> Span:
    """Return the span of the lines from `begin` to `end`.

    If the last line has no line break, the span includes the break before the first line instead.
    """
    first, last = find_line_start(text, begin), find_next_line(text, end)
    if not text.endswith("\n") and last == len(text):
        # Otherwise the text would end with an empty line.
        first = len(text[:first].removesuffix("\n").removesuffix("\r"))
    return first, last


def find_listed(members: Sequence[Span], at: int) -> Span:
    """Return the span of the member `at` of a comma-separated list, with one comma."""
    if at + 1 < len(members):
        return members[at][0], members[at + 1][0]
    return (members[at - 1][1] if at else members[at][0]), members[at][1]


def find_end(text: str, node: Node) -> int:
    """Return the index after the last character of a node.

    PyYAML's end mark of a block is after the comments and empty lines that follow the block. An
    alias has the marks of its anchor, so the end of its key counts.
    """
    end = 0
    while isinstance(node, MappingNode | SequenceNode) and not node.flow_style and node.value:
        last: Any = node.value[-1]
        if isinstance(node, MappingNode):
            end = max(end, last[0].end_mark.index)
            last = last[1]
        node = last
    stop = int(node.end_mark.index)
    if isinstance(node, ScalarNode) and node.style in ("|", ">"):
        # PyYAML's end mark of a block scalar is after the empty lines that follow.
        stop = len(text[:stop].rstrip())
    return max(end, stop)


def find_member(text: str, mapping: MappingNode, at: int) -> Span:
    """Return the span of a member: its lines, or in braces its part of a line with a comma."""
    if mapping.flow_style:
        members = [
            (key.start_mark.index, max(key.end_mark.index, value.end_mark.index))
            for key, value in mapping.value
        ]
        return find_listed(members, at)
    key, value = mapping.value[at]
    return find_lines(text, key.start_mark.index, max(key.end_mark.index, find_end(text, value)))


def find_item(text: str, sequence: SequenceNode, at: int) -> Span:
    """Return the span of an item: its lines, or in brackets its part of a line with a comma."""
    if sequence.flow_style:
        items = [(item.start_mark.index, item.end_mark.index) for item in sequence.value]
        return find_listed(items, at)
    return find_lines(text, find_dash(text, sequence, at), find_end(text, sequence.value[at]))


def find_dash(text: str, sequence: SequenceNode, at: int) -> int:
    """Return the index of the dash of item `at`, or of the item itself without a dash."""
    begin = find_line_start(text, sequence.start_mark.index)
    if at:
        begin = find_end(text, sequence.value[at - 1])
    end = int(sequence.value[at].start_mark.index)
    dash = _DASH.search(text, begin, end)
    return dash.end() - 1 if dash else end


def append_lines(source: str, node: Node | None, lines: Sequence[str], column: int = 0) -> str:
    """Return the text with lines after a block, or at the end of a document without any.

    Comments after the block that stand at `column` or further to the right belong to the block.
    """
    at = 0 if node is None else find_next_line(source, find_end(source, node))
    for line in _LINE.finditer(source, at):
        words = line[0].lstrip(" ")
        is_of_block = words.startswith("#") and len(line[0]) - len(words) >= column
        if is_of_block or (node is None and words.startswith("---")):
            at = line.end()
        elif words.strip():
            break
    if not source.endswith("\n") and source and at == len(source):
        source += find_line_break(source)
        at = len(source)
    return insert_lines(source, at, lines)
