"""Edits of a text that a person wrote: spans are taken out, every other character stays.

A span is where something begins and where it ends, in characters.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]


def without_spans(text: str, spans: Iterable[Span]) -> str:
    """The text without these, none of which overlap."""
    for begin, end in sorted(spans, reverse=True):
        text = text[:begin] + text[end:]
    return text


def listed_span(members: Sequence[Span], at: int) -> Span:
    """What goes with one of several members that commas part: the comma beside it goes, too."""
    if at + 1 < len(members):
        return members[at][0], members[at + 1][0]
    return (members[at - 1][1] if at else members[at][0]), members[at][1]


def line_start(text: str, at: int) -> int:
    """Where the line of a place begins."""
    return text.rfind("\n", 0, at) + 1


def break_of(text: str) -> str:
    """What its lines end with."""
    return "\r\n" if "\r\n" in text else "\n"
