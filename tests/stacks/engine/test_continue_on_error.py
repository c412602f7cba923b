"""Runs that go on after a failure, with what does not need what failed."""

import pytest

from gpuform.stacks.engine.values import UNKNOWN

GO_ON = {"continue_on_error": True}


def deleted(lab):
    return [call["id"] for call in lab.calls if call["verb"] == "delete"]


def made(lab):
    return sorted(call["props"].get("size") for call in lab.calls if call["verb"] == "create")


FAILING = """
a = Machine('a', size=1, refuse='create')
Machine('needs', size=2, uses=a.address)
g = pulumi.ComponentResource('lab:index:Group', 'g', opts=ResourceOptions(parent=a))
Machine('child', size=3, opts=ResourceOptions(parent=g))
Machine('after', size=4, opts=ResourceOptions(depends_on=[a]))
last = Machine('last', size=5, opts=ResourceOptions(depends_on=[Machine('free', size=6)]))
pulumi.export('last', last.size)
pulumi.export('lost', a.address)
"""


def test_what_does_not_need_the_failed_one_goes_on(lab):
    outcome = lab.up(FAILING, **GO_ON)
    assert not outcome.succeeded
    assert lab.failures == [("create", "a")]
    assert made(lab) == [1, 5, 6]
    assert sorted(lab.names) == ["free", "last"]
    assert outcome.changes == {"create": 3}
    assert outcome.outputs["last"] == 5.0
    # As under the Pulumi CLI, what a failed resource would have said is unknown.
    assert outcome.outputs["lost"] is UNKNOWN


def test_nothing_more_starts_without_the_option(lab):
    outcome = lab.up(
        "a = Machine('a', size=1, refuse='create')\nMachine('b', size=2, uses=a.address)"
    )
    assert not outcome.succeeded
    assert made(lab) == [1]


def test_no_provider_is_asked_about_skipped_resources(lab):
    """As under the Pulumi CLI since 3.26x: their inputs lack what the failed one would give."""
    lab.up(
        "a = Machine('a', size=1, refuse='create')\nMachine('b', size=2, uses=a.address)", **GO_ON
    )
    assert [call["news"]["size"] for call in lab.calls if call["verb"] == "check"] == [1]


def test_a_failed_update(lab):
    program = (
        "a = Machine('a', size={0}, refuse='update')\n"
        "Machine('b', size={0}, uses=a.address)\n"
        "Machine('c', size={0})"
    )
    lab.up(program.format(1))
    outcome = lab.up(program.format(2), **GO_ON)
    assert not outcome.succeeded
    assert lab.failures == [("update", "a")]
    assert ("update", "c") in lab.steps
    sizes = {name: lab.state(name).inputs["size"] for name in ("a", "b", "c")}
    assert sizes == {"a": 1, "b": 1, "c": 2}


def test_a_failed_replacement(lab):
    program = (
        "a = Machine('a', rack='{0}', refuse='{1}')\n"
        "Machine('b', size={2}, uses=a.address)\n"
        "Machine('c', size={2})"
    )
    lab.up(program.format("x", "", 1))
    outcome = lab.up(program.format("y", "create", 2), **GO_ON)
    assert not outcome.succeeded
    assert lab.failures == [("create-replacement", "a")]
    assert {r.id for r in lab.snapshot.resources if "Machine" in r.urn} == {"m-1", "m-2", "m-3"}
    assert lab.state("b").inputs["size"] == 1
    assert lab.state("c").inputs["size"] == 2


def test_a_failed_delete(lab):
    lab.up(
        "a = Machine('a')\n"
        "b = Machine('b', uses=a.address, refuse='delete')\n"
        "Machine('c', uses=b.address)\n"
        "Machine('d')\n"
    )
    outcome = lab.up("", **GO_ON)
    assert not outcome.succeeded
    assert lab.failures == [("delete", "b")]
    # What the failed one needs stays; what needed it, and what is free of it, is gone.
    assert lab.names == ["a", "b"]
    assert outcome.changes == {"same": 1, "delete": 2}


