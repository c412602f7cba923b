"""Test outputs of other stacks, read with `pulumi.StackReference`."""

import json

import pytest

from gpuform.providers.values import UNKNOWN, Secret, contains_secret, contains_unknown
from gpuform.stacks.engine.state import Snapshot

REFERENCE = "urn:pulumi:dev::lab::pulumi:pulumi:StackReference::{}"
PROVIDER = "urn:pulumi:dev::lab::pulumi:providers:pulumi::default"
OTHER = "o = pulumi.StackReference({!r})\n"


def publish(lab, program, name="lab/other"):
    """Run a program and save the state under the name of another stack."""
    lab.snapshot = Snapshot("organization/lab/dev", secrets_provider=lab.crypter.provider)
    assert lab.up(program).succeeded
    lab.others[name] = lab.written[-1]
    lab.snapshot = Snapshot("organization/lab/dev")
    lab.written.clear()


@pytest.fixture
def lab(lab):
    publish(
        lab,
        "a = Machine('a', size=3)\n"
        "pulumi.export('size', a.size)\n"
        "pulumi.export('token', pulumi.Output.secret('hush'))\n"
        "pulumi.export('mixed', {'open': 1, 'hidden': pulumi.Output.secret('hush')})\n",
    )
    return lab


def read_saved_entry(lab):
    resources = json.loads(lab.written[-1])["checkpoint"]["latest"]["resources"]
    return {entry["urn"]: entry for entry in resources}


@pytest.mark.parametrize("name", ["other", "organization/other", "organization/lab/other"])
def test_outputs_of_another_stack_are_read(lab, name):
    program = OTHER.format(name) + "pulumi.export('got', o.get_output('size'))\n"
    preview = lab.preview(program)
    assert preview.outputs == {"got": 3.0}
    outcome = lab.up(program)
    assert outcome.outputs == {"got": 3.0}
    assert preview.changes == outcome.changes == {"create": 1}
    assert not lab.list_messages("warning")


def test_outputs_of_a_stack_of_another_project_are_read(lab):
    publish(lab, "pulumi.export('size', 8)", "store/prod")
    outcome = lab.up(
        OTHER.format("organization/store/prod") + "pulumi.export('got', o.outputs['size'])"
    )
    assert outcome.outputs == {"got": 8.0}


def test_secret_outputs_of_another_stack_stay_secret(lab):
    outcome = lab.up(
        OTHER.format("other")
        + "pulumi.export('token', o.get_output('token'))\n"
        + "pulumi.export('size', o.get_output('size'))\n"
        + "pulumi.export('none', o.get_output('none'))\n"
    )
    assert outcome.outputs["token"] == Secret("hush")
    assert outcome.outputs["size"] == 3.0
    assert outcome.outputs.get("none") is None
    assert b"hush" not in lab.written[-1]
    reference = lab.state("other")
    assert reference.outputs["secretOutputNames"] == ["mixed", "token"]


def test_a_resource_is_created_from_outputs_of_another_stack(lab):
    lab.up(
        OTHER.format("other")
        + "Machine('b', size=o.get_output('size'), token=o.get_output('token'))"
    )
    assert lab.platform_objects["m-2"] == {"size": 3, "token": "hush"}
    assert lab.state("b").inputs["token"] == Secret("hush")
    assert lab.state("b").dependencies == [REFERENCE.format("other")]


def test_a_stack_reference_has_entries_in_the_state(lab):
    lab.up(OTHER.format("other"))
    entries = read_saved_entry(lab)
    reference = entries[REFERENCE.format("other")]
    assert reference["id"] == "other"
    assert reference["external"] is True
    assert reference["inputs"] == {"name": "other"}
    assert reference["outputs"]["name"] == "other"
    assert reference["outputs"]["outputs"]["size"] == 3
    assert reference["provider"] == f"{PROVIDER}::{entries[PROVIDER]['id']}"
    assert "propertyDependencies" not in reference
    assert not entries[PROVIDER].get("inputs")
    assert [*entries].index(PROVIDER) < [*entries].index(REFERENCE.format("other"))


def test_a_second_run_changes_nothing(lab):
    program = OTHER.format("other")
    lab.up(program)
    outcome = lab.up(program)
    assert outcome.changes == {"same": 1}
    assert not outcome.has_changes


