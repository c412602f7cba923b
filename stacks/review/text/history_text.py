"""Format a stack's history, and a run's messages under the resources that they are about."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.stacks_plan import LogLine, RunLog
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import (
    Entry,
    MappingNode,
    find_key_position,
    find_nearest_node,
    parse_path,
)
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.engine.planning import Diagnostic, Op
from gpuform.stacks.engine.registration import Source
from gpuform.stacks.engine.stack import HOST, JOB, PLAN_MADE_AT, PLAN_SEAL, USER
from gpuform.stacks.engine.store import IN_PROGRESS, HistoryEntry
from gpuform.stacks.engine.urn import STACK_TYPE, is_urn, name_of, type_of
from gpuform.stacks.resource_rules import lifecycle_of
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.text import step_text
from gpuform.stacks.review.text.plan_text import plan_text
from gpuform.stacks.review.value_text import short_type

_UNKNOWN_END = "it runs, or was killed before it could say how it ended"
_STYLES = {"error": "error", "warning": "warning"}


def history_lines(entries: Sequence[HistoryEntry], latest: int) -> Iterator[str]:
    """A row for each run, the latest of which has that number, and below it where it came from."""
    width = max(len("NO"), len(str(latest)))
    yield f"{'NO':>{width}}  {'STARTED':<20}  {'WHAT':<15}  {'RESULT':<11}  {'TOOK':<8}  CHANGES"
    for number, entry in zip(range(latest, 0, -1), entries, strict=False):
        what = f"{escape_invisible(entry.kind):<15}  {escape_invisible(entry.result):<11}"
        took = _took(entry)
        row = (
            f"{number:>{width}}  {_moment(entry.start_time)}  {what}  {took:<8}  {_changes(entry)}"
        )
        yield row.rstrip()
        if origin := _origin_text(entry.environment, entry.message):
            yield f"{'':{width}}  {origin}"


def run_lines(entry: HistoryEntry, number: int, stack: str, *, paint: Paint) -> Iterator[str]:
    """What the history says of one run."""
    what = f"{escape_invisible(entry.kind)} {number} of stack {stack}"
    yield paint(
        "bold", f"{what}: {escape_invisible(entry.result)}, begun {_moment(entry.start_time)}"
    )
    if entry.result == IN_PROGRESS:
        yield f"  {_UNKNOWN_END}"
    elif entry.resource_changes:
        yield f"  {_changes(entry)}, in {_took(entry)}"
    if origin := _origin_text(entry.environment, entry.message):
        yield f"  {origin}"
    if url := entry.environment.get("ci.build.url"):
        yield f"  {escape_invisible(url)}"


def log_lines(log: RunLog, *, paint: Paint = PLAIN) -> Iterator[str]:
    """What a run was to change, and what happened in it."""
    if log.plan.has_changes:
        yield plan_text(log.plan, paint=paint)
        yield ""
    for line in log.lines:
        moment = datetime.fromtimestamp(line.time, UTC)
        first, *rest = _told(line, paint).split("\n")
        yield f"{moment:%H:%M:%S}  {first}"
        yield from (f"{'':8}  {each}" for each in rest)


def _told(line: LogLine, paint: Paint) -> str:
    text = "\n".join(escape_invisible(each) for each in line.text.rstrip().split("\n"))
    if line.event == "unchecked":
        return f"not checked: {text}"
    if line.event == "message" or not (is_urn(line.urn)):
        prefix = paint(_STYLES.get(line.severity, ""), f"{line.severity}: ")
        name = f"{name_of(line.urn)}: " if is_urn(line.urn) else ""
        return f"{prefix if line.severity in _STYLES else ''}{name}{text}"
    if line.event == "progress":
        return f"   {escape_invisible(name_of(line.urn))}  {text}"
    return _step(line, paint)


def _step(line: LogLine, paint: Paint) -> str:
    op = _op(line.op)
    if op is None or not step_text.has_words(op):
        return f"{escape_invisible(line.urn)}  {line.event} ({escape_invisible(line.op)})"
    if line.event == "started":
        told = step_text.running(op)
    elif line.event == "failed":
        told = step_text.failed(op, line.seconds, paint)
    else:
        told = step_text.succeeded(op, line.seconds, _op(line.found))
    return f"{step_text.subject(op, line.urn, paint)}  {told}"


def _op(name: str) -> Op | None:
    """None for what a newer gpuform does."""
    return Op(name) if name in {str(op) for op in Op} else None


def _changes(entry: HistoryEntry) -> str:
    found = sorted(entry.resource_changes.items())
    return ", ".join(f"{count} {escape_invisible(op)}" for op, count in found)


def _took(entry: HistoryEntry) -> str:
    if entry.result == IN_PROGRESS:
        return "-"
    return str(timedelta(seconds=max(0, entry.end_time - entry.start_time)))


def _moment(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):  # of a file that somebody edited
        return f"{seconds:<20}"


_DIGITS = 12
"""Of a digest, as git and people write it."""


def _origin_text(environment: Mapping[str, str], message: str = "") -> str:
    """`ada on laptop, GitHub Actions 1234 (deploy), main 3f2a9c1d0b7e (dirty), plan 81ab...`.

    Empty when nothing is known.
    """
    return escape_invisible(", ".join(filter(None, _parts(environment, message))))


def _parts(environment: Mapping[str, str], message: str) -> Iterator[str]:
    told = environment.get
    who, host = told(USER) or told("git.author", ""), told(HOST, "")
    yield f"{who} on {host}" if who and host else who or host
    if system := told("ci.system"):
        number = told("ci.build.number") or told("ci.build.id", "")
        job = f"({told(JOB)})" if told(JOB) else ""
        yield " ".join(filter(None, (system, number, job)))
    if head := told("git.head") or told("ci.pr.headSHA"):
        branch = told("git.headName", "").removeprefix("refs/heads/")
        dirty = "(dirty)" if told("git.dirty") == "true" else ""
        yield " ".join(filter(None, (branch, head[:_DIGITS], dirty)))
    if seal := told(PLAN_SEAL):
        yield f"plan {seal[:_DIGITS]} of {told(PLAN_MADE_AT, '')}".removesuffix(" of ")
    if message:
        yield f'"{message}"'


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
    steps = list(parse_path(path))
    for first in (steps[:1], [str(steps[0]).removesuffix("_id")]) if steps else ():
        if isinstance(entry.node, MappingNode) and first[0] in entry.node.entries:
            place = find_nearest_node(entry.node, [*first, *steps[1:]]).place
            if place == find_key_position(entry.node, first):
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
    root = str(next(parse_path(path), ""))
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
    names = lifecycle.list_secret_names() if lifecycle else ()
    return bool(_SECRET.search(line)) or any(name in line for name in names)


def _shown(file: str) -> str:
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


_SEVERITY_STYLES = {"error": "error", "warning": "warning", "debug": "dim"}


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
    prefix = f"{severity}: " if severity in _SEVERITY_STYLES else ""
    first, *rest = diagnostic.message.rstrip().split("\n")
    yield paint(_SEVERITY_STYLES.get(severity, ""), prefix) + first
    yield from rest
    if diagnostic.source is not None:
        type_ = type_of(diagnostic.urn)
        for line in source_lines(diagnostic.source, diagnostic.path, type_):
            yield f"  {line}"
    if diagnostic.error is not None and diagnostic.error.shown_help_page:
        yield f"  more: gpuform help {diagnostic.error.shown_help_page}"
