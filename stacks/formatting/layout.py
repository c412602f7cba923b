"""The layout of YAML text: only white space is changed, all else is taken from the text as it is.

Where tokens are is read from PyYAML, by the parser that reads topologies.
"""

import itertools
import re
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from yaml import tokens

from gpuform.stacks.document.reading import LOADER

_STEP: Final = 2
OPENERS: Final = (tokens.FlowMappingStartToken, tokens.FlowSequenceStartToken)
CLOSERS: Final = (tokens.FlowMappingEndToken, tokens.FlowSequenceEndToken)
_OUTSIDE: Final = (tokens.DocumentStartToken, tokens.DocumentEndToken, tokens.DirectiveToken)
_STREAM: Final = (tokens.StreamStartToken, tokens.StreamEndToken)
NAMES: Final = (tokens.AliasToken, tokens.AnchorToken, tokens.TagToken)


@dataclass(frozen=True, slots=True)
class _Block:
    """A block collection: where its entries began, and where they begin now."""

    old: int
    new: int
    is_list: bool = False
    at_parent: bool = False  # a list as far to the left as the key that it belongs to


def tokens_of(text: str) -> list[Any]:
    """Return PyYAML's tokens of a text.

    Raises:
        yaml.YAMLError: the text is not YAML.
    """
    return list(yaml.scan(text, LOADER))


def laid_out(text: str) -> str:
    """The text with indentation by two, and single spaces between the parts of a line.

    Lines stay lines, but for empty ones in a row, of which one stays. Line breaks must be "\\n".
    """
    return _Layout(text).run()


class _Layout:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._lines: list[str] = []
        self._blocks: list[_Block] = []
        self._depth = 0  # of flow collections
        self._base = 0  # indentation of the line with the outermost one
        self._previous: Any = None  # the token before, None at the beginning of a line

    def run(self) -> str:
        waiting: list[Any] = []
        for token in tokens_of(self._text):
            if token.start_mark.index == token.end_mark.index and not isinstance(token, _STREAM):
                waiting.append(token)
            elif not isinstance(token, _STREAM):
                self._add(token, waiting)
                waiting = []
        end = len(self._lines)
        self._add_gap(self._text[self._position :], self._blocks, _Block(0, 0))
        while len(self._lines) > end and not self._lines[-1]:
            self._lines.pop()
        return "".join(f"{line}\n" for line in self._lines)

    def _add(self, token: Any, waiting: list[Any]) -> None:
        """A token with text, after those without."""
        start = token.start_mark.index
        gap = self._text[self._position : start]
        is_first = not self._lines or "\n" in gap
        before = list(self._blocks)
        for each in waiting:
            self._structure(each, is_first=is_first)
        self._structure(token, is_first=is_first)
        is_key = bool(waiting) and isinstance(waiting[-1], tokens.KeyToken)
        indent = self._indent(token, is_key=is_key)
        self._add_gap(gap, before, _Block(token.start_mark.column, indent))
        if is_first:
            self._lines.append(" " * indent)
            self._previous = None
        elif self._spaced(token):
            self._lines[-1] += " "
        self._enter(token, indent if is_first else None)
        self._position = token.end_mark.index
        self._add_text(token, self._text[start : self._position])
        self._previous = token

    def _structure(self, token: Any, *, is_first: bool) -> None:
        """Opens and closes block collections."""
        if self._depth:
            return
        top = self._blocks[-1] if self._blocks else None
        column = token.start_mark.column
        if isinstance(token, tokens.BlockMappingStartToken | tokens.BlockSequenceStartToken):
            is_list = isinstance(token, tokens.BlockSequenceStartToken)
            inner = top.new + _STEP if top else 0
            self._blocks.append(_Block(column, inner if is_first else self._here(), is_list))
        elif isinstance(token, tokens.BlockEntryToken):
            if top and not top.is_list:
                inner = top.new + _STEP if is_first else self._here()
                self._blocks.append(_Block(column, inner, is_list=True, at_parent=True))
        elif isinstance(token, tokens.BlockEndToken | tokens.KeyToken | tokens.ValueToken):
            if top and top.at_parent:
                self._blocks.pop()
            if isinstance(token, tokens.BlockEndToken) and self._blocks:
                self._blocks.pop()

    def _here(self) -> int:
        return len(self._lines[-1]) + 1

    def _value_indent(self) -> int:
        """Of what follows a key or a dash on lines of its own."""
        return self._blocks[-1].new + _STEP if self._blocks else 0

    def _indent(self, token: Any, *, is_key: bool) -> int:
        """Of a token that begins a line."""
        if self._depth:
            return self._base + _STEP * (self._depth - isinstance(token, CLOSERS))
        if isinstance(token, _OUTSIDE) or not self._blocks:
            return 0
        marks = (tokens.BlockEntryToken, tokens.KeyToken, tokens.ValueToken)
        if is_key or isinstance(token, marks):
            return self._blocks[-1].new
        return self._value_indent()

    def _enter(self, token: Any, indent: int | None) -> None:
        """Counts flow collections."""
        if isinstance(token, OPENERS):
            if self._depth == 0:
                top = self._blocks[-1] if self._blocks else _Block(0, 0)
                here = top.new + _STEP * top.is_list
                self._base = here if indent is None else indent
            self._depth += 1
        elif isinstance(token, CLOSERS):
            self._depth -= 1

    def _spaced(self, token: Any) -> bool:
        """Whether a space stands between the previous token of the line and this one."""
        if isinstance(self._previous, OPENERS):
            return False
        if isinstance(token, (*CLOSERS, tokens.FlowEntryToken)):
            return isinstance(self._previous, tokens.TagToken)
        if isinstance(token, tokens.ValueToken):
            marks = (tokens.FlowEntryToken, tokens.BlockEntryToken, tokens.KeyToken)
            return isinstance(self._previous, (*NAMES, *marks))
        return True

    def _add_text(self, token: Any, source: str) -> None:
        if isinstance(token, tokens.ScalarToken) and token.style in ("|", ">"):
            outer = self._blocks[-1] if self._blocks else _Block(-1, 0)
            length, (header, *lines) = _moved(source, outer.old, outer.new)
            self._position = token.start_mark.index + length
            self._lines[-1] += header
            self._lines += lines
            return
        first, *others = source.split("\n")
        inner = self._base + _STEP * self._depth if self._depth else self._value_indent()
        self._lines[-1] += _without_end(first) if others else first
        for number, line in enumerate(others, start=1):
            words = line.lstrip(" \t")
            words = words if number == len(others) else _without_end(words)
            self._lines.append(" " * inner + words if words else "")

    def _add_gap(self, gap: str, before: list[_Block], following: _Block) -> None:
        """The comments and empty lines between two tokens."""
        parts = gap.split("\n")
        if self._lines:
            beside = parts.pop(0)
            if "#" in beside:
                blank, comment = beside.split("#", 1)
                space = " " if not blank or "\t" in blank else blank
                self._lines[-1] += f"{space}#{comment.rstrip()}"
        is_end = self._position + len(gap) == len(self._text)
        for part in parts if is_end else parts[:-1]:
            self._add_line(part, before, following)

    def _add_line(self, part: str, before: list[_Block], following: _Block) -> None:
        blank, mark, comment = part.partition("#")
        if not mark:
            if self._lines and self._lines[-1]:
                self._lines.append("")
            return
        column = len(blank)
        if self._depth:
            indent = self._base + _STEP * self._depth
        elif column <= following.old:
            indent = following.new
        else:
            fitting = [each for each in (following, *reversed(before)) if each.old <= column]
            indent = max(fitting, key=lambda each: each.old).new
        self._lines.append(f"{' ' * indent}#{comment.rstrip()}")


