"""Test that a run may do less than its plan, and is stopped before or while doing more."""

import pytest
from support.stacks.lab_plans import apply_plan, expect_no_change, find_refusals, save_plan

from gpuform.stacks.engine.state import Selection, UrnPatterns

M = "urn:pulumi:dev::lab::pulumi-python:dynamic/lab:Machine::"

# Big ones are replaced when they grow; while a size is unknown it is changed in place.
PICKY = """
import lab
from pulumi.dynamic import DiffResult

class Picky(lab.Machines):
    def diff(self, id, olds, news):
        changed = olds.get('size') != news.get('size') or olds.get('rack') != news.get('rack')
        big = isinstance(news.get('size'), float) and news['size'] > 5
        return DiffResult(changes=changed, replaces=['size'] if big and changed else [])

class Choosy(pulumi.dynamic.Resource, module='lab', name='Machine'):
    address: pulumi.Output[str]

    def __init__(self, name, opts=None, **props):
        super().__init__(Picky(), name, dict(props, address=None), opts)

real = not pulumi.runtime.is_dry_run()
"""


def test_planned_drift_that_disappeared_passes(lab):
    lab.up("Machine('a', size=1)\nMachine('b', size=1)")
    lab.change_platform_object("m-1", {"size": 9})
    program = "Machine('a', size=1)\nMachine('b', size=2)"
    bound = save_plan(lab, program, refresh=True)
    lab.change_platform_object("m-1", {"size": 1})
    outcome = apply_plan(lab, bound, program, refresh=True)
    assert outcome.effects == {f"{M}b": {"update"}}


@pytest.mark.parametrize(
    ("properties", "more"),
    [
        ({"size": 9}, f"{M}a would be updated, which the plan does not contain"),
        ({"rack": "r9"}, f"{M}a would be replaced, which the plan does not contain"),
        (None, f"{M}a would be created, which the plan does not contain"),
    ],
)
def test_new_drift_exceeds_the_plan(lab, properties, more):
    program = "Machine('a', size=1, rack='r1')"
    lab.up(program)
    bound = save_plan(lab, program, refresh=True)
    lab.change_platform_object("m-1", properties)
    with expect_no_change(lab):
        assert find_refusals(lab, bound, program, refresh=True) == [more]


def test_an_update_in_place_of_a_planned_replacement_passes(lab):
    lab.up("Machine('a', size=1, rack='r1')")
    program = "Machine('a', size=2, rack='r1')"
    lab.change_platform_object("m-1", {"rack": "r2"})
    bound = save_plan(lab, program, refresh=True)
    assert bound.basis.effects[f"{M}a"] == ("delete", "replace")
    lab.change_platform_object("m-1", {"rack": "r1"})
    outcome = apply_plan(lab, bound, program, refresh=True)
    assert outcome.effects == {f"{M}a": {"update"}}


@pytest.mark.parametrize(("size", "effects"), [(2, {"update"}), (1, set())])
def test_an_unknown_value_that_needs_no_more_than_planned_passes(lab, size, effects):
    program = PICKY + (
        "a = Machine('a', size={0}, n={1})\nChoosy('b', size=a.address.apply(lambda _: {2}))\n"
    )
    lab.up(program.format(1, 0, 1))
    bound = save_plan(lab, program.format(2, 0, size))
    # What the address is made into is the program's: the inputs are unknown in both previews.
    outcome = apply_plan(lab, bound, program.format(2, 0, size))
    assert outcome.succeeded, lab.errors
    assert outcome.effects.get(f"{M}b", set()) == effects


def test_an_unknown_value_that_forces_a_replacement_stops_the_run(lab):
    program = PICKY + (
        "a = Machine('a', size={0})\nChoosy('b', size=a.address.apply(lambda _: {1}))\n"
    )
    lab.up(program.format(1, 1))
    bound = save_plan(lab, program.format(2, 6))
    assert bound.basis.effects[f"{M}b"] == ("update",)
    outcome = apply_plan(lab, bound, program.format(2, 6))
    assert not outcome.succeeded
    (error,) = lab.errors
    assert f"{M}b would be replaced, which the plan does not contain" in error
    assert "gpuform preview --save-plan" in error
    assert [call["verb"] for call in lab.calls if call["verb"] != "check"] == ["update"]
    assert lab.platform_objects["m-2"]["size"] == 1


