"""Define the requests to a fake platform and its answers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PlatformRequest:
    """A request to a fake platform. `path` is below the platform's address.

    `ignored`: the request is answered and has no effect. `late`: a delete takes effect much later.
    `delay`: seconds after which a create takes effect. `shift`: how many rows were deleted before
    the later pages of a list (below zero: added) since its first page.
    """

    actor: str
    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    body: Any
    headers: Mapping[str, str]
    address: str
    """The complete requested address, which some platforms' signatures cover."""
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
    delivery: str = "complete"

    def encode_body(self) -> bytes:
        return self.raw if self.raw is not None else json.dumps(self.body).encode()


def select_page_rows(request: PlatformRequest, rows: list[Any], first: int, size: int) -> list[Any]:
    """Return `size` rows from number `first` on, moved by the request's `shift`."""
    if first and request.shift > 0:
        rows = rows[request.shift :]
    elif first and request.shift < 0:
        rows = [*rows[: -request.shift], *rows]
    return rows[first : first + size]
