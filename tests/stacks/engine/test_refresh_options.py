"""Test refreshes: of targets, before an update, with failing reads, and what a refresh keeps."""

import json

import pytest

from gpuform.stacks.engine.planning import StepDone
from gpuform.stacks.engine.state import Selection, UrnPatterns

PROGRAM = "a = Machine('a', size=1)\nMachine('b', size=1, uses=a.address)\nMachine('c', size=1)\n"

# A machine whose platform does not answer about some objects.
DEAF = """
from lab import Machines
from pulumi.dynamic import Resource


class Deaf(Machines):
    def read(self, id, props):
        if props.get("deaf"):
            raise RuntimeError("no answer")
        return super().read(id, props)


class Machine(Resource, module="lab", name="Machine"):
    def __init__(self, name, opts=None, **props):
        super().__init__(Deaf(), name, {"address": None, **props}, opts)
"""


def targets(*names, **more):
    return {"selection": Selection(targets=UrnPatterns(names), **more)}


def excludes(*names, **more):
    return {"selection": Selection(excludes=UrnPatterns(names), **more)}


def list_refresh_results(lab):
    """Return the result of the refresh for each machine."""
    done = [event.step for event in lab.events if isinstance(event, StepDone)]
    return {
        step.urn.rsplit("::", 1)[1]: str(step.shown_op) for step in done if "Machine" in step.urn
    }


def resize_outside(lab):
    lab.up(PROGRAM)
    for entry in ("m-1", "m-2", "m-3"):
        lab.change_platform_object(entry, {"size": 9})


@pytest.mark.parametrize(
    ("selection", "read"),
    [
        ({}, ["a", "b", "c"]),
        (targets("c"), ["c"]),
        (targets("a", target_dependents=True), ["a", "b"]),
        (excludes("c"), ["a", "b"]),
        (excludes("a", exclude_dependents=True), ["c"]),
    ],
)
def test_a_refresh_reads_only_the_selected_resources(lab, selection, read):
    resize_outside(lab)
    ids = {name: lab.state(name).id for name in "abc"}
    preview = lab.run("refresh", preview=True, **selection)
    outcome = lab.run("refresh", **selection)
    assert preview.changes == outcome.changes
    assert outcome.changes["update"] == len(read)
    assert sorted(list_refresh_results(lab)) == read
    for name in "abc":
        assert lab.state(name).outputs["size"] == (9.0 if name in read else 1.0)
        assert lab.state(name).id == ids[name]


def test_an_untargeted_missing_object_keeps_its_entry(lab):
    lab.up(PROGRAM)
    for entry in ("m-1", "m-2", "m-3"):
        lab.change_platform_object(entry, None)
    outcome = lab.run("refresh", **targets("c"))
    assert outcome.changes == {"delete": 1}
    assert sorted(lab.names) == ["a", "b"]


def test_an_update_with_refresh_reverts_drift(lab):
    resize_outside(lab)
    preview = lab.preview(PROGRAM, refresh=True)
    outcome = lab.up(PROGRAM, refresh=True)
    # What the refresh finds is not counted beside what the update does.
    assert preview.changes == outcome.changes == {"same": 1, "update": 3}
    assert {entry["size"] for entry in lab.platform_objects.values()} == {1}


def test_an_update_with_refresh_recreates_a_missing_object(lab):
    lab.up(PROGRAM)
    lab.change_platform_object(lab.state("a").id, None)
    outcome = lab.up(PROGRAM, refresh=True)
    assert outcome.changes == {"same": 2, "create": 1, "update": 1}
    assert len(lab.platform_objects) == 3


def test_an_update_of_targets_refreshes_only_the_targets(lab):
    resize_outside(lab)
    lab.up(PROGRAM, refresh=True, **targets("a"))
    assert lab.state("a").outputs["size"] == 1.0
    assert lab.state("c").outputs["size"] == 1.0
    assert lab.platform_objects[lab.state("c").id]["size"] == 9


def test_a_preview_with_a_refresh_changes_nothing(lab):
    resize_outside(lab)
    before = lab.snapshot.to_json(lab.crypter, show_secrets=True)
    lab.preview(PROGRAM, refresh=True)
    assert lab.snapshot.to_json(lab.crypter, show_secrets=True) == before
    assert all(lab.state(name).outputs["size"] == 1.0 for name in "abc")


