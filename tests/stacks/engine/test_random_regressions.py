"""Test the minimal forms of faults that random programs found."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns, graph
from gpuform.stacks.engine.state.entries import Entries


def list_machines(lab) -> list[tuple[str, str]]:
    """Return name and id of each machine in the state."""
    return [(r.urn.rsplit("::", 1)[1], r.id) for r in lab.snapshot.resources if "Machine" in r.urn]


def targets(*names: str) -> Selection:
    return Selection(targets=UrnPatterns(names))


def test_a_new_component_that_registers_outputs_can_be_previewed(lab):
    program = """
        group = pulumi.ComponentResource("lab:index:Group", "g")
        group.register_outputs({"n": 1})
        """
    assert lab.preview(program).succeeded, lab.errors
    assert lab.up(program).succeeded
    assert lab.preview(program).succeeded, lab.errors


def test_an_unfinished_replacement_survives_the_deletion_of_an_older_object(lab):
    lab.up("Machine('a', rack='x', slot='x', refuse='delete')")
    lab.up("Machine('a', rack='y', slot='x')")
    lab.up("Machine('a', rack='y', slot='y', refuse='create')")
    assert [(r.delete, r.pending_replacement) for r in lab.snapshot.resources][-2:] == [
        (False, True),
        (True, False),
    ]
    lab.change_platform_object("m-1", None)
    lab.run("refresh")
    assert list_machines(lab) == [("a", "m-2")]
    assert lab.state("a").pending_replacement


def test_a_preview_deletes_only_the_existing_object_of_a_replaced_dependent(lab):
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack='x', refuse='delete')\n")
    lab.up("a = Machine('a', slot='x')\nMachine('b', rack=a.address)\n")
    program = "a = Machine('a', slot='y')"
    lab.preview(program)
    planned = sorted(lab.steps)
    lab.up(program)
    assert sorted([*lab.steps, *lab.failures]) == planned


def test_deleted_with_calls_delete_when_the_other_resource_has_to_stay(lab):
    lab.up("""
        a = Machine('a')
        Machine('b', uses=a.address, opts=ResourceOptions(protect=True))
        Machine('c', opts=ResourceOptions(deleted_with=a))
        """)
    assert not lab.up("").succeeded
    assert lab.names == ["a", "b"]
    assert sorted(lab.platform_objects) == [lab.state("a").id, lab.state("b").id]


def test_a_failed_delete_of_an_old_object_does_not_block_the_current_one(lab):
    lab.up("a = Machine('a', rack='x')\nMachine('b', rack=a.address, refuse='delete')\n")
    # The older objects of both wait for their deletion, and the newer one of `b` is protected.
    lab.up("""
        a = Machine('a', rack='y')
        Machine('b', rack=a.address, opts=ResourceOptions(protect=True))
        """)
    for entry in lab.snapshot.resources:
        entry.inputs.pop("refuse", None)
        entry.outputs.pop("refuse", None)
    assert not lab.up("").succeeded
    assert lab.names == ["a", "b"]
    assert sorted(lab.platform_objects) == sorted(lab.state(name).id for name in "ab")


@pytest.mark.parametrize("option", ["id=c.id", "id='o-1', parent=g", "id='o-1', depends_on=[c]"])
def test_a_read_that_depends_on_an_uncreated_resource_is_not_made(lab, option):
    (lab.directory / "platform.json").write_text(json.dumps({"o-1": {}}))
    program = f"""
        g = pulumi.ComponentResource("lab:index:Group", "g")
        c = Machine('c')
        Machine('r', opts=ResourceOptions({option}))
        Machine('t')
        """
    assert lab.up(program, selection=targets("t")).succeeded, lab.errors
    assert lab.names == ["t"]
    assert lab.up(program).succeeded, lab.errors
    assert sorted(lab.names) == ["c", "r", "t"]


def test_a_skipped_read_keeps_its_entry(lab):
    (lab.directory / "platform.json").write_text(json.dumps({"o-1": {}}))
    lab.up("Machine('r', opts=ResourceOptions(id='o-1'))\nMachine('t')\n")
    before = lab.state("r")
    program = (
        "c = Machine('c')\nMachine('r', opts=ResourceOptions(id=c.id))\nMachine('t', size=1)\n"
    )
    assert lab.up(program, selection=targets("t")).succeeded, lab.errors
    assert (lab.state("r").id, lab.state("r").external) == (before.id, True)


def test_a_target_cannot_depend_on_its_own_dependent_in_the_state(lab):
    lab.up("a = Machine('a')\nMachine('b', uses=a.address)\n")
    program = "b = Machine('b')\nMachine('a', uses=b.address, rack='x')\n"
    assert not lab.preview(program, selection=targets("a")).succeeded
    assert not lab.up(program, selection=targets("a")).succeeded
    assert "Machine::b" in lab.errors[0]
    assert "depends on it" in lab.errors[0]
    assert {call["verb"] for call in lab.calls} <= {"check"}
    assert lab.up(program).succeeded, lab.errors


def test_a_replaced_dependent_is_created_only_after_its_deletion(lab):
    names = [f"b{n}" for n in range(6)]
    using = "".join(f"Machine('{name}', rack=a.address, size={name[1]})\n" for name in names)
    lab.up("a = Machine('a', slot='x')\n" + using)
    before = [lab.state(name).id for name in names]
    # They are the same without it: those that register before it do not fall.
    free = "".join(f"Machine('{n}', rack='10.0.0.1', size={n[1]}, opts=late)\n" for n in names)
    program = "Machine('a', slot='y')\nlate = ResourceOptions(depends_on=[Machine('z')])\n" + free
    assert lab.up(program, parallel=64).succeeded, lab.errors
    assert len(lab.platform_objects) == 2 + len(names)
    calls = [call for call in lab.calls if call["verb"] in ("create", "delete")]
    deleted = {call["id"]: index for index, call in enumerate(calls) if call["verb"] == "delete"}
    made = [call["props"].get("size") for call in calls if call["verb"] == "create"]
    for number in range(len(names)):
        if number in made:
            index = [call.get("props", {}).get("size") for call in calls].index(number)
            assert deleted[before[number]] < index


@pytest.mark.parametrize("before", ["a", "b"])
def test_an_object_is_imported_once(lab, before):
    (lab.directory / "platform.json").write_text(json.dumps({"o-1": {}}))
    importing = "Machine({!r}, opts=ResourceOptions(import_='o-1'))\n"
    lab.up(importing.format(before))
    for program in (importing.format("b"), importing.format("a") + importing.format("b")):
        lab.up(program)
        assert [id_ for _, id_ in list_machines(lab)] == ["o-1"], lab.errors
        assert lab.platform_objects == {"o-1": {}}


@st.composite
def entries(draw: st.DrawFn) -> list[ResourceState]:
    """Draw entries with dependencies but without a cycle, in any order."""
    made = []
    for number in range(draw(st.integers(0, 8))):
        needed = draw(st.lists(st.sampled_from(made), unique_by=id, max_size=3)) if made else []
        made.append(ResourceState(f"r{number}", True, "t", dependencies=[n.urn for n in needed]))
    return draw(st.permutations(made))


@given(entries())
def test_sorting_moves_dependencies_first_and_keeps_the_other_order(states):
    listed, _, _ = Entries.load(states, []).build_current()
    assert sorted(e.urn for e in listed) == sorted(e.urn for e in states)
    earlier_urns: set[str] = set()
    for entry in listed:
        assert graph.find_dependency_urns(entry) <= earlier_urns
        earlier_urns.add(entry.urn)
    again, _, _ = Entries.load(listed, []).build_current()
    assert again == listed


def test_a_copy_of_an_entry_is_the_same_entry():
    entry = ResourceState("r0", True, "t")
    entries_of_run = Entries.load([entry], [])
    entries_of_run.replace(replace(entry, protect=True), replace(entry, id="o-1"))
    assert [e.id for e in entries_of_run.iterate_all()] == ["o-1"]


def test_an_entry_of_no_run_is_not_found():
    with pytest.raises(KeyError, match="r0"):
        Entries.load([], []).get_number(ResourceState("r0", True, "t"))
