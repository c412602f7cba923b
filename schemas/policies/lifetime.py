"""Declare how long a resource lives and runs: `expires`, `ttl`, `schedule` and `idle`.

These are inputs of gpuform, the same on every platform, and never sent. They are repeated in the
outputs, so that `gpuform expire` needs only the state to know what is due. Idleness only ever stops
a resource.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Annotated, Any, ClassVar, Final, Literal
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field, create_model

from gpuform.schemas.models import InputModel, Problem, optional_field, require_full_match
from gpuform.schemas.rules import Local, StateOnly, Unordered
from gpuform.schemas.values import UNKNOWN, contains_unknown

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
"""The names of the days, Monday first."""

_ONE_DAY: Final = timedelta(days=1)
_SEARCH_DAYS: Final = 15
"""Days to search for the next change: two weeks, as one window may fall into skipped hours."""


@dataclass(frozen=True, slots=True)
class RunningHours:
    """The hours of the week in which a resource runs.

    `stop` is on the next day if it is not after `start`. `days` are the days of the starts.
    """

    days: Collection[str]
    start: time
    stop: time
    zone: ZoneInfo

    def contains_moment(self, now: float) -> bool:
        """Return True if the resource is to run at the moment `now` (Unix seconds)."""
        return any(start <= now < stop for start, stop in self._iterate_windows(now))

    def find_next_change(self, now: float) -> float | None:
        """Return when the hours next begin or end (Unix seconds); None if all day every day."""
        merged: list[tuple[float, float]] = []
        for start, stop in self._iterate_windows(now):
            # windows that touch have no change between them, as on weekdays around the clock
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
        last = merged[-1][1] if merged else now
        next_moments = (moment for window in merged for moment in window if now < moment < last)
        return next(next_moments, None)

    def format_moment(self, moment: float) -> str:
        """Return a moment by the zone's clock: `Mon 2026-03-02 08:00 Europe/Berlin`."""
        return f"{datetime.fromtimestamp(moment, self.zone):%a %Y-%m-%d %H:%M} {self.zone.key}"

    def _iterate_windows(self, now: float) -> Iterator[tuple[float, float]]:
        """Yield start and stop (Unix seconds) of each day's running hours around `now`, in order.

        From the day before yesterday until two weeks later.
        """
        today = datetime.fromtimestamp(now, self.zone).date()
        # a window may have begun yesterday; one more day in case the zone's offset moves the date
        for offset in range(-2, _SEARCH_DAYS):
            day = today + offset * _ONE_DAY
            if WEEKDAYS[day.weekday()] in self.days:
                until = day if self.stop > self.start else day + _ONE_DAY
                start, stop = self._compute_window(day, until)
                if start < stop:
                    yield start, stop

    def _compute_window(self, day: date, until: date) -> tuple[float, float]:
        """Return start and stop (Unix seconds) of running hours from `day` to the date `until`.

        A clock time that occurs twice counts from its first to its last occurrence.
        """
        # a clock time that occurs twice: start at its first occurrence, stop at its last
        start, _ = _find_moments_of_reading(datetime.combine(day, self.start), self.zone)
        _, stop = _find_moments_of_reading(datetime.combine(until, self.stop), self.zone)
        return start, stop


def _find_moments_of_reading(clock_time: datetime, zone: ZoneInfo) -> tuple[float, float]:
    """Return the first and the last moment (Unix seconds) when the zone's clocks show a time.

    Both are the moment of the jump for a time that the clocks skip.
    """
    first, last = (clock_time.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1))
    if last >= first:
        return first, last
    # Skipped: they jump somewhere between the two, from one offset to the other.
    low, high = int(last), int(first)
    offset_before = _get_utc_offset(low, zone)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (
            (middle, high) if _get_utc_offset(middle, zone) == offset_before else (low, middle)
        )
    return float(high), float(high)


def _get_utc_offset(moment: int, zone: ZoneInfo) -> timedelta | None:
    """Return the time zone's distance from UTC at a moment in Unix seconds."""
    return datetime.fromtimestamp(moment, UTC).astimezone(zone).utcoffset()


LIFETIME_FIELDS: Final = ("expires", "ttl", "schedule")

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DAY_S: Final = 86400
_UNIT_SECONDS: Final = (7 * _DAY_S, _DAY_S, 3600, 60)
_TTL: Final = re.compile(r"(?:(\d{1,5})w)?(?:(\d{1,5})d)?(?:(\d{1,5})h)?(?:(\d{1,5})m)?", re.ASCII)


