"""Render a stack's history, the log of a run, and a run's diagnostics with source excerpts.

Called by `gpuform stack history`, `gpuform logs` and the progress display.
"""

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
from gpuform.stacks.engine.registration import DeclarationSource
from gpuform.stacks.engine.stack import HOST, JOB, PLAN_MADE_AT, PLAN_SEAL, USER
from gpuform.stacks.engine.store import IN_PROGRESS, HistoryEntry
from gpuform.stacks.engine.urn import STACK_TYPE, is_urn, name_of, type_of
from gpuform.stacks.resource_rules import find_lifecycle
from gpuform.stacks.review import step_text
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.plan_text import render_plan
from gpuform.stacks.review.value_text import short_type

_UNKNOWN_END = "it still runs, or was killed before it recorded its end"
_STYLES = {"error": "error", "warning": "warning"}


def render_history(entries: Sequence[HistoryEntry], latest: int) -> Iterator[str]:
    """Yield a row for each run, with the person and the host of the run below.

    `entries` are sorted, the newest first; `latest` is the number of the newest run.
    """
    width = max(len("NO"), len(str(latest)))
    yield f"{'NO':>{width}}  {'STARTED':<20}  {'WHAT':<15}  {'RESULT':<11}  {'TOOK':<8}  CHANGES"
    for number, entry in zip(range(latest, 0, -1), entries, strict=False):
        kind_and_result = (
            f"{escape_invisible(entry.kind):<15}  {escape_invisible(entry.result):<11}"
        )
        took = _format_duration(entry)
        started = _format_time(entry.start_time)
        changes = _format_changes(entry)
        row = f"{number:>{width}}  {started}  {kind_and_result}  {took:<8}  {changes}"
        yield row.rstrip()
        if origin := _format_origin(entry.environment, entry.message):
            yield f"{'':{width}}  {origin}"


def render_run(entry: HistoryEntry, number: int, stack: str, *, paint: Paint) -> Iterator[str]:
    """Yield a run's title with result and start, then changes, duration, origin and CI job.

    A run without changes shows no duration. A run in progress, or one that was killed, has no
    known end.
    """
    title = f"{escape_invisible(entry.kind)} {number} of stack {stack}"
    yield paint(
        "bold",
        f"{title}: {escape_invisible(entry.result)}, started {_format_time(entry.start_time)}",
    )
    if entry.result == IN_PROGRESS:
        yield f"  {_UNKNOWN_END}"
    elif entry.resource_changes:
        yield f"  {_format_changes(entry)}, in {_format_duration(entry)}"
    if origin := _format_origin(entry.environment, entry.message):
        yield f"  {origin}"
    if url := entry.environment.get("ci.build.url"):
        yield f"  {escape_invisible(url)}"


def render_log(log: RunLog, *, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the plan of a run, if there are changes, and each event with the time of day."""
    if log.plan.has_changes:
        yield render_plan(log.plan, paint=paint)
        yield ""
    for line in log.lines:
        moment = datetime.fromtimestamp(line.time, UTC)
        first, *rest = _format_log_line(line, paint).split("\n")
        yield f"{moment:%H:%M:%S}  {first}"
        yield from (f"{'':8}  {continuation}" for continuation in rest)


def _format_log_line(line: LogLine, paint: Paint) -> str:
    """Format a line of a run's log: a skipped check, a message, progress, or a step."""
    message = "\n".join(escape_invisible(part) for part in line.text.rstrip().split("\n"))
    if line.event == "unchecked":
        return f"not checked: {message}"
    # Without a resource there is only the message.
    if line.event == "message" or not (is_urn(line.urn)):
        prefix = paint(_STYLES.get(line.severity, ""), f"{line.severity}: ")
        name = f"{name_of(line.urn)}: " if is_urn(line.urn) else ""
        return f"{prefix if line.severity in _STYLES else ''}{name}{message}"
    if line.event == "progress":
        return f"   {escape_invisible(name_of(line.urn))}  {message}"
    return _format_step(line, paint)


def _format_step(line: LogLine, paint: Paint) -> str:
    """Format the event of a step; an operation unknown to this release is only named."""
    op = _find_op(line.op)
    if op is None or not step_text.has_description(op):
        return f"{escape_invisible(line.urn)}  {line.event} ({escape_invisible(line.op)})"
    if line.event == "started":
        progress = step_text.format_running(op)
    elif line.event == "failed":
        progress = step_text.format_failed(op, line.seconds, paint)
    else:
        progress = step_text.format_succeeded(op, line.seconds, _find_op(line.found))
    return f"{step_text.format_subject(op, line.urn, paint)}  {progress}"


def _find_op(name: str) -> Op | None:
    """Return the operation, or None for an operation of a newer gpuform."""
    return Op(name) if name in {str(op) for op in Op} else None


def _format_changes(entry: HistoryEntry) -> str:
    """Format the number of resources by operation: `3 create, 1 delete`. Empty without any."""
    counts = sorted(entry.resource_changes.items())
    return ", ".join(f"{count} {escape_invisible(op)}" for op, count in counts)


def _format_duration(entry: HistoryEntry) -> str:
    """Format how long a run took: `0:01:30`, or `-` while the run is in progress."""
    if entry.result == IN_PROGRESS:
        return "-"
    return str(timedelta(seconds=max(0, entry.end_time - entry.start_time)))


def _format_time(seconds: int) -> str:
    """Format a Unix time in UTC; a time out of range stays a number."""
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError, OSError):  # of a file that somebody edited
        return f"{seconds:<20}"


