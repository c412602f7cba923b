"""Test how servers are split into create requests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.scp.nodes.planning import MAX_BATCH_SIZE, MIN_FABRIC_SIZE, split_into_batches


@pytest.mark.parametrize(
    ("number", "sizes"),
    [
        (0, []),
        (1, [1]),
        (2, [2]),
        (5, [5]),
        (6, [3, 3]),
        (7, [4, 3]),
        (8, [4, 4]),
        (11, [4, 4, 3]),
        (13, [5, 4, 4]),
        (200, [5] * 40),
    ],
)
def test_batches_are_even_and_of_five_at_most(number: int, sizes: list[int]) -> None:
    assert [len(batch) for batch in split_into_batches(range(number))] == sizes


@given(st.integers(0, 999))
def test_batches_have_every_item_and_none_has_only_one(number: int) -> None:
    items = list(range(number))
    batches = split_into_batches(items)
    assert [item for batch in batches for item in batch] == items
    sizes = [len(batch) for batch in batches]
    assert all(MIN_FABRIC_SIZE <= size <= MAX_BATCH_SIZE for size in sizes) or number == 1
    assert max(sizes, default=0) - min(sizes, default=0) <= 1
    assert len(sizes) == -(-number // MAX_BATCH_SIZE)
