"""Finds a part of a value in its file, for messages about this part."""

import re
from pathlib import Path
from typing import Final

from gpuform.stacks.document.composing import LINE_BREAK
from gpuform.stacks.document.diagnostics import Place

_MOST: Final = 50
"""Lines of a value that are searched."""


def place_in(value: Place, part: str) -> Place:
    """Where a part of the value that begins at a place is written; that place, if it is not found.

    A part that is written with escapes is not found.
    """
    first = part.partition("\n")[0]
    if not first or not value.file:
        return value
    try:
        lines = LINE_BREAK.split(Path(value.file).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError):
        return value
    begin, pattern = value.line - 1, re.compile(re.escape(first) + r"(?!\w)")
    for at, line in enumerate(lines[begin : begin + _MOST], begin):
        match = pattern.search(line, value.column - 1 if at == begin else 0)
        if match:
            return value._replace(line=at + 1, column=match.start() + 1)
    return value
