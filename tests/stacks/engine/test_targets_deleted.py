"""Test deletions with targets and excludes: which resources are deleted and which are kept."""

import pytest

from gpuform.stacks.engine.state import Selection, UrnPatterns

CHAIN = (
    "a = Machine('a')\n"
    "b = Machine('b', uses=a.address)\n"
    "Machine('c', uses=b.address)\n"
    "Machine('d')\n"
)


def targets(*names, **more):
    return {"selection": Selection(targets=UrnPatterns(names), **more)}


def excludes(*names, **more):
    return {"selection": Selection(excludes=UrnPatterns(names), **more)}


def list_deleted_ids(lab):
    return [call["id"] for call in lab.calls if call["verb"] == "delete"]


def test_only_targets_are_deleted(lab):
    lab.up("Machine('a')\nMachine('b')\n")
    preview = lab.preview("", **targets("a"))
    outcome = lab.up("", **targets("a"))
    # What stays is told as unchanged, whether the program has it or not.
    assert preview.changes == outcome.changes == {"same": 2, "delete": 1}
    assert lab.names == ["b"]
    assert lab.steps == [("same", "b"), ("delete", "a")]


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_deleting_a_target_with_an_untargeted_dependent_is_an_error(lab, operation):
    lab.up(CHAIN)
    preview = lab.run(operation, "Machine('d')", preview=True, **targets("b"))
    assert not preview.succeeded
    outcome = lab.run(operation, "Machine('d')", **targets("b"))
    assert not outcome.succeeded
    assert [e for e in lab.errors if "would be deleted, but is not among the targets" in e]
    assert list_deleted_ids(lab) == []
    assert len(lab.platform_objects) == 4


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_target_dependents_deletes_dependents(lab, operation):
    lab.up(CHAIN)
    outcome = lab.run(
        operation, "a = Machine('a')\nMachine('d')", **targets("b", target_dependents=True)
    )
    assert outcome.succeeded
    assert len(list_deleted_ids(lab)) == 2
    assert sorted(lab.names) == ["a", "d"]


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_dependents_can_be_targeted_one_by_one(lab, operation):
    lab.up(CHAIN)
    outcome = lab.run(operation, "a = Machine('a')\nMachine('d')", **targets("b", "c"))
    assert outcome.succeeded
    assert sorted(lab.names) == ["a", "d"]


def test_dependencies_of_an_untargeted_resource_are_kept(lab):
    lab.up("a = Machine('a')\nMachine('b', uses=a.address)\nMachine('t', size=1)\n")
    outcome = lab.up("Machine('b', uses='own')\nMachine('t', size=2)\n", **targets("t"))
    assert outcome.changes == {"same": 3, "update": 1}
    assert sorted(lab.names) == ["a", "b", "t"]
    assert lab.state("b").dependencies == [lab.state("a").urn]


def test_destroy_deletes_only_the_target(lab):
    lab.up("Machine('a')\nMachine('b')\n")
    outcome = lab.run("destroy", **targets("a"))
    assert outcome.succeeded
    assert outcome.changes == {"same": 2, "delete": 1}
    assert lab.names == ["b"]


def test_destroy_of_a_component_with_dependents_deletes_its_children(lab):
    lab.up(
        "g = pulumi.ComponentResource('lab:index:Group', 'g')\n"
        "Machine('child', opts=ResourceOptions(parent=g))\n"
        "Machine('other')\n"
    )
    outcome = lab.run("destroy", **targets("g", target_dependents=True))
    assert outcome.changes == {"same": 2, "delete": 2}
    assert lab.names == ["other"]


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_excluded_resources_and_their_dependencies_are_kept(lab, operation):
    lab.up(CHAIN)
    outcome = lab.run(operation, "", **excludes("b"))
    assert outcome.succeeded
    assert sorted(lab.names) == ["a", "b"]
    assert len(list_deleted_ids(lab)) == 2


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_exclude_dependents_keeps_dependents(lab, operation):
    lab.up(CHAIN)
    outcome = lab.run(operation, "", **excludes("b", exclude_dependents=True))
    assert outcome.succeeded
    assert sorted(lab.names) == ["a", "b", "c"]


def test_a_protected_target_is_not_deleted(lab):
    lab.up("Machine('a', opts=ResourceOptions(protect=True))\nMachine('b')\n")
    assert not lab.run("destroy", **targets("a")).succeeded
    assert len(lab.names) == 2


def test_a_targeted_object_pending_deletion_is_deleted(lab):
    lab.up("Machine('a', rack='x', refuse='delete')\nMachine('b')")
    lab.up("Machine('a', rack='y', refuse='delete')\nMachine('b')")
    for entry in lab.snapshot.resources:
        if entry.delete:
            entry.outputs["refuse"] = ""
    program = "Machine('a', rack='y', refuse='delete')\nMachine('b')"
    lab.up(program, **targets("b"))
    assert list_deleted_ids(lab) == []
    lab.up(program, **targets("a"))
    assert len(list_deleted_ids(lab)) == 1
    assert sorted(lab.names) == ["a", "b"]


def test_a_program_that_raises_deletes_no_target(lab):
    lab.up("Machine('a')")
    assert not lab.up("raise RuntimeError('no')", **targets("a")).succeeded
    assert lab.names == ["a"]


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_nothing_is_deleted_when_the_diff_of_a_dependent_fails(lab, operation):
    lab.up("a = Machine('a')\nMachine('b', uses=a.address, refuse='diff')\nMachine('c')")
    chosen = targets("a", target_dependents=True)
    for preview in (True, False):
        assert not lab.run(operation, "Machine('c')", preview=preview, **chosen).succeeded
        assert [error for error in lab.errors if "nothing to compare with" in error]
    assert list_deleted_ids(lab) == []
    assert len(lab.names) == 3
