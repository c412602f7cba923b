"""Test that property values survive Pulumi's wire format, secrets and unknown values included."""

from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.errors import GpuformError
from gpuform.providers.plugin.wire import (
    from_struct,
    mark_secrets,
    to_struct,
    unwrap_all_secrets,
)
from gpuform.providers.values import OUTPUT, REFERENCE, SIGNATURE_KEY, UNKNOWN_TEXT, Secret
from gpuform.providers.values import property_values as values
from gpuform.schemas.values import UNKNOWN

TEXT = st.text().filter(lambda text: text not in {SIGNATURE_KEY, UNKNOWN_TEXT})
PLAIN = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | TEXT | st.just(UNKNOWN),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
MARKED = st.recursive(
    PLAIN | PLAIN.map(Secret),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
PROPERTIES = st.dictionaries(TEXT, MARKED, max_size=4)


def drop_missing(properties: dict[str, Any]) -> dict[str, Any]:
    """Return the properties without None: the wire format drops them at the top level."""
    return {name: value for name, value in properties.items() if value is not None}


@pytest.mark.slow
@given(PROPERTIES)
def test_sent_properties_arrive_unchanged(properties: dict[str, Any]) -> None:
    sent = Struct.FromString(to_struct(properties).SerializeToString())
    assert from_struct(sent) == drop_missing(properties)


@pytest.mark.slow
@given(PROPERTIES)
def test_the_engine_reads_the_same_values(properties: dict[str, Any]) -> None:
    def to_engine_value(value: Any) -> Any:
        if isinstance(value, Secret):
            return values.make_secret(to_engine_value(value.value))
        if isinstance(value, dict):
            return {name: to_engine_value(item) for name, item in value.items()}
        if isinstance(value, list):
            return [to_engine_value(item) for item in value]
        return values.UNKNOWN if value is UNKNOWN else value

    read = values.from_struct(to_struct(properties))
    assert read == to_engine_value(drop_missing(properties))
    assert from_struct(values.to_struct(read)) == drop_missing(properties)


@pytest.mark.slow
@given(PROPERTIES, PROPERTIES)
def test_marking_secrets_changes_no_values(answer: dict[str, Any], given_: dict[str, Any]) -> None:
    names = set(list(answer)[:1])
    marked = mark_secrets(answer, given_, names)
    assert unwrap_all_secrets(marked) == unwrap_all_secrets(answer)
    assert mark_secrets(marked, given_, names) == marked
    for name in names:
        assert answer[name] is None or name == "id" or isinstance(marked[name], Secret)
    for name, value in drop_missing(answer).items():
        if isinstance(given_.get(name), Secret):
            assert isinstance(marked[name], Secret), value


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        ({SIGNATURE_KEY: OUTPUT}, UNKNOWN),
        ({SIGNATURE_KEY: OUTPUT, "value": 1.0}, 1.0),
        ({SIGNATURE_KEY: OUTPUT, "value": "s", "secret": True}, Secret("s")),
        ({SIGNATURE_KEY: REFERENCE, "urn": "urn:x", "id": "i-1"}, "i-1"),
        ({SIGNATURE_KEY: REFERENCE, "urn": "urn:x", "id": ""}, UNKNOWN),
        ({SIGNATURE_KEY: REFERENCE, "urn": "urn:x"}, "urn:x"),
    ],
)
def test_marked_objects_mean_a_value(fields: dict[str, Any], value: Any) -> None:
    assert from_struct(to_struct({"x": fields})) == {"x": value}


def test_every_unknown_marker_of_pulumi_is_unknown() -> None:
    texts = values._UNKNOWN_TEXTS
    assert UNKNOWN_TEXT in texts
    properties = {str(number): marker for number, marker in enumerate(texts)}
    assert set(from_struct(to_struct(properties)).values()) == {UNKNOWN}


def test_a_file_is_refused() -> None:
    asset = {SIGNATURE_KEY: "c44067f5952c0a294b673a41bacd8c17", "text": "x", "hash": ""}
    with pytest.raises(GpuformError, match="a file is not a valid property value"):
        from_struct(to_struct({"x": asset}))


def test_a_secrets_repr_hides_the_value() -> None:
    assert "hush" not in repr({"x": Secret("hush")})
