"""Colour, where the reader wants it."""

import re
from dataclasses import dataclass
from typing import Final

_CODES = {
    "add": "32",
    "remove": "31",
    "change": "33",
    "replace": "35",
    "error": "1;31",
    "warning": "33",
    "dim": "2",
    "bold": "1",
}


STYLED: Final = re.compile(f"(\x1b\\[(?:0|{'|'.join(sorted(set(_CODES.values())))})m)")
"""What a Paint puts around a text."""


@dataclass(frozen=True, slots=True)
class Paint:
    """Styles text for a terminal, or leaves it as it is."""

    color: bool = False

    def __call__(self, style: str, text: str) -> str:
        """`style` is one of add, remove, change, replace, error, warning, dim and bold, or ''."""
        if not self.color or not style or not text:
            return text
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


PLAIN = Paint()
