"""How many servers each create call takes: 2 to 5 at a time (SCP reference, 'Create GPU Nodes').

That a single server may join a fabric is not documented; it is asked for only when one is left
alone anyway.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeVar

T = TypeVar("T")

MOST: Final = 5
LEAST: Final = 2
"""The fewest servers that make a new fabric."""


def batches(items: Sequence[T]) -> list[Sequence[T]]:
    """The items in as few calls as possible, in their order, as even as possible.

    No call has one item, unless that is all there is.
    """
    calls = -(-len(items) // MOST)
    if not calls:
        return []
    least, more = divmod(len(items), calls)
    ends = [least * at + min(at, more) for at in range(calls + 1)]
    return [items[start:end] for start, end in pairwise(ends)]