def test_a_destroy_with_refresh_deletes_only_existing_objects(lab):
    lab.up(PROGRAM)
    lab.change_platform_object(lab.state("c").id, None)
    deleted_id = lab.state("c").id
    outcome = lab.run("destroy", refresh=True)
    assert outcome.succeeded
    assert deleted_id not in [call["id"] for call in lab.calls if call["verb"] == "delete"]
    assert lab.snapshot.resources == []


def test_a_failed_read_does_not_block_the_refresh_of_other_resources(lab):
    (lab.directory / "deaf.py").write_text(DEAF)
    lab.up("from deaf import Machine\nMachine('a', size=1, deaf=1)\nMachine('b', size=1)\n")
    lab.change_platform_object(lab.state("b").id, {"size": 9})
    outcome = lab.run("refresh")
    assert not outcome.succeeded
    assert lab.failures == [("refresh", "a")]
    assert outcome.changes == {"same": 1, "update": 1}
    assert lab.state("b").outputs["size"] == 9.0
    assert lab.state("a").outputs["size"] == 1.0


def test_an_update_does_not_start_after_a_failed_refresh(lab):
    (lab.directory / "deaf.py").write_text(DEAF)
    lab.up("from deaf import Machine\nMachine('a', size=1, deaf=1)\n")
    outcome = lab.up(
        "from deaf import Machine\nMachine('a', size=2, deaf=1)\nMachine('n')", refresh=True
    )
    assert not outcome.succeeded
    assert [call["verb"] for call in lab.calls] == []
    assert lab.names == ["a"]


def test_drift_of_an_ignored_property_is_reverted(lab):
    """Pulumi's host reads no inputs: ignore_changes keeps the program's last inputs."""
    program = "Machine('a', size={}, opts=ResourceOptions(ignore_changes=['size']))"
    lab.up(program.format(1))
    lab.change_platform_object("m-1", {"size": 9})
    assert lab.run("refresh").changes == {"same": 1, "update": 1}
    assert lab.state("a").inputs["size"] == 1.0
    assert lab.state("a").outputs["size"] == 9.0
    assert lab.up(program.format(2)).changes == {"same": 1, "update": 1}
    assert lab.platform_objects == {"m-1": {"size": 1}}


def test_a_refresh_skips_resources_pending_replacement(lab):
    lab.up("Machine('a', slot='x')")
    lab.up("Machine('a', slot='y', refuse='create')")
    outcome = lab.run("refresh")
    assert outcome.changes == {"same": 2}
    assert lab.state("a").pending_replacement


def test_a_refresh_drops_missing_objects_pending_deletion(lab):
    lab.up("Machine('a', rack='x', refuse='delete')")
    lab.up("Machine('a', rack='y', refuse='delete')")
    lab.change_platform_object("m-1", None)
    outcome = lab.run("refresh")
    assert outcome.changes == {"same": 2, "delete": 1}
    assert [r.id for r in lab.snapshot.resources if "Machine" in r.urn] == ["m-2"]


def test_a_refresh_keeps_options_and_timestamps(lab):
    lab.up(
        "kept = ResourceOptions(protect=True, ignore_changes=['tags'], retain_on_delete=True)\n"
        "Machine('a', size=1, opts=kept)\n"
    )
    before = read_entry(lab)
    # As under the Pulumi CLI, properties that depend on nothing lose their keys.
    del before["propertyDependencies"]
    lab.run("refresh")
    assert read_entry(lab) == before
    lab.change_platform_object("m-1", {"size": 9})
    lab.run("refresh")
    after = read_entry(lab)
    assert after["created"] == before["created"]
    changed = {key for key in after if after[key] != before.get(key)}
    assert changed <= {"inputs", "outputs", "modified"}


def read_entry(lab):
    latest = json.loads(lab.written[-1])["checkpoint"]["latest"]["resources"]
    (state,) = [resource for resource in latest if resource["urn"].endswith("::a")]
    del state["inputs"]["__provider"], state["outputs"]["__provider"]  # encrypted anew
    return state


def test_a_refresh_with_parallel_1_reads_one_at_a_time(lab):
    resize_outside(lab)
    assert lab.run("refresh", parallel=1).changes == {"same": 1, "update": 3}


def test_components_and_the_stack_are_unchanged_by_a_refresh(lab):
    lab.up(
        "g = pulumi.ComponentResource('lab:index:Group', 'g', dict(n=1))\n"
        "g.register_outputs(dict(m=2))"
    )
    outcome = lab.run("refresh")
    assert outcome.changes == {"same": 2}
    assert lab.state("g").outputs == {"m": 2.0}
