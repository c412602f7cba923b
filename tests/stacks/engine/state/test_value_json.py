"""Test the JSON of values in a state against Go's encoding/json."""

import math

import pytest

from gpuform.providers.values import UNKNOWN, Secret
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1"),
        (-3.0, "-3"),
        (0.0, "0"),
        (2.5, "2.5"),
        (12345678901234567890.0, "12345678901234567000"),
        (9007199254740993.0, "9007199254740992"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e300, "1.5e+300"),
        (7, "7"),
    ],
)
def test_numbers_are_printed_as_by_go(number: float, text: str) -> None:
    assert value_json.dump(value_json.encode(number, None)).decode() == text


@pytest.mark.parametrize(
    ("number", "bits"), [(math.inf, "7ff0000000000000"), (-math.inf, "fff0000000000000")]
)
def test_infinities_are_encoded_with_a_signature(number: float, bits: str) -> None:
    encoded = value_json.encode({"n": number}, None)
    assert encoded == {"n": {SIGNATURE: "8ad145fe-0d11-4827-bfd7-1abcbf086f5c", "value": bits}}
    assert value_json.decode(encoded, None) == {"n": number}


def test_nan_round_trips() -> None:
    assert math.isnan(value_json.decode(value_json.encode(math.nan, None), None))


def test_only_required_characters_are_escaped() -> None:
    dumped = value_json.dump({"a": '<b> & é "q" \u2028\u2029\n'})
    assert dumped.decode() == '{"a":"<b> & é \\"q\\" \\u2028\\u2029\\n"}'


def test_a_lone_surrogate_is_replaced_and_does_not_fail_the_save() -> None:
    assert value_json.dump({"a": "x\ud800é"}).decode() == '{"a":"x\ufffdé"}'


def test_a_secret_is_encrypted_once_as_json_text(crypter) -> None:
    nested = Secret({"b": [Secret("x"), 1.0], "u": UNKNOWN})
    encoded = value_json.encode(nested, crypter)
    assert set(encoded) == {SIGNATURE, "ciphertext"}
    assert crypter.decrypt(encoded["ciphertext"]) == (
        '{"b":["x",1],"u":"04da6b54-80e4-46f7-96ec-b56ff0331ba9"}'
    )
    assert value_json.decode(encoded, crypter) == Secret({"b": ["x", 1.0], "u": UNKNOWN})


def test_nested_secrets_written_by_pulumi_are_read(crypter) -> None:
    inner = '{"a":{"%s":"%s","ciphertext":"\\"deep\\""}}' % (SIGNATURE, SECRET)  # noqa: UP031
    stored = {SIGNATURE: SECRET, "ciphertext": crypter.encrypt(inner)}
    assert value_json.decode(stored, crypter) == Secret({"a": "deep"})


def test_plaintext_secrets_are_read_and_encrypted_at_the_next_save(crypter) -> None:
    read = value_json.decode({SIGNATURE: SECRET, "plaintext": '"hush"'}, None)
    assert read == Secret("hush")
    saved = value_json.dump(value_json.encode(read, crypter))
    assert b"hush" not in saved
    assert b"ciphertext" in saved


def test_secrets_without_a_crypter_can_be_neither_read_nor_written() -> None:
    with pytest.raises(EngineError, match="secrets provider"):
        value_json.encode(Secret("hush"), None)
    with pytest.raises(EngineError, match="secrets provider"):
        value_json.decode({SIGNATURE: SECRET, "ciphertext": "v1:a:b"}, None)


def test_nan_and_infinity_literals_are_not_valid_json() -> None:
    with pytest.raises(ValueError, match="NaN"):
        value_json.load('{"a": NaN}')
