"""Test that resource usage is computed from the same properties that providers get."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.lifecycle.traits import to_properties
from gpuform.providers.values import UNKNOWN, ResourceReference, Secret
from gpuform.schemas.values import UNKNOWN as PLAIN_UNKNOWN
from gpuform.stacks.engine.dynamic_providers import to_provider
from gpuform.stacks.pricing import to_plain_properties

KEYS = st.sampled_from(["a", "b", "__provider"])
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.text(max_size=3),
    st.just(UNKNOWN),
    st.builds(ResourceReference, st.just("urn:x"), st.sampled_from([None, "id", UNKNOWN])),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
        st.builds(Secret, inner),
    ),
    max_leaves=8,
)


def unwrap_secrets(value: Any) -> Any:
    """Return the value with an unknown in place of each secret."""
    if isinstance(value, Secret):
        return UNKNOWN
    if isinstance(value, list):
        return [unwrap_secrets(item) for item in value]
    if isinstance(value, dict):
        return {name: unwrap_secrets(item) for name, item in value.items()}
    return value


@given(st.dictionaries(KEYS, VALUES, max_size=3))
def test_they_are_those_that_a_provider_gets_without_secrets(properties):
    expected = to_properties(to_provider(unwrap_secrets(properties)))
    assert to_plain_properties(properties) == expected
    assert repr(to_plain_properties(properties)) == repr(expected)


def test_a_secret_is_not_known():
    assert to_plain_properties({"a": Secret("x"), "b": [Secret(None)]}) == {
        "a": PLAIN_UNKNOWN,
        "b": [PLAIN_UNKNOWN],
    }
