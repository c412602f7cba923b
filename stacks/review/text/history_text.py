"""What was done to a stack, as people read it: a table of runs, and what happened in one."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.stacks_plan import LogLine, RunLog
from gpuform.stacks.engine.planning import Op
from gpuform.stacks.engine.stack import HOST, JOB, PLAN_MADE_AT, PLAN_SEAL, USER
from gpuform.stacks.engine.store import IN_PROGRESS, HistoryEntry
from gpuform.stacks.engine.urn import is_urn, name_of
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.text import step_text
from gpuform.stacks.review.text.plan_text import plan_text

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
