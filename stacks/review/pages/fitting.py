"""Which parts of a document fit: what matters most is whole, the rest in brief or only counted.

It knows nothing of what it fits: items come in two forms, in the order of their importance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

_MISSES: Final = 20
"""So many items in a row that are too long end the search for one that fits."""


@dataclass(frozen=True, slots=True)
class Item:
    """`brief` is a line, `whole` all there is to tell; both are made when they are needed."""

    brief: Callable[[], str]
    whole: Callable[[], str] | None = None


@dataclass(slots=True)
class Part:
    """Items under one heading.

    The shares are how far the document may be filled when the form in question is added: what
    comes later in importance is so sure of some room.
    """

    items: Sequence[Item]
    brief_share: float = 1.0
    whole_share: float = 1.0
    texts: dict[int, str] = field(default_factory=dict)
    in_brief: set[int] = field(default_factory=set)

    @property
    def shown(self) -> list[tuple[str, bool]]:
        """The items chosen, in their order, and whether each is in brief."""
        return [(self.texts[at], at in self.in_brief) for at in sorted(self.texts)]

    @property
    def left_out(self) -> int:
        return len(self.items) - len(self.texts)

    @property
    def without_detail(self) -> int:
        """How many are in brief though there is more to tell of them."""
        return sum(self.items[at].whole is not None for at in self.in_brief)


def length(text: str) -> int:
    """Characters as forges count them: one outside of Unicode's first plane counts twice."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def fit(parts: Sequence[Part], limit: int) -> None:
    """Chooses the form of every item, so that all of them together are not longer than `limit`.

    In two rounds: one that keeps to the shares, and one that gives away what is left.
    """
    used = 0
    for bound in (False, True):
        for part in parts:
            share = 1.0 if bound else part.brief_share
            used = _add_brief(part, used, int(limit * share))
            share = 1.0 if bound else part.whole_share
            used = _add_whole(part, used, int(limit * share))


def _add_brief(part: Part, used: int, limit: int) -> int:
    for at in range(len(part.texts), len(part.items)):
        text = part.items[at].brief()
        size = length(text) + 2
        if used + size > limit:
            break
        part.texts[at] = text
        part.in_brief.add(at)
        used += size
    return used


def _add_whole(part: Part, used: int, limit: int) -> int:
    misses = 0
    for at in sorted(part.in_brief):
        make = part.items[at].whole
        if make is None:
            continue
        text = make()
        more = length(text) - length(part.texts[at])
        if used + more > limit:
            misses += 1
            if misses == _MISSES:
                break
            continue
        misses = 0
        part.texts[at] = text
        part.in_brief.discard(at)
        used += more
    return used
