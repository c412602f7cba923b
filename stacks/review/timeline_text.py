"""Render what begins and ends in stacks, and the life of a resource, node or object.

`gpuform calendar` prints a table or iCalendar, `gpuform explain` the life. From RFC 5545: an event
that recurs has its begin in a time zone of its own (TZID), so that it follows daylight saving time;
the same UID replaces an event that was read before.
"""

import hashlib
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from gpuform.schemas.policies.lifetime import WEEKDAYS
from gpuform.schemas.safe_text import escape_invisible
from gpuform.schemas.timeline import (
    Agenda,
    AgendaEntry,
    ExplainedRepair,
    ExplainedRun,
    Explanation,
    LifeEvent,
    TestFigure,
    WeeklyHours,
)
from gpuform.stacks.engine.urn import name_of, type_of
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.summary_text import format_money
from gpuform.stacks.review.value_text import short_type

if TYPE_CHECKING:
    from icalendar import Calendar, Event

_COLUMNS: Final = ("BEGINS", "ENDS", "STACK", "NAME", "WHAT")
_ZONE_YEARS: Final = 5
"""How many years of daylight saving time the file describes."""

_PRODUCT: Final = "-//gpuform//calendar//EN"


def render_agenda(agenda: Agenda, *, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield a table with a row for each line, by time, then the unreadable stacks."""
    if agenda.entries:
        rows = [_COLUMNS, *map(_build_row, agenda.entries)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        yield paint("bold", lines[0])
        yield from lines[1:]
    else:
        yield "Nothing begins or ends at a known time."
    for problem in agenda.unread:
        yield paint("warning", f"not read: {escape_invisible(problem)}")


def _build_row(entry: AgendaEntry) -> tuple[str, ...]:
    """Return the cells of a line; `now` without any time, `-` for an unknown time."""
    is_now = not entry.start and not entry.end and entry.kind in ("rollout", "certification")
    start = "now" if is_now else entry.start or "-"
    texts = (start, entry.end or "-", entry.stack, entry.name, entry.text)
    return tuple(map(escape_invisible, texts))


def render_icalendar(agenda: Agenda) -> str:
    """Return the calendar as an iCalendar file; a line of unknown time is left out.

    The package `icalendar` is installed: the caller has checked that.
    """
    from icalendar import Calendar  # noqa: PLC0415 - an extra

    calendar = Calendar()
    calendar.add("prodid", _PRODUCT)
    calendar.add("version", "2.0")
    calendar.add("x-wr-calname", "gpuform")
    for entry in agenda.entries:
        _add_event(calendar, entry, datetime.fromisoformat(agenda.made_at))
    year = int(agenda.made_at[:4])
    # The rules of a zone for all times would be longer than the calendar.
    calendar.add_missing_timezones(date(year, 1, 1), date(year + _ZONE_YEARS, 1, 1))
    return str(calendar.to_ical(), "utf-8")


def _add_event(calendar: "Calendar", entry: AgendaEntry, made_at: datetime) -> None:
    """Add the event of a line. What happens now, without a time, is an event of now."""
    from icalendar import Event  # noqa: PLC0415 - an extra

    event = Event()
    if entry.hours is not None:
        _add_weekly_times(event, entry.hours, made_at)
    elif entry.moment or entry.kind in ("rollout", "certification"):
        is_period = bool(entry.start and entry.end)
        begin = entry.start or entry.end
        event.add("dtstart", _to_datetime(begin) if begin else made_at.astimezone(UTC))
        if is_period:
            event.add("dtend", _to_datetime(entry.end))
    else:
        return
    identity = f"{entry.stack}\0{entry.urn}\0{entry.kind}"
    event.add("uid", f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}@gpuform")
    event.add("dtstamp", made_at.astimezone(UTC))
    event.add("summary", escape_invisible(f"{entry.name}: {entry.text}"))
    event.add("description", escape_invisible(f"{entry.urn} of stack {entry.stack}"))
    event.add("categories", [entry.kind])
    event.add("transp", "TRANSPARENT")
    calendar.add_component(event)


def _add_weekly_times(event: "Event", hours: WeeklyHours, made_at: datetime) -> None:
    """Add begin, end and rule of weekly hours, from the first day on or after `made_at`."""
    zone = ZoneInfo(hours.time_zone)
    day = made_at.astimezone(zone).date()
    while WEEKDAYS[day.weekday()] not in hours.days:
        day += timedelta(days=1)
    is_midnight = hours.stop == "24:00"
    stop = time.fromisoformat("00:00" if is_midnight else hours.stop)
    start = time.fromisoformat(hours.start)
    last_day = day + timedelta(days=1) if is_midnight or stop <= start else day
    event.add("dtstart", datetime.combine(day, start, zone))
    event.add("dtend", datetime.combine(last_day, stop, zone))
    event.add("rrule", {"freq": "weekly", "byday": [name[:2].upper() for name in hours.days]})


def _to_datetime(time_text: str) -> datetime:
    """Return a time of a line in UTC."""
    return datetime.fromisoformat(time_text).astimezone(UTC)


_DIGEST_LENGTH: Final = 12
"""Characters of a digest or commit, as git abbreviates them."""

_MAX_NODES: Final = 5
_APPROVALS: Final = {
    "confirmed": "confirmed by a person",
    "saved_plan": "saved and reviewed before the run",
    "unasked": "applied without a question",
}
_STYLES: Final = {
    "created": "add",
    "added": "add",
    "deleted": "remove",
    "removed": "remove",
    "missing": "error",
    "failed": "error",
}


def render_explanation(explanation: Explanation, *, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the kind and ids of the name, then events, tests, repairs, cost and runs."""
    yield from _render_title(explanation, paint)
    yield ""
    yield paint("bold", "What happened:")
    for event in explanation.events:
        yield from _render_event(event, explanation.kind, paint)
    if not explanation.events:
        yield "  nothing that a run has recorded"
    if explanation.tests:
        yield ""
        yield paint("bold", "Tests:")
        yield from (f"  {_format_figure(figure, paint)}" for figure in explanation.tests)
    if explanation.repairs:
        yield ""
        yield paint("bold", "Repairs:")
        yield from (f"  {_format_repair(repair)}" for repair in explanation.repairs)
    if explanation.cost:
        yield ""
        yield paint("bold", "Cost:")
        yield from _render_cost(explanation)
    if explanation.runs:
        yield ""
        yield paint("bold", "Runs:")
        for run in explanation.runs:
            yield from _render_run(run)
    for gap in explanation.unknown:
        yield paint("warning", f"note: {escape_invisible(gap)}")


def _render_title(explanation: Explanation, paint: Paint) -> Iterator[str]:
    """Yield kind and name, whether the object still exists, the URNs and the ids."""
    existence = "" if explanation.exists else ", which no longer exists"
    yield paint("bold", f"{explanation.kind} {escape_invisible(explanation.name)}{existence}")
    for urn in explanation.urns:
        owner = "of " if explanation.kind == "node" else ""
        yield f"  {owner}{short_type(type_of(urn))} {escape_invisible(name_of(urn))}  {urn}"
    for object_id in explanation.ids:
        yield f"  id {escape_invisible(object_id)}"


def _render_event(event: LifeEvent, kind: str, paint: Paint) -> Iterator[str]:
    """Yield the line of an event, and a line for each changed property."""
    subject = f"node {event.node or event.node_id} " if event.node and kind != "node" else ""
    action = paint(_STYLES.get(event.action, ""), f"{escape_invisible(subject)}{event.action}")
    details = [_describe_author(event)]
    if event.id and kind == "resource" and not event.node:
        details.append(f"id {event.id}")
    line = f"  {event.time or 'time unknown':<20}  {action} {', '.join(details)}"
    yield f"{line}: {escape_invisible(event.reason)}" if event.reason else line
    if kind == "node" or not event.node:
        yield from (f"{'':24}{escape_invisible(change)}" for change in event.changes)


def _describe_author(event: LifeEvent) -> str:
    """Return the run behind an event, and any earlier run which may have begun the change."""
    if event.run is None:
        return "by no recorded run"
    if event.begun_by:
        runs = f"run{'s' if len(event.begun_by) > 1 else ''} {', '.join(map(str, event.begun_by))}"
        return f"by run {event.run} ({runs} ended early, and may have begun it)"
    return f"by run {event.run}"


def _format_figure(figure: TestFigure, paint: Paint) -> str:
    """Return a line: time, test, result with figures, nodes and the reason of a failure."""
    result = paint("" if figure.passed else "error", "passed" if figure.passed else "failed")
    parts = [result]
    if figure.measured is not None:
        parts.append(f"{figure.measured:g} {figure.unit}".strip())
    if figure.required is not None:
        parts.append(f"required {figure.required:g} {figure.unit}".strip())
    nodes = _join_nodes(figure.nodes)
    because = f": {escape_invisible(figure.because)}" if figure.because else ""
    name = escape_invisible(f"{figure.certification} {figure.category}")
    return f"{figure.at or 'time unknown':<20}  {name} {', '.join(parts)} on {nodes}{because}"


def _join_nodes(nodes: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(nodes) - _MAX_NODES} more" if len(nodes) > _MAX_NODES else ""
    return escape_invisible(", ".join(nodes[:_MAX_NODES]) or "no node") + more


def _format_repair(repair: ExplainedRepair) -> str:
    """Return a line: time, node, kind, author, state, and the evidence."""
    authors = [f"by run {repair.run}" if repair.run else ""]
    authors += [f"requested by {repair.requested_by}" if repair.requested_by else ""]
    authors += [f"reviewed by {repair.reviewed_by}" if repair.reviewed_by else ""]
    parts = [f"{repair.node} {repair.mode}", *authors, repair.state]
    line = f"{repair.at or 'time unknown':<20}  {', '.join(filter(None, parts))}"
    evidence = f": {repair.evidence}" if repair.evidence else ""
    return escape_invisible(f"{line}{evidence}")


def _render_cost(explanation: Explanation) -> Iterator[str]:
    """Yield a line for each currency: the total, the hours, and the cost of an hour now."""
    for cost in explanation.cost:
        total = f"{format_money(cost.total, cost.currency)} in {cost.hours:g} h"
        now = f", now {format_money(cost.hourly, cost.currency)}/h" if cost.hourly else ""
        share = ", its share of the resource" if explanation.kind == "node" else ""
        yield f"  {total} at the present prices{now}{share}"


def _render_run(run: ExplainedRun) -> Iterator[str]:
    """Yield a run's result and times, then the user, the plan, the message and the page."""
    end = f" to {run.ended_at}" if run.ended_at else ", its end is not recorded"
    yield escape_invisible(f"  run {run.number}: {run.kind} {run.result}, {run.started_at}{end}")
    lines = [
        ", ".join(_list_origin_parts(run)),
        ", ".join(_list_plan_parts(run)),
        f'"{run.message}"' if run.message else "",
        run.url,
    ]
    yield from (f"    {escape_invisible(line)}" for line in lines if line)


def _list_origin_parts(run: ExplainedRun) -> Iterator[str]:
    """Yield who ran, the program, the commit, the pull request and the CI job, as far as known."""
    author = f"{run.user} on {run.host}" if run.user and run.host else run.user or run.host
    if author:
        yield f"by {author}"
    yield run.engine
    if run.commit:
        dirty = " (dirty)" if run.is_dirty else ""
        branch = f" of {run.branch}" if run.branch else ""
        yield f"commit {run.commit[:_DIGEST_LENGTH]}{branch}{dirty}"
    if run.pull_request:
        yield f"pull request {run.pull_request}"
    if run.ci_job:
        yield run.ci_job


def _list_plan_parts(run: ExplainedRun) -> Iterator[str]:
    """Yield the digest of the plan, and the kind and author of the approval, as far as known."""
    if run.plan_digest:
        made = f" of {run.plan_made_at}" if run.plan_made_at else ""
        yield f"plan {run.plan_digest[:_DIGEST_LENGTH]}{made}"
    if run.approval:
        yield _APPROVALS[run.approval]
    if run.approved_by:
        yield f"approved by {run.approved_by}"
