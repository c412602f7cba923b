"""Decide when a resource ends, runs or is idle, by its declaration and the clock of the context.

Missing or impossible measurements never count as idleness.
"""

from collections.abc import Iterator, Mapping
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
from gpuform.schemas.values import to_unix_time

NOTICE: Final = 7 * 86400.0
"""Seconds before an end from which every plan shows the end."""

EARLIEST_CREATION: Final = datetime(2015, 1, 1, tzinfo=UTC).timestamp()
"""The earliest possible creation. Sentinels of programs are the years 1, 1900 and 1970."""

FUTURE_S: Final = 300.0
"""Seconds by which a creation may be in the future: a platform's clock may be a little off."""

Values = Mapping[str, Any]


@dataclass(frozen=True)
class Power:
    """The input that starts and stops a resource, and its two values."""

    field: str
    on: str
    off: str


def find_creation_time(reported: float | None, recorded: str, now: float) -> float | None:
    """Return the moment from which an object's `ttl` counts, in Unix seconds; None if unknown.

    The later one of the platform's time and the state's time counts, because an end may come late
    and never early. A time more than `FUTURE_S` in the future, or too early for any object, is
    ignored, as is a recorded time without a zone.

    Args:
        reported: the creation time that the platform reports.
        recorded: when the state got the object, as Pulumi's state files write it; may be empty.
        now: by the clock that the end is compared with.
    """
    moments = [moment for moment in (reported, to_unix_time(recorded)) if moment is not None]
    credible = (moment for moment in moments if EARLIEST_CREATION <= moment <= now + FUTURE_S)
    return max(credible, default=None)


def format_moment(moment: float) -> str:
    """Return a Unix time in UTC: `2026-12-31T18:00:00Z`."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def find_lifetime_problems(
    power: Power | None, declared: Values, *, is_new: bool
) -> Iterator[Problem]:
    """Yield a problem for a new object's expiry in the past, and for rules of a stopped object.

    A `schedule` or an `idle` rule conflicts with a power field that is declared off. `power` is
    None for a kind that cannot be stopped.
    """
    expires = declared.get("expires")
    if (
        is_new
        and isinstance(expires, str)
        and parse_expiry(expires) <= get_current_context().clock.now()
    ):
        yield Problem(
            "expires",
            f"ended at {format_moment(parse_expiry(expires))}: declare a later end, or remove "
            "the resource",
        )
    if power is None or declared.get(power.field) != power.off:
        return
    for name in ("schedule", "idle"):
        if declared.get(name) is not None:
            reason = f"conflicts with {power.field} {power.off}: remove one of the two"
            yield Problem(name, reason)


def is_out_of_hours(declared: Values) -> bool:
    """Return True if running hours are declared and now is outside of them."""
    hours = read_running_hours(declared)
    return hours is not None and not hours.contains_moment(get_current_context().clock.now())


def describe_rest(power: Power, declared: Values) -> FieldChange:
    """Return the plan's entry for a resource which stays off outside of its running hours.

    The entry is no change; its reason has the time when the running hours begin.
    """
    hours, reason = read_running_hours(declared), "outside its running hours"
    begin = hours.find_next_change(get_current_context().clock.now()) if hours else None
    if hours and begin is not None:
        reason += f", until {hours.format_moment(begin)}"
    return FieldChange(power.field, Action.KEEP, power.off, power.off, because=reason)


def list_end_notices(values: Values, created: float | None, now: float) -> Iterator[Notice]:
    """Yield a notice if the resource ends within a week, or has ended.

    `created` is None if unknown: then a `ttl` gives no notice.
    """
    end = compute_expiry(values, created)
    if end is None or end - now > NOTICE:
        return
    declaration = (
        f"expires: {values['expires']}" if values.get("expires") else f"ttl: {values['ttl']}"
    )
    if end <= now:
        message = (
            f"expired at {format_moment(end)} ({declaration}): the next `gpuform expire` destroys "
            "it"
        )
    else:
        message = (
            f"expires in {format_remaining_time(end - now)}, at {format_moment(end)} "
            f"({declaration})"
        )
    yield Notice(kind=NoticeKind.EXPIRY, text=message, at=format_moment(end))


def format_remaining_time(seconds: float) -> str:
    """Return a duration such as `2d 3h`, rounded down to its two largest units in use.

    `less than a minute` for less than 60 seconds.
    """
    days, hours, minutes = seconds // 86400, seconds % 86400 // 3600, seconds % 3600 // 60
    parts = [(days, "d"), (hours, "h"), (minutes, "m")]
    texts = [f"{count:.0f}{unit}" for count, unit in parts if count]
    return " ".join(texts[:2]) or "less than a minute"


IDLENESS_CAUSE: Final = "idleness"
"""The first word of the outputs that report a stop by `gpuform expire`."""


@dataclass(frozen=True, slots=True)
class IdlenessVerdict:
    """A judgement about idleness; `because` is the reason."""

    is_idle: bool
    because: str


def is_idleness_cause(stopped_by: object) -> bool:
    """Return True if the output `stopped_by` says that `gpuform expire` stopped an idle object."""
    return isinstance(stopped_by, str) and stopped_by.startswith(f"{IDLENESS_CAUSE},")


def list_idleness_notices(values: Mapping[str, Any], *, is_off: bool) -> Iterator[Notice]:
    """Yield a notice that `gpuform expire` may stop the resource once its GPUs are idle.

    None for an object that is off, or without a declared rule. The text does not depend on the
    time, so that plans stay the same.
    """
    idleness = read_idleness(values)
    if idleness is not None and not is_off:
        message = f"`gpuform expire` stops it once each of its GPUs is used {idleness.text}"
        yield Notice(kind=NoticeKind.EXPIRY, text=message)