_DIGEST_LENGTH = 12
"""Characters of a digest or commit, as git abbreviates them."""


def _format_origin(environment: Mapping[str, str], message: str = "") -> str:
    """Format the origin of a run: user, host, CI job, commit, plan; empty if nothing is known.

    Example: `ada on laptop, GitHub Actions 1234 (deploy), main 3f2a9c1d0b7e (dirty), plan 81ab...`.
    """
    return escape_invisible(", ".join(filter(None, _list_origin_parts(environment, message))))


def _list_origin_parts(environment: Mapping[str, str], message: str) -> Iterator[str]:
    """Yield who ran, the CI job, the commit, the plan and the message, as far as recorded.

    The first part is empty if neither user nor host is recorded.
    """
    get = environment.get
    user, host = get(USER) or get("git.author", ""), get(HOST, "")
    yield f"{user} on {host}" if user and host else user or host
    if system := get("ci.system"):
        number = get("ci.build.number") or get("ci.build.id", "")
        job = f"({get(JOB)})" if get(JOB) else ""
        yield " ".join(filter(None, (system, number, job)))
    if commit := get("git.head") or get("ci.pr.headSHA"):
        branch = get("git.headName", "").removeprefix("refs/heads/")
        dirty = "(dirty)" if get("git.dirty") == "true" else ""
        yield " ".join(filter(None, (branch, commit[:_DIGEST_LENGTH], dirty)))
    if seal := get(PLAN_SEAL):
        yield f"plan {seal[:_DIGEST_LENGTH]} of {get(PLAN_MADE_AT, '')}".removesuffix(" of ")
    if message:
        yield f'"{message}"'


_MAX_LINE_LENGTH: Final = 160
_MAX_LEAD: Final = 60
"""Characters shown of a longer line, and how many of them stand before the marked span."""
_SECRET: Final = re.compile("secret|passw|passphrase|token|credential|api_?key", re.IGNORECASE)
"""A line with one of these words may hold a secret in the clear, and is not shown."""


class _SourceSpan(NamedTuple):
    """Hold a part of a source line; `line` and `column` count from 1."""

    line: int
    column: int
    length: int = 1


def render_source(source: DeclarationSource, path: str, type_: str) -> Iterator[str]:
    """Yield `file:line:column` and the source line with the property marked.

    The column is missing if the file has changed. A line that may hold a secret, or that has
    invisible characters, is not shown.

    Args:
        source: where the resource was registered.
        path: the property to mark.
        type_: the resource's type, whose schema names its secrets.
    """
    source_text = _read_source(source.file)
    span = _find_span(source, path, source_text)
    includes = "".join(
        f", included at {_shorten_path(included.file)}:{included.line}"
        for included in source.included
    )
    file = _shorten_path(source.file)
    if span is None:
        yield f"at {file}:{source.line}{includes}"
        return
    yield f"at {file}:{span.line}:{span.column}{includes}"
    line = source_text.splitlines()[span.line - 1]
    # Messages reach logs and reviews. Escaped characters would move the mark.
    if _has_possible_secret(line, type_) or escape_invisible(line) != line:
        return
    number, begin = str(span.line), max(0, span.column - 1 - _MAX_LEAD)
    excerpt = line if len(line) <= _MAX_LINE_LENGTH else line[begin : begin + _MAX_LINE_LENGTH]
    offset = span.column - 1 - (begin if excerpt is not line else 0)
    yield f"{number} | {excerpt}"
    yield f"{' ' * len(number)} | {' ' * offset}{'^' * min(span.length, len(excerpt) - offset)}"


def _find_span(source: DeclarationSource, path: str, text: str) -> _SourceSpan | None:
    """Return the span of the property, or else of the resource; None if the file differs now."""
    lines = text.splitlines()
    if not 0 < source.line <= len(lines):
        return None
    find_span = _find_yaml_span if source.file.endswith((".yaml", ".yml")) else _find_python_span
    span = find_span(text, source.line, path)
    # The file may have changed since the run.
    if span is None or span.line > len(lines) or span.column > len(lines[span.line - 1]):
        return None
    return span


def _find_yaml_span(text: str, line: int, path: str) -> _SourceSpan | None:
    """Return the span of the property's value, or of the key of the entry at `line`.

    Return None if no entry begins at `line`.
    """
    entry = next(
        (candidate for candidate in _parse_entries(text) if candidate.position.line == line), None
    )
    if entry is None:
        return None
    steps = list(parse_path(path))
    # A reference is written without `_id`: `cluster` for the input `cluster_id`.
    for first in (steps[:1], [str(steps[0]).removesuffix("_id")]) if steps else ():
        if isinstance(entry.node, MappingNode) and first[0] in entry.node.entries:
            position = find_nearest_node(entry.node, [*first, *steps[1:]]).position
            if position == find_key_position(entry.node, first):
                break
            return _SourceSpan(
                position.line, position.column, _measure_value(text, position.line, position.column)
            )
    return _SourceSpan(
        line, entry.position.column, _measure_value(text, line, entry.position.column, ":")
    )


