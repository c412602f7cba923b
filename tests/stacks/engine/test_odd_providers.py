"""Test providers with invalid answers or none: each is an error, and no object is lost."""

import pytest

# One provider whose answers are the program's text, evaluated in the provider's module.
ODD = """
import datetime, enum, sys
from pulumi.dynamic import (
    CheckFailure, CheckResult, CreateResult, DiffResult, ReadResult, Resource, ResourceProvider,
    UpdateResult,
)
import pulumi

LOOP = {}
LOOP["self"] = LOOP


def told(props, verb):
    text, names = props.get(verb, ""), {**globals(), "props": props}
    if text.startswith("raise "):
        raise eval(text[6:], names)
    return eval(text, names) if text else None


class Odd(ResourceProvider):
    def check(self, olds, news):
        return told(news, "check") or CheckResult(news, [])

    def diff(self, id, olds, news):
        return told(news, "diff") or DiffResult(changes=olds.get("size") != news.get("size"))

    def create(self, props):
        return told(props, "create") if "create" in props else CreateResult("o-1", props)

    def update(self, id, olds, news):
        return told(news, "update") if "update" in news else UpdateResult(news)

    def read(self, id, props):
        return told(props, "read") if "read" in props else ReadResult(id, props)

    def delete(self, id, props):
        print("going away")
        told(props, "delete")


class Thing(Resource, module="odd", name="Machine"):
    def __init__(self, name, **props):
        super().__init__(Odd(), name, props)
"""


@pytest.fixture
def odd(lab):
    (lab.directory / "odd.py").write_text(ODD)
    return lab


def declare_thing(**props: object) -> str:
    arguments = "".join(f", {key}={value!r}" for key, value in props.items())
    return f"from odd import Thing\nThing('a'{arguments})\n"


UNKEEPABLE = [
    "datetime.datetime(2026, 1, 1)",
    "{1, 2}",
    "b'bytes'",
    "object()",
    "LOOP",
    "'\\ud800'",
    "10**400",
]


@pytest.mark.parametrize("value", UNKEEPABLE)
def test_a_created_object_is_saved_despite_invalid_outputs(odd, value):
    created = odd.up(declare_thing(size=1, create=f"CreateResult('o-1', {{'x': {value}}})"))
    assert not created.succeeded
    assert odd.state("a").id == "o-1"
    assert odd.state("a").outputs["size"] == 1
    assert "property 'x'" in odd.state("a").init_errors[0]
    assert "Traceback" not in odd.errors[0]
    assert odd.up(declare_thing(size=1)).succeeded
    assert not odd.up(declare_thing(size=2, update=f"UpdateResult({{'x': {value}}})")).succeeded
    assert odd.state("a").inputs["size"] == 1
    assert odd.up(declare_thing(size=2)).succeeded


@pytest.mark.parametrize(
    "answers",
    [
        {"check": "CheckResult(None, [])"},
        {"check": "CheckResult({'x': {1}}, [])"},
        {"check": "raise KeyError('x')"},
        {"create": "None"},
        {"create": "CreateResult('', {})"},
        {"create": "raise SystemExit(3)"},
    ],
)
def test_an_invalid_create_answer_fails_only_its_resource(odd, answers):
    outcome = odd.up("import pulumi\npulumi.export('x', 1)\n" + declare_thing(size=1, **answers))
    assert not outcome.succeeded
    assert odd.names == []
    assert outcome.snapshot.pending_operations == []
    assert len(odd.errors) == 1, odd.errors
    assert odd.events[-1].result == "failed"


@pytest.mark.parametrize("answers", [{"diff": "()[0]"}, {"diff": "raise SystemExit(1)"}])
def test_an_invalid_diff_answer_leaves_the_object_unchanged(odd, answers):
    odd.up(declare_thing(size=1))
    assert not odd.up(declare_thing(size=1, **answers)).succeeded
    assert odd.state("a").id == "o-1"
    assert len(odd.errors) == 1


@pytest.mark.parametrize("answer", ["None", "ReadResult('o-1', {'x': {1}})", "raise OSError('x')"])
def test_an_invalid_read_answer_keeps_the_entry(odd, answer):
    odd.up(declare_thing(size=1, read=answer))
    before = odd.state("a")
    assert not odd.run("refresh").succeeded
    assert odd.state("a").outputs == before.outputs
    assert len(odd.errors) == 1


