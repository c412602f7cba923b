"""The values that a change gives, against those that are planned."""

import pytest

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.stacks.engine.planning.steps import find_unplanned_changes


def change(*changes: PropertyChange, action: PlanAction = PlanAction.UPDATE) -> ResourceChange:
    return ResourceChange(
        urn="urn::a", type="t", name="a", action=action, reason=PlanReason.CHANGED, changes=changes
    )


def to(path: str, after: object, **more: object) -> PropertyChange:
    return PropertyChange.model_validate(
        {"path": path, "action": Action.UPDATE, "after": after, **more}
    )


OPEN = to("config", {"size": 1, "id": "[unknown]"}, unknown=True)


@pytest.mark.parametrize(
    ("planned", "found"),
    [
        (to("size", 2), to("size", 2)),
        (to("size", 2), to("size", 2.0)),
        (to("size", None, unknown=True), to("size", 9)),
        (to("token", "[secret]", secret=True), to("token", "[secret]", secret=True)),
        (OPEN, to("config", {"size": 1, "id": "m-1"})),
        (OPEN, to("config.id", "m-1")),
        (to("config", None), to("config.id", "m-1")),
        (to("items", [1, "[unknown]"], unknown=True), to("items", [1, 2])),
        (to("items", None), to('items["a"].size', 1)),
        (to("size", 2), to("color", "red", action=Action.KEEP)),
    ],
)
def test_within(planned, found):
    assert list(find_unplanned_changes({"urn::a": [planned]}, change(found))) == []


@pytest.mark.parametrize(
    ("planned", "found", "what"),
    [
        (to("size", 2), to("size", 3), "would set size to another value than planned"),
        (to("size", 1), to("size", True), "would set size to another value than planned"),
        (to("size", 2), to("sizes", 2), "would change sizes, which the plan does not contain"),
        (
            to("config.id", 1),
            to("config", {}),
            ("would change config, which the plan does not contain"),
        ),
        (to("size", 2, action=Action.KEEP), to("size", 2), "would change size"),
        (OPEN, to("config", {"size": 2, "id": "m-1"}), "would set config to another value"),
        (to("config", {"size": 1}), to("config", "text"), "would set config to another value"),
        (to("config", "text"), to("config", {"size": 1}), "would set config to another value"),
        (OPEN, to("config", {"size": 1, "id": "m-1", "n": 1}), "would set config to another value"),
        (
            to("items", [1, "[unknown]"], unknown=True),
            to("items", [1, 2, 3]),
            "would set items to another value",
        ),
    ],
)
def test_beyond(planned, found, what):
    (text,) = find_unplanned_changes({"urn::a": [planned]}, change(found))
    assert text.startswith(f"urn::a {what}")


def test_a_resource_that_is_not_planned():
    assert list(find_unplanned_changes({}, change(to("size", 1)))) == [
        "urn::a would change size, which the plan does not contain"
    ]
    assert list(find_unplanned_changes({}, change(to("size", 1), action=PlanAction.DELETE))) == []
