"""Test updates with targets, excludes and replace: which resources change and which do not."""

import json

import pytest

from gpuform.providers.values import UNKNOWN
from gpuform.stacks.engine.deployment import PreviewDigest
from gpuform.stacks.engine.state import Selection, UrnPatterns

TYPE = "urn:pulumi:dev::lab::pulumi-python:dynamic/lab:Machine::"
CHAIN = """
a = Machine('a', size={0})
b = Machine('b', size={0}, uses=a.address)
Machine('c', size={0}, uses=b.address)
Machine('d', size={0})
"""


def targets(*names, **more):
    return {"selection": Selection(targets=UrnPatterns(names), **more)}


def excludes(*names, **more):
    return {"selection": Selection(excludes=UrnPatterns(names), **more)}


def replacing(*names, target=()):
    return {"selection": Selection(targets=UrnPatterns(target), replace=UrnPatterns(names))}


def list_changed_names(lab, op="update"):
    return sorted(name for operation, name in lab.steps if operation == op)


def get_sizes(lab):
    return {
        r.urn.rsplit("::", 1)[1]: r.inputs.get("size")
        for r in lab.snapshot.resources
        if "Machine" in r.urn
    }


def test_only_targets_change(lab):
    lab.up(CHAIN.format(1))
    preview = lab.preview(CHAIN.format(2), **targets("b"))
    outcome = lab.up(CHAIN.format(2), **targets("b"))
    assert preview.changes == outcome.changes == {"same": 4, "update": 1}
    assert get_sizes(lab) == {"a": 1, "b": 2, "c": 1, "d": 1}
    # Nobody is asked about the others.
    assert {call["verb"] for call in lab.calls} == {"check", "update"}
    assert len(lab.calls) == 2
    assert lab.up(CHAIN.format(2)).changes == {"same": 2, "update": 3}


@pytest.mark.parametrize(
    ("names", "updated"),
    [
        ([f"{TYPE}a"], ["a"]),
        (["a", "d"], ["a", "d"]),
        (["**::d"], ["d"]),
        ([f"{TYPE}*"], ["a", "b", "c", "d"]),
        (["urn:pulumi:dev::lab::pulumi-python:*:Machine::d"], ["d"]),
        (["**Machine**"], ["a", "b", "c", "d"]),
        (["**"], ["a", "b", "c", "d"]),
    ],
)
def test_targets_match_by_urn_name_and_pattern(lab, names, updated):
    lab.up(CHAIN.format(1))
    outcome = lab.up(CHAIN.format(2), **targets(*names))
    assert outcome.succeeded
    assert list_changed_names(lab) == updated


@pytest.mark.parametrize("operation", ["update", "refresh", "destroy"])
@pytest.mark.parametrize("preview", [True, False])
def test_a_target_without_a_match_is_an_error(lab, operation, preview):
    lab.up("Machine('a')")
    outcome = lab.run(operation, "Machine('a')", preview=preview, **targets("nowhere"))
    assert not outcome.succeeded
    assert any("--target nowhere matches no resource of the stack" in error for error in lab.errors)
    assert lab.names == ["a"]


def test_target_dependents_includes_dependents(lab):
    lab.up(CHAIN.format(1))
    lab.up(CHAIN.format(2), **targets("b", target_dependents=True))
    assert list_changed_names(lab) == ["b", "c"]


def test_target_dependents_includes_children(lab):
    program = """
    g = pulumi.ComponentResource('lab:index:Group', 'g')
    Machine('child', size={0}, opts=ResourceOptions(parent=g))
    Machine('other', size={0})
    """
    lab.up(program.format(1))
    lab.up(program.format(2), **targets("g"))
    assert list_changed_names(lab) == []
    lab.up(program.format(2), **targets("g", target_dependents=True))
    assert list_changed_names(lab) == ["child"]


def test_an_untargeted_new_resource_is_not_created(lab):
    lab.up("Machine('a')")
    program = "Machine('a')\nn = Machine('n')\npulumi.export('n', n.address)\n"
    preview = lab.preview(program, **targets("a"))
    outcome = lab.up(program, **targets("a"))
    assert preview.changes == outcome.changes == {"same": 3}
    assert lab.names == ["a"]
    assert sorted(lab.platform_objects) == ["m-1"]
    assert outcome.outputs["n"] is UNKNOWN, outcome.outputs
    assert lab.up(program).changes == {"same": 2, "create": 1}


def test_the_preview_omits_untargeted_new_resources(lab):
    lab.up("Machine('a', size=1)")
    lab.preview("Machine('a', size=2)\nMachine('n')\n", **targets("a"))
    digest = PreviewDigest()
    for event in lab.events:
        digest(event)
    steps = json.loads("".join(digest.format_parts()))["steps"]
    listed = [(step["op"], step["urn"].rsplit("::", 1)[1]) for step in steps]
    assert listed == [("same", "lab-dev"), ("update", "a")]


@pytest.mark.parametrize(
    "uses",
    ["uses=n.address", "opts=ResourceOptions(depends_on=[n])", "opts=ResourceOptions(parent=n)"],
)
def test_a_target_that_depends_on_an_uncreated_resource_is_an_error(lab, uses):
    lab.up("Machine('a')")
    program = f"Machine('a')\nn = Machine('n')\nMachine('t', {uses})\n"
    for operation in (lab.preview, lab.up):
        outcome = operation(program, **targets("**::t"))
        assert not outcome.succeeded
        assert "which does not exist yet and is not among the targets" in lab.errors[0]
        assert f"{TYPE}n" in lab.errors[0]
    assert lab.names == ["a"]