def test_ids_and_names_of_other_types_become_strings(odd):
    assert odd.up(declare_thing(create="CreateResult(17, {5: 'five', 'n': None})")).succeeded
    assert odd.state("a").id == "17"
    assert odd.state("a").outputs["5"] == "five"
    assert "n" not in odd.state("a").outputs


def test_assets_reach_the_provider_as_sdk_objects(odd):
    program = """
        from odd import Thing

        text, here = pulumi.StringAsset("text"), pulumi.FileAsset("here")
        files = pulumi.AssetArchive({"t": text, "f": here, "d": pulumi.FileArchive("dir")})
        answer = "CreateResult('o-1', {**props, 'text': props['files'].assets['t'].text})"
        Thing("a", files=files, remote=pulumi.RemoteAsset("file:///dev/null"), create=answer)
        """
    (odd.directory / "here").write_text("here")
    (odd.directory / "dir").mkdir()
    assert odd.up(program).succeeded, odd.errors
    assert odd.state("a").outputs["text"] == "text"
    assert odd.state("a").outputs["files"] == odd.state("a").inputs["files"]
    assert not odd.preview(program).has_changes


def test_provider_prints_are_reported_in_every_operation(odd):
    odd.up(declare_thing(size=1))
    odd.run("destroy")
    assert odd.list_messages("info") == ["going away"]


def test_a_provider_that_cannot_be_unpickled_is_an_error(odd):
    odd.up(declare_thing(size=1))
    (odd.directory / "odd.py").write_text("raise RuntimeError('not today')")
    assert not odd.run("destroy").succeeded
    assert "not today" in odd.errors[0]
    assert odd.names == ["a"]


@pytest.mark.parametrize(
    ("verb", "answer"),
    [
        ("check", "raise ValueError(repr(props))"),
        ("check", "CheckResult(props, [CheckFailure('token', 'not ' + props['token'])])"),
        ("create", "raise OSError(repr(repr(props)))"),
        ("create", "CreateResult('o-1', {1: {props['token']}})"),
    ],
)
def test_secret_inputs_are_masked_in_provider_messages(odd, verb, answer):
    """Init errors are masked too: the state keeps them in plaintext."""
    token = "token=pulumi.Output.secret('line \"one\"\\n4711-0815')"
    program = declare_thing(**{verb: answer}).replace("Thing('a'", f"Thing('a', {token}")
    assert not odd.up(f"import pulumi\n{program}").succeeded
    messages = "".join(
        getattr(event, "message", getattr(event, "text", "")) for event in odd.events
    )
    assert messages
    assert "4711" not in messages
    assert '"one' not in messages


def test_null_properties_are_dropped_except_in_lists(lab):
    lab.up("Machine('a', note=None, deep={'x': None, 'y': 1}, items=[None, 1])")
    expected_properties = {"deep": {"y": 1}, "items": [None, 1]}
    assert [call["news"] for call in lab.calls if call["verb"] == "check"] == [expected_properties]
    inputs = lab.state("a").inputs
    assert {key: inputs[key] for key in inputs if key != "__provider"} == expected_properties


def test_a_platform_error_keeps_its_status_code_and_request_id(odd):
    refused = (
        "raise __import__('gpuform.providers.errors', fromlist=['Conflict']).Conflict("
        "'no room for hunter2', hint='ask for less than hunter2', method='POST', "
        "path='/v1/hunter2', status=409, code='FULL', request_id='r-1')"
    )
    odd.config, odd.secret_keys = {"lab:key": "hunter2"}, ["lab:key"]
    odd.up(declare_thing(create=refused))
    (diagnostic,) = [event for event in odd.events if getattr(event, "severity", "") == "error"]
    assert diagnostic.message == "no room for [secret]\n  ask for less than [secret]"
    cause = diagnostic.error.cause
    assert (cause.status, cause.code, cause.request_id) == (409, "FULL", "r-1")
    assert (cause.message, cause.path) == ("no room for [secret]", "/v1/[secret]")
    assert "hunter2" not in repr(
        [vars(cause), cause.args, vars(diagnostic.error), diagnostic.error.args]
    )
    assert (cause.__traceback__, cause.__context__, diagnostic.error.__cause__) == (
        None,
        None,
        None,
    )
