"""Compare the meaning of YAML texts, and find the included files of a topology.

Texts are read as topologies are, with PyYAML and its C parser if installed.
"""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any

import yaml

from gpuform.schemas.errors import EngineError
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import MappingNode, ScalarNode, SequenceNode
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.document.syntax_errors import LOADER

LineAndColumn = tuple[int, int]
"""Line and column, from 1."""

TextFacts = list[tuple[Any, LineAndColumn]]
"""The nodes and comments of a text in order, with their positions."""


class FormattingError(EngineError):
    """A file that gpuform cannot format; the message begins with file:line:column."""

    help_page = "reference/topology"

    def __init__(
        self, file_name: str, position: LineAndColumn, message: str, hint: str | None = None
    ) -> None:
        super().__init__(f"{file_name}:{position[0]}:{position[1]}: {message}", hint)


def build_yaml_error(error: Exception, file_name: str) -> FormattingError:
    """Build the error for a file PyYAML cannot read."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    position = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    parser_message = getattr(error, "problem", None) or getattr(error, "context", None)
    return FormattingError(
        file_name,
        position,
        f"not YAML: {parser_message or getattr(error, 'reason', None) or error}",
    )


def read_facts(text: str, file_name: str) -> TextFacts:
    """Return the nodes of a text with tags, anchors and styles, and the comments.

    Raises:
        FormattingError: the text is not YAML, or has several documents.
    """
    try:
        return [*_read_nodes(text, file_name), *_read_comments(text)]
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise build_yaml_error(error, file_name) from None


def find_difference(facts: TextFacts, other_facts: TextFacts) -> LineAndColumn | None:
    """Return the position of the first difference in the first text, or None if equal."""
    for fact, other_fact in zip_longest(facts, other_facts):
        if fact is None or other_fact is None or fact[0] != other_fact[0]:
            return (fact or facts[-1])[1]
    return None


def _read_nodes(text: str, file_name: str) -> TextFacts:
    """Return a fact for each event of PyYAML in a text, with the event's position.

    Raises:
        FormattingError: an alias has no anchor before it, or a second document begins.
        yaml.YAMLError: the text is not YAML.
    """
    facts: TextFacts = []
    anchors: set[str] = set()
    documents = 0
    for event in yaml.parse(text, LOADER):
        position = _get_start_position(event)
        facts.append((_to_fact(event), position))
        if isinstance(event, yaml.AliasEvent) and event.anchor not in anchors:
            message = f"not YAML: no anchor &{event.anchor} before this alias"
            raise FormattingError(file_name, position, message)
        if isinstance(event, yaml.NodeEvent) and event.anchor:
            anchors.add(event.anchor)
        documents += isinstance(event, yaml.DocumentStartEvent)
        if documents > 1:
            message = "a topology file holds one document, but a second one begins here"
            raise FormattingError(file_name, position, message)
    return facts


def _to_fact(event: yaml.Event) -> tuple[str, dict[str, Any]]:
    """Return the name of an event's class, and the event's attributes without positions."""
    # Positions are the part that formatting may change.
    attributes = {key: value for key, value in vars(event).items() if not key.endswith("_mark")}
    if "flow_style" in attributes:
        attributes["flow_style"] = bool(
            attributes["flow_style"]
        )  # None is a list that is not indented
    return type(event).__name__, attributes


def _read_comments(text: str) -> TextFacts:
    """Return the comments of a text with their positions, without spaces at the end."""
    return [
        (text[start + mark : stop].rstrip(), get_position(text, start + mark))
        for start, stop in _find_gaps(text)
        if (mark := text[start:stop].find("#")) >= 0
    ]


def replace_tabs(text: str, file_name: str) -> str:
    """Return the text with spaces in place of tabs between tokens.

    Tabs in values and comments stay.

    Raises:
        FormattingError: the text is not YAML.
    """
    parts = []
    position = 0
    try:
        for start, stop in _find_gaps(text):
            blank, mark, comment = text[start:stop].partition("#")
            parts += [text[position:start], blank.replace("\t", " "), mark, comment]
            position = stop
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise build_yaml_error(error, file_name) from None
    return "".join([*parts, text[position:]])


def _find_gaps(text: str) -> Iterator[tuple[int, int]]:
    """Yield the ranges between tokens, line by line: white space and comments."""
    position = 0
    for token in yaml.scan(text, LOADER):
        stop, end = token.start_mark.index, token.end_mark.index
        # A comment may follow the `|` of a block scalar on the same line.
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            stop = text.find("\n", stop, end) if "\n" in text[stop:end] else end
        for line in text[position:stop].splitlines(keepends=True):
            yield position, position + len(line)
            position += len(line)
        position = max(position, end)


def get_position(text: str, index: int) -> LineAndColumn:
    """Return the line and column, from 1, of the character at `index`."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def _get_start_position(event: yaml.Event | yaml.Token) -> LineAndColumn:
    """Return the line and column where an event or token begins, or (1, 1) if unknown."""
    mark = event.start_mark
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def list_included_files(data: bytes) -> list[str]:
    """Return the file names in the text's `include`, with modules, as written.

    The data must be UTF-8. Invalid items are skipped: `gpuform validate` reports them.
    """
    root = read_text(data.decode(), "", Diagnostics())
    include_node = root.get("include")
    items = include_node.items if isinstance(include_node, SequenceNode) else (include_node,)
    names = (item.get("file") if isinstance(item, MappingNode) else item for item in items)
    return [name.text for name in names if isinstance(name, ScalarNode) and name.text]
