"""The `import_` option: taking over an object that exists."""

import json

import pytest


def _somebody_makes(lab, **properties):
    (lab.directory / "world.json").write_text(json.dumps({"m-7": properties, "_made": ["m-7"]}))


def test_an_object_becomes_a_resource_and_stays_as_it_is(lab):
    _somebody_makes(lab, size=1)
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
    assert lab.world == {}


@pytest.mark.parametrize("field", ["size", "lazy"])
def test_what_differs_is_planned_and_changed_in_the_same_run(lab, field):
    _somebody_makes(lab, **{field: 1})
    program = f"Machine('a', {field}=2, opts=ResourceOptions(import_='m-7'))"
    lab.preview(program)
    assert lab.steps == [("import", "a"), ("update", "a")]
    outcome = lab.up(program)
    assert lab.steps == [("import", "a"), ("update", "a")]
    assert [(c.action, [p.path for p in c.changes]) for c in outcome.planned][-2:] == [
        ("import", []),
        ("update", [field]),
    ]
    assert lab.world == {"m-7": {field: 2}}
    assert not lab.preview(program).has_changes


def test_an_import_whose_update_fails_is_kept_and_tried_again(lab):
    _somebody_makes(lab, size=1)
    options = "opts=ResourceOptions(import_='m-7')"
    assert not lab.up(f"Machine('a', size=2, refuse='update', {options})").succeeded
    assert lab.state("a").id == "m-7"
    lab.up(f"Machine('a', size=2, {options})")
    assert lab.steps == [("update", "a")]
    assert lab.world == {"m-7": {"size": 2}}


def test_a_replacement_of_what_is_still_named_by_import_is_refused(lab):
    _somebody_makes(lab, rack="x")
    options = "opts=ResourceOptions(import_='m-7')"
    lab.up(f"Machine('a', rack='x', {options})")
    assert not lab.up(f"Machine('a', rack='y', {options})").succeeded
    assert "import_" in lab.errors[0]
    assert list(lab.world) == ["m-7"]
    assert lab.up("Machine('a', rack='y')").succeeded
    assert "m-7" not in lab.world


def test_an_object_that_would_be_replaced_is_refused(lab):
    _somebody_makes(lab, rack="x")
    assert not lab.up("Machine('a', rack='y', opts=ResourceOptions(import_='m-7'))").succeeded
    assert "rack" in lab.errors[0]
    assert lab.names == []
    assert lab.world == {"m-7": {"rack": "x"}}


def test_an_id_that_does_not_exist_is_refused(lab):
    assert not lab.preview("Machine('a', opts=ResourceOptions(import_='m-9'))").succeeded
    assert "m-9" in lab.errors[0]


def test_a_resource_that_stands_for_another_object_is_not_moved(lab):
    lab.up("Machine('a')")
    assert not lab.up("Machine('a', opts=ResourceOptions(import_='m-9'))").succeeded
    assert "m-1" in lab.errors[0]
    assert list(lab.world) == ["m-1"]
