"""All of a list that comes in pages, although it may change while it is read."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")

PAGE_SIZE = 1000
"""More than most lists have, so that one answer is a list at one moment. The platform documents no
limit, and its official provider asks for 2147483647."""

MOST_PASSES = 5


def read_all(
    read_page: Callable[[int], tuple[int, Sequence[T]]], id_of: Callable[[T], str]
) -> list[T]:
    """Every item once. `read_page` gets the number of a page, from 0, and gives the number of all
    items and those of the page.

    Between two pages an item can move from one to the other and be missed. So a list of several
    pages is read again until two passes see the same items; of one that never rests, what the last
    two have seen is given.
    """
    earlier: Mapping[str, T] = {}
    seen, pages = _pass(read_page, id_of)
    for _ in range(MOST_PASSES - 1):
        if pages == 1 or seen.keys() == earlier.keys():
            return list(seen.values())
        earlier = seen
        seen, pages = _pass(read_page, id_of)
    return list({**earlier, **seen}.values())


def _pass(
    read_page: Callable[[int], tuple[int, Sequence[T]]], id_of: Callable[[T], str]
) -> tuple[Mapping[str, T], int]:
    """The items by id, and how many pages were read. A page without a new item is the last."""
    found: dict[str, T] = {}
    for page in itertools.count():
        total, items = read_page(page)
        known = len(found)
        found.update({id_of(item): item for item in items})
        is_last = len(items) < PAGE_SIZE and len(found) >= total
        if is_last or len(found) == known:
            break
    return found, page + 1
