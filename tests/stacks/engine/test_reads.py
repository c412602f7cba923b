"""Test resources that a program reads by id, and changes of their ownership."""

import json

import pytest

from gpuform.providers.values import UNKNOWN
from gpuform.schemas.plan import PlanAction
from gpuform.stacks.engine.deployment import PreviewDigest

READ = "r = Machine('r', opts=ResourceOptions(id={!r}))\npulumi.export('size', r.size)\n"


@pytest.fixture
def lab(lab):
    """Return a lab with two unmanaged objects."""
    objects = {"_made": ["x-1", "x-2"], "x-1": {"size": 1}, "x-2": {"size": 2}}
    (lab.directory / "platform.json").write_text(json.dumps(objects))
    return lab


def list_mutations(lab):
    return [call for call in lab.calls if call["verb"] in ("create", "update", "delete")]


def list_resources(lab):
    digest = PreviewDigest()
    for event in lab.events:
        digest(event)
    steps = json.loads("".join(digest.format_parts()))["steps"]
    return [(step["op"], step["urn"].rsplit("::", 1)[1]) for step in steps]


def test_an_unmanaged_object_is_read(lab):
    program = READ.format("x-1")
    preview = lab.preview(program)
    assert preview.outputs["size"] == 1.0  # read in previews as well
    assert list_resources(lab) == [("create", "lab-dev"), ("read", "r")]
    assert [c.action for c in preview.planned if c.name == "r"] == [PlanAction.READ]
    outcome = lab.up(program)
    # As in Pulumi a first read is not counted.
    assert preview.changes == outcome.changes == {"create": 1}
    assert lab.steps == [("read", "r")]
    assert outcome.outputs == {"size": 1.0}
    assert lab.calls == []


def test_a_read_resource_is_an_external_entry(lab):
    lab.up(
        "own = Machine('own')\n"
        "Machine('r', size=own.size, opts=ResourceOptions(id='x-1', depends_on=[own]))"
    )
    (entry,) = [
        entry
        for entry in json.loads(lab.written[-1])["checkpoint"]["latest"]["resources"]
        if entry["urn"].endswith("::r")
    ]
    assert entry["external"] is True
    assert entry["id"] == "x-1"
    assert entry["outputs"]["size"] == 1.0
    assert entry["dependencies"] == [lab.state("own").urn]
    assert not entry.keys() & {"propertyDependencies", "created", "modified", "aliases"}


def test_only_a_first_read_counts_as_a_change(lab):
    lab.up(READ.format("x-1"))
    outcome = lab.up(READ.format("x-1"))
    assert lab.steps == [("read", "r")]
    assert outcome.changes == {"same": 1}
    assert not outcome.has_changes
    lab.change_platform_object("x-1", {"size": 5})
    outcome = lab.up(READ.format("x-1"))
    assert outcome.changes == {"same": 1, "read": 1}
    assert outcome.outputs == {"size": 5.0}
    assert not outcome.has_changes


def test_a_read_of_another_id_replaces_the_entry(lab):
    lab.up(READ.format("x-1"))
    outcome = lab.up(READ.format("x-2"))
    assert lab.steps == [("read", "r")]
    assert outcome.outputs == {"size": 2.0}
    assert lab.state("r").id == "x-2"
    assert list_mutations(lab) == []


def test_a_read_with_an_unknown_id_waits_for_the_id(lab):
    program = (
        "a = Machine('a', size=3)\n"
        "r = Machine('r', opts=ResourceOptions(id=a.id))\n"
        "pulumi.export('size', r.size)\n"
    )
    preview = lab.preview(program)
    assert preview.succeeded
    assert preview.outputs["size"] is UNKNOWN
    assert ("read", "r") in lab.steps
    outcome = lab.up(program)
    assert outcome.outputs == {"size": 3.0}
    assert lab.state("r").id == lab.state("a").id


def test_reading_a_missing_object_is_an_error(lab):
    for operation in (lab.preview, lab.up):
        outcome = operation(READ.format("nowhere"))
        assert not outcome.succeeded
        assert "resource 'nowhere' does not exist" in lab.errors[0]
    assert lab.names == []
    assert lab.failures == [("read", "r")]


def test_a_read_object_that_disappeared_keeps_its_entry(lab):
    lab.up(READ.format("x-1"))
    lab.change_platform_object("x-1", None)
    assert not lab.up(READ.format("x-1")).succeeded
    assert lab.state("r").id == "x-1"


