"""Test runs with continue_on_error: resources independent of the failed one are processed."""

import pytest

from gpuform.providers.values import UNKNOWN

GO_ON = {"continue_on_error": True}


def list_deleted_ids(lab):
    return [call["id"] for call in lab.calls if call["verb"] == "delete"]


def list_created_sizes(lab):
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


def test_resources_independent_of_the_failed_one_are_created(lab):
    outcome = lab.up(FAILING, **GO_ON)
    assert not outcome.succeeded
    assert lab.failures == [("create", "a")]
    assert list_created_sizes(lab) == [1, 5, 6]
    assert sorted(lab.names) == ["free", "last"]
    assert outcome.changes == {"create": 3}
    assert outcome.outputs["last"] == 5.0
    # As under the Pulumi CLI, what a failed resource would have said is unknown.
    assert outcome.outputs["lost"] is UNKNOWN


def test_without_the_option_nothing_starts_after_a_failure(lab):
    outcome = lab.up(
        "a = Machine('a', size=1, refuse='create')\nMachine('b', size=2, uses=a.address)"
    )
    assert not outcome.succeeded
    assert list_created_sizes(lab) == [1]


def test_providers_are_not_called_for_skipped_resources(lab):
    """Inputs lack outputs of the failed resource: the Pulumi CLI behaves alike since 3.26x."""
    lab.up(
        "a = Machine('a', size=1, refuse='create')\nMachine('b', size=2, uses=a.address)", **GO_ON
    )
    assert [call["news"]["size"] for call in lab.calls if call["verb"] == "check"] == [1]


def test_dependents_of_a_failed_update_keep_their_inputs(lab):
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


def test_dependents_of_a_failed_replacement_keep_their_inputs(lab):
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


def test_dependencies_of_a_failed_delete_are_kept(lab):
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
def test_dependencies_of_a_delete_that_fails_in_a_destroy_are_kept(lab, go_on):
    lab.up(
        "a = Machine('a')\n"
        "b = Machine('b', uses=a.address, refuse='delete')\n"
        "Machine('c', uses=b.address)\n"
    )
    outcome = lab.run("destroy", continue_on_error=go_on)
    assert not outcome.succeeded
    assert lab.names == ["a", "b"]


def test_undeclared_resources_are_deleted_except_dependencies_of_the_failed_one(lab):
    lab.up(
        "old = Machine('old')\n"
        "gone = Machine('gone')\n"
        "Machine('a', size=1, uses=old.address, refuse='update')\n"
    )
    outcome = lab.up("Machine('a', size=2, uses='own', refuse='update')", **GO_ON)
    assert not outcome.succeeded
    assert ("delete", "gone") in lab.steps
    assert sorted(lab.names) == ["a", "old"]


def test_dependencies_of_a_skipped_resource_are_kept(lab):
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


def test_old_objects_of_a_finished_replacement_are_deleted(lab):
    program = "Machine('a', rack={!r})\nMachine('b', size=1{})"
    lab.up(program.format("x", ""))
    outcome = lab.up(program.format("y", ", rack='z', refuse='create'"), **GO_ON)
    assert not outcome.succeeded
    assert ("delete-replaced", "a") in lab.steps
    assert sorted(lab.names) == ["a", "b"]


def test_dependents_of_an_object_that_is_not_ready_are_skipped(lab):
    program = "a = Machine('a', slow=1)\nMachine('b', uses=a.address)\nMachine('c')"
    outcome = lab.up(program, **GO_ON)
    assert not outcome.succeeded
    assert lab.state("a").init_errors == ["still booting"]
    assert sorted(lab.names) == ["a", "c"]


def test_a_program_that_raises_deletes_nothing(lab):
    lab.up("Machine('a')\npulumi.export('kept', 1)")
    outcome = lab.up("Machine('b')\nraise RuntimeError('no')", **GO_ON)
    assert not outcome.succeeded
    assert "a" in lab.names
    assert list_deleted_ids(lab) == []
    assert outcome.outputs["kept"] == 1.0


def test_stack_outputs_that_were_not_reached_are_kept(lab):
    program = (
        "a = Machine('a', size={0}, refuse='update')\n"
        "pulumi.export('size', a.size)\n"
        "pulumi.export('n', {0})"
    )
    lab.up(program.format(1) + "\npulumi.export('kept', 1)")
    outcome = lab.up(program.format(2), **GO_ON)
    assert outcome.outputs == {"kept": 1.0, "size": UNKNOWN, "n": 2.0}


def test_the_next_run_creates_the_skipped_resources(lab):
    lab.up(FAILING, **GO_ON)
    outcome = lab.up(FAILING.replace("refuse='create'", "rack='x'"), **GO_ON)
    assert outcome.succeeded
    assert sorted(lab.names) == ["a", "after", "child", "free", "g", "last", "needs"]
    assert outcome.changes == {"same": 3, "create": 5}


def test_a_check_failure_ends_the_run_despite_the_option(lab):
    lab.up("Machine('gone')")
    outcome = lab.up("Machine('a', size=-1)", **GO_ON)
    assert not outcome.succeeded
    assert list_deleted_ids(lab) == []


def test_a_protected_resource_does_not_prevent_other_deletions(lab):
    lab.up("Machine('a', opts=ResourceOptions(protect=True))\nMachine('b')")
    outcome = lab.run("destroy", **GO_ON)
    assert not outcome.succeeded
    assert lab.names == ["a"]