def test_an_untargeted_dependent_of_an_uncreated_resource_is_not_created(lab):
    lab.up("Machine('a')")
    outcome = lab.up(
        "Machine('a')\nn = Machine('n')\nMachine('o', uses=n.address)\n", **targets("a")
    )
    assert outcome.changes == {"same": 4}
    assert lab.names == ["a"]


def test_an_untargeted_component_keeps_its_inputs_and_outputs(lab):
    program = """
    g = pulumi.ComponentResource('lab:index:Group', 'g', dict(n={0}))
    Machine('child', size={0}, opts=ResourceOptions(parent=g))
    g.register_outputs(dict(n={0}))
    """
    lab.up(program.format(1))
    lab.up(program.format(2), **targets("child"))
    assert list_changed_names(lab) == ["child"]
    assert lab.state("g").inputs == {"n": 1.0}


def test_a_replaced_target_does_not_update_untargeted_dependents(lab):
    program = "a = Machine('a', rack={!r})\nMachine('b', uses=a.address)\n"
    lab.up(program.format("x"))
    outcome = lab.up(program.format("y"), **targets("a"))
    assert outcome.changes == {"same": 2, "replace": 1}
    # The next run finds the new address.
    assert lab.state("b").inputs["uses"] == "10.0.0.1"
    assert lab.up(program.format("y")).changes == {"same": 2, "update": 1}


def test_an_untargeted_dependent_is_recreated_with_its_old_inputs(lab):
    program = "a = Machine('a', slot={0!r})\nMachine('b', rack=a.address, size={1})\n"
    lab.up(program.format("x", 1))
    outcome = lab.up(program.format("y", 2), **targets("a"))
    assert outcome.changes == {"same": 1, "replace": 2}
    assert lab.state("b").inputs["size"] == 1
    assert lab.up(program.format("y", 2)).succeeded
    assert lab.state("b").inputs["size"] == 2


def test_excluded_resources_do_not_change(lab):
    lab.up(CHAIN.format(1))
    outcome = lab.up(CHAIN.format(2), **excludes("b"))
    assert outcome.changes == {"same": 2, "update": 3}
    assert get_sizes(lab) == {"a": 2, "b": 1, "c": 2, "d": 2}


def test_exclude_dependents_excludes_dependents(lab):
    lab.up(CHAIN.format(1))
    lab.up(CHAIN.format(2), **excludes("b", exclude_dependents=True))
    assert list_changed_names(lab) == ["a", "d"]


def test_an_excluded_new_resource_is_not_created(lab):
    outcome = lab.up("Machine('a')\nMachine('b')\n", **excludes("b"))
    assert outcome.changes == {"create": 2, "same": 1}
    assert lab.names == ["a"]


@pytest.mark.parametrize("given", ["nowhere", "*", "**none*", f"{TYPE}mowhere"])
@pytest.mark.parametrize("kind", [targets, excludes, replacing])
def test_a_selection_without_a_match_is_an_error_before_any_delete(lab, kind, given):
    lab.up("Machine('old')\nMachine('nothing')")
    for operation in ("refresh", "destroy", "update"):
        for preview in (True, False):
            outcome = lab.run(operation, "Machine('nothing')", preview=preview, **kind(given))
            assert not outcome.succeeded
            assert any(f"{given} matches no resource of the stack" in error for error in lab.errors)
            assert sorted(lab.names) == ["nothing", "old"]
    assert not [call for call in lab.calls if call["verb"] in ("read", "delete", "update")]


def test_replace_replaces_an_unchanged_resource(lab):
    lab.up(CHAIN.format(1))
    preview = lab.preview(CHAIN.format(1), **replacing("a"))
    assert preview.changes == {"same": 2, "replace": 1, "update": 2}
    outcome = lab.up(CHAIN.format(1), **replacing("a"))
    # The new address changes what uses it, and that one keeps its own.
    assert outcome.changes == {"same": 3, "replace": 1, "update": 1}
    assert list_changed_names(lab, "create-replacement") == ["a"]
    assert [c["verb"] for c in lab.calls].count("check") == 4


def test_replace_respects_delete_before_replace(lab):
    program = "Machine('a', opts=ResourceOptions(delete_before_replace=True))"
    lab.up(program)
    lab.up(program, **replacing("a"))
    assert lab.steps == [("delete-replaced", "a"), ("replace", "a"), ("create-replacement", "a")]


def test_replace_with_targets_changes_nothing_else(lab):
    lab.up(CHAIN.format(1))
    outcome = lab.up(CHAIN.format(2), **replacing("a", target=["a"]))
    assert outcome.changes == {"same": 4, "replace": 1}
    assert get_sizes(lab) == {"a": 2, "b": 1, "c": 1, "d": 1}


def test_replace_without_a_match_is_an_error(lab):
    lab.up("Machine('a')")
    assert lab.up("Machine('a')\nMachine('n')", **replacing("n")).succeeded
    assert not lab.up("Machine('a')\nMachine('n')", **replacing("m")).succeeded
    assert lab.names == ["a", "n"]


def test_replace_of_a_protected_resource_is_refused(lab):
    lab.up("Machine('a', opts=ResourceOptions(protect=True))")
    assert not lab.up(
        "Machine('a', opts=ResourceOptions(protect=True))", **replacing("a")
    ).succeeded
    assert sorted(lab.platform_objects) == ["m-1"]
