"""Test property values: display, secrets, unknowns, and conversion to and from the wire."""

import copy
import pickle

import pytest
from google.protobuf.struct_pb2 import Struct

from gpuform.providers.values import (
    UNKNOWN,
    Asset,
    ResourceReference,
    Secret,
    Unknown,
    are_equal,
    contains_secret,
    contains_unknown,
    keep_ciphertexts,
    mark_echoed_secrets,
    mark_renamed_secrets,
    mark_secret_outputs,
    to_struct,
    unwrap,
    unwrap_secrets,
)
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.value_json import from_struct

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"
UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


def build_struct(**fields: object) -> Struct:
    made = Struct()
    made.update(fields)
    return made


def test_repr_of_secrets_and_unknowns_hides_the_value() -> None:
    assert repr({"key": Secret("hush", "v1:aa:bb"), "id": UNKNOWN}) == (
        "{'key': [secret], 'id': [unknown]}"
    )
    assert "hush" not in f"{Secret('hush')} {Secret('hush')!r}"


def test_copies_of_the_unknown_value_are_the_same_object() -> None:
    assert Unknown() is UNKNOWN
    assert copy.deepcopy({"a": UNKNOWN})["a"] is UNKNOWN
    assert pickle.loads(pickle.dumps(UNKNOWN)) is UNKNOWN


def test_secrets_with_different_ciphertexts_are_equal() -> None:
    assert Secret("a", "v1:x:y") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"


@pytest.mark.parametrize(
    ("value", "unknown", "secret"),
    [
        ({"a": [1.0, {"b": UNKNOWN}]}, True, False),
        ([Secret({"a": [UNKNOWN]})], True, True),
        (ResourceReference("urn", UNKNOWN), True, False),
        (ResourceReference("urn", "i-1"), False, False),
        ({"a": [Secret("x")]}, False, True),
        ({"a": ["x", None, 2.0, True]}, False, False),
    ],
)
def test_secrets_and_unknowns_are_detected_inside_of_values(
    value, unknown: bool, secret: bool
) -> None:
    assert contains_unknown(value) is unknown
    assert contains_secret(value) is secret


def test_unwrap_removes_the_outer_secret_and_unwrap_secrets_removes_all() -> None:
    value = Secret({"a": Secret("x"), "b": [Secret(1.0)]})
    assert unwrap(value) == {"a": Secret("x"), "b": [Secret(1.0)]}
    assert unwrap_secrets(value) == {"a": "x", "b": [1.0]}
    assert unwrap_secrets({"plain": [None]}) == {"plain": [None]}


class TestMarkEchoedSecrets:
    def test_a_secret_inside_a_list_makes_the_list_secret(self) -> None:
        outs = mark_echoed_secrets({"l": ["a", "b"]}, {"l": ["a", Secret("b")]})
        assert outs == {"l": Secret(["a", "b"])}

    def test_a_secret_inside_an_object_makes_only_its_key_secret(self) -> None:
        outs = mark_echoed_secrets(
            {"o": {"a": "a", "b": "b", "new": 1.0}}, {"o": {"a": Secret("a"), "b": "b"}}
        )
        assert outs == {"o": {"a": Secret("a"), "b": "b", "new": 1.0}}

    def test_a_secret_object_makes_the_output_object_secret(self) -> None:
        outs = mark_echoed_secrets({"o": {"a": "a"}}, {"o": Secret({"a": "a"})})
        assert outs == {"o": Secret({"a": "a"})}

    def test_a_secret_returned_under_another_name_stays_plain_as_under_pulumi(self) -> None:
        assert mark_echoed_secrets({"copy": "hush"}, {"token": Secret("hush")}) == {"copy": "hush"}

    def test_a_secret_output_is_not_wrapped_twice(self) -> None:
        assert mark_echoed_secrets({"t": Secret("x")}, {"t": Secret("x")}) == {"t": Secret("x")}

    def test_the_arguments_are_not_changed(self) -> None:
        outs, ins = {"o": {"a": "a"}}, {"o": {"a": Secret("a")}}
        mark_echoed_secrets(outs, ins)
        assert outs == {"o": {"a": "a"}}


def test_secret_outputs_are_marked_by_name_and_by_input() -> None:
    outs = {"kube": "k", "token": "t", "id": "i", "list": ["x"], "plain": "p"}
    ins = {"token": Secret("t"), "list": [Secret("x")]}
    assert mark_secret_outputs(outs, ins, ["kube", "id", "absent"]) == {
        "kube": Secret("k"),
        "token": Secret("t"),
        "id": "i",
        "list": ["x"],
        "plain": "p",
    }


