"""`on_no_capacity`: what to do while a platform has no free GPUs, in the same words on each.

gpuform's own setting, never sent. What may be an alternative is each platform's own.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from gpuform.schemas.models import Problem
from gpuform.schemas.values import UNKNOWN

Values = Mapping[str, Any]

WaitMinutes = Annotated[
    int | None,
    Field(ge=1, description="How long to go on asking, in minutes.", examples=[30]),
]


def no_capacity_problems(values: Values, others: str) -> Iterator[Problem]:
    """What is wrong with an `on_no_capacity`; `others` says what an alternative may be."""
    search = values.get("on_no_capacity")
    if not isinstance(search, Mapping):
        return
    if not search.get("alternatives") and search.get("wait_minutes") is None:
        yield Problem("on_no_capacity", "says nothing: declare alternatives, wait_minutes, or both")
    for place, alternative in alternatives_of(values):
        if all(_is_as_declared(values, *each) for each in alternative.items()):
            yield Problem(place, f"is what is declared anyway: declare {others}")


def alternatives_of(values: Values) -> Iterator[tuple[str, Values]]:
    """The alternatives that are declared, each with its path."""
    search = values.get("on_no_capacity")
    found = search.get("alternatives") if isinstance(search, Mapping) else None
    if isinstance(found, Sequence):
        for at, alternative in enumerate(found):
            if isinstance(alternative, Mapping):
                yield f"on_no_capacity.alternatives[{at}]", alternative


def _is_as_declared(values: Values, name: str, value: Any) -> bool:
    return value is not None and value is not UNKNOWN and value == values.get(name)
