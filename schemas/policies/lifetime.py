"""Declare how long a resource lives, when it runs, and when it counts as idle: `expires`, `ttl`,
`schedule`, `idle`.

gpuform's own inputs, the same on all platforms: nothing of them is ever sent. They are echoed in
the outputs, so that a state alone tells what is due.

gpuform's own input, beside those of `lifetime`: nothing of it is ever sent. It only ever stops.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field, create_model

from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.rules import Local, StateOnly, Unordered
from gpuform.schemas.values import UNKNOWN, contains_unknown

DAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""The names of the days, Monday first."""

_ONE_DAY: Final = timedelta(days=1)
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
            day = today + ahead * _ONE_DAY
            if DAYS[day.weekday()] in self.days:
                until = day if self.stop > self.start else day + _ONE_DAY
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


FIELDS: Final = ("expires", "ttl", "schedule")

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d|24:00", re.ASCII)
_DAY: Final = 86400
_UNITS: Final = (7 * _DAY, _DAY, 3600, 60)
_TTL: Final = re.compile(r"(?:(\d{1,5})w)?(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,5})m)?", re.ASCII)


def end_of(expires: str) -> float:
    """The moment of `expires`, in Unix seconds: a date ends with its last second, in UTC.

    Raises ValueError for a text that is neither a date nor a moment with an offset.
    """
    try:
        if _DATE.fullmatch(expires):
            return datetime.combine(date.fromisoformat(expires), time(), UTC).timestamp() + _DAY
        moment = datetime.fromisoformat(expires)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"{expires} is no end: write a date such as 2026-12-31 (it ends at midnight UTC), or a "
            "moment with its offset such as 2026-12-31T18:00:00+01:00"
        )
    return moment.timestamp()


def seconds_of(ttl: str) -> float:
    """A time to live in seconds: `14d`, `2w`, `36h`, `1d12h`, `90m`; a day is 24 hours.

    Raises ValueError for anything else, and for no time at all.
    """
    match = _TTL.fullmatch(ttl)
    parts = match.groups(default="0") if match and ttl else ()
    seconds = sum(int(part) * unit for part, unit in zip(parts, _UNITS, strict=False))
    if not seconds:
        raise ValueError(
            f"{ttl} is no time to live: write weeks, days, hours and minutes, such as 14d, 36h or "
            "1d12h"
        )
    return float(seconds)


def _checked_end(value: str) -> str:
    end_of(value)
    return value


def _checked_ttl(value: str) -> str:
    seconds_of(value)
    return value


def _check_day_time(value: str) -> str:
    if not _TIME.fullmatch(value):
        raise ValueError(f"{value} is no time of the day: write hours and minutes, such as 08:00")
    return value


def _checked_zone(value: str) -> str:
    if value not in _zones():
        raise ValueError(f"{value} is not a time zone: use an IANA name, such as Europe/Berlin")
    return value


@cache
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())


DayTime = Annotated[str, AfterValidator(_check_day_time)]


