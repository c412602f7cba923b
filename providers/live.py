"""What a platform measures of an object now: told when it is asked for, and never kept."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Live:
    """`lines` say it for people; `figures` are all of it, in the platform's words, as JSON has
    them."""

    lines: tuple[str, ...]
    figures: Mapping[str, Any]
