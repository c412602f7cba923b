"""Test that random property values round-trip over the wire and through a state."""

import math

import pytest
from google.protobuf.struct_pb2 import Struct
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.values import (
    UNKNOWN,
    Archive,
    Asset,
    ResourceReference,
    Secret,
    contains_secret,
    contains_unknown,
    from_struct,
    to_struct,
    unwrap_secrets,
)
from gpuform.stacks.engine import value_json

texts = st.text(max_size=8)
assets = st.builds(Asset, text=texts, hash=texts) | st.builds(Asset, uri=texts, hash=texts)
archives = st.builds(Archive, path=texts, hash=texts) | st.builds(
    Archive, assets=st.dictionaries(texts, assets, max_size=2), hash=texts
)
references = st.builds(
    ResourceReference,
    urn=texts,
    id=st.none() | st.just(UNKNOWN) | st.text(min_size=1, max_size=5),
    package_version=texts,
)
leaves = (
    st.none()
    | st.booleans()
    | st.floats(allow_nan=False)
    | texts
    | st.binary(max_size=6)
    | st.just(UNKNOWN)
    | references
    | assets
    | archives
)
plain = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
values = st.recursive(
    plain | plain.map(Secret),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
properties = st.dictionaries(texts, values, max_size=4)


class ReversingCrypter:
    """A crypter whose ciphertext is the reversed plaintext."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        return previous or "v1:" + plaintext[::-1]

    def decrypt(self, ciphertext: str) -> str:
        return ciphertext.removeprefix("v1:")[::-1]


@pytest.mark.slow
@given(properties)
def test_values_round_trip_over_the_wire(given_properties) -> None:
    sent = to_struct(given_properties).SerializeToString()
    assert from_struct(Struct.FromString(sent)) == given_properties


@pytest.mark.slow
@given(properties)
def test_values_round_trip_through_a_state(given_properties) -> None:
    state_json = value_json.dump(value_json.encode_map(given_properties, ReversingCrypter()))
    again = value_json.decode_map(value_json.load(state_json), ReversingCrypter())
    assert again == given_properties
    # Secrets read from a state are written back with the same text.
    assert value_json.dump(value_json.encode_map(again, ReversingCrypter())) == state_json


@pytest.mark.slow
@given(properties)
def test_values_round_trip_through_an_export_with_plaintext_secrets(given_properties) -> None:
    plaintext_values = value_json.encode_map(given_properties, None, show_secrets=True)
    again = value_json.decode_map(value_json.load(value_json.dump(plaintext_values)), None)
    assert again == given_properties


@pytest.mark.slow
@given(properties)
def test_providers_receive_unwrapped_values(given_properties) -> None:
    bare = unwrap_secrets(given_properties)
    assert not contains_secret(bare)
    assert contains_unknown(bare) == contains_unknown(given_properties)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_round_trip_exactly_through_json(number: float) -> None:
    number_json = value_json.dump(value_json.encode_number(number))
    assert math.copysign(1, value_json.decode(value_json.load(number_json), None)) == math.copysign(
        1, number
    )
    assert value_json.decode(value_json.load(number_json), None) == number