@pytest.mark.parametrize(
    ("line", "more"),
    [
        ("Machine('a', size=2 if real else 1)", "a declares different inputs: size than planned"),
        (
            "Machine('a', token=pulumi.Output.secret('x' if real else 'y'))",
            "a declares different inputs: token than planned",
        ),
        (
            "Machine('a', opts=ResourceOptions(retain_on_delete=real))",
            "a declares different options: retain_on_delete than planned",
        ),
        ("Machine('b') if real else None", "b is declared, but not in the plan"),
    ],
)
def test_resources_declared_only_outside_of_previews_stop_the_run(lab, line, more):
    program = PICKY + line
    bound = save_plan(lab, program)
    outcome = apply_plan(lab, bound, program)
    assert not outcome.succeeded
    assert any(f"{M}{more}; gpuform did not apply it" in error for error in lab.errors)
    assert lab.platform_objects == {}


def test_planned_resources_missing_from_the_run_are_not_deleted(lab):
    lab.up("Machine('a')\nMachine('b')")
    program = PICKY + "Machine('a')\nif not real: Machine('b')\n"
    bound = save_plan(lab, program)
    outcome = apply_plan(lab, bound, program)
    assert not outcome.succeeded
    assert f"{M}b would be deleted, which the plan does not contain" in lab.errors[0]
    assert sorted(lab.platform_objects) == ["m-1", "m-2"]


def test_no_other_operation_starts_after_the_plan_is_exceeded(lab):
    program = PICKY + (
        "a = Machine('a', size=2 if real else 1)\n"
        "Machine('b', opts=ResourceOptions(depends_on=[a]))\n"
    )
    bound = save_plan(lab, program)
    outcome = apply_plan(lab, bound, program, continue_on_error=True)
    assert not outcome.succeeded
    assert lab.platform_objects == {}


def test_a_preview_is_not_constrained(lab):
    bound = save_plan(lab, "Machine('a')")
    assert lab.preview("Machine('b')", constraint=bound).succeeded


def test_a_plan_of_targets_can_be_applied(lab):
    program = "Machine('a', size={0})\nMachine('b', size={0})"
    lab.up(program.format(1))
    only_a = {"selection": Selection(targets=UrnPatterns(("a",)))}
    bound = save_plan(lab, program.format(2), **only_a)
    with expect_no_change(lab):
        assert find_refusals(lab, bound, program.format(2)) == [
            f"{M}b would be updated, which the plan does not contain"
        ]
    outcome = apply_plan(lab, bound, program.format(2), **only_a)
    assert outcome.effects == {f"{M}a": {"update"}}


def test_a_plan_includes_replaced_dependents(lab):
    program = "a = Machine('a', slot={0})\nb = Machine('b', slot=a.address)\n"
    lab.up(program.format(1))
    bound = save_plan(lab, program.format(2))
    outcome = apply_plan(lab, bound, program.format(2))
    assert outcome.effects == {f"{M}a": {"replace", "delete"}, f"{M}b": {"replace", "delete"}}


@pytest.mark.slow
def test_a_plan_can_finish_a_pending_replacement(lab):
    lab.up("Machine('a', rack=1, refuse='delete')")
    assert not lab.up("Machine('a', rack=2)").succeeded
    program = "Machine('a', rack=2, size=2)"
    bound = save_plan(lab, program)
    assert bound.basis.effects == {f"{M}a": ("delete", "update")}
    apply_plan(lab, bound, program)
    assert any(call["verb"] == "delete" for call in lab.calls)


def test_a_plan_can_rename_a_resource(lab):
    lab.up("Machine('a', rack=1)")
    program = "Machine('b', rack=2, opts=ResourceOptions(aliases=[pulumi.Alias(name='a')]))"
    outcome = apply_plan(lab, save_plan(lab, program), program)
    assert outcome.succeeded
    assert outcome.effects == {f"{M}b": {"replace"}, f"{M}a": {"delete"}}
