"""Values on Pulumi's wire come back as they went, secrets and unknowns among them."""

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


def there(properties: dict[str, Any]) -> dict[str, Any]:
    """What reaches the other side: a property that is None is absent."""
    return {name: value for name, value in properties.items() if value is not None}


@pytest.mark.slow
@given(PROPERTIES)
def test_what_is_sent_arrives(properties: dict[str, Any]) -> None:
    sent = Struct.FromString(to_struct(properties).SerializeToString())
    assert from_struct(sent) == there(properties)


@pytest.mark.slow
@given(PROPERTIES)
def test_the_engine_reads_the_same(properties: dict[str, Any]) -> None:
    def engine_s(value: Any) -> Any:
        if isinstance(value, Secret):
            return values.make_secret(engine_s(value.value))
        if isinstance(value, dict):
            return {name: engine_s(item) for name, item in value.items()}
        if isinstance(value, list):
            return [engine_s(item) for item in value]
        return values.UNKNOWN if value is UNKNOWN else value

    read = values.from_struct(to_struct(properties))
    assert read == engine_s(there(properties))
    assert from_struct(values.to_struct(read)) == there(properties)


@pytest.mark.slow
@given(PROPERTIES, PROPERTIES)
def test_marking_hides_and_changes_nothing(answer: dict[str, Any], given_: dict[str, Any]) -> None:
    names = set(list(answer)[:1])
    found = mark_secrets(answer, given_, names)
    assert unwrap_all_secrets(found) == unwrap_all_secrets(answer)
    assert mark_secrets(found, given_, names) == found
    for name in names:
        assert answer[name] is None or name == "id" or isinstance(found[name], Secret)
    for name, value in there(answer).items():
        if isinstance(given_.get(name), Secret):
            assert isinstance(found[name], Secret), value


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


def test_every_unknown_of_pulumi_s_is_unknown() -> None:
    texts = values._UNKNOWN_TEXTS
    assert UNKNOWN_TEXT in texts
    properties = {str(number): text for number, text in enumerate(texts)}
    assert set(from_struct(to_struct(properties)).values()) == {UNKNOWN}


def test_a_file_is_refused() -> None:
    asset = {SIGNATURE_KEY: "c44067f5952c0a294b673a41bacd8c17", "text": "x", "hash": ""}
    with pytest.raises(GpuformError, match="a file is not a valid property value"):
        from_struct(to_struct({"x": asset}))


def test_a_secret_shows_nothing() -> None:
    assert "hush" not in repr({"x": Secret("hush")})
