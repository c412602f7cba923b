"""Test reading and writing checkpoint files, and the rejection of invalid ones."""

import hashlib
import json
import re
from datetime import UTC, datetime
from functools import reduce

import pytest

from gpuform.providers.values import Secret
from gpuform.stacks.engine.state import (
    Manifest,
    PendingOperation,
    ResourceState,
    Snapshot,
    StateError,
    encode_resource,
    format_timestamp,
    load_checkpoint,
)
from gpuform.stacks.engine.state.checkpoint import encode_operation, join_checkpoint
from gpuform.stacks.engine.value_json import NOT_A_NUMBER

STACK_URN = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"
PROVIDER_URN = "urn:pulumi:dev::demo::pulumi:providers:pulumi-python::default"
PROVIDER = f"{PROVIDER_URN}::885c2a91-3333-419e-b61a-6f09cc5a56fa"
RESOURCE = "urn:pulumi:dev::demo::pulumi-python:dynamic:Resource::"
SECRET = {
    "4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
    "ciphertext": "v1:DA0ODxAREhMUFRYX:zPZvatrqs6NZkKeqmiN5vXksTIWFOw==",
}
SALT = "v1:AAECAwQFBgc=:v1:AAECAwQFBgcICQoL:Lsv0Mq4P43OA9/CWlvPiZJXoK3BhFA=="


def checkpoint(**latest) -> dict:
    """Return a checkpoint as the Pulumi CLI 3.260 writes checkpoints."""
    version = "v3.260.0"
    return {
        "version": 3,
        "checkpoint": {
            "stack": "organization/demo/dev",
            "latest": {
                "manifest": {
                    "time": "2026-11-21T03:22:20.88263292Z",
                    "magic": hashlib.sha256(version.encode()).hexdigest(),
                    "version": version,
                },
                "secrets_providers": {"type": "passphrase", "state": {"salt": SALT}},
                "resources": [
                    {
                        "urn": STACK_URN,
                        "custom": False,
                        "type": "pulumi:pulumi:Stack",
                        "outputs": {"num": 3, "sec": SECRET, "none": None, "empty": {}},
                        "created": "2026-11-21T03:22:20.1Z",
                        "modified": "2026-11-21T03:22:20.1Z",
                        "sourcePosition": "project:///__main__.py#5",
                        "stackTrace": [{"sourcePosition": "project:///__main__.py#5"}, {}],
                    },
                    {
                        "urn": PROVIDER_URN,
                        "custom": True,
                        "id": "885c2a91-3333-419e-b61a-6f09cc5a56fa",
                        "type": "pulumi:providers:pulumi-python",
                        "inputs": {"demo:plain": "5"},
                        "outputs": {"demo:plain": "5"},
                    },
                    {
                        "urn": RESOURCE + "a",
                        "custom": True,
                        "id": "60bc04b7",
                        "type": "pulumi-python:dynamic:Resource",
                        "inputs": {"__provider": SECRET, "size": 1, "ratio": 0.5},
                        "outputs": {"__provider": SECRET, "size": 1, "status": "<Ready & set>"},
                        "parent": STACK_URN,
                        "provider": PROVIDER,
                        "propertyDependencies": {"__provider": [], "size": []},
                        "protect": True,
                        "retainOnDelete": True,
                        "customTimeouts": {"create": 300, "update": 0.5},
                        "additionalSecretOutputs": ["status"],
                        "ignoreChanges": ["size"],
                        "replaceOnChanges": ["ratio"],
                        "hideDiff": ["status"],
                        "importID": "i-1",
                        "initErrors": ["not ready"],
                    },
                    {
                        "urn": RESOURCE + "b",
                        "custom": True,
                        "delete": True,
                        "id": "b-old",
                        "type": "pulumi-python:dynamic:Resource",
                        "parent": STACK_URN,
                        "provider": PROVIDER,
                        "dependencies": [RESOURCE + "a"],
                        "deletedWith": RESOURCE + "a",
                    },
                ],
                "metadata": {},
                **latest,
            },
        },
    }


