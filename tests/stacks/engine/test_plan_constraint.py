"""Test a saved plan as a constraint: anything beyond the plan is reported, anything less passes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import Basis, Plan, PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.stacks.engine.digests import compute_registration_digests
from gpuform.stacks.engine.planning import Op, PlanConstraint, Step
from gpuform.stacks.engine.planning.constraints import PlanExceeded
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.state import ResourceState

TYPE = "lab:Machine"
A, B = (f"urn:pulumi:dev::lab::{TYPE}::{name}" for name in "ab")
HINT = (
    "make a new plan with `gpuform preview --save-plan FILE` (or `destroy`, `refresh`), and apply "
    "the new plan: a plan can be applied only once"
)


def compute_digest(*parts: Any) -> str:
    return repr(parts)


def build_basis(**fields: Any) -> Basis:
    return Basis(**{"state": {}, "config": {}, "program": {}, **fields})


def build_constraint(reads_others: bool = False, **fields: Any) -> PlanConstraint:
    return PlanConstraint(build_basis(**fields), {}, compute_digest, reads_others)


def build_change(
    urn: str, after: Any, action: PlanAction = PlanAction.UPDATE, path: str = "size"
) -> ResourceChange:
    property_change = PropertyChange(path=path, action=Action.UPDATE, after=after)
    return ResourceChange(
        urn=urn,
        type=TYPE,
        name="a",
        action=action,
        reason=PlanReason.CHANGED,
        changes=(property_change,),
    )


def test_a_constraint_has_the_values_of_all_planned_writes():
    changes = [
        build_change(A, 1, PlanAction.IMPORT),
        build_change(A, 2, path="rack"),
        build_change(B, 3, PlanAction.DELETE),
    ]
    plan = Plan.from_changes("lab", "dev", changes).model_copy(
        update={"basis": build_basis(key="k")}
    )
    constraint = PlanConstraint.from_plan(plan, compute_digest)
    paths = {
        urn: [change.path for change in urn_changes]
        for urn, urn_changes in constraint.changes.items()
    }
    assert paths == {A: ["size", "rack"]}
    assert (constraint.basis, constraint.digest) == (plan.basis, compute_digest)
    assert constraint.reads_others is False
    others = plan.model_copy(update={"stack_references": ("organization/net/dev",)})
    assert PlanConstraint.from_plan(others, compute_digest).reads_others is True


def test_a_plan_without_a_basis_is_rejected_as_a_constraint():
    with pytest.raises(AssertionError, match=r"^a saved plan has a basis$"):
        PlanConstraint.from_plan(Plan.from_changes("lab", "dev", []), compute_digest)


def test_each_change_since_the_plan_is_reported():
    before = build_constraint(
        state={A: "1", "gone": "1"}, config={"x": "1", "lost": "1", "kept": "1"}
    )
    now = build_basis(state={A: "2", "more": "1"}, config={"x": "2", "new": "1", "kept": "1"})
    assert list(before.find_basis_changes(now)) == [
        "state of gone was deleted since the plan",
        "state of more is new since the plan",
        f"state of {A} changed since the plan",
        "configuration key lost was removed since the plan",
        "configuration key new was added since the plan",
        "configuration key x changed since the plan",
    ]
    assert list(before.find_basis_changes(before.basis)) == []
    without_state = list(before.find_basis_changes(now, compares_state=False))
    assert [message.split()[0] for message in without_state] == ["configuration"] * 3


def test_another_passphrase_is_the_only_reported_change():
    before = build_constraint(key="k1", state={A: "1"})
    assert list(before.find_basis_changes(build_basis(key="k2"))) == [
        "the passphrase of the stack changed"
    ]


@pytest.mark.parametrize(
    ("allowed", "effects", "more"),
    [
        ([], ["create"], "created"),
        ([], ["update"], "updated"),
        ([], ["replace", "delete"], "replaced"),
        ([], ["delete"], "deleted"),
        ([], ["forget"], "forgotten"),
        ([], ["import"], "imported"),
        ([], ["refresh"], "imported from its platform"),
        (["update"], ["replace"], "replaced"),
        (["forget"], ["delete"], "deleted"),
        (["replace"], ["update"], None),
        (["delete"], ["forget"], None),
        (["create", "update"], ["update"], None),
    ],
)
def test_unplanned_effects_are_reported_and_fewer_effects_pass(
    allowed: list[str], effects: list[str], more: str | None
):
    planned = build_constraint(effects={A: tuple(allowed)} if allowed else {})
    texts = list(planned.find_excess(build_basis(effects={A: tuple(effects)}), []))
    assert texts == ([f"{A} would be {more}, which the plan does not contain"] if more else [])


def test_each_resource_is_reported_once():
    planned = build_constraint(program={A: {"inputs.size": "1"}})
    now = build_basis(program={A: {"inputs.size": "2"}}, effects={A: ("update",), B: ("update",)})
    texts = list(
        planned.find_excess(now, [build_change(A, 2), build_change(B, 2), build_change("urn:c", 3)])
    )
    assert texts == [
        f"program: {A} declares different inputs: size",
        f"{B} would be updated, which the plan does not contain",
        "urn:c would change size, which the plan does not contain",
    ]


@pytest.mark.parametrize(
    ("before", "after", "parts"),
    [
        ({"inputs.size": "1"}, {"inputs.size": "2"}, "inputs: size"),
        ({"inputs.__provider": "1"}, {}, "inputs: its provider's code"),
        ({"protect": "1"}, {"parent": "1"}, "options: parent, protect"),
        ({"exports": "1"}, {"exports": "2"}, "outputs"),
        (
            {"inputs.b": "1", "inputs.a": "1", "protect": "1", "exports": "1"},
            {},
            "inputs: a, b and options: protect and outputs",
        ),
    ],
)
def test_changed_parts_of_a_declaration_are_reported(
    before: Mapping[str, str], after: Mapping[str, str], parts: str
):
    texts = list(
        build_constraint(program={A: before}).find_excess(build_basis(program={A: after}), [])
    )
    assert texts == [f"program: {A} declares different {parts}"]


def test_newly_and_no_longer_declared_resources_are_reported():
    texts = list(build_constraint(program={A: {}}).find_excess(build_basis(program={B: {}}), []))
    assert texts == [f"program: {A} is no longer declared", f"program: {B} is newly declared"]


@pytest.mark.parametrize("reads_others", [True, False])
def test_only_outputs_of_other_stacks_may_become_known_before_the_run(reads_others: bool):
    before = {"inputs.size": "?1", "inputs.rack": "1", "dependencies": "1"}
    after = {"inputs.size": "2", "inputs.rack": "1", "property_dependencies": "1"}
    planned = build_constraint(reads_others, program={A: before})
    texts = list(planned.find_excess(build_basis(program={A: after}), []))
    assert bool(texts) is not reads_others
    moved = build_basis(program={A: {**after, "inputs.rack": "2"}})
    assert any("rack" in problem for problem in planned.find_excess(moved, []))


def test_new_dependencies_without_unknown_values_are_reported():
    planned = build_constraint(True, program={A: {"inputs.size": "1"}})
    now = build_basis(program={A: {"inputs.size": "1", "dependencies": "1"}})
    assert list(planned.find_excess(now, [])) == [
        f"program: {A} declares different options: dependencies"
    ]


REGISTRATION = Registration(A, TYPE, "a", True, {"size": 1})


def test_a_planned_registration_passes_and_an_unplanned_one_stops_the_run():
    parts = compute_registration_digests(REGISTRATION, compute_digest)
    build_constraint(program={A: parts}).check_declared(REGISTRATION)
    build_constraint(program={A: {**parts, "exports": "later"}}).check_declared(REGISTRATION)
    build_constraint(program={A: {**parts, "inputs.size": "?"}}).check_declared(REGISTRATION)
    with pytest.raises(PlanExceeded) as raised:
        build_constraint(program={A: {**parts, "inputs.size": "2"}}).check_declared(REGISTRATION)
    assert raised.value.message == (
        f"{A} declares different inputs: size than planned; gpuform did not apply it"
    )
    assert raised.value.hint == HINT
    with pytest.raises(
        PlanExceeded, match=rf"^{A} is declared, but not in the plan; gpuform did not"
    ):
        build_constraint().check_declared(REGISTRATION)


def build_step(op: Op, after: Any = None, **fields: Any) -> Step:
    entry = ResourceState(A, True, TYPE, id="m-1")
    return Step(op, A, entry, entry, change=build_change(A, after) if after else None, **fields)


def test_a_planned_step_passes_and_an_unplanned_one_stops_the_run():
    planned = PlanConstraint(
        build_basis(effects={A: ("update",)}), {A: build_change(A, 2).changes}, compute_digest
    )
    planned.check_step(build_step(Op.UPDATE, 2))
    planned.check_step(build_step(Op.UPDATE))
    planned.check_step(build_step(Op.SAME, 9))
    with pytest.raises(PlanExceeded) as raised:
        planned.check_step(build_step(Op.UPDATE, 3))
    assert raised.value.message == (
        f"{A} would set size to another value than planned; gpuform did not apply it"
    )
    with pytest.raises(
        PlanExceeded, match=r"would be replaced, which the plan does not contain; gpuform did not"
    ):
        planned.check_step(build_step(Op.REPLACE, 2))
    both = build_change(A, 3).model_copy(
        update={"changes": (*build_change(A, 3).changes, *build_change(A, 1, path="rack").changes)}
    )
    with pytest.raises(
        PlanExceeded, match=r"than planned; .* change rack, which the plan does not contain;"
    ):
        planned.check_step(replace(build_step(Op.UPDATE), change=both))


def test_a_limit_of_imports_stops_imports_that_the_preview_has_not_shown_and_nothing_else():
    imported = replace(REGISTRATION, import_id="m-1")
    parts = compute_registration_digests(imported, compute_digest)
    limited = PlanConstraint(
        build_basis(effects={A: ("import",)}, program={A: parts}),
        {},
        compute_digest,
        limits_imports_only=True,
        hint="look again",
    )
    limited.check_declared(imported)
    limited.check_step(build_step(Op.IMPORT))
    with pytest.raises(PlanExceeded, match="declares different options: import_id") as raised:
        limited.check_declared(replace(imported, import_id="m-2"))
    assert raised.value.hint == "look again"
    with pytest.raises(PlanExceeded, match="a would be updated, which the plan does not contain"):
        limited.check_step(build_step(Op.UPDATE, 2))

    without_imports = replace(limited, basis=build_basis())
    without_imports.check_declared(imported)
    without_imports.check_step(build_step(Op.UPDATE, 2))
    without_imports.check_step(build_step(Op.DELETE))
    with pytest.raises(PlanExceeded, match="a would be imported, which the plan does not contain"):
        without_imports.check_step(build_step(Op.IMPORT))


@pytest.mark.parametrize(
    ("op", "fields", "effect"),
    [
        (Op.CREATE, {}, "create"),
        (Op.UPDATE, {}, "update"),
        (Op.IMPORT, {}, "import"),
        (Op.REPLACE, {}, "replace"),
        (Op.CREATE_REPLACEMENT, {}, "replace"),
        (Op.READ_REPLACEMENT, {}, "replace"),
        (Op.DELETE, {}, "delete"),
        (Op.DELETE_REPLACED, {}, "delete"),
        (Op.DELETE, {"retain": True}, "forget"),
        (Op.DELETE_REPLACED, {"retain": True}, "forget"),
        (Op.DISCARD, {}, "forget"),
        (Op.DISCARD_REPLACED, {}, "forget"),
        (Op.REMOVE_PENDING_REPLACE, {}, "forget"),
        (Op.READ, {}, ""),
        (Op.SAME, {}, ""),
        (Op.REFRESH, {}, ""),
        (Op.REFRESH, {"result_op": Op.SAME}, ""),
        (Op.REFRESH, {"result_op": Op.UPDATE}, "refresh"),
        (Op.REFRESH, {"result_op": Op.DELETE}, "forget"),
    ],
)
def test_a_step_has_one_effect_on_the_object(op: Op, fields: Any, effect: str):
    assert build_step(op, **fields).effect == effect


@pytest.mark.parametrize("type_", ["pulumi:pulumi:Stack", "pulumi:providers:lab"])
def test_provider_and_stack_entries_have_no_effect(type_: str):
    assert Step(Op.CREATE, A, None, ResourceState(A, True, type_)).effect == ""


@pytest.mark.parametrize(
    ("fields", "is_spared"),
    [
        ({}, False),
        ({"external": True}, True),
        ({"custom": False}, True),
        ({"type": "pulumi:providers:lab"}, True),
    ],
)
def test_deleting_an_entry_without_an_owned_object_calls_no_provider(fields: Any, is_spared: bool):
    entry = ResourceState(**{"urn": A, "custom": True, "type": TYPE, **fields})
    assert Step(Op.DELETE, A, entry).is_forget_only is is_spared
    assert Step(Op.DELETE, A, entry, retain=True).is_forget_only


def test_a_read_with_unchanged_outputs_has_no_effect():
    old, new = (ResourceState(A, True, TYPE, outputs={"size": size}) for size in (1, 2))
    assert Step(Op.READ, A, old, old).is_unchanged_read
    assert not Step(Op.READ, A, old, new).is_unchanged_read
    assert not Step(Op.READ, A, None, new).is_unchanged_read
    assert not Step(Op.SAME, A, old, old).is_unchanged_read


def test_the_step_of_a_refresh_has_its_actual_operation():
    assert build_step(Op.REFRESH).shown_op is Op.REFRESH
    assert build_step(Op.REFRESH, result_op=Op.DELETE).shown_op is Op.DELETE
    with pytest.raises(AssertionError, match=r"^a step has an old or a new state$"):
        _ = Step(Op.SAME, A).state
