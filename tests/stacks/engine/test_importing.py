"""The `import_` option: taking over an object without touching it."""

import json


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


def test_what_differs_is_changed_by_the_next_update(lab):
    _somebody_makes(lab, size=1)
    program = "Machine('a', size=2, opts=ResourceOptions(import_='m-7'))"
    assert lab.up(program).succeeded
    assert lab.world == {"m-7": {"size": 1}}
    assert lab.up(program).succeeded
    assert lab.world == {"m-7": {"size": 2}}
    assert not lab.preview(program).has_changes


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