def parse_checkpoint(document: dict, crypter) -> Snapshot:
    return Snapshot.from_json(json.dumps(document).encode(), crypter)


def test_a_checkpoint_of_the_pulumi_cli_round_trips_unchanged(crypter) -> None:
    document = checkpoint(
        pending_operations=[
            {
                "resource": {
                    "urn": RESOURCE + "c",
                    "custom": True,
                    "type": "pulumi-python:dynamic:Resource",
                    "inputs": {"size": 2},
                },
                "type": "creating",
            }
        ],
        metadata={"integrity_error": {"version": "v3.1.0", "command": "up", "error": "e"}},
    )
    written = parse_checkpoint(document, crypter).to_json(crypter)
    assert json.loads(written) == document
    assert b"\n" not in written
    assert b"<Ready & set>" in written
    assert b'"size":1,' in written


def test_a_checkpoint_is_parsed_into_a_snapshot(crypter) -> None:
    snapshot = parse_checkpoint(checkpoint(), crypter)
    stack, _, a, b = snapshot.resources
    assert snapshot.stack == "organization/demo/dev"
    assert snapshot.secrets_provider.state == {"salt": SALT}
    assert stack.outputs == {"num": 3.0, "sec": Secret("hush"), "none": None, "empty": {}}
    assert stack.stack_trace == ["project:///__main__.py#5", ""]
    assert a.custom_timeouts == {"create": 300.0, "update": 0.5}
    assert a.property_dependencies == {"__provider": [], "size": []}
    assert (a.protect, a.delete, b.delete) == (True, False, True)
    assert b.dependencies == [RESOURCE + "a"]


def test_a_checkpoint_joined_from_fragments_equals_one_written_at_once(crypter) -> None:
    snapshot = parse_checkpoint(checkpoint(), crypter)
    snapshot.pending_operations.append(PendingOperation(snapshot.resources[2], "updating"))
    joined = join_checkpoint(
        snapshot,
        [encode_resource(resource, crypter) for resource in snapshot.resources],
        [encode_operation(operation, crypter) for operation in snapshot.pending_operations],
    )
    assert joined == snapshot.to_json(crypter)


def test_a_new_checkpoint_has_no_resources_and_the_manifest_of_gpuform(crypter) -> None:
    snapshot = Snapshot("organization/demo/dev", secrets_provider=crypter.provider)
    written = json.loads(snapshot.to_json(crypter))
    latest = written["checkpoint"]["latest"]
    assert written["version"] == 3
    assert "features" not in written
    assert set(latest) == {"manifest", "secrets_providers", "metadata"}
    manifest = latest["manifest"]
    assert manifest["version"].startswith("v3.260.0")
    assert manifest["magic"] == hashlib.sha256(manifest["version"].encode()).hexdigest()
    assert manifest["time"].endswith("Z")
    assert Snapshot.from_json(snapshot.to_json(crypter), None) == snapshot


def test_zero_and_empty_fields_are_omitted() -> None:
    state = ResourceState("urn:a", False, "t", custom_timeouts={"create": 0.0})
    assert json.loads(encode_resource(state, None)) == {
        "urn": "urn:a",
        "custom": False,
        "type": "t",
    }


@pytest.mark.parametrize(
    ("field", "value", "feature"),
    [
        ("taint", True, "taint"),
        ("refreshBeforeUpdate", True, "refreshBeforeUpdate"),
        ("viewOf", STACK_URN, "views"),
        ("resourceHooks", {"beforeCreate": ["hook"]}, "hooks"),
        ("replaceWith", [STACK_URN], "replaceWith"),
    ],
)
def test_version_4_is_written_only_for_fields_that_require_version_4(
    crypter, field, value, feature
) -> None:
    document = checkpoint()
    document["checkpoint"]["latest"]["resources"][2][field] = value
    written = json.loads(parse_checkpoint(document, crypter).to_json(crypter))
    assert written == document | {"version": 4, "features": [feature]}
    del document["checkpoint"]["latest"]["resources"][2][field]
    document |= {"version": 4, "features": [feature]}
    assert json.loads(parse_checkpoint(document, crypter).to_json(crypter))["version"] == 3


