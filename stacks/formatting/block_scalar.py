"""Texts after `|` or `>`: their lines move together."""

import re
from typing import Final

_HEADER: Final = re.compile(r"[|>][+-]?(?P<step>[1-9]?)[+-]?")


def moved(source: str, outer: int, new_outer: int) -> tuple[int, list[str]]:
    """How much of the source is the text itself, and its lines when what it belongs to is moved.

    `outer` is the column of the key or dash that it belongs to, -1 for none. Empty lines at the
    end are a part of it after a `+` only.
    """
    header, *lines = source.split("\n")
    marks = _HEADER.match(header)
    if marks and marks["step"]:
        old = max(outer + 1, 1) + int(marks["step"]) - 1
        new = new_outer + int(marks["step"]) if outer >= 0 else old
    else:
        old = next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip(" ")), 0)
        new = new_outer + 2
    if lines and not lines[-1].strip(" "):
        lines.pop()  # what follows its last line break
    while lines and "+" not in (marks[0] if marks else "") and not lines[-1][old:]:
        lines.pop()
    made = [" " * new + line[old:] if line[old:] else "" for line in lines]
    return len("\n".join([header, *lines])), [header.rstrip(), *made]
