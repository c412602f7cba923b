"""Read a YAML file into its tree of nodes, with positions, duplicates and limits watched."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import yaml

from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    value_of,
)

MOST_NODES: Final = 500_000
"""Values of one file, each counted as often as aliases repeat it; long texts count for more."""
DEEPEST: Final = 64
"""Lists and objects inside each other."""
_TOO_DEEP: Final = f"more than {DEEPEST} lists and objects inside each other"
LINE_BREAK: Final = re.compile(r"\r\n|[\n\r]")
_TEXT_OF_ONE: Final = 64
"""Characters that count for one value."""
_LONGEST_SHOWN: Final = 60

LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The fast parser, where PyYAML is built with libyaml."""
_REFERRING_TAGS = ("!Ref", "!GetAtt", "!Sub", "!ImportValue", "!reference")
"""Of CloudFormation and GitLab."""
_REFERRING_TAG_HINT = "write a reference as {{ SECTION.NAME.PROPERTY }}"
_TEXT_TAG = "tag:yaml.org,2002:str"
_BARE_EXPRESSION = re.compile(r"[:-] *\{\{")
_QUOTE_IT = 'put an expression in quotes: "{{ ... }}"'


class Unreadable(Exception):
    """The problem has been noted, and nothing after it can be read."""


class Composer:
    """Reads one text, which begins at `start`. What is wrong goes to `problems`."""

    def __init__(self, text: str, start: SourcePosition, problems: Diagnostics) -> None:
        self.start, self.problems = start, problems
        self.lines = LINE_BREAK.split(text)
        self.events: Iterator[Any] = iter(LOADER(text).get_event, None)
        self.anchors: dict[str, tuple[Node, int, int] | None] = {}
        """By name: the node, how many values it counts for, and its depth; None inside itself."""
        self.count = self.deepest = 0

    def root(self) -> Node | None:
        """The document, None when there is none. Raises Unreadable, or YAML's own error."""
        found: Node | None = None
        for event in self.events:
            if not isinstance(event, yaml.DocumentStartEvent):
                continue
            if event.tags:
                raise self.failure(event, "tag", "tags are not used here: remove %TAG")
            if found is not None:
                raise self.failure(
                    event, "shape", "the file must hold one document: remove this `---`"
                )
            found = self.node(next(self.events), 0)
        return found

    def node(self, event: Any, depth: int) -> Node:
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, depth)
        before, anchor, outside = self.count, event.anchor, self.deepest
        self.deepest = 0
        self.counted(event, 1, depth)
        if anchor:
            self.anchors[anchor] = None
        if isinstance(event, yaml.ScalarEvent):
            node: Node = self.scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            self.tagless(event)
            node = self.sequence(event, depth)
        else:
            self.tagless(event)
            node = self.mapping(event, depth)
        if anchor:
            self.anchors[anchor] = node, self.count - before, self.deepest - depth
        self.deepest = max(self.deepest, outside)
        return node

    def alias(self, event: Any, depth: int) -> Node:
        name = event.anchor
        if name not in self.anchors:
            self.problem(event, "alias", f"there is no anchor &{name} before this alias")
            return ScalarNode(self.place(event), None)
        found = self.anchors[name]
        if found is None:
            raise self.failure(event, "alias", f"*{name} is inside &{name} itself")
        node, count, height = found
        self.counted(event, count, depth + height)
        return node

    def scalar(self, event: Any) -> ScalarNode:
        self.count += len(event.value) // _TEXT_OF_ONE
        plain = event.implicit[0] and event.tag != "!"
        if event.tag not in (None, "!", _TEXT_TAG):
            self.tagless(event)
        value = value_of(event.value) if plain else event.value
        return ScalarNode(self.place(event), value, event.value)

    def sequence(self, start: Any, depth: int) -> SequenceNode:
        items = []
        while not isinstance(event := next(self.events), yaml.SequenceEndEvent):
            items.append(self.node(event, depth + 1))
        return SequenceNode(self.place(start), tuple(items))

    def mapping(self, start: Any, depth: int) -> MappingNode:
        entries: dict[str, Entry] = {}
        merged: list[tuple[Any, Node]] = []
        while not isinstance(event := next(self.events), yaml.MappingEndEvent):
            is_merge = isinstance(event, yaml.ScalarEvent) and event.value == "<<"
            is_merge = is_merge and event.implicit[0]
            key = self.node(event, depth + 1)
            value = self.node(next(self.events), depth + 1)
            if is_merge:
                merged.append((event, value))
            elif not isinstance(key, ScalarNode) or key.value is None:
                hint = _QUOTE_IT if self.begins_expression(start, event) else ""
                self.problem(event, "key", "a key must be text", hint)
            elif key.text in entries:
                first = entries[key.text].place
                name = key.text[:_LONGEST_SHOWN]
                message = f"the key {name!r} is there twice: first in line {first.line}"
                self.problem(event, "duplicate", message, "keep one of the two")
            else:
                entries[key.text] = Entry(key.place, value)
        for merge, value in merged:
            for source in self.sources(merge, value):
                for inherited, entry in source.entries.items():
                    entries.setdefault(inherited, entry)
        return MappingNode(self.place(start), entries)

    def sources(self, event: Any, value: Node) -> Iterator[MappingNode]:
        """The mappings that a merge key brings in, the strongest first."""
        for each in value.items if isinstance(value, SequenceNode) else (value,):
            if isinstance(each, MappingNode):
                yield each
            else:
                self.problem(event, "merge", "<< merges mappings: give it an alias of one, *name")

    def begins_expression(self, start: Any, key: Any) -> bool:
        mark = start.start_mark
        line = self.lines[mark.line] if mark.line < len(self.lines) else ""
        return isinstance(key, yaml.MappingStartEvent) and line[mark.column :].startswith("{{")

    def tagless(self, event: Any) -> None:
        if event.tag not in (None, "!"):
            message = f"the tag {event.tag[:_LONGEST_SHOWN]} is not used here: remove it"
            hint = _REFERRING_TAG_HINT if event.tag in _REFERRING_TAGS else ""
            self.problem(event, "tag", message, hint)

    def counted(self, event: Any, number: int, depth: int) -> None:
        """Before values are taken in: how many, and how deep the deepest is."""
        self.count += number
        self.deepest = max(self.deepest, depth)
        if self.deepest > DEEPEST:
            raise self.failure(event, "limit", _TOO_DEEP)
        if self.count > MOST_NODES:
            raise self.failure(
                event, "limit", f"more than {MOST_NODES} values, with what aliases repeat"
            )

    def place(self, event: Any) -> SourcePosition:
        mark = event.start_mark
        return self.at(mark.line + 1, mark.column + 1)

    def at(self, line: int, column: int) -> SourcePosition:
        return self.start._replace(line=line, column=column)

    def problem(self, event: Any, rule: str, message: str, hint: str = "") -> None:
        self.problems.add(self.place(event), rule, message, hint)

    def failure(self, event: Any, rule: str, message: str) -> Unreadable:
        self.problem(event, rule, message)
        return Unreadable()

    def syntax(self, error: yaml.MarkedYAMLError) -> tuple[SourcePosition, str, str, str]:
        """The problem that YAML's own error tells."""
        opened = self.unclosed(error)
        if opened is not None:
            return opened
        mark = error.problem_mark or error.context_mark
        place = self.at(mark.line + 1, mark.column + 1) if mark else self.start
        if place.line > len(self.lines):
            place = self.at(len(self.lines), len(self.lines[-1]) + 1)
        if "nesting depth" in (error.problem or ""):  # PyYAML's own limit, from 6.0.4 on
            return place, "limit", _TOO_DEEP, ""
        line = self.lines[place.line - 1]
        hint = ""
        if line[place.column - 1 : place.column] == "\t":
            hint = "indent with spaces, not tabs"
        elif _BARE_EXPRESSION.search(line):
            hint = _QUOTE_IT
        context = f" {error.context}" if error.context else ""
        return place, "syntax", f"this is not YAML: {error.problem}{context}", hint

    def unclosed(self, error: yaml.MarkedYAMLError) -> tuple[SourcePosition, str, str, str] | None:
        """A quote that is not closed, where it opens; None where that is not what is wrong.

        One that another quote closes, in a later line, is found by what follows there.
        """
        hint = "close it, or take it out"
        ended = "quoted scalar" in (error.context or "") and "unexpected" in (error.problem or "")
        if ended and error.context_mark:
            mark = error.context_mark
            place = self.at(mark.line + 1, mark.column + 1)
            return (
                place,
                "syntax",
                "this is not YAML: the quote that opens here is not closed",
                hint,
            )
        at = error.problem_mark
        last = self.last_quoted(at) if at else None
        if at is None or last is None or last.end_mark.line == last.start_mark.line:
            return None
        if at.line > last.end_mark.line + 1:
            return None
        place = self.at(last.start_mark.line + 1, last.start_mark.column + 1)
        closed = (
            f"is closed in line {last.end_mark.line + 1} only, where it was to open another text"
        )
        return place, "syntax", f"this is not YAML: the quote that opens here {closed}", hint

    def last_quoted(self, before: Any) -> Any:
        """The last text in quotes before a mark."""
        last = None
        try:
            for token in yaml.scan("\n".join(self.lines), Loader=LOADER):
                if (token.end_mark.line, token.end_mark.column) > (before.line, before.column):
                    break
                if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                    last = token
        except yaml.YAMLError:
            pass  # that is the one
        return last