def test_snippets_and_byte_strings_round_trip_unchanged(crypter) -> None:
    document = checkpoint(snippets=[{"id": 7, "big": 12345678901234567890, "x": None}])
    byte_string = {
        "4dabf18193072939515e22adb298388d": "803fd3297a5875dc03ca845dda5d2a98",
        "value": "/w==",
    }
    document["checkpoint"]["latest"]["resources"][2]["outputs"]["raw"] = byte_string
    document |= {"version": 4, "features": ["byteString", "snippets-prototype"]}
    assert json.loads(parse_checkpoint(document, crypter).to_json(crypter)) == document


def test_unknown_resource_fields_are_dropped_as_by_the_pulumi_cli(crypter) -> None:
    document = checkpoint()
    document["checkpoint"]["latest"]["resources"][2]["ours"] = "private"
    assert json.loads(parse_checkpoint(document, crypter).to_json(crypter)) == checkpoint()


def test_an_export_with_show_secrets_has_plaintext_values(crypter) -> None:
    plaintext_export = parse_checkpoint(checkpoint(), crypter).to_json(crypter, show_secrets=True)
    assert rb'"plaintext":"\"hush\""' in plaintext_export
    assert parse_checkpoint(json.loads(plaintext_export), None) == parse_checkpoint(
        checkpoint(), crypter
    )


def test_a_secret_replacement_trigger_round_trips(crypter) -> None:
    state = ResourceState("urn:a", True, "t", replacement_trigger=Secret("hush"))
    assert b"hush" not in encode_resource(state, crypter)
    snapshot = Snapshot("s", [state], secrets_provider=crypter.provider)
    assert Snapshot.from_json(snapshot.to_json(crypter), crypter).resources == [state]


def test_the_secrets_provider_is_read_without_decryption() -> None:
    loaded = load_checkpoint(json.dumps(checkpoint()).encode())
    assert loaded.secrets_provider.type == "passphrase"
    with pytest.raises(Exception, match="secrets provider"):
        Snapshot.from_json(loaded, None)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"version": 5}, "version 5"),
        ({"version": 2}, "version 2"),
        ({"version": None}, "no version"),
        ({"version": 4, "features": ["taint", "timeTravel"]}, "timeTravel"),
        ({"checkpoint": None}, "not a Pulumi checkpoint"),
        ({"version": 4, "features": 7}, "`features` is not a list"),
        ({"checkpoint": {"latest": []}}, "not an object"),
        ({"checkpoint": {"latest": None}}, "not an object"),
        ({"checkpoint": {"stack": {}}}, "`stack` is not a string"),
        ({"checkpoint": {"latest": {"secrets_providers": [1]}}}, "`secrets_providers` is"),
        ({"checkpoint": {"latest": {"secrets_providers": {"state": 1}}}}, "`secrets_providers` is"),
    ],
)
def test_an_unsupported_checkpoint_is_rejected(change: dict, problem: str) -> None:
    data = json.dumps(checkpoint() | change).encode()
    with pytest.raises(StateError, match=problem) as caught:
        load_checkpoint(data)
    assert caught.value.hint


