"""Test maps of modelled objects: parsing, validation, changes and selection by key."""

from typing import Annotated, Any

import pytest
from pydantic import Field

from gpuform.schemas.changes import compute_changes, select_declared_fields
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.rules import CreateOnly, Immutable, Secret, get_field_rules
from gpuform.schemas.values import UNKNOWN


class Part(InputModel):
    """A part."""

    size: int | None = Field(default=None, ge=1, description="Its size.")
    place: Annotated[str | None, Immutable] = Field(default=None, description="Where it is.")
    token: Annotated[str | None, Secret] = Field(default=None, description="Its token.")

    @classmethod
    def find_problems(cls, values: Any) -> Any:
        if values.get("size") == 13:
            yield Problem("size", "13 is not liked: use another")


class PartMap(InputModel):
    """A model with a map of parts."""

    parts: dict[str, Part] | None = Field(default=None, description="The parts, by their names.")
    labels: dict[str, str] | None = Field(default=None, description="Free texts.")
    note: Annotated[str | None, CreateOnly] = Field(default=None, description="For new ones.")


def find_problems(values: Any) -> dict[str, str]:
    return {problem.path: problem.reason for problem in validate_inputs(PartMap, values)[1]}


def test_a_map_must_be_an_object_of_objects() -> None:
    rules = get_field_rules(PartMap)
    assert (rules["parts"].is_map, rules["parts"].nested) == (True, Part)
    assert (rules["labels"].is_map, rules["labels"].nested) == (False, None)
    assert rules["parts"].holds_secret


def test_each_part_is_parsed_with_its_types() -> None:
    values, problems = validate_inputs(
        PartMap, {"parts": {"a": {"size": 2.0, "place": None}, "b": {}}}
    )
    assert problems == []
    assert values == {"parts": {"a": {"size": 2}, "b": {}}}
    assert isinstance(values["parts"]["a"]["size"], int)


@pytest.mark.parametrize(
    ("part", "path", "message"),
    [
        ({"size": 0}, "parts.a.size", "the least is 1"),
        ({"siez": 1}, "parts.a.siez", "did you mean size?"),
        ({"size": 13}, "parts.a.size", "13 is not liked"),
        ({"size": "2"}, "parts.a.size", "must be a whole number"),
        (5, "parts.a", "must be an object"),
    ],
)
def test_a_problem_of_a_part_has_its_path(part: Any, path: str, message: str) -> None:
    reasons = find_problems({"parts": {"a": part, "good": {"size": 1}}})
    assert list(reasons) == [path]
    assert message in reasons[path]


def test_problems_hide_the_secret_of_a_part() -> None:
    (reason,) = find_problems({"parts": {"token": {"token": 4711}}}).values()
    assert "4711" not in reason


def test_unknown_parts_are_skipped() -> None:
    for parts in (UNKNOWN, {"a": UNKNOWN}, {"a": {"size": UNKNOWN}}):
        values, problems = validate_inputs(PartMap, {"parts": parts})
        assert (values["parts"], problems) == (parts, [])


def compute_actions(before: Any, after: Any) -> dict[str, tuple[str, bool]]:
    changes = compute_changes(PartMap, {"parts": before}, {"parts": after})
    return {change.path: (str(change.action), change.replaces) for change in changes}


def test_parts_are_compared_by_their_keys() -> None:
    before = {"a": {"size": 1, "place": "x"}, "b": {"size": 2}, "c": {}}
    after = {"c": {}, "a": {"size": 3, "place": "y"}, "d": {"size": 4}}
    assert compute_actions(before, after) == {
        'parts["a"].size': ("update", False),
        'parts["a"].place': ("update", True),
        'parts["d"]': ("add", False),
        'parts["b"]': ("delete", False),
    }
    assert compute_actions(before, before) == {}
    assert compute_actions(before, {**before, "a": UNKNOWN}) == {'parts["a"]': ("update", False)}
    (change,) = compute_changes(PartMap, {"parts": before}, {"parts": {**before, "a": UNKNOWN}})
    assert (change.before, change.after) == (before["a"], UNKNOWN)


def test_declared_parts_are_selected_by_their_keys() -> None:
    like = {"a": {"size": 1}, "gone": {"size": 1}}
    observed = {"a": {"size": 2, "place": "filled in"}, "other": {"size": 3}}
    assert select_declared_fields(PartMap, {"parts": observed}, {"parts": like}) == {
        "parts": {"a": {"size": 2}}
    }


def test_create_only_fields_are_never_a_change() -> None:
    assert compute_changes(PartMap, {"note": "a"}, {"note": "b"}) == []
    assert compute_changes(PartMap, {}, {"note": "b"}) == []
