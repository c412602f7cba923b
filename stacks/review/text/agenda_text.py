"""Render a calendar of stacks as a table or as iCalendar, for `gpuform calendar`.

From RFC 5545: an event that recurs has its begin in a time zone of its own (TZID), so that it
follows daylight saving time; the same UID replaces an event that was read before.
"""

import hashlib
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from gpuform.schemas.agenda import Agenda, AgendaEntry, WeeklyHours
from gpuform.schemas.policies.lifetime import WEEKDAYS
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.paint import PLAIN, Paint

if TYPE_CHECKING:
    from icalendar import Calendar, Event

_COLUMNS: Final = ("BEGINS", "ENDS", "STACK", "NAME", "WHAT")
_ZONE_YEARS: Final = 5
"""How many years of daylight saving time the file describes."""

_PRODUCT: Final = "-//gpuform//calendar//EN"


def render_agenda(agenda: Agenda, *, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield a table with a row for each line, by time, then the stacks that could not be read."""
    if agenda.entries:
        rows = [_COLUMNS, *map(_build_row, agenda.entries)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        yield paint("bold", lines[0])
        yield from lines[1:]
    else:
        yield "Nothing begins or ends at a known time."
    for text in agenda.unread:
        yield paint("warning", f"not read: {escape_invisible(text)}")


def _build_row(entry: AgendaEntry) -> tuple[str, ...]:
    """Return the cells of a line; `now` without any time, `-` for a time that is not known."""
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


def _to_datetime(text: str) -> datetime:
    """Return a time of a line in UTC."""
    return datetime.fromisoformat(text).astimezone(UTC)
