"""Test the options protect, retain_on_delete, delete_before_replace, secrets and timeouts."""

import json

import pytest

from gpuform.providers.values import Secret

TYPE = "urn:pulumi:dev::lab::pulumi-python:dynamic/lab:Machine::"
PROTECT = "opts=ResourceOptions(protect=True)"
RETAIN = "opts=ResourceOptions(retain_on_delete=True)"

# A machine that tells the time limit of each call.
TIMED = """
import json

from gpuform.providers.context import get_current_context
from lab import HERE, Machine as Plain, Machines
from pulumi.dynamic import Resource


def note(verb):
    with open(HERE / "limits.jsonl", "a") as log:
        log.write(json.dumps([verb, get_current_context().timeout]) + "\\n")


class Timed(Machines):
    def create(self, props):
        note("create")
        return super().create(props)

    def read(self, id, props):
        note("read")
        return super().read(id, props)

    def update(self, id, olds, news):
        note("update")
        return super().update(id, olds, news)

    def delete(self, id, props):
        note("delete")
        super().delete(id, props)


class Machine(Resource, module="lab", name="Machine"):
    def __init__(self, name, opts=None, **props):
        super().__init__(Timed(), name, {"address": None, **props}, opts)
"""


def list_deleted_ids(lab):
    return [call["id"] for call in lab.calls if call["verb"] == "delete"]


def test_all_protected_resources_of_a_destroy_are_reported(lab):
    lab.up(f"Machine('a', {PROTECT})\nMachine('b', {PROTECT})\nMachine('c')\n")
    preview = lab.preview("")
    assert not preview.succeeded
    assert len(lab.errors) == 2
    outcome = lab.up("")
    assert not outcome.succeeded
    assert sorted(lab.failures) == [("delete", "a"), ("delete", "b")]
    # What nothing protected needs goes all the same.
    assert ("delete", "c") in lab.steps
    assert sorted(lab.names) == ["a", "b"]


def test_dependencies_of_a_protected_resource_are_kept(lab):
    lab.up(
        f"a = Machine('a')\n"
        f"b = Machine('b', uses=a.address, {PROTECT})\n"
        f"Machine('c', uses=b.address)\n"
    )
    outcome = lab.run("destroy")
    assert not outcome.succeeded
    assert list_deleted_ids(lab) == ["m-3"]
    assert lab.names == ["a", "b"]


def test_a_protected_resource_is_updated_but_not_replaced(lab):
    lab.up(f"Machine('a', size=1, rack='x', {PROTECT})")
    assert lab.up(f"Machine('a', size=2, rack='x', {PROTECT})").changes == {"same": 1, "update": 1}
    for operation in (lab.preview, lab.up):
        outcome = operation(f"Machine('a', size=2, rack='y', {PROTECT})")
        assert not outcome.succeeded
        assert (
            "is protected, but this change forces its replacement (because of rack)"
        ) in lab.errors[0]
    assert sorted(lab.platform_objects) == ["m-1"]


def test_a_resource_can_be_unprotected_and_replaced_in_one_run(lab):
    lab.up(f"Machine('a', rack='x', {PROTECT})")
    outcome = lab.up("Machine('a', rack='y')")
    assert outcome.changes == {"same": 1, "replace": 1}
    assert sorted(lab.platform_objects) == ["m-2"]
    assert not lab.state("a").protect


def test_a_resource_can_be_protected_and_replaced_in_one_run(lab):
    lab.up("Machine('a', rack='x')")
    assert lab.up(f"Machine('a', rack='y', {PROTECT})").changes == {"same": 1, "replace": 1}
    assert lab.state("a").protect


def test_a_resource_cannot_be_unprotected_and_deleted_in_one_run(lab):
    """A resource that is no longer declared cannot change its option."""
    lab.up(f"Machine('a', {PROTECT})")
    assert not lab.up("").succeeded
    lab.up("Machine('a')")
    assert lab.steps == [("same", "a")]
    assert lab.up("").succeeded
    assert lab.names == []


def test_an_object_pending_deletion_is_deleted_despite_protect(lab):
    """The option belongs to the new object; the old object's flag has no effect."""
    lab.up(f"Machine('a', rack='x', refuse='delete', {PROTECT})")
    lab.up("Machine('a', rack='y', refuse='delete')")
    (old,) = [r for r in lab.snapshot.resources if r.delete]
    assert old.protect
    old.outputs["refuse"] = ""
    assert lab.up("Machine('a', rack='y', refuse='delete')").succeeded
    assert list_deleted_ids(lab) == ["m-1"]


def test_retain_on_delete_keeps_the_old_object_of_a_replacement(lab):
    lab.up(f"Machine('a', rack='x', {RETAIN})\nMachine('b', slot='x', {RETAIN})\n")
    outcome = lab.up(f"Machine('a', rack='y', {RETAIN})\nMachine('b', slot='y', {RETAIN})\n")
    assert outcome.changes == {"same": 1, "replace": 2}
    assert ("delete-replaced", "a") in lab.steps
    assert ("delete-replaced", "b") in lab.steps
    assert list_deleted_ids(lab) == []
    assert len(lab.platform_objects) == 4
    assert sorted(lab.names) == ["a", "b"]


