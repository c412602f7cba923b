"""Test the `import_` option: importing an existing object."""

import json

import pytest


def _create_unmanaged_object(lab, **properties):
    (lab.directory / "platform.json").write_text(json.dumps({"m-7": properties, "_made": ["m-7"]}))


def test_an_imported_object_is_not_changed(lab):
    _create_unmanaged_object(lab, size=1)
    program = "Machine('a', size=1, opts=ResourceOptions(import_='m-7'))"
    lab.preview(program)
    assert lab.steps == [("import", "a")]
    assert lab.names == []
    assert lab.up(program).changes == {"create": 1, "import": 1}
    assert (lab.state("a").id, lab.state("a").import_id) == ("m-7", "m-7")
    assert {c["verb"] for c in lab.calls} == {"check"}
    assert not lab.up(program).has_changes
    assert not lab.up("Machine('a', size=1)").has_changes
    lab.run("destroy")
    assert lab.platform_objects == {}


@pytest.mark.parametrize("field", ["size", "lazy"])
def test_differences_of_an_imported_object_are_updated_in_the_same_run(lab, field):
    _create_unmanaged_object(lab, **{field: 1})
    program = f"Machine('a', {field}=2, opts=ResourceOptions(import_='m-7'))"
    lab.preview(program)
    assert lab.steps == [("import", "a"), ("update", "a")]
    outcome = lab.up(program)
    assert lab.steps == [("import", "a"), ("update", "a")]
    assert [(c.action, [p.path for p in c.changes]) for c in outcome.planned][-2:] == [
        ("import", []),
        ("update", [field]),
    ]
    assert lab.platform_objects == {"m-7": {field: 2}}
    assert not lab.preview(program).has_changes


def test_an_import_whose_update_fails_is_kept_and_updated_by_the_next_run(lab):
    _create_unmanaged_object(lab, size=1)
    options = "opts=ResourceOptions(import_='m-7')"
    assert not lab.up(f"Machine('a', size=2, refuse='update', {options})").succeeded
    assert lab.state("a").id == "m-7"
    lab.up(f"Machine('a', size=2, {options})")
    assert lab.steps == [("update", "a")]
    assert lab.platform_objects == {"m-7": {"size": 2}}


def test_replacing_a_resource_that_still_has_the_import_option_is_refused(lab):
    _create_unmanaged_object(lab, rack="x")
    options = "opts=ResourceOptions(import_='m-7')"
    lab.up(f"Machine('a', rack='x', {options})")
    assert not lab.up(f"Machine('a', rack='y', {options})").succeeded
    assert "import_" in lab.errors[0]
    assert list(lab.platform_objects) == ["m-7"]
    assert lab.up("Machine('a', rack='y')").succeeded
    assert "m-7" not in lab.platform_objects


def test_an_import_that_would_force_a_replacement_is_refused(lab):
    _create_unmanaged_object(lab, rack="x")
    assert not lab.up("Machine('a', rack='y', opts=ResourceOptions(import_='m-7'))").succeeded
    assert "rack" in lab.errors[0]
    assert lab.names == []
    assert lab.platform_objects == {"m-7": {"rack": "x"}}


def test_importing_a_missing_object_is_refused(lab):
    assert not lab.preview("Machine('a', opts=ResourceOptions(import_='m-9'))").succeeded
    assert "m-9" in lab.errors[0]


def test_importing_another_id_into_an_existing_resource_is_refused(lab):
    lab.up("Machine('a')")
    assert not lab.up("Machine('a', opts=ResourceOptions(import_='m-9'))").succeeded
    assert "m-1" in lab.errors[0]
    assert list(lab.platform_objects) == ["m-1"]