def parse_expiry(expires: str) -> float:
    """Return `expires` in Unix seconds; a date counts until midnight (UTC) at the end of the day.

    Raises:
        ValueError: the text is neither a date nor a moment with an offset.
    """
    try:
        if _DATE.fullmatch(expires):
            return datetime.combine(date.fromisoformat(expires), time(), UTC).timestamp() + _DAY_S
        # a moment without an offset is refused below: it would differ by machine
        moment = datetime.fromisoformat(expires)
    except (ValueError, OverflowError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(
            f"{expires} is not a date or a moment: write a date such as 2026-12-31 (the date ends "
            "at midnight UTC), or a moment with its offset such as 2026-12-31T18:00:00+01:00"
        )
    return moment.timestamp()


def parse_duration(duration: str) -> float:
    """Return a duration in seconds: `14d`, `2w`, `36h`, `1d12h`, `90m`. A day has 24 hours.

    Raises:
        ValueError: the text has another form, or is a duration of zero.
    """
    match = _TTL.fullmatch(duration)
    parts = match.groups(default="0") if match and duration else ()
    # Text of another form has no parts, and gives 0 seconds.
    seconds = sum(int(part) * unit for part, unit in zip(parts, _UNIT_SECONDS, strict=False))
    if not seconds:
        raise ValueError(
            f"{duration} is not a time to live: write weeks, days, hours and minutes, such as 14d, "
            "36h or 1d12h"
        )
    return float(seconds)


def _validate_expiry(value: str) -> str:
    """Return a date or a moment with an offset. Raises ValueError for other text."""
    parse_expiry(value)
    return value


def _validate_ttl(value: str) -> str:
    """Return a duration such as `14d` or `1d12h`. Raises ValueError for other text."""
    parse_duration(value)
    return value


def _validate_time_zone(value: str) -> str:
    """Return the IANA name of a time zone, such as `Europe/Berlin`. Raises ValueError otherwise."""
    if value not in _load_time_zones():
        raise ValueError(f"{value} is not a time zone: use an IANA name, such as Europe/Berlin")
    return value


@cache
def _load_time_zones() -> frozenset[str]:
    """Return the IANA names of all time zones, read from files once per process."""
    # the list is read from files, so once per process
    return frozenset(available_timezones())


DayTime = Annotated[
    str,
    require_full_match(
        r"(?a)([01]\d|2[0-3]):[0-5]\d|24:00",
        "{text} is not a time of day: write hours and minutes, such as 08:00",
    ),
]


class ScheduleInputs(InputModel):
    """The hours in which a resource runs. Outside of them `gpuform expire` stops it."""

    retired_names: ClassVar[Mapping[str, str]] = {
        "from": "start",
        "to": "stop",
        "end": "stop",
        "timezone": "time_zone",
        "tz": "time_zone",
    }

    days: Annotated[list[Day] | None, Unordered] = optional_field(
        "The days on which the resource starts; all when not declared.",
        min_length=1,
        examples=[["mon", "tue", "wed", "thu", "fri"]],
    )
    start: DayTime = Field(
        description="When the resource starts, in time_zone.", examples=["08:00"]
    )
    stop: DayTime = Field(
        description="When the resource stops: on the next day if the time is not after start; "
        "24:00 is midnight.",
        examples=["20:00"],
    )
    time_zone: Annotated[str, AfterValidator(_validate_time_zone)] = Field(
        description="IANA name of the time zone. When daylight saving time skips a time, the "
        "moment of the change counts; when a time occurs twice, start is the first and stop "
        "the second.",
        examples=["Europe/Berlin"],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if the schedule starts at 24:00 or starts and stops at the same time."""
        start, stop = values.get("start"), values.get("stop")
        if isinstance(start, str) and start == "24:00":
            yield Problem("start", "24:00 only ends a day: write 00:00")
        elif isinstance(start, str) and start == stop:
            yield Problem("stop", "is the same as start: for whole days write 00:00 and 24:00")


Expires = Annotated[
    Annotated[str, AfterValidator(_validate_expiry)] | None,
    Local,
    StateOnly,
    Field(
        description="When `gpuform expire` destroys the resource: at the end of a date in UTC, or "
        "at a moment with an offset. Every plan of the week before shows a notice.",
        examples=["2026-12-31", "2026-12-31T18:00:00+01:00"],
    ),
]
Ttl = Annotated[
    Annotated[str, AfterValidator(_validate_ttl)] | None,
    Local,
    StateOnly,
    Field(
        description="How long after the creation `gpuform expire` destroys the resource, "
        "instead of expires; a day has 24 hours. A replacement starts again.",
        examples=["14d", "1d12h"],
    ),
]
Schedule = Annotated[
    ScheduleInputs | None,
    Local,
    StateOnly,
    Field(
        description="The hours in which the resource runs: `gpuform expire` stops it when "
        "they end, and starts it when they begin. A stop outside of these hours is not drift, "
        "and `up` does not start the resource.",
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


def find_lifetime_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem if a declaration has both `expires` and `ttl`."""
    if values.get("expires") is not None and values.get("ttl") is not None:
        yield Problem("ttl", "conflicts with expires, which sets the end: keep one of them")


def has_expiry(values: Mapping[str, Any]) -> bool:
    """Return True if a declaration says when the resource expires, even by an unknown value."""
    return values.get("expires") is not None or values.get("ttl") is not None


def compute_expiry(values: Mapping[str, Any], created: float | None) -> float | None:
    """Return when a resource expires, in Unix seconds; None if never, or not known yet.

    `created` is when the object was created, from which `ttl` counts; None if unknown.
    """
    expires, ttl = values.get("expires"), values.get("ttl")
    if isinstance(expires, str):
        return parse_expiry(expires)
    if isinstance(ttl, str) and created is not None:
        return created + parse_duration(ttl)
    return None


def read_running_hours(values: Mapping[str, Any]) -> RunningHours | None:
    """Return the running hours in a declaration's `schedule`; None without one, or if UNKNOWN."""
    schedule = values.get("schedule")
    if schedule is None or schedule is UNKNOWN or contains_unknown(schedule):
        return None
    declared = ScheduleInputs.model_validate(schedule)
    # `time` has no 24:00; a stop that is not after the start is on the next day
    stop = "00:00" if declared.stop == "24:00" else declared.stop
    return RunningHours(
        days=frozenset(declared.days or WEEKDAYS),
        start=time.fromisoformat(declared.start),
        stop=time.fromisoformat(stop),
        zone=ZoneInfo(declared.time_zone),
    )


MIN_IDLE_S: Final = 1800.0
MAX_IDLE_S: Final = 7 * 86400.0
"""Seconds. No platform reports measurements over a longer time."""

MAX_IDLE_PERCENT: Final = 50.0
"""Percent. A GPU with higher utilization is working, whatever is declared."""

_PERCENT: Final = re.compile(r"(\d{1,2}(?:\.\d{1,3})?) ?%", re.ASCII)


@dataclass(frozen=True, slots=True)
class Idleness:
    """When a resource is idle: each GPU is used less than `below` percent for `lasting` seconds.

    `text` is the same for people.
    """

    below: float
    lasting: float
    text: str


def parse_idle_percentage(percentage: str) -> float:
    """Return `5%` as 5.

    Raises ValueError for other forms, zero, or more than `MAX_IDLE_PERCENT`.
    """
    match = _PERCENT.fullmatch(percentage)
    percent = float(match[1]) if match else 0.0
    if not 0 < percent <= MAX_IDLE_PERCENT:
        raise ValueError(
            f"{percentage} is not a limit for idle: write a percentage above 0% and up to "
            f"{MAX_IDLE_PERCENT:g}%, such as 5%"
        )
    return percent


def _validate_idle_percentage(value: str) -> str:
    """Return a percentage above zero and at most `MAX_IDLE_PERCENT`.

    Raises ValueError otherwise.
    """
    parse_idle_percentage(value)
    return value


def _validate_idle_time(value: str) -> str:
    """Return a duration of `MIN_IDLE_S` to `MAX_IDLE_S` seconds, such as `6h`. Else ValueError."""
    try:
        seconds = parse_duration(value)
    except ValueError:
        seconds = 0.0
    if not MIN_IDLE_S <= seconds <= MAX_IDLE_S:
        raise ValueError(
            f"{value} is not a duration for idle: write 30m to 7d in days, hours and minutes, such "
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


_IDLE_FIELDS: Final[dict[str, Any]] = {
    "below": (
        Annotated[str, AfterValidator(_validate_idle_percentage)],
        Field(description="Utilization in percent below which a GPU is idle.", examples=["5%"]),
    ),
    # A word of Python's: no class body could have it.
    "for": (
        Annotated[str, AfterValidator(_validate_idle_time)],
        Field(
            description="How long the GPUs must be idle without a break, 30m to 7d.",
            examples=["6h"],
        ),
    ),
    "then": (
        Literal["stop"] | None,
        Field(
            default=None,
            description="The action of `gpuform expire`: stop, the default.",
            examples=["stop"],
        ),
    ),
}

IdleInputs = create_model(
    "IdleInputs",
    __base__=_Idle,
    __doc__="When the GPUs of the resource count as idle; then `gpuform expire` stops "
    "the resource.",
    __module__=__name__,
    **_IDLE_FIELDS,
)

Idle = Annotated[
    IdleInputs | None,
    Local,
    StateOnly,
    Field(
        description="When the GPUs of the resource are idle, so that `gpuform expire` stops it. "
        "The resource stays stopped until idle is removed, or --allow start-terminated starts it.",
        examples=[{"below": "5%", "for": "6h", "then": "stop"}],
    ),
]


def find_idle_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Yield a problem if a declaration has both `idle` and `schedule`."""
    if values.get("idle") is not None and values.get("schedule") is not None:
        yield Problem(
            "idle", "conflicts with schedule, which starts the resource again: keep one of them"
        )


def read_idleness(values: Mapping[str, Any]) -> Idleness | None:
    """Return the declared rule by which a resource counts as idle: share of GPU use and time.

    None if no rule is declared, or if its values are not known yet.
    """
    idle = values.get("idle")
    if not isinstance(idle, Mapping) or contains_unknown(idle):
        return None
    below, lasting = parse_idle_percentage(idle["below"]), idle["for"]
    return Idleness(below, parse_duration(lasting), f"below {below:g}% for {lasting}")
