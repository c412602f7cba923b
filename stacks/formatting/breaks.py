"""Where flow collections that are too long for a line are broken."""

import itertools
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml import tokens

from gpuform.stacks.formatting.layout import CLOSERS, NAMES, OPENERS, tokens_of


@dataclass(slots=True)
class _Flow:
    """A flow collection that is open: where it and those in it can be broken."""

    line: int
    is_key: bool
    places: list[int]
    inner: list[int] = field(default_factory=list)


def broken(text: str, width: int) -> str:
    """The text with line breaks in the outermost flow collections of lines that are too long.

    Keys stay as they are: they have to be on one line.
    """
    found = tokens_of(text)
    ends = {token.end_mark.line: token.end_mark.column for token in found}
    places: list[int] = []
    opened: list[_Flow] = []
    previous: Any = None
    for token in found:
        start, end = token.start_mark, token.end_mark
        if isinstance(token, OPENERS):
            is_key = isinstance(previous, tokens.KeyToken)
            opened.append(_Flow(start.line, is_key, [end.index]))
        elif isinstance(token, tokens.FlowEntryToken):
            opened[-1].places.append(end.index)
        elif isinstance(token, CLOSERS):
            flow = opened.pop()
            flow.places.append(start.index)
            outer = opened[-1].inner if opened else places
            if flow.line != end.line:
                outer += flow.inner
            elif ends[end.line] > width and not flow.is_key:
                outer += _useful(text, flow.places)
        if not isinstance(token, NAMES):
            previous = token
    for place in sorted(places, reverse=True):
        text = f"{text[:place]}\n{text[place:]}"
    return text


def _useful(text: str, places: list[int]) -> list[int]:
    """Those with something between them and the next; none for an empty collection."""
    pairs = itertools.pairwise(places)
    kept = [place for place, following in pairs if text[place:following].strip()]
    return [*kept, places[-1]] if kept else []
