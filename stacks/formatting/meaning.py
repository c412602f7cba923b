"""Check that formatting keeps the meaning of a file, and find the files that it includes.

It is read as topologies are, with PyYAML and its C parser where there is one.
"""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import yaml

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, ScalarNode, SequenceNode
from gpuform.stacks.document.reading import LOADER, read_text
from gpuform.stacks.engine.errors import EngineError

LineAndColumn = tuple[int, int]
"""Line and column, from 1."""

Facts = list[tuple[Any, LineAndColumn]]


class FormattingError(EngineError):
    """A file that is not formatted; the message begins with file:line:column."""

    help_page = "reference/topology"

    def __init__(
        self, where: str, place: LineAndColumn, message: str, hint: str | None = None
    ) -> None:
        super().__init__(f"{where}:{place[0]}:{place[1]}: {message}", hint)


def not_yaml(error: Exception, where: str) -> FormattingError:
    """Return the error of a file that PyYAML cannot read."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    place = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    said = getattr(error, "problem", None) or getattr(error, "context", None)
    return FormattingError(
        where, place, f"not YAML: {said or getattr(error, 'reason', None) or error}"
    )


def facts_of(text: str, where: str) -> Facts:
    """The nodes in order, with tags, anchors and styles, and the comments; FormattingError."""
    try:
        return [*_nodes(text, where), *_comments(text)]
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise not_yaml(error, where) from None


def difference(facts: Facts, others: Facts) -> LineAndColumn | None:
    """Where the first text says something else than the second, if it does."""
    for ours, theirs in zip_longest(facts, others):
        if ours is None or theirs is None or ours[0] != theirs[0]:
            return (ours or facts[-1])[1]
    return None


def _nodes(text: str, where: str) -> Facts:
    found: Facts = []
    anchors: set[str] = set()
    documents = 0
    for event in yaml.parse(text, LOADER):
        place = _place(event)
        found.append((_fact(event), place))
        if isinstance(event, yaml.AliasEvent) and event.anchor not in anchors:
            message = f"not YAML: there is no anchor &{event.anchor} before this"
            raise FormattingError(where, place, message)
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            anchors.add(event.anchor)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            message = "a topology file holds one document, and here begins another"
            raise FormattingError(where, place, message)
    return found


def _fact(event: yaml.Event) -> tuple[str, dict[str, Any]]:
    found = {key: value for key, value in vars(event).items() if not key.endswith("_mark")}
    if "flow_style" in found:
        found["flow_style"] = bool(found["flow_style"])  # None is a list that is not indented
    return type(event).__name__, found


def _comments(text: str) -> Facts:
    return [
        (text[start + mark : stop].rstrip(), place_at(text, start + mark))
        for start, stop in _gaps(text)
        if (mark := text[start:stop].find("#")) >= 0
    ]


def without_tabs(text: str, where: str) -> str:
    """The text with spaces for the tabs between its parts; FormattingError."""
    made = []
    position = 0
    try:
        for start, stop in _gaps(text):
            blank, mark, comment = text[start:stop].partition("#")
            made += [text[position:start], blank.replace("\t", " "), mark, comment]
            position = stop
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise not_yaml(error, where) from None
    return "".join([*made, text[position:]])


def _gaps(text: str) -> Iterator[tuple[int, int]]:
    """What is between the tokens, line by line: white space, and the comments."""
    position = 0
    for token in yaml.scan(text, LOADER):
        stop, end = token.start_mark.index, token.end_mark.index
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            stop = text.find("\n", stop, end) if "\n" in text[stop:end] else end
        for line in text[position:stop].splitlines(keepends=True):
            yield position, position + len(line)
            position += len(line)
        position = max(position, end)


def place_at(text: str, index: int) -> LineAndColumn:
    """The place of a character."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _place(found: yaml.Event | yaml.Token) -> LineAndColumn:
    mark = found.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def included(data: bytes) -> list[str]:
    """The names in its `include`, relative to it, modules among them.

    What is wrong there is not told here.
    """
    root = read_text(data.decode(), "", Diagnostics())
    listed = root.get("include")
    items = listed.items if isinstance(listed, SequenceNode) else (listed,)
    names = (item.get("file") if isinstance(item, MappingNode) else item for item in items)
    return [name.text for name in names if isinstance(name, ScalarNode) and name.text]
