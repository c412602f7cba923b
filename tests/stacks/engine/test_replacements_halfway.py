"""Replacements that a run did not come to the end of, and old objects that are still exists."""

from gpuform.stacks.engine.state import ResourceState

TYPE = "urn:pulumi:dev::lab::pulumi-python:dynamic/lab:Machine::"

# A machine whose books also hold what is only asked.
WATCHED = """
from lab import Machines, note
from pulumi.dynamic import Resource


class Watched(Machines):
    def diff(self, id, olds, news):
        note("diff", id=id)
        return super().diff(id, olds, news)

    def read(self, id, props):
        note("read", id=id)
        return super().read(id, props)


class Machine(Resource, module="lab", name="Machine"):
    def __init__(self, name, opts=None, **props):
        super().__init__(Watched(), name, {"address": None, **props}, opts)
"""


def asked(lab, verb):
    return [call["id"] for call in calls(lab, verb)]


def calls(lab, verb):
    return [call for call in lab.calls if call["verb"] == verb]


def entries(lab, name) -> list[ResourceState]:
    return [entry for entry in lab.snapshot.resources if entry.urn == f"{TYPE}{name}"]


def test_a_failing_create_halfway_is_made_up_for_by_the_next_run(lab):
    program = (
        "a = Machine('a', slot={!r})\n"
        "b = Machine('b', rack=a.address{})\n"
        "Machine('c', rack=b.address)\n"
    )
    lab.up(program.format("x", ""))
    failed = lab.up(program.format("y", ", refuse='create'"))
    assert not failed.succeeded
    assert lab.failures == [("create-replacement", "b")]
    assert [(r.id, r.pending_replacement) for r in entries(lab, "a")] == [("m-4", False)]
    assert [(r.id, r.pending_replacement) for r in entries(lab, "b")] == [("m-2", True)]
    assert [(r.id, r.pending_replacement) for r in entries(lab, "c")] == [("m-3", True)]
    assert sorted(lab.world) == ["m-4"]
    lab.preview(program.format("y", ""))
    planned = lab.steps
    outcome = lab.up(program.format("y", ""))
    assert lab.steps == planned
    assert lab.steps == [
        ("same", "a"),
        ("replace", "b"),
        ("create-replacement", "b"),
        ("replace", "c"),
        ("create-replacement", "c"),
    ]
    assert outcome.changes == {"same": 2, "replace": 2}
    assert calls(lab, "delete") == []
    assert [r.pending_replacement for r in lab.snapshot.resources] == [False] * 5


def test_what_was_deleted_to_be_replaced_comes_back_whatever_the_program_says(lab):
    lab.up("Machine('a', slot='x')")
    lab.up("Machine('a', slot='y', refuse='create')")
    assert entries(lab, "a")[0].pending_replacement
    # As it was before: the old inputs, and still nothing there.
    assert lab.up("Machine('a', slot='x')").changes == {"same": 1, "replace": 1}
    assert sorted(lab.world) == ["m-2"]


def test_what_is_already_gone_is_compared_and_neither_read_nor_deleted(lab):
    (lab.directory / "watched.py").write_text(WATCHED)
    program = "from watched import Machine\nMachine('a', slot={!r}{})\n"
    lab.up(program.format("x", ""))
    lab.up(program.format("y", ", refuse='create'"))
    lab.run("refresh")
    assert lab.calls == []
    lab.up(program.format("y", ""))
    assert [call["verb"] for call in lab.calls] == ["check", "diff", "check", "create"]
    assert asked(lab, "diff") == ["m-1"]


def test_destroying_what_is_already_gone_asks_nobody(lab):
    lab.up("Machine('a', slot='x')")
    lab.up("Machine('a', slot='y', refuse='create')")
    outcome = lab.run("destroy")
    assert outcome.succeeded
    assert lab.calls == []
    assert lab.steps == [("remove-pending-replace", "a")]
    assert lab.snapshot.resources == []


def test_old_objects_of_one_urn_pile_up_and_all_go(lab):
    program = "Machine('a', rack={!r}, refuse='delete')\n"
    for rack in "xyz":
        lab.up(program.format(rack))
    held = {r.id: r.delete for r in entries(lab, "a")}
    assert held == {"m-1": True, "m-2": True, "m-3": False}
    assert len(lab.world) == 3
    for entry in entries(lab, "a"):
        entry.outputs["refuse"] = ""
    lab.up("Machine('a', rack='z', refuse='delete')")
    assert sorted(asked(lab, "delete")) == ["m-1", "m-2"]
    assert sorted(lab.world) == ["m-3"]