def _measure_value(text: str, line: int, column: int, end: str = "") -> int:
    """Return the length of the value at a position, up to the value's end in the line.

    `end` is the character that ends an unquoted value, in place of YAML's punctuation.
    """
    rest = text.splitlines()[line - 1][column - 1 :]
    quote = rest[:1]
    if quote in ("'", '"'):
        close = rest.find(quote, 1)
        return close + 1 if close > 0 else len(rest.rstrip())
    match = re.match(r"[^,{}\[\]#:]+" if not end else rf"[^{end}]+", rest)
    return max(1, len(match[0].rstrip())) if match else 1


def _find_python_span(text: str, line: int, path: str) -> _SourceSpan | None:
    """Return the span of the argument's value, or of the call for the resource.

    Return None if no call begins at `line`.
    """
    calls = [node for node in _parse_calls(text) if node.lineno == line]
    # Only the argument itself is found, not a value inside of it.
    root = str(next(parse_path(path), ""))
    for call in calls:
        for keyword in call.keywords:
            if root and keyword.arg == root:
                return _to_span(keyword.value, text)
    return _to_span(calls[0].func, text) if calls else None


def _to_span(node: ast.expr, text: str) -> _SourceSpan:
    """Return the span of an expression, cut at the end of the first line."""
    # `ast` counts UTF-8 bytes, terminals show characters.
    before = text.splitlines()[node.lineno - 1].encode()[: node.col_offset].decode()
    end = node.end_col_offset if node.end_lineno == node.lineno else None
    length = (end or node.col_offset + 1) - node.col_offset
    return _SourceSpan(node.lineno, len(before) + 1, length)


@lru_cache(maxsize=8)
def _parse_calls(source: str) -> tuple[ast.Call, ...]:
    """Return all calls in Python source; none in invalid source."""
    try:
        tree = ast.parse(source)
    # The file may have been edited since the run.
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, ast.Call))


@lru_cache(maxsize=8)
def _parse_entries(yaml_source: str) -> tuple[Entry, ...]:
    """Parse the entries of all sections of a topology."""
    root = read_text(yaml_source, "", Diagnostics())
    sections = (entry.node for entry in root.entries.values())
    return tuple(e for s in sections if isinstance(s, MappingNode) for e in s.entries.values())


@lru_cache(maxsize=8)
def _read_source(file: str) -> str:
    """Return the text of a source file, cached; empty for an unreadable file."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def _has_possible_secret(line: str, type_: str) -> bool:
    """Return True if a line has a word like `token`, or the name of a secret field of the type."""
    lifecycle = find_lifecycle(type_)
    names = lifecycle.list_secret_names() if lifecycle else ()
    return bool(_SECRET.search(line)) or any(name in line for name in names)


def _shorten_path(file: str) -> str:
    """Return the path relative to the current folder; a path outside is returned unchanged."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


_SEVERITY_STYLES = {"error": "error", "warning": "warning", "debug": "dim"}


def render_diagnostics(diagnostics: Iterable[Diagnostic], *, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the `Diagnostics:` block by resource; nothing without messages.

    Output of the program and messages about the run stand under `program`. Messages are not
    escaped.
    """
    groups: dict[str, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        if diagnostic.message.strip():
            groups.setdefault(_format_subject(diagnostic.urn), []).append(diagnostic)
    if not groups:
        return
    yield paint("bold", "Diagnostics:")
    for subject, group in groups.items():
        yield f"  {escape_invisible(subject)}:"
        for diagnostic in group:
            yield from (f"    {line}" for line in _render_diagnostic(diagnostic, paint))


def _format_subject(urn: str) -> str:
    """Return `<type> (<name>)` of a resource, or `program` for the stack and for no URN."""
    if urn.count("::") < 3 or type_of(urn) == STACK_TYPE:
        return "program"
    return f"{short_type(type_of(urn))} ({name_of(urn)})"


def _render_diagnostic(diagnostic: Diagnostic, paint: Paint) -> Iterator[str]:
    """Yield the lines of a message, the source lines, and the page of the documentation."""
    severity = diagnostic.severity
    prefix = f"{severity}: " if severity in _SEVERITY_STYLES else ""
    first, *rest = diagnostic.message.rstrip().split("\n")
    yield paint(_SEVERITY_STYLES.get(severity, ""), prefix) + first
    yield from rest
    if diagnostic.source is not None:
        type_ = type_of(diagnostic.urn)
        for line in render_source(diagnostic.source, diagnostic.path, type_):
            yield f"  {line}"
    if diagnostic.error is not None and diagnostic.error.shown_help_page:
        yield f"  more: gpuform help {diagnostic.error.shown_help_page}"
