"""Write a run's messages under their resources, with the line that declares each."""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import Entry, MappingNode, find, find_key, steps_of
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.engine.planning import Diagnostic
from gpuform.stacks.engine.registration import Source
from gpuform.stacks.engine.urn import STACK_TYPE, name_of, type_of
from gpuform.stacks.lifecycles import lifecycle_of
from gpuform.stacks.review.names import short_type
from gpuform.stacks.review.paint import PLAIN, Paint

_LONGEST: Final = 160
_BEFORE: Final = 60
"""What is shown of a longer line, and how much of it is before what is meant."""
_SECRET: Final = re.compile("secret|passw|passphrase|token|credential|api_?key", re.IGNORECASE)
"""A line with one of these words is not shown: it may hold a secret as it is written."""


class _Spot(NamedTuple):
    """A part of a line; `line` and `column` count from 1."""

    line: int
    column: int
    length: int = 1


def source_lines(source: Source, path: str, type_: str) -> Iterator[str]:
    """`file:line:column`, and the line with a mark; without a column where the file is another one.

    `path` is the property that is meant, `type_` the type of the resource. A line that may hold a
    secret is not shown.
    """
    text = _text_of(source.file)
    spot = _spot(source, path, text)
    way = "".join(f", included at {_shown(each.file)}:{each.line}" for each in source.included)
    file = _shown(source.file)
    if spot is None:
        yield f"at {file}:{source.line}{way}"
        return
    yield f"at {file}:{spot.line}:{spot.column}{way}"
    line = text.splitlines()[spot.line - 1]
    if _may_be_secret(line, type_) or escape_invisible(line) != line:
        return
    number, begin = str(spot.line), max(0, spot.column - 1 - _BEFORE)
    shown = line if len(line) <= _LONGEST else line[begin : begin + _LONGEST]
    offset = spot.column - 1 - (begin if shown is not line else 0)
    yield f"{number} | {shown}"
    yield f"{' ' * len(number)} | {' ' * offset}{'^' * min(spot.length, len(shown) - offset)}"


def _spot(source: Source, path: str, text: str) -> _Spot | None:
    lines = text.splitlines()
    if not 0 < source.line <= len(lines):
        return None
    find_spot = _in_yaml if source.file.endswith((".yaml", ".yml")) else _in_python
    spot = find_spot(text, source.line, path)
    if spot is None or spot.line > len(lines) or spot.column > len(lines[spot.line - 1]):
        return None
    return spot


def _in_yaml(text: str, line: int, path: str) -> _Spot | None:
    """The value of a property, or the key of the entry that is declared there."""
    entry = next((each for each in _entries(text) if each.place.line == line), None)
    if entry is None:
        return None
    steps = list(steps_of(path))
    for first in (steps[:1], [str(steps[0]).removesuffix("_id")]) if steps else ():
        if isinstance(entry.node, MappingNode) and first[0] in entry.node.entries:
            place = find(entry.node, [*first, *steps[1:]]).place
            if place == find_key(entry.node, first):
                break
            return _Spot(place.line, place.column, _rest(text, place.line, place.column))
    return _Spot(line, entry.place.column, _rest(text, line, entry.place.column, ":"))


def _rest(text: str, line: int, column: int, end: str = "") -> int:
    """How long what begins there is: to the end of its value in the line."""
    rest = text.splitlines()[line - 1][column - 1 :]
    quote = rest[:1]
    if quote in ("'", '"'):
        close = rest.find(quote, 1)
        return close + 1 if close > 0 else len(rest.rstrip())
    found = re.match(r"[^,{}\[\]#:]+" if not end else rf"[^{end}]+", rest)
    return max(1, len(found[0].rstrip())) if found else 1


def _in_python(text: str, line: int, path: str) -> _Spot | None:
    """The value of the argument, or the call that registers the resource."""
    calls = [each for each in _calls(text) if each.lineno == line]
    root = str(next(steps_of(path), ""))
    for call in calls:
        for keyword in call.keywords:
            if root and keyword.arg == root:
                return _of_node(keyword.value, text)
    return _of_node(calls[0].func, text) if calls else None


def _of_node(node: ast.expr, text: str) -> _Spot:
    before = text.splitlines()[node.lineno - 1].encode()[: node.col_offset].decode()
    end = node.end_col_offset if node.end_lineno == node.lineno else None
    length = (end or node.col_offset + 1) - node.col_offset
    return _Spot(node.lineno, len(before) + 1, length)


@lru_cache(maxsize=8)
def _calls(text: str) -> tuple[ast.Call, ...]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(each for each in ast.walk(tree) if isinstance(each, ast.Call))


@lru_cache(maxsize=8)
def _entries(text: str) -> tuple[Entry, ...]:
    """The entries of all sections."""
    root = read_text(text, "", Diagnostics())
    sections = (entry.node for entry in root.entries.values())
    return tuple(e for s in sections if isinstance(s, MappingNode) for e in s.entries.values())


@lru_cache(maxsize=8)
def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _may_be_secret(line: str, type_: str) -> bool:
    lifecycle = lifecycle_of(type_)
    names = lifecycle.secret_names() if lifecycle else ()
    return bool(_SECRET.search(line)) or any(name in line for name in names)


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


_STYLES = {"error": "error", "warning": "warning", "debug": "dim"}


def diagnostics_lines(diagnostics: Iterable[Diagnostic], *, paint: Paint = PLAIN) -> Iterator[str]:
    """`Diagnostics:` and the messages by resource; nothing when there are none to show.

    What the program prints, or says of the whole run, stands under `program`.
    """
    groups: dict[str, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        if diagnostic.message.strip():
            groups.setdefault(_subject(diagnostic.urn), []).append(diagnostic)
    if not groups:
        return
    yield paint("bold", "Diagnostics:")
    for subject, found in groups.items():
        yield f"  {escape_invisible(subject)}:"
        for diagnostic in found:
            yield from (f"    {line}" for line in _lines(diagnostic, paint))


def _subject(urn: str) -> str:
    if urn.count("::") < 3 or type_of(urn) == STACK_TYPE:
        return "program"
    return f"{short_type(type_of(urn))} ({name_of(urn)})"


def _lines(diagnostic: Diagnostic, paint: Paint) -> Iterator[str]:
    severity = diagnostic.severity
    prefix = f"{severity}: " if severity in _STYLES else ""
    first, *rest = diagnostic.message.rstrip().split("\n")
    yield paint(_STYLES.get(severity, ""), prefix) + first
    yield from rest
    if diagnostic.source is not None:
        type_ = type_of(diagnostic.urn)
        for line in source_lines(diagnostic.source, diagnostic.path, type_):
            yield f"  {line}"
    if diagnostic.error is not None and diagnostic.error.shown_help_page:
        yield f"  more: gpuform help {diagnostic.error.shown_help_page}"
