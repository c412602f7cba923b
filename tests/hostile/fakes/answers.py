"""What comes to a fake platform and what goes back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Call:
    """A request. `path` is below the platform's address; `ignored` and `late` are of its effect."""

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


@dataclass(frozen=True)
class Answer:
    """An answer, and how it is delivered: whole, by `drip` or `truncated`."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    content_type: str = "application/json"
    delivery: str = "whole"

    def data(self) -> bytes:
        return self.raw if self.raw is not None else json.dumps(self.body).encode()
