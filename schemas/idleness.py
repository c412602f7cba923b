"""When the GPUs of something count as idle, so that `gpuform expire` stops it: `idle`.

gpuform's own input, beside those of `lifetime`: nothing of it is ever sent. It only ever stops.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, create_model

from gpuform.schemas.lifetime import seconds_of
from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.rules import Local, Recorded
from gpuform.schemas.values import contains_unknown

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


def _checked_time(value: str) -> str:
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
        Annotated[str, AfterValidator(_checked_time)],
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
    Recorded,
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