def test_an_empty_stack_of_the_pulumi_cli_has_no_resources() -> None:
    for latest in ({}, {"latest": {}}, {"latest": {"manifest": {}, "metadata": {}}}):
        document = checkpoint() | {"checkpoint": {"stack": "organization/demo/dev", **latest}}
        snapshot = Snapshot.from_json(json.dumps(document).encode(), None)
        assert (snapshot.stack, snapshot.resources) == ("organization/demo/dev", [])


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b'"text"', b"\xff", b"[" * 9999 + b"]" * 9999, b'{"a": 1, "a": 2}', b"NaN"],
)
def test_data_that_is_not_a_checkpoint_is_rejected(data: bytes) -> None:
    with pytest.raises(StateError, match="JSON"):
        load_checkpoint(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("inputs", ["x"]),
        ("inputs", None),
        ("outputs", []),
        ("outputs", {"a": 10**400}),
        ("outputs", {"a": {"4dabf18193072939515e22adb298388d": NOT_A_NUMBER, "value": "00"}}),
        ("outputs", {"a": reduce(lambda inner, _: [inner], range(200), "x")}),
        ("customTimeouts", {"create": True}),
        ("outputs", {"a": {"4dabf18193072939515e22adb298388d": "0000"}}),
        ("outputs", {"a": {"4dabf18193072939515e22adb298388d": []}}),
        ("parent", 1),
        ("protect", "yes"),
        ("dependencies", [{}]),
        ("dependencies", "urn:a"),
        ("propertyDependencies", {"a": [1]}),
        ("customTimeouts", {"create": "5m"}),
        ("stackTrace", ["x"]),
    ],
)
def test_a_malformed_resource_is_an_error_with_its_urn_and_field(
    crypter, field: str, value
) -> None:
    document = checkpoint()
    document["checkpoint"]["latest"]["resources"][2][field] = value
    with pytest.raises(StateError, match="Resource::a is malformed"):
        parse_checkpoint(document, crypter)


@pytest.mark.parametrize("latest", [{"resources": [{}]}, {"resources": [{"urn": "", "type": "t"}]}])
def test_a_resource_without_urn_or_type_is_rejected(crypter, latest: dict) -> None:
    with pytest.raises(StateError, match="no urn or no type"):
        parse_checkpoint(checkpoint(**latest), crypter)


@pytest.mark.parametrize(
    ("latest", "problem"),
    [
        ({"resources": [1]}, r"resources\[0\] is not an object"),
        ({"resources": None}, "`resources` is null, not a list"),
        ({"resources": {}}, "`resources` is a dict, not a list"),
        ({"pending_operations": [{}]}, r"pending_operations\[0\] is not a pending operation"),
        ({"pending_operations": [{"type": "creating"}]}, r"pending_operations\[0\] is not an obj"),
        ({"pending_operations": None}, "`pending_operations` is null"),
        ({"manifest": "x"}, "`manifest` is a str, not an object"),
        ({"metadata": []}, "`metadata` is a list, not an object"),
        ({"metadata": {"a": reduce(lambda inner, _: [inner], range(200), 0)}}, "nested deeper"),
    ],
)
def test_a_malformed_checkpoint_is_rejected(crypter, latest: dict, problem: str) -> None:
    with pytest.raises(StateError, match=problem):
        parse_checkpoint(checkpoint(**latest), crypter)


def test_a_wrong_manifest_magic_is_left_to_the_integrity_check(crypter) -> None:
    manifest = {"time": "", "magic": "0000", "version": "v3.260.0"}
    assert parse_checkpoint(checkpoint(manifest=manifest), crypter).manifest.magic == "0000"
    assert Manifest().magic != "0000"


def test_timestamps_are_written_as_rfc_3339_in_utc() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", format_timestamp())


@pytest.mark.parametrize(
    ("microsecond", "text"),
    [(0, "08:00:07Z"), (839_730, "08:00:07.83973Z"), (5, "08:00:07.000005Z")],
)
def test_fractions_of_seconds_are_written_as_by_pulumi(microsecond: int, text: str) -> None:
    moment = datetime(2026, 3, 1, 8, 0, 7, microsecond, tzinfo=UTC)
    assert format_timestamp(moment) == f"2026-03-01T{text}"
