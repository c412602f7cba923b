"""Define the requests to a fake platform and its answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A request. `path` is below the platform's address.

    `ignored`, `late` and `delay` are of its effect: none, that of a delete much later, that of a
    create so many seconds later. `shift` is of the pages of a list behind the first one: so many
    rows before them have gone, or below zero, have come.
    """

    actor: str
    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    body: Any
    headers: Mapping[str, str]
    address: str
    """The whole address as it was asked for, which some sign."""
    ignored: bool = False
    late: bool = False
    delay: int = 0
    shift: int = 0


@dataclass(frozen=True)
class Answer:
    """An answer, and its delivery: complete, by `drip`, `truncated`, or with a `stall`."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    content_type: str = "application/json"
    delivery: str = "whole"

    def data(self) -> bytes:
        return self.raw if self.raw is not None else json.dumps(self.body).encode()


def choose_page(call: Call, rows: list[Any], first: int, size: int) -> list[Any]:
    """Return the rows of a page, of which `first` are before it."""
    if first and call.shift > 0:
        rows = rows[call.shift :]
    elif first and call.shift < 0:
        rows = [*rows[: -call.shift], *rows]
    return rows[first : first + size]