def test_changed_outputs_of_another_stack_are_read(lab):
    program = OTHER.format("other") + "pulumi.export('size', o.get_output('size'))"
    lab.up(program)
    mine = lab.snapshot
    publish(lab, "pulumi.export('size', 4)")
    lab.snapshot = mine
    outcome = lab.up(program)
    assert outcome.outputs == {"size": 4.0}
    assert outcome.changes == {"same": 1, "read": 1}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "unknown stack 'nowhere'"),
        ("somebody/lab/other", "is not the name of a stack in this backend"),
        ("a/b/c/d", "is not the name of a stack in this backend"),
    ],
)
def test_a_missing_referenced_stack_is_an_error(lab, name, message):
    for operation in (lab.preview, lab.up):
        outcome = operation(OTHER.format(name))
        assert not outcome.succeeded
        assert message in lab.errors[0]


def test_a_reference_removed_from_the_program_is_removed_from_the_state(lab):
    lab.up(OTHER.format("other"))
    outcome = lab.up("")
    # Its provider goes with it, and is not counted.
    assert outcome.changes == {"same": 1, "discard": 1}
    assert [*read_saved_entry(lab)] == [lab.state("lab-dev").urn]


def test_destroy_removes_references_from_the_state(lab):
    lab.up(OTHER.format("other") + "Machine('b', size=o.get_output('size'))")
    outcome = lab.run("destroy")
    assert outcome.changes == {"delete": 2, "discard": 1}
    assert lab.snapshot.resources == []


def test_a_refresh_reads_the_referenced_stack_again(lab):
    lab.up(OTHER.format("other"))
    mine = lab.snapshot
    publish(lab, "pulumi.export('size', 4)")
    lab.snapshot = mine
    outcome = lab.run("refresh")
    assert outcome.changes == {"same": 1, "update": 1}
    assert lab.state("other").outputs["outputs"] == {"size": 4.0}


def test_a_reference_can_have_another_name_than_its_stack(lab):
    lab.up(
        "o = pulumi.StackReference('there', stack_name='other')\n"
        "pulumi.export('size', o.get_output('size'))"
    )
    assert lab.state("there").id == "other"
    assert lab.state("there").inputs == {"name": "other"}


def test_a_reference_can_change_to_another_stack(lab):
    publish(lab, "pulumi.export('size', 5)", "lab/third")
    program = (
        "o = pulumi.StackReference('there', stack_name={!r})\n"
        "pulumi.export('size', o.get_output('size'))"
    )
    lab.up(program.format("other"))
    outcome = lab.up(program.format("third"))
    assert outcome.outputs == {"size": 5.0}
    assert outcome.changes == {"same": 1, "read": 1}
    assert lab.state("there").id == "third"


PLANNED_OUTPUTS = {"size": 7.0, "id": UNKNOWN, "token": Secret("hush"), "key": Secret(UNKNOWN)}


@pytest.mark.parametrize("read", ["get_output", "require_output"])
def test_planned_outputs_of_another_stack_are_used(lab, read):
    lab.planned_outputs["lab/other"] = PLANNED_OUTPUTS
    outcome = lab.preview(
        OTHER.format("other")
        + f"pulumi.export('size', o.{read}('size'))\n"
        + f"pulumi.export('text', o.{read}('size').apply(lambda size: f'{{size}} of it'))\n"
        + f"pulumi.export('id', o.{read}('id').apply(lambda id: f'not {{id}}'))\n"
        + f"pulumi.export('token', o.{read}('token'))\n"
        + f"pulumi.export('key', o.{read}('key'))\n"
    )
    assert outcome.succeeded, lab.errors
    outputs = outcome.outputs
    assert (outputs["size"], outputs["text"]) == (7.0, "7.0 of it")
    assert outputs["id"] is UNKNOWN
    assert outputs["token"] == Secret("hush")
    assert contains_secret(outputs["key"])
    assert contains_unknown(outputs["key"])


def test_an_output_that_another_stack_will_remove_is_missing(lab):
    lab.planned_outputs["lab/other"] = {"id": UNKNOWN}
    outcome = lab.preview(OTHER.format("other") + "o.require_output('size').apply(print)")
    assert not outcome.succeeded
    assert "KeyError" in lab.errors[0]


def test_resources_are_planned_with_planned_outputs_of_another_stack(lab):
    lab.planned_outputs["lab/other"] = PLANNED_OUTPUTS
    program = OTHER.format("other") + "Machine('b', size=o.get_output('size'))"
    (change,) = (planned for planned in lab.preview(program).planned if planned.name == "b")
    assert [
        (property_change.path, property_change.after)
        for property_change in change.changes
        if property_change.path == "size"
    ] == [("size", 7.0)]
    assert lab.preview(program).stack_references == ("organization/lab/other",)
