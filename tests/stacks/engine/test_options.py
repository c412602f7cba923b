"""Options that keep objects, and those that say how: protection, retention, order, time limits."""

import json

import pytest

from gpuform.stacks.engine.values import Secret

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


def deleted(lab):
    return [call["id"] for call in lab.calls if call["verb"] == "delete"]


def test_every_protected_resource_of_a_deletion_is_told(lab):
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


def test_what_a_protected_resource_needs_stays(lab):
    lab.up(
        f"a = Machine('a')\n"
        f"b = Machine('b', uses=a.address, {PROTECT})\n"
        f"Machine('c', uses=b.address)\n"
    )
    outcome = lab.run("destroy")
    assert not outcome.succeeded
    assert deleted(lab) == ["m-3"]
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
    assert sorted(lab.world) == ["m-1"]


def test_unprotecting_and_replacing_go_in_one_run(lab):
    lab.up(f"Machine('a', rack='x', {PROTECT})")
    outcome = lab.up("Machine('a', rack='y')")
    assert outcome.changes == {"same": 1, "replace": 1}
    assert sorted(lab.world) == ["m-2"]
    assert not lab.state("a").protect


def test_protecting_and_replacing_go_in_one_run(lab):
    lab.up("Machine('a', rack='x')")
    assert lab.up(f"Machine('a', rack='y', {PROTECT})").changes == {"same": 1, "replace": 1}
    assert lab.state("a").protect


def test_unprotecting_and_deleting_do_not(lab):
    """What has left the program can say nothing any more."""
    lab.up(f"Machine('a', {PROTECT})")
    assert not lab.up("").succeeded
    lab.up("Machine('a')")
    assert lab.steps == [("same", "a")]
    assert lab.up("").succeeded
    assert lab.names == []


def test_protection_of_what_waits_for_its_deletion_keeps_nothing(lab):
    """The option is the new resource's; the old object's flag is of the past."""
    lab.up(f"Machine('a', rack='x', refuse='delete', {PROTECT})")
    lab.up("Machine('a', rack='y', refuse='delete')")
    (old,) = [r for r in lab.snapshot.resources if r.delete]
    assert old.protect
    old.outputs["refuse"] = ""
    assert lab.up("Machine('a', rack='y', refuse='delete')").succeeded
    assert deleted(lab) == ["m-1"]


def test_what_is_retained_is_forgotten_when_it_is_replaced(lab):
    lab.up(f"Machine('a', rack='x', {RETAIN})\nMachine('b', slot='x', {RETAIN})\n")
    outcome = lab.up(f"Machine('a', rack='y', {RETAIN})\nMachine('b', slot='y', {RETAIN})\n")
    assert outcome.changes == {"same": 1, "replace": 2}
    assert ("delete-replaced", "a") in lab.steps
    assert ("delete-replaced", "b") in lab.steps
    assert deleted(lab) == []
    assert len(lab.world) == 4
    assert sorted(lab.names) == ["a", "b"]


def test_it_is_the_old_option_that_retains(lab):
    lab.up(f"Machine('a', rack='x', {RETAIN})\nMachine('b', rack='x')\n")
    lab.up(f"Machine('a', rack='y')\nMachine('b', rack='y', {RETAIN})\n")
    assert len(deleted(lab)) == 1
    assert len(lab.world) == 3


def test_destroying_what_is_retained_asks_nobody(lab):
    lab.up(f"Machine('a', {RETAIN})")
    outcome = lab.run("destroy")
    assert outcome.changes == {"delete": 2}
    assert lab.calls == []
    assert sorted(lab.world) == ["m-1"]
    assert lab.snapshot.resources == []


def test_retained_and_protected(lab):
    lab.up("Machine('a', opts=ResourceOptions(protect=True, retain_on_delete=True))")
    assert not lab.run("destroy").succeeded
    assert lab.names == ["a"]


@pytest.mark.parametrize("option", ["delete_before_replace=True", "delete_before_replace=False"])
def test_the_order_that_the_program_wants_is_not_kept_in_the_state(lab, option):
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


def test_an_output_that_becomes_secret_needs_no_change(lab):
    lab.up("Machine('a', size=1)")
    outcome = lab.up(
        "Machine('a', size=1, opts=ResourceOptions(additional_secret_outputs=['address']))"
    )
    assert outcome.changes == {"same": 2}
    assert lab.state("a").outputs["address"] == Secret("10.0.0.1")
    assert lab.state("a").additional_secret_outputs == ["address"]


def test_additional_secret_outputs_stay_secret_when_they_are_read_again(lab):
    program = (
        "Machine('a', size=1, opts=ResourceOptions(additional_secret_outputs=['address', 'size']))"
    )
    lab.up(program)
    lab.change_world("m-1", {"size": 7})
    lab.run("refresh")
    assert lab.state("a").outputs["size"] == Secret(7.0)
    assert lab.state("a").outputs["address"] == Secret("10.0.0.1")


def test_an_id_is_never_secret(lab):
    program = "Machine('a', opts=ResourceOptions(additional_secret_outputs=['id']))"
    lab.up(program)
    (told,) = lab.told("warning")
    assert "id of a resource cannot be secret" in told
    assert lab.state("a").additional_secret_outputs == ["id"]
    lab.up(program)
    assert len(lab.told("warning")) == 1


@pytest.mark.slow
def test_time_limits_are_kept_in_seconds_and_reach_the_provider(lab):
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


def test_a_deletion_has_the_time_limit_of_the_old_state(lab):
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


def test_new_time_limits_are_kept_without_a_change(lab):
    lab.up("Machine('a')")
    outcome = lab.up(
        "Machine('a', opts=ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(read='1m')))"
    )
    assert outcome.changes == {"same": 2}
    assert lab.state("a").custom_timeouts == {"read": 60.0}