def _without_end(line: str) -> str:
    r"""Without spaces at its end, but for one that is escaped: `\ `."""
    return re.sub(r"(?<!\\)[ \t]+$", "", line)


_HEADER: Final = re.compile(r"[|>][+-]?(?P<step>[1-9]?)[+-]?")


def _moved(source: str, outer: int, new_outer: int) -> tuple[int, list[str]]:
    """How much of the source is the text itself, and its lines when what it belongs to is moved.

    `outer` is the column of the key or dash that it belongs to, -1 for none. Empty lines at the
    end are a part of it after a `+` only.
    """
    header, *lines = source.split("\n")
    marks = _HEADER.match(header)
    if marks and marks["step"]:
        old = max(outer + 1, 1) + int(marks["step"]) - 1
        new = new_outer + int(marks["step"]) if outer >= 0 else old
    else:
        old = next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" ")), 0)
        new = new_outer + 2
    if lines and not lines[-1].strip(" "):
        lines.pop()  # what follows its last line break
    while lines and "+" not in (marks[0] if marks else "") and not lines[-1][old:]:
        lines.pop()
    made = [" " * new + line[old:] if line[old:] else "" for line in lines]
    return len("\n".join([header, *lines])), [header.rstrip(), *made]


@dataclass(slots=True)
class _Flow:
    """A flow collection that is open: where it and those in it can be broken."""

    line: int
    is_key: bool
    places: list[int]
    inner: list[int] = field(default_factory=list)


def broken(text: str, width: int) -> str:
    """The text with line breaks in the outermost flow collections of lines that are too long.

    Keys stay as they are: they have to be on one line.
    """
    found = tokens_of(text)
    ends = {token.end_mark.line: token.end_mark.column for token in found}
    places: list[int] = []
    opened: list[_Flow] = []
    previous: Any = None
    for token in found:
        start, end = token.start_mark, token.end_mark
        if isinstance(token, OPENERS):
            is_key = isinstance(previous, tokens.KeyToken)
            opened.append(_Flow(start.line, is_key, [end.index]))
        elif isinstance(token, tokens.FlowEntryToken):
            opened[-1].places.append(end.index)
        elif isinstance(token, CLOSERS):
            flow = opened.pop()
            flow.places.append(start.index)
            outer = opened[-1].inner if opened else places
            if flow.line != end.line:
                outer += flow.inner
            elif ends[end.line] > width and not flow.is_key:
                outer += _useful(text, flow.places)
        if not isinstance(token, NAMES):
            previous = token
    for place in sorted(places, reverse=True):
        text = f"{text[:place]}\n{text[place:]}"
    return text


def _useful(text: str, places: list[int]) -> list[int]:
    """Those with something between them and the next; none for an empty collection."""
    pairs = itertools.pairwise(places)
    kept = [place for place, following in pairs if text[place:following].strip()]
    return [*kept, places[-1]] if kept else []