def test_a_resource_that_is_no_longer_read_is_removed_from_the_state_only(lab):
    lab.up(READ.format("x-1"))
    preview = lab.preview("")
    assert list_resources(lab) == [("same", "lab-dev"), ("discard", "r")]
    outcome = lab.up("")
    assert preview.changes == outcome.changes == {"same": 1, "discard": 1}
    assert lab.steps == [("discard", "r")]
    assert lab.calls == []
    assert lab.names == []
    assert sorted(lab.platform_objects) == ["x-1", "x-2"]


def test_destroy_removes_read_resources_from_the_state_only(lab):
    lab.up(READ.format("x-1"))
    outcome = lab.run("destroy")
    assert outcome.changes == {"delete": 1, "discard": 1}
    assert lab.calls == []
    assert lab.snapshot.resources == []
    assert sorted(lab.platform_objects) == ["x-1", "x-2"]


def test_a_read_resource_that_is_declared_is_created(lab):
    lab.up(READ.format("x-1"))
    preview = lab.preview("Machine('r', size=7)")
    outcome = lab.up("Machine('r', size=7)")
    assert preview.changes == outcome.changes == {"same": 1, "replace": 1}
    assert lab.steps == [("create-replacement", "r"), ("replace", "r"), ("discard-replaced", "r")]
    assert [call["verb"] for call in list_mutations(lab)] == ["create"]
    assert lab.platform_objects["m-3"] == {"size": 7}
    assert "x-1" in lab.platform_objects
    assert not lab.state("r").external
    assert lab.names == ["r"]


def test_a_managed_resource_that_is_now_read_keeps_its_object(lab):
    lab.up("Machine('r', size=7)")
    outcome = lab.up(READ.format("m-3"))
    assert lab.steps == [("read", "r")]
    assert list_mutations(lab) == []
    assert outcome.outputs == {"size": 7.0}
    assert lab.state("r").external
    lab.run("destroy")
    assert "m-3" in lab.platform_objects


def test_a_managed_resource_is_deleted_when_another_id_is_read(lab):
    lab.up("Machine('r', size=7)")
    preview = lab.preview(READ.format("x-1"))
    assert list_resources(lab) == [("same", "lab-dev"), ("replace", "r")]
    outcome = lab.up(READ.format("x-1"))
    assert preview.changes == outcome.changes == {"same": 1, "replace": 1}
    assert lab.steps == [("read-replacement", "r"), ("replace", "r"), ("delete-replaced", "r")]
    assert list_mutations(lab) == [{"verb": "delete", "id": "m-3"}]
    assert sorted(lab.platform_objects) == ["x-1", "x-2"]
    assert lab.state("r").id == "x-1"
    assert lab.names == ["r"]


def test_a_resource_pending_replacement_can_be_read_instead(lab):
    lab.up("Machine('r', slot='x')")
    lab.up("Machine('r', slot='y', refuse='create')")
    outcome = lab.up(READ.format("x-1"))
    assert outcome.succeeded
    assert list_mutations(lab) == []
    assert [
        (r.id, r.pending_replacement) for r in lab.snapshot.resources if "Machine" in r.urn
    ] == [("x-1", False)]


def test_refresh_reads_unmanaged_objects(lab):
    lab.up(READ.format("x-1"))
    lab.change_platform_object("x-1", {"size": 9})
    outcome = lab.run("refresh")
    assert outcome.changes == {"same": 1, "update": 1}
    assert lab.state("r").outputs["size"] == 9.0
    lab.change_platform_object("x-1", None)
    outcome = lab.run("refresh")
    assert outcome.changes == {"same": 1, "delete": 1}
    assert lab.names == []


def test_a_component_can_be_the_parent_of_a_read_resource(lab):
    program = (
        "g = pulumi.ComponentResource('lab:index:Group', 'g')\n"
        "Machine('r', opts=ResourceOptions(id='x-1', parent=g))\n"
    )
    lab.up(program)
    assert lab.state("r").parent == lab.state("g").urn
    assert lab.up(program).changes == {"same": 2}


def test_a_read_resource_is_never_protected_or_retained(lab):
    lab.up("Machine('r', opts=ResourceOptions(id='x-1', protect=True))")
    assert not lab.state("r").protect
    assert lab.up("").succeeded
    assert lab.names == []


def test_a_read_with_secret_outputs_counts_as_changed_in_each_run_as_under_pulumi(lab):
    """Pulumi compares the read outputs with the encrypted ones."""
    program = (
        "Machine('r', opts=ResourceOptions(id='x-1', additional_secret_outputs=['size']))\n"
        "Machine('s', opts=ResourceOptions(id='x-2'))\n"
    )
    modified = []
    for _ in range(2):
        lab.up(program)
        modified.append({e.id for e in lab.snapshot.resources if e.external and e.modified})
    assert modified == [set(), {"x-1"}]
