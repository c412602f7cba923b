"""Test unfinished replacements, and old objects that still exist."""

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


def list_called_ids(lab, verb):
    return [call["id"] for call in list_calls(lab, verb)]


def list_calls(lab, verb):
    return [call for call in lab.calls if call["verb"] == verb]


def list_entries(lab, name) -> list[ResourceState]:
    return [entry for entry in lab.snapshot.resources if entry.urn == f"{TYPE}{name}"]


def test_the_next_run_finishes_a_replacement_whose_create_failed(lab):
    program = (
        "a = Machine('a', slot={!r})\n"
        "b = Machine('b', rack=a.address{})\n"
        "Machine('c', rack=b.address)\n"
    )
    lab.up(program.format("x", ""))
    failed = lab.up(program.format("y", ", refuse='create'"))
    assert not failed.succeeded
    assert lab.failures == [("create-replacement", "b")]
    assert [(r.id, r.pending_replacement) for r in list_entries(lab, "a")] == [("m-4", False)]
    assert [(r.id, r.pending_replacement) for r in list_entries(lab, "b")] == [("m-2", True)]
    assert [(r.id, r.pending_replacement) for r in list_entries(lab, "c")] == [("m-3", True)]
    assert sorted(lab.platform_objects) == ["m-4"]
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
    assert list_calls(lab, "delete") == []
    assert [r.pending_replacement for r in lab.snapshot.resources] == [False] * 5


def test_a_resource_deleted_for_replacement_is_recreated_with_any_inputs(lab):
    lab.up("Machine('a', slot='x')")
    lab.up("Machine('a', slot='y', refuse='create')")
    assert list_entries(lab, "a")[0].pending_replacement
    # As it was before: the old inputs, and still nothing there.
    assert lab.up("Machine('a', slot='x')").changes == {"same": 1, "replace": 1}
    assert sorted(lab.platform_objects) == ["m-2"]


def test_a_resource_pending_replacement_is_diffed_but_not_read_or_deleted(lab):
    (lab.directory / "watched.py").write_text(WATCHED)
    program = "from watched import Machine\nMachine('a', slot={!r}{})\n"
    lab.up(program.format("x", ""))
    lab.up(program.format("y", ", refuse='create'"))
    lab.run("refresh")
    assert lab.calls == []
    lab.up(program.format("y", ""))
    assert [call["verb"] for call in lab.calls] == ["check", "diff", "check", "create"]
    assert list_called_ids(lab, "diff") == ["m-1"]


def test_destroying_a_resource_pending_replacement_calls_no_provider(lab):
    lab.up("Machine('a', slot='x')")
    lab.up("Machine('a', slot='y', refuse='create')")
    outcome = lab.run("destroy")
    assert outcome.succeeded
    assert lab.calls == []
    assert lab.steps == [("remove-pending-replace", "a")]
    assert lab.snapshot.resources == []


def test_several_old_objects_of_one_urn_are_all_deleted(lab):
    program = "Machine('a', rack={!r}, refuse='delete')\n"
    for rack in "xyz":
        lab.up(program.format(rack))
    held = {r.id: r.delete for r in list_entries(lab, "a")}
    assert held == {"m-1": True, "m-2": True, "m-3": False}
    assert len(lab.platform_objects) == 3
    for entry in list_entries(lab, "a"):
        entry.outputs["refuse"] = ""
    outcome = lab.preview("Machine('a', rack='z', refuse='delete')")
    planned = [(change.action, change.reason) for change in outcome.planned]
    assert planned.count(("delete", "replaced_earlier")) == 2
    lab.up("Machine('a', rack='z', refuse='delete')")
    assert sorted(list_called_ids(lab, "delete")) == ["m-1", "m-2"]
    assert sorted(lab.platform_objects) == ["m-3"]