LARGEST: Final = 10_000_000
"""Bytes of one file."""
_FORBIDDEN: Final = re.compile(
    r"[^\t\n\r -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""What YAML excludes, and what only some of its versions take for the end of a line."""


_unsaved: ContextVar[Mapping[Path, str]] = ContextVar("unsaved", default=MappingProxyType({}))


@contextmanager
def unsaved(texts: Mapping[Path, str]) -> Iterator[None]:
    """While it lasts, files are read as an editor has them: `texts` by their resolved paths."""
    token = _unsaved.set(texts)
    try:
        yield
    finally:
        _unsaved.reset(token)


def text_of(path: Path) -> str:
    """The text of a file as `read_file` takes it. Raises OSError and UnicodeDecodeError."""
    edited = _unsaved.get()
    text = edited.get(path.resolve()) if edited else None
    return path.read_text(encoding="utf-8-sig") if text is None else text.removeprefix("\ufeff")


def read_file(
    path: Path,
    shown: str,
    problems: Diagnostics,
    included: tuple[SourcePosition, ...] = (),
    *,
    is_outside_project: bool = False,
) -> MappingNode:
    """The file's mapping; `shown` is how messages name the file. What is wrong goes to `problems`.

    After an error the tree holds what could be read. `included` are the places that include it.
    No message shows what a file holds that `is_outside_project`.
    """
    start = SourcePosition(shown, included=included, is_outside_project=is_outside_project)
    nothing = MappingNode(start)
    edited = _unsaved.get()
    if edited and (text := edited.get(path.resolve())) is not None:
        return _mapping(text.removeprefix("\ufeff"), start, problems)
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        problems.add(start, "file", f"cannot be read: {error.strerror}")
        return nothing
    except ValueError as error:  # a path with a character that no path has
        problems.add(start, "file", f"cannot be read: {error}")
        return nothing
    if len(data) > LARGEST:
        problems.add(start, "limit", f"the file has more than {LARGEST} bytes")
        return nothing
    try:
        text = data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        problems.add(
            _end_of(before, start), "syntax", "this is not UTF-8 text", "save the file as UTF-8"
        )
        return nothing
    return _mapping(text, start, problems)


def read_text(text: str, shown: str, problems: Diagnostics) -> MappingNode:
    """The mapping of a YAML text, as `read_file`."""
    return _mapping(text, SourcePosition(shown), problems)


def _mapping(text: str, start: SourcePosition, problems: Diagnostics) -> MappingNode:
    root = _root(text, start, problems)
    if root is None or (isinstance(root, ScalarNode) and root.value is None):
        return MappingNode(start)
    if not isinstance(root, MappingNode):
        problems.add(root.place, "shape", "the file must hold keys and their values")
        return MappingNode(start)
    return root


def _root(text: str, start: SourcePosition, problems: Diagnostics) -> Node | None:
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        place = _end_of(text[: forbidden.start()], start)
        message = f"the character U+{ord(forbidden[0]):04X} cannot be written as it is"
        problems.add(place, "syntax", message, "remove it, or write its \\u code in double quotes")
        return None
    composer = Composer(text, start, problems)
    try:
        return composer.root()
    except yaml.MarkedYAMLError as error:
        problems.add(*composer.syntax(error))
    except Unreadable:
        pass  # the problem has been noted
    return None


def _end_of(before: str, start: SourcePosition) -> SourcePosition:
    lines = LINE_BREAK.split(before)
    return start._replace(line=len(lines), column=len(lines[-1]) + 1)
