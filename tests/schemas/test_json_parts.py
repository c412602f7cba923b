"""Test that a large JSON text in parts equals the complete text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.schemas import safe_text
from gpuform.schemas.safe_text import format_json, iterate_json_parts

TEXTS = st.text(st.sampled_from(["#", "a", "\n", "\u2028", '"', ":"]), max_size=6)
VALUES = st.recursive(
    st.one_of(st.none(), st.integers(), st.booleans(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=20,
)


@given(VALUES, st.integers(1, 6), st.sampled_from([2, 4]))
def test_json_parts_are_complete_lines_of_the_complete_text(value, pieces, indent):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(safe_text, "_CHUNKS_PER_PART", pieces)
        parts = [*iterate_json_parts(value, indent=indent)]
    assert "".join(parts) == format_json(value, indent=indent)
    assert all(part.endswith("\n") for part in parts[:-1])


def test_json_parts_of_a_large_value_are_small():
    parts = [*iterate_json_parts([{"number": number} for number in range(100_000)], indent=2)]
    assert max(map(len, parts)) < 1_000_000 < sum(map(len, parts))
    assert len(json.loads("".join(parts))) == 100_000
