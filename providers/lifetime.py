"""Decide when a resource ends, runs or is idle, by its declaration and the clock of the call.

What nobody tells, or tells in figures that cannot be, is never idleness.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from gpuform.providers.context import get_current_context
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.policies.lifetime import (
    compute_expiry,
    parse_expiry,
    read_idleness,
    read_running_hours,
)
from gpuform.schemas.resource_facts import Notice, NoticeKind

NOTICE: Final = 7 * 86400.0
"""Seconds before an end from which on every plan tells it."""

EARLIEST_CREATION: Final = datetime(2015, 1, 1, tzinfo=UTC).timestamp()
"""No object of these platforms is older. Sentinels of programs are: the years 1, 1900 and 1970."""

FUTURE_S: Final = 300.0
"""Seconds that a creation may lie ahead by this clock: a platform's clock may be a little off."""

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Power:
    """The input by which a resource is started and stopped, and its two values."""

    field: str
    on: str
    off: str


def find_creation_time(reported: float | None, recorded: str, now: float) -> float | None:
    """Return the moment that a time to live counts from, in Unix seconds; None if nobody knows.

    The platform's word counts unless it is before what the state itself recorded, in the future, or
    no time at which an object can have been created. The later one counts: an end may come late,
    and never early.

    Args:
        reported: what the platform calls the creation.
        recorded: when the state got the object, as Pulumi's state files write it; may be empty.
        now: by the clock that the end is compared with.
    """
    known = [] if reported is None else [reported]
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(recorded)
        known += [] if moment.tzinfo is None else [moment.timestamp()]
    credible = (each for each in known if EARLIEST_CREATION <= each <= now + FUTURE_S)
    return max(credible, default=None)


def written(moment: float) -> str:
    """A moment in UTC: `2026-12-31T18:00:00Z`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def problems(power: Power | None, declared: Values, *, is_new: bool) -> Iterator[Problem]:
    """What is wrong with a declaration now: an end that is over, running of what is stopped."""
    expires = declared.get("expires")
    if (
        is_new
        and isinstance(expires, str)
        and parse_expiry(expires) <= get_current_context().clock.now()
    ):
        yield Problem(
            "expires",
            f"ended at {written(parse_expiry(expires))}, and nothing is made that has expired: "
            "declare a later end, or remove the resource",
        )
    if power is None or declared.get(power.field) != power.off:
        return
    for name in ("schedule", "idle"):
        if declared.get(name) is not None:
            problem = f"does not go with {power.field} {power.off}: remove one of the two"
            yield Problem(name, problem)


def is_out_of_hours(declared: Values) -> bool:
    """Whether it is declared to run in some hours, and these are not among them."""
    hours = read_running_hours(declared)
    return hours is not None and not hours.contains_moment(get_current_context().clock.now())


def resting(power: Power, declared: Values) -> FieldChange:
    """For a plan to say why it does not start what is out of its hours; it is no change."""
    hours, because = read_running_hours(declared), "outside of its running hours"
    begin = hours.find_next_change(get_current_context().clock.now()) if hours else None
    if hours and begin is not None:
        because += f", until {hours.format_moment(begin)}"
    return FieldChange(power.field, Action.KEEP, power.off, power.off, because=because)


def ending(values: Values, created: float | None, now: float) -> Iterator[Notice]:
    """That it ends within a week, or is over."""
    at = compute_expiry(values, created)
    if at is None or at - now > NOTICE:
        return
    how = f"expires: {values['expires']}" if values.get("expires") else f"ttl: {values['ttl']}"
    if at <= now:
        text = f"expired at {written(at)} ({how}): the next `gpuform expire` destroys it"
    else:
        text = f"expires in {left(at - now)}, at {written(at)} ({how})"
    yield Notice(kind=NoticeKind.EXPIRY, text=text, at=written(at))


def left(seconds: float) -> str:
    """Such as `2d 3h`, rounded down."""
    days, hours, minutes = seconds // 86400, seconds % 86400 // 3600, seconds % 3600 // 60
    parts = [(days, "d"), (hours, "h"), (minutes, "m")]
    told = [f"{count:.0f}{unit}" for count, unit in parts if count]
    return " ".join(told[:2]) or "less than a minute"


CAUSE: Final = "idleness"
"""How the words begin that an object's outputs have for a stop by `gpuform expire`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """`because` says why it is idle, or why not (yet)."""

    is_idle: bool
    because: str


def is_for_idleness(stopped_by: object) -> bool:
    """Whether an output tells of a stop for idleness."""
    return isinstance(stopped_by, str) and stopped_by.startswith(f"{CAUSE},")


def noticed(values: Mapping[str, Any], *, is_off: bool) -> Iterator[Notice]:
    """What `gpuform expire` may do; nothing by the time alone, so that plans stay the same."""
    idleness = read_idleness(values)
    if idleness is not None and not is_off:
        text = f"`gpuform expire` stops it once each of its GPUs is used {idleness.text}"
        yield Notice(kind=NoticeKind.EXPIRY, text=text)
