"""Color text for terminals that show colors; called by every text view.

The screen of the command line imports this module for its help, which loads nothing heavy.
"""

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
"""Matches the escape sequences that a Paint puts around text."""


@dataclass(frozen=True, slots=True)
class Paint:
    """Style text for a terminal, or return it unchanged without `color`."""

    color: bool = False

    def __call__(self, style: str, text: str) -> str:
        """Return `text` in `style`: a key of `_CODES`, or '' for no style."""
        if not self.color or not style or not text:
            return text
        return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


PLAIN = Paint()