def test_retain_on_delete_of_the_old_state_applies(lab):
    lab.up(f"Machine('a', rack='x', {RETAIN})\nMachine('b', rack='x')\n")
    lab.up(f"Machine('a', rack='y')\nMachine('b', rack='y', {RETAIN})\n")
    assert len(list_deleted_ids(lab)) == 1
    assert len(lab.platform_objects) == 3


def test_destroying_retained_resources_calls_no_provider(lab):
    lab.up(f"Machine('a', {RETAIN})")
    outcome = lab.run("destroy")
    assert outcome.changes == {"delete": 2}
    assert lab.calls == []
    assert sorted(lab.platform_objects) == ["m-1"]
    assert lab.snapshot.resources == []


def test_a_retained_protected_resource_cannot_be_deleted(lab):
    lab.up("Machine('a', opts=ResourceOptions(protect=True, retain_on_delete=True))")
    assert not lab.run("destroy").succeeded
    assert lab.names == ["a"]


@pytest.mark.parametrize("option", ["delete_before_replace=True", "delete_before_replace=False"])
def test_delete_before_replace_is_not_saved_in_the_state(lab, option):
    program = "Machine('a', slot={!r}, opts=ResourceOptions(" + option + "))"
    lab.up(program.format("x"))
    lab.up(program.format("y"))
    first = lab.steps[0]
    assert first[0] == ("delete-replaced" if "True" in option else "create-replacement")
    (entry,) = [
        e
        for e in json.loads(lab.written[-1])["checkpoint"]["latest"]["resources"]
        if e["urn"] == f"{TYPE}a"
    ]
    assert "deleteBeforeReplace" not in entry


def test_making_an_output_secret_is_not_a_change(lab):
    lab.up("Machine('a', size=1)")
    outcome = lab.up(
        "Machine('a', size=1, opts=ResourceOptions(additional_secret_outputs=['address']))"
    )
    assert outcome.changes == {"same": 2}
    assert lab.state("a").outputs["address"] == Secret("10.0.0.1")
    assert lab.state("a").additional_secret_outputs == ["address"]


def test_additional_secret_outputs_stay_secret_after_a_refresh(lab):
    program = (
        "Machine('a', size=1, opts=ResourceOptions(additional_secret_outputs=['address', 'size']))"
    )
    lab.up(program)
    lab.change_platform_object("m-1", {"size": 7})
    lab.run("refresh")
    assert lab.state("a").outputs["size"] == Secret(7.0)
    assert lab.state("a").outputs["address"] == Secret("10.0.0.1")


def test_an_id_is_never_secret(lab):
    program = "Machine('a', opts=ResourceOptions(additional_secret_outputs=['id']))"
    lab.up(program)
    (warning,) = lab.list_messages("warning")
    assert "id of a resource cannot be secret" in warning
    assert lab.state("a").additional_secret_outputs == ["id"]
    lab.up(program)
    assert len(lab.list_messages("warning")) == 1


@pytest.mark.slow
def test_custom_timeouts_are_saved_in_seconds_and_reach_the_provider(lab):
    (lab.directory / "timed.py").write_text(TIMED)
    program = (
        "from timed import Machine\n"
        "limits = pulumi.CustomTimeouts(create='5m', update='1h30m', delete='45s', read='90s')\n"
        "Machine('a', size={}, opts=ResourceOptions(custom_timeouts=limits))\n"
    )
    lab.up(program.format(1))
    limits = {"create": 300.0, "update": 5400.0, "delete": 45.0, "read": 90.0}
    assert lab.state("a").custom_timeouts == limits
    lab.up(program.format(2))
    lab.run("refresh")
    lab.run("destroy")
    lines = (lab.directory / "limits.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        ["create", 300.0],
        ["update", 5400.0],
        ["read", 90.0],
        ["delete", 45.0],
    ]


def test_a_delete_uses_the_timeout_of_the_old_state(lab):
    (lab.directory / "timed.py").write_text(TIMED)
    limited = (
        "from timed import Machine\n"
        "Machine('a', rack='{}', opts=ResourceOptions(custom_timeouts={}))"
    )
    lab.up(limited.format("x", "pulumi.CustomTimeouts(delete='1m')"))
    lab.up(limited.format("y", "pulumi.CustomTimeouts(delete='2m')"))
    lines = (lab.directory / "limits.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines][-2:] == [["create", None], ["delete", 60.0]]
    assert lab.state("a").custom_timeouts["delete"] == 120.0


def test_new_timeouts_are_saved_without_an_update(lab):
    lab.up("Machine('a')")
    outcome = lab.up(
        "Machine('a', opts=ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(read='1m')))"
    )
    assert outcome.changes == {"same": 2}
    assert lab.state("a").custom_timeouts == {"read": 60.0}
