"""Test refresh and destroy with --run-program: the program runs and creates nothing."""

from typing import Any

import pytest

PROGRAM = """
a = Machine('a', size=1)
Machine('b', uses=a.address)
Machine('old')
pulumi.export('size', a.size)
"""
CHANGED = """
a = Machine('a', size=2)
Machine('b', uses=a.address)
new = Machine('new')
Machine('after', uses=new.address)
pulumi.export('size', a.size)
"""
MADE = "m-1", "m-2", "m-3"


def list_sent_verbs(lab: Any) -> list[tuple[str, str]]:
    return [(call["verb"], call["id"]) for call in lab.calls if "id" in call]


def test_a_refresh_gives_the_program_the_current_outputs(lab: Any) -> None:
    lab.up(PROGRAM)
    lab.change_platform_object(lab.state("a").id, {"size": 7})
    lab.change_platform_object(lab.state("old").id, None)
    preview = lab.run("refresh", CHANGED, preview=True, run_program=True)
    outcome = lab.run("refresh", CHANGED, run_program=True)
    assert preview.succeeded
    assert outcome.succeeded, lab.errors
    assert lab.state("a").outputs["size"] == 7
    assert outcome.outputs == {"size": 7}
    assert sorted(lab.names) == ["a", "b"]
    assert [call["verb"] for call in lab.calls] == []


def test_a_declared_missing_object_is_not_created(lab: Any) -> None:
    lab.up(PROGRAM)
    lab.change_platform_object(lab.state("a").id, None)
    outcome = lab.run("refresh", PROGRAM, run_program=True)
    assert outcome.succeeded, lab.errors
    assert sorted(lab.names) == ["b", "old"]
    assert lab.state("b").dependencies == []
    assert len(lab.platform_objects) == 2


@pytest.mark.parametrize("operation", ["refresh", "destroy"])
def test_a_program_that_raises_ends_the_run(lab: Any, operation: str) -> None:
    lab.up(PROGRAM)
    outcome = lab.run(operation, "a = Machine('a')\nraise RuntimeError('no')", run_program=True)
    assert not outcome.succeeded
    assert sorted(lab.names) == ["a", "b", "old"]
    assert len(lab.platform_objects) == 3


def test_a_destroy_creates_nothing_and_deletes_all(lab: Any) -> None:
    lab.up(PROGRAM)
    lab.run("destroy", CHANGED, preview=True, run_program=True)
    planned = sorted(step for step in lab.steps if step[0] != "same")
    outcome = lab.run("destroy", CHANGED, run_program=True)
    assert outcome.succeeded, lab.errors
    assert sorted(step for step in lab.steps if step[0] != "same") == planned
    assert sorted(list_sent_verbs(lab)) == [("delete", id_) for id_ in MADE]
    assert outcome.snapshot.resources == []


def test_a_destroy_uses_the_options_of_the_program(lab: Any) -> None:
    lab.up("Machine('a', ResourceOptions(protect=True))\nMachine('b')")
    freed = "Machine('a')\nMachine('b', ResourceOptions(retain_on_delete=True))"
    for preview in (True, False):
        assert lab.run("destroy", freed, preview=preview, run_program=True).succeeded
    assert len(list_sent_verbs(lab)) == 1
    assert len(lab.platform_objects) == 1


def test_a_destroy_does_not_delete_read_objects(lab: Any) -> None:
    lab.up("Machine('mine')")
    lab.up("Machine('mine')\nMachine('theirs', ResourceOptions(id='m-1'))")
    lab.run("destroy", "Machine('theirs')", run_program=True)
    assert list_sent_verbs(lab) == [("delete", "m-1")]
    assert ("discard", "theirs") in lab.steps


def test_a_destroy_deletes_a_renamed_resource(lab: Any) -> None:
    lab.up("a = Machine('a')\nMachine('b', uses=a.address)")
    renamed = "Machine('c', ResourceOptions(aliases=[pulumi.Alias(name='a')]))"
    assert lab.run("destroy", renamed, run_program=True).succeeded, lab.errors
    assert list_sent_verbs(lab) == [("delete", "m-2"), ("delete", "m-1")]


def test_a_prevented_replacement_is_not_checked_again(lab: Any) -> None:
    lab.up("Machine('a', ResourceOptions(protect=True), rack=1)")
    assert not lab.up("Machine('a', ResourceOptions(protect=True), rack=2)").succeeded
    assert [call["verb"] for call in lab.calls] == ["check"]