def test_unchanged_secrets_keep_their_ciphertext() -> None:
    old = {"a": Secret("x", "v1:1:1"), "o": {"b": [Secret("y", "v1:2:2")]}, "c": Secret("z", "v1")}
    new = {"a": Secret("x"), "o": {"b": [Secret("y")]}, "c": Secret("changed"), "d": Secret("x")}
    values = keep_ciphertexts(new, old)
    assert values == new
    assert values["a"].ciphertext == "v1:1:1"
    assert values["o"]["b"][0].ciphertext == "v1:2:2"
    assert values["c"].ciphertext is None
    assert values["d"].ciphertext is None


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (1, 1.0, True),
        (True, 1.0, False),
        (0.0, False, False),
        ({"a": [True]}, {"a": [1.0]}, False),
        ({"a": [1.0, Secret("x")]}, {"a": [1.0, Secret("x", "v1")]}, True),
        (Secret(True), Secret(1.0), False),
        (Secret("x"), "x", False),
        ({"a": None}, {}, False),
        ([], {}, False),
        ([1.0], [1.0, 2.0], False),
        (UNKNOWN, UNKNOWN, True),
    ],
)
def test_are_equal_distinguishes_true_from_one(a, b, same: bool) -> None:
    assert are_equal(a, b) is same
    assert are_equal(b, a) is same


def test_a_secret_that_changes_from_true_to_one_is_encrypted_again() -> None:
    values = keep_ciphertexts({"a": Secret(1.0)}, {"a": Secret(True, "v1:x:y")})
    assert values["a"].value == 1.0
    assert values["a"].ciphertext is None


class TestFromStruct:
    def test_values_of_python_programs_are_decoded(self) -> None:
        sent = build_struct(
            token={SIGNATURE: SECRET, "value": "hush"},
            later=UNKNOWN_TEXT,
            both={SIGNATURE: SECRET, "value": UNKNOWN_TEXT},
            count=3,
            nothing={"inner": None},
            ref={
                SIGNATURE: "5cf8f73096256a8f31e491e813e4eb8e",
                "urn": "urn:x",
                "id": "",
                "packageVersion": "1.2.3",
            },
        )
        assert from_struct(sent) == {
            "token": Secret("hush"),
            "later": UNKNOWN,
            "both": Secret(UNKNOWN),
            "count": 3.0,
            "nothing": {"inner": None},
            "ref": ResourceReference("urn:x", UNKNOWN, "1.2.3"),
        }

    def test_numbers_are_decoded_as_floats(self) -> None:
        assert type(from_struct(build_struct(n=8))["n"]) is float

    @pytest.mark.parametrize(
        ("fields", "value"),
        [
            ({"value": "a", "secret": True, "dependencies": ["urn:x"]}, Secret("a")),
            ({"value": ["a"], "secret": False}, ["a"]),
            ({"value": None}, None),
            ({}, UNKNOWN),
            ({"secret": True}, Secret(UNKNOWN)),
        ],
    )
    def test_output_values_are_unwrapped(self, fields, value) -> None:
        sent = build_struct(x={SIGNATURE: "d0e6a833031e9bbcd3f4e8bde6ca49a4", **fields})
        assert from_struct(sent) == {"x": value}

    @pytest.mark.parametrize(
        "sentinel",
        ["1c4a061d-8072-4f0a-a4cb-0ff528b18fe7", "dd056dcd-154b-4c76-9bd3-c8f88648b5ff"],
    )
    def test_typed_unknown_sentinels_of_go_are_decoded_as_unknown(self, sentinel: str) -> None:
        assert from_struct(build_struct(x=[sentinel])) == {"x": [UNKNOWN]}

    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({SIGNATURE: "0000"}, "unrecognised signature"),
            ({SIGNATURE: SECRET}, "unrecognised signature"),
            ({SIGNATURE: "c44067f5952c0a294b673a41bacd8c17"}, "asset with 0 contents"),
            (
                {SIGNATURE: "803fd3297a5875dc03ca845dda5d2a98", "value": "not base64!"},
                "not base64",
            ),
        ],
    )
    def test_an_invalid_value_is_an_error_with_its_property(self, fields, problem: str) -> None:
        with pytest.raises(EngineError, match="property 'bad'") as caught:
            from_struct(build_struct(good=1, bad=[fields]))
        assert problem in str(caught.value)


def test_to_struct_uses_pulumis_encodings() -> None:
    sent = to_struct({"s": Secret([UNKNOWN]), "a": Asset(path="f", hash="h"), "e": {}, "l": []})
    assert sent.fields["s"].struct_value.fields[SIGNATURE].string_value == SECRET
    value = sent.fields["s"].struct_value.fields["value"]
    assert value.list_value.values[0].string_value == UNKNOWN_TEXT
    assert dict(sent["a"]) == {
        SIGNATURE: "c44067f5952c0a294b673a41bacd8c17",
        "hash": "h",
        "path": "f",
    }
    assert sent.fields["e"].WhichOneof("kind") == "struct_value"
    assert sent.fields["l"].WhichOneof("kind") == "list_value"


def test_a_renamed_secret_input_makes_undeclared_outputs_secret() -> None:
    inputs = {"scale_down": Secret({"wait_minutes": 10}), "name": "train"}
    answer = {"drain": {"wait_minutes": 10}, "name": "train", "ready": True}
    names = ["drain", "name"]
    marked = {**answer, "drain": Secret({"wait_minutes": 10})}
    assert mark_renamed_secrets(answer, inputs, names) == marked
    assert mark_renamed_secrets(answer, {"name": Secret("train")}, names) == answer
