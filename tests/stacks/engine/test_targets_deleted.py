"""Deletions in a part of the stack: what a selection takes away, and what it must keep."""

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


def deleted(lab):
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
def test_a_dependent_that_nobody_named_is_an_error(lab, operation):
    lab.up(CHAIN)
    preview = lab.run(operation, "Machine('d')", preview=True, **targets("b"))
    assert not preview.succeeded
    outcome = lab.run(operation, "Machine('d')", **targets("b"))
    assert not outcome.succeeded
    assert [e for e in lab.errors if "would be deleted, but is not among the targets" in e]
    assert deleted(lab) == []
    assert len(lab.world) == 4


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_dependents_go_with_the_targets_when_asked(lab, operation):
    lab.up(CHAIN)
    outcome = lab.run(
        operation, "a = Machine('a')\nMachine('d')", **targets("b", target_dependents=True)
    )
    assert outcome.succeeded
    assert len(deleted(lab)) == 2
    assert sorted(lab.names) == ["a", "d"]


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_dependents_can_be_named_one_by_one(lab, operation):
    lab.up(CHAIN)
    outcome = lab.run(operation, "a = Machine('a')\nMachine('d')", **targets("b", "c"))
    assert outcome.succeeded
    assert sorted(lab.names) == ["a", "d"]


def test_what_an_untargeted_resource_needs_stays(lab):
    """Though the program has it no more."""
    lab.up("a = Machine('a')\nMachine('b', uses=a.address)\nMachine('t', size=1)\n")
    outcome = lab.up("Machine('b', uses='own')\nMachine('t', size=2)\n", **targets("t"))
    assert outcome.changes == {"same": 3, "update": 1}
    assert sorted(lab.names) == ["a", "b", "t"]
    assert lab.state("b").dependencies == [lab.state("a").urn]


def test_destroying_one_of_several(lab):
    lab.up("Machine('a')\nMachine('b')\n")
    outcome = lab.run("destroy", **targets("a"))
    assert outcome.succeeded
    assert outcome.changes == {"same": 2, "delete": 1}
    assert lab.names == ["b"]


def test_destroying_all_that_depends_on_a_component(lab):
    lab.up(
        "g = pulumi.ComponentResource('lab:index:Group', 'g')\n"
        "Machine('child', opts=ResourceOptions(parent=g))\n"
        "Machine('other')\n"
    )
    outcome = lab.run("destroy", **targets("g", target_dependents=True))
    assert outcome.changes == {"same": 2, "delete": 2}
    assert lab.names == ["other"]


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_what_is_excluded_stays_with_all_that_it_needs(lab, operation):
    lab.up(CHAIN)
    outcome = lab.run(operation, "", **excludes("b"))
    assert outcome.succeeded
    assert sorted(lab.names) == ["a", "b"]
    assert len(deleted(lab)) == 2


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_what_depends_on_what_is_excluded_stays_when_asked(lab, operation):
    lab.up(CHAIN)
    outcome = lab.run(operation, "", **excludes("b", exclude_dependents=True))
    assert outcome.succeeded
    assert sorted(lab.names) == ["a", "b", "c"]


def test_a_protected_target_stays(lab):
    lab.up("Machine('a', opts=ResourceOptions(protect=True))\nMachine('b')\n")
    assert not lab.run("destroy", **targets("a")).succeeded
    assert len(lab.names) == 2


def test_what_waits_for_its_deletion_is_deleted_when_it_is_a_target(lab):
    lab.up("Machine('a', rack='x', refuse='delete')\nMachine('b')")
    lab.up("Machine('a', rack='y', refuse='delete')\nMachine('b')")
    for entry in lab.snapshot.resources:
        if entry.delete:
            entry.outputs["refuse"] = ""
    program = "Machine('a', rack='y', refuse='delete')\nMachine('b')"
    lab.up(program, **targets("b"))
    assert deleted(lab) == []
    lab.up(program, **targets("a"))
    assert len(deleted(lab)) == 1
    assert sorted(lab.names) == ["a", "b"]


def test_a_program_that_fails_deletes_no_target(lab):
    lab.up("Machine('a')")
    assert not lab.up("raise RuntimeError('no')", **targets("a")).succeeded
    assert lab.names == ["a"]


@pytest.mark.parametrize("operation", ["update", "destroy"])
def test_nothing_goes_when_a_dependent_cannot_be_compared(lab, operation):
    lab.up("a = Machine('a')\nMachine('b', uses=a.address, refuse='diff')\nMachine('c')")
    chosen = targets("a", target_dependents=True)
    for preview in (True, False):
        assert not lab.run(operation, "Machine('c')", preview=preview, **chosen).succeeded
        assert [error for error in lab.errors if "nothing to compare with" in error]
    assert deleted(lab) == []
    assert len(lab.names) == 3