class ScheduleInputs(InputModel):
    """The hours in which something runs; outside of them `gpuform expire` stops it."""

    retired_names: ClassVar[Mapping[str, str]] = {
        "from": "start",
        "to": "stop",
        "end": "stop",
        "timezone": "time_zone",
        "tz": "time_zone",
    }

    days: Annotated[list[Day] | None, Unordered] = Field(
        default=None,
        min_length=1,
        description="The days on which it starts; all when not declared.",
        examples=[["mon", "tue", "wed", "thu", "fri"]],
    )
    start: DayTime = Field(
        description="When it starts, by the clock of time_zone.", examples=["08:00"]
    )
    stop: DayTime = Field(
        description="When it stops: on the next day where that is not after start; 24:00 is "
        "midnight.",
        examples=["20:00"],
    )
    time_zone: Annotated[str, AfterValidator(_checked_zone)] = Field(
        description="IANA name of the time zone. A time that its clocks skip is the moment when "
        "they jump; of one that they show twice, start is the first and stop the second.",
        examples=["Europe/Berlin"],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        start, stop = values.get("start"), values.get("stop")
        if isinstance(start, str) and start == "24:00":
            yield Problem("start", "24:00 only ends a day: write 00:00")
        elif isinstance(start, str) and start == stop:
            yield Problem("stop", "is the same as start: for whole days write 00:00 and 24:00")


Expires = Annotated[
    Annotated[str, AfterValidator(_checked_end)] | None,
    Local,
    StateOnly,
    Field(
        description="When `gpuform expire` destroys it: a date, whose end in UTC is meant, or a "
        "moment with its offset. Told by every plan from a week before.",
        examples=["2026-12-31", "2026-12-31T18:00:00+01:00"],
    ),
]
Ttl = Annotated[
    Annotated[str, AfterValidator(_checked_ttl)] | None,
    Local,
    StateOnly,
    Field(
        description="How long after its creation `gpuform expire` destroys it, instead of expires; "
        "a day is 24 hours. A replacement counts anew.",
        examples=["14d", "1d12h"],
    ),
]
Schedule = Annotated[
    ScheduleInputs | None,
    Local,
    StateOnly,
    Field(
        description="The hours in which it runs: `gpuform expire` stops it when they end, and "
        "starts it when they begin. Being stopped in between is no drift, and `up` starts nothing.",
        examples=[
            {
                "days": ["mon", "tue", "wed", "thu", "fri"],
                "start": "08:00",
                "stop": "20:00",
                "time_zone": "Europe/Berlin",
            }
        ],
    ),
]


def lifetime_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What is wrong with the three together."""
    if values.get("expires") is not None and values.get("ttl") is not None:
        yield Problem("ttl", "does not go with expires, which says the end: keep one of them")


def has_end(values: Mapping[str, Any]) -> bool:
    """Whether a declaration says when it ends, known yet or not."""
    return values.get("expires") is not None or values.get("ttl") is not None


def ends_at(values: Mapping[str, Any], created: float | None) -> float | None:
    """When it ends, in Unix seconds; None where it does not, or that is not known.

    `created` is when the object was made, which `ttl` counts from.
    """
    expires, ttl = values.get("expires"), values.get("ttl")
    if isinstance(expires, str):
        return end_of(expires)
    if isinstance(ttl, str) and created is not None:
        return created + seconds_of(ttl)
    return None


def hours_of(values: Mapping[str, Any]) -> RunningHours | None:
    """The running hours of a declaration; None where it has none, or they are not known yet."""
    schedule = values.get("schedule")
    if schedule is None or schedule is UNKNOWN or contains_unknown(schedule):
        return None
    said = ScheduleInputs.model_validate(schedule)
    stop = "00:00" if said.stop == "24:00" else said.stop
    return RunningHours(
        days=frozenset(said.days or DAYS),
        start=time.fromisoformat(said.start),
        stop=time.fromisoformat(stop),
        zone=ZoneInfo(said.time_zone),
    )


SHORTEST: Final = 1800.0
LONGEST: Final = 7 * 86400.0
"""Seconds. No platform tells its measurements of a longer time."""

MOST: Final = 50.0
"""Percent. What is used more is at work, whatever is declared."""

_PERCENT: Final = re.compile(r"(\d{1,2}(?:\.\d{1,3})?) ?%", re.ASCII)


@dataclass(frozen=True, slots=True)
class Idleness:
    """Each GPU is used less than `below` percent for `lasting` seconds; `text` says it."""

    below: float
    lasting: float
    text: str


def percent_of(text: str) -> float:
    """`5%` as 5. Raises ValueError for what is no percentage, nothing or too much."""
    match = _PERCENT.fullmatch(text)
    percent = float(match[1]) if match else 0.0
    if not 0 < percent <= MOST:
        raise ValueError(
            f"{text} cannot mean idle: write a percentage above 0% and up to {MOST:g}%, such as 5%"
        )
    return percent


def _checked_percent(value: str) -> str:
    percent_of(value)
    return value


def _check_idle_time(value: str) -> str:
    try:
        seconds = seconds_of(value)
    except ValueError:
        seconds = 0.0
    if not SHORTEST <= seconds <= LONGEST:
        raise ValueError(
            f"{value} is no time to be idle for: write 30m to 7d in days, hours and minutes, such "
            "as 6h or 1h30m"
        )
    return value


class _Idle(InputModel):
    retired_names: ClassVar[Mapping[str, str]] = {
        "under": "below",
        "threshold": "below",
        "after": "for",
        "lasting": "for",
        "action": "then",
    }


_FIELDS: Final[dict[str, Any]] = {
    "below": (
        Annotated[str, AfterValidator(_checked_percent)],
        Field(description="What each GPU is used less than, in percent.", examples=["5%"]),
    ),
    # A word of Python's: no class body could have it.
    "for": (
        Annotated[str, AfterValidator(_check_idle_time)],
        Field(description="For how long without a break, 30m to 7d.", examples=["6h"]),
    ),
    "then": (
        Literal["stop"] | None,
        Field(
            default=None,
            description="What `gpuform expire` does: stop, which is the default.",
            examples=["stop"],
        ),
    ),
}

IdleInputs = create_model(
    "IdleInputs",
    __base__=_Idle,
    __doc__="When its GPUs count as idle; then `gpuform expire` stops it.",
    __module__=__name__,
    **_FIELDS,
)

Idle = Annotated[
    IdleInputs | None,
    Local,
    StateOnly,
    Field(
        description="When its GPUs count as idle, so that `gpuform expire` stops it. It stays "
        "stopped until idle is removed, or --allow start-terminated starts it.",
        examples=[{"below": "5%", "for": "6h", "then": "stop"}],
    ),
]


def idleness_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """What it does not go with."""
    if values.get("idle") is not None and values.get("schedule") is not None:
        yield Problem("idle", "does not go with schedule, which starts it again: keep one of them")


def idleness_of(values: Mapping[str, Any]) -> Idleness | None:
    """What a declaration calls idle; None where it says nothing, or that is not known yet."""
    idle = values.get("idle")
    if not isinstance(idle, Mapping) or contains_unknown(idle):
        return None
    below, lasting = percent_of(idle["below"]), idle["for"]
    return Idleness(below, seconds_of(lasting), f"below {below:g}% for {lasting}")
