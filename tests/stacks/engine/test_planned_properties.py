"""Test the comparison of actual property changes with the planned ones."""

import pytest

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.stacks.engine.planning.steps import find_unplanned_changes


def build_change(
    *changes: PropertyChange, action: PlanAction = PlanAction.UPDATE
) -> ResourceChange:
    return ResourceChange(
        urn="urn::a", type="t", name="a", action=action, reason=PlanReason.CHANGED, changes=changes
    )


def build_change_to(path: str, after: object, **more: object) -> PropertyChange:
    return PropertyChange.model_validate(
        {"path": path, "action": Action.UPDATE, "after": after, **more}
    )


OPEN = build_change_to("config", {"size": 1, "id": "[unknown]"}, unknown=True)


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (build_change_to("size", 2), build_change_to("size", 2)),
        (build_change_to("size", 2), build_change_to("size", 2.0)),
        (build_change_to("size", None, unknown=True), build_change_to("size", 9)),
        (
            build_change_to("token", "[secret]", secret=True),
            build_change_to("token", "[secret]", secret=True),
        ),
        (OPEN, build_change_to("config", {"size": 1, "id": "m-1"})),
        (OPEN, build_change_to("config.id", "m-1")),
        (build_change_to("config", None), build_change_to("config.id", "m-1")),
        (
            build_change_to("items", [1, "[unknown]"], unknown=True),
            build_change_to("items", [1, 2]),
        ),
        (build_change_to("items", None), build_change_to('items["a"].size', 1)),
        (build_change_to("size", 2), build_change_to("color", "red", action=Action.KEEP)),
    ],
)
def test_planned_values_have_no_problems(planned, found):
    assert list(find_unplanned_changes({"urn::a": [planned]}, build_change(found))) == []


@pytest.mark.parametrize(
    ("planned", "found", "what"),
    [
        (
            build_change_to("size", 2),
            build_change_to("size", 3),
            "would set size to another value than planned",
        ),
        (
            build_change_to("size", 1),
            build_change_to("size", True),
            "would set size to another value than planned",
        ),
        (
            build_change_to("size", 2),
            build_change_to("sizes", 2),
            "would change sizes, which the plan does not contain",
        ),
        (
            build_change_to("config.id", 1),
            build_change_to("config", {}),
            ("would change config, which the plan does not contain"),
        ),
        (
            build_change_to("size", 2, action=Action.KEEP),
            build_change_to("size", 2),
            "would change size",
        ),
        (
            OPEN,
            build_change_to("config", {"size": 2, "id": "m-1"}),
            "would set config to another value",
        ),
        (
            build_change_to("config", {"size": 1}),
            build_change_to("config", "text"),
            "would set config to another value",
        ),
        (
            build_change_to("config", "text"),
            build_change_to("config", {"size": 1}),
            "would set config to another value",
        ),
        (
            OPEN,
            build_change_to("config", {"size": 1, "id": "m-1", "n": 1}),
            "would set config to another value",
        ),
        (
            build_change_to("items", [1, "[unknown]"], unknown=True),
            build_change_to("items", [1, 2, 3]),
            "would set items to another value",
        ),
    ],
)
def test_unplanned_values_are_reported(planned, found, what):
    (problem,) = find_unplanned_changes({"urn::a": [planned]}, build_change(found))
    assert problem.startswith(f"urn::a {what}")


def test_an_unplanned_resource_has_no_property_problems():
    assert list(find_unplanned_changes({}, build_change(build_change_to("size", 1)))) == [
        "urn::a would change size, which the plan does not contain"
    ]
    assert (
        list(
            find_unplanned_changes(
                {}, build_change(build_change_to("size", 1), action=PlanAction.DELETE)
            )
        )
        == []
    )
