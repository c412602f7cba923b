"""When something is to run: hours of days in a time zone, as moments. Pure.

A window begins at `start` and ends at the next `stop` after it, by the zone's wall clock, on each
of the days. A time that the clocks skip is the moment at which they jump; of a time that they show
twice, `start` is the first and `stop` the second.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""The names of the days, Monday first."""

_DAY: Final = timedelta(days=1)
_AHEAD: Final = 15
"""Days to look for the next change: a week, and one whose window fell into skipped hours."""


@dataclass(frozen=True, slots=True)
class RunningHours:
    """`stop` is on the next day where it is not after `start`; `days` are those of the starts."""

    days: Collection[str]
    start: time
    stop: time
    zone: ZoneInfo

    def covers(self, now: float) -> bool:
        """Whether a moment (Unix seconds) is within them."""
        return any(start <= now < stop for start, stop in self._windows(now))

    def next_change(self, now: float) -> float | None:
        """When they next begin or end; None where they never do: all days, around the clock."""
        merged: list[tuple[float, float]] = []
        for start, stop in self._windows(now):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
        last = merged[-1][1] if merged else now
        ahead = (moment for window in merged for moment in window if now < moment < last)
        return next(ahead, None)

    def written(self, moment: float) -> str:
        """A moment by the zone's clock: `Mon 2026-03-02 08:00 Europe/Berlin`."""
        return f"{datetime.fromtimestamp(moment, self.zone):%a %Y-%m-%d %H:%M} {self.zone.key}"

    def _windows(self, now: float) -> Iterator[tuple[float, float]]:
        """From the one that may have begun yesterday on, in order."""
        today = datetime.fromtimestamp(now, self.zone).date()
        for ahead in range(-2, _AHEAD):
            day = today + ahead * _DAY
            if DAYS[day.weekday()] in self.days:
                until = day if self.stop > self.start else day + _DAY
                start, stop = self._moments(day, until)
                if start < stop:
                    yield start, stop

    def _moments(self, day: date, until: date) -> tuple[float, float]:
        start, _ = _readings(datetime.combine(day, self.start), self.zone)
        _, stop = _readings(datetime.combine(until, self.stop), self.zone)
        return start, stop


def _readings(wall: datetime, zone: ZoneInfo) -> tuple[float, float]:
    """The first and the last moment at which clocks show a time."""
    first, last = (wall.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if last >= first:
        return first, last
    # Skipped: they jump somewhere between the two, from one offset to the other.
    low, high = int(last), int(first)
    before = _offset(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(middle, zone) == before else (low, middle)
    return float(high), float(high)


def _offset(moment: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(moment, UTC).astimezone(zone).utcoffset()