@pytest.mark.parametrize("go_on", [True, False])
def test_a_failed_delete_in_a_destroy(lab, go_on):
    lab.up(
        "a = Machine('a')\n"
        "b = Machine('b', uses=a.address, refuse='delete')\n"
        "Machine('c', uses=b.address)\n"
    )
    outcome = lab.run("destroy", continue_on_error=go_on)
    assert not outcome.succeeded
    assert lab.names == ["a", "b"]


def test_what_left_the_program_is_deleted_but_for_what_the_failed_one_needs(lab):
    lab.up(
        "old = Machine('old')\n"
        "gone = Machine('gone')\n"
        "Machine('a', size=1, uses=old.address, refuse='update')\n"
    )
    outcome = lab.up("Machine('a', size=2, uses='own', refuse='update')", **GO_ON)
    assert not outcome.succeeded
    assert ("delete", "gone") in lab.steps
    assert sorted(lab.names) == ["a", "old"]


def test_a_skipped_resource_keeps_what_it_needs(lab):
    lab.up(
        "old = Machine('old')\n"
        "a = Machine('a', size=1, refuse='update')\n"
        "Machine('b', uses=old.address)"
    )
    outcome = lab.up(
        "a = Machine('a', size=2, refuse='update')\nMachine('b', uses=a.address)", **GO_ON
    )
    assert not outcome.succeeded
    assert sorted(lab.names) == ["a", "b", "old"]
    assert lab.state("b").dependencies == [lab.state("old").urn]


def test_old_objects_of_a_finished_replacement_go(lab):
    program = "Machine('a', rack={!r})\nMachine('b', size=1{})"
    lab.up(program.format("x", ""))
    outcome = lab.up(program.format("y", ", rack='z', refuse='create'"), **GO_ON)
    assert not outcome.succeeded
    assert ("delete-replaced", "a") in lab.steps
    assert sorted(lab.names) == ["a", "b"]


def test_an_object_that_is_not_ready(lab):
    program = "a = Machine('a', slow=1)\nMachine('b', uses=a.address)\nMachine('c')"
    outcome = lab.up(program, **GO_ON)
    assert not outcome.succeeded
    assert lab.state("a").init_errors == ["still booting"]
    assert sorted(lab.names) == ["a", "c"]


def test_a_program_that_fails_deletes_nothing(lab):
    lab.up("Machine('a')\npulumi.export('kept', 1)")
    outcome = lab.up("Machine('b')\nraise RuntimeError('no')", **GO_ON)
    assert not outcome.succeeded
    assert "a" in lab.names
    assert deleted(lab) == []
    assert outcome.outputs["kept"] == 1.0


def test_outputs_that_the_run_did_not_come_to_stay(lab):
    program = (
        "a = Machine('a', size={0}, refuse='update')\n"
        "pulumi.export('size', a.size)\n"
        "pulumi.export('n', {0})"
    )
    lab.up(program.format(1) + "\npulumi.export('kept', 1)")
    outcome = lab.up(program.format(2), **GO_ON)
    assert outcome.outputs == {"kept": 1.0, "size": UNKNOWN, "n": 2.0}


def test_the_next_run_makes_up_for_it(lab):
    lab.up(FAILING, **GO_ON)
    outcome = lab.up(FAILING.replace("refuse='create'", "rack='x'"), **GO_ON)
    assert outcome.succeeded
    assert sorted(lab.names) == ["a", "after", "child", "free", "g", "last", "needs"]
    assert outcome.changes == {"same": 3, "create": 5}


def test_a_check_failure_ends_the_run_all_the_same(lab):
    lab.up("Machine('gone')")
    outcome = lab.up("Machine('a', size=-1)", **GO_ON)
    assert not outcome.succeeded
    assert deleted(lab) == []


def test_a_protected_deletion_does_not_keep_the_others(lab):
    lab.up("Machine('a', opts=ResourceOptions(protect=True))\nMachine('b')")
    outcome = lab.run("destroy", **GO_ON)
    assert not outcome.succeeded
    assert lab.names == ["a"]
