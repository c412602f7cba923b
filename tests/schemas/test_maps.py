"""A map of modelled objects: read, checked, compared and projected by its keys."""

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


class Whole(InputModel):
    """What has parts."""

    parts: dict[str, Part] | None = Field(default=None, description="The parts, by their names.")
    labels: dict[str, str] | None = Field(default=None, description="Free texts.")
    note: Annotated[str | None, CreateOnly] = Field(default=None, description="For new ones.")


def told(values: Any) -> dict[str, str]:
    return {problem.path: problem.reason for problem in validate_inputs(Whole, values)[1]}


def test_only_an_object_of_objects_is_a_map() -> None:
    rules = get_field_rules(Whole)
    assert (rules["parts"].is_map, rules["parts"].nested) == (True, Part)
    assert (rules["labels"].is_map, rules["labels"].nested) == (False, None)
    assert rules["parts"].holds_secret


def test_each_part_is_read_in_its_types() -> None:
    values, problems = validate_inputs(
        Whole, {"parts": {"a": {"size": 2.0, "place": None}, "b": {}}}
    )
    assert problems == []
    assert values == {"parts": {"a": {"size": 2}, "b": {}}}
    assert isinstance(values["parts"]["a"]["size"], int)


@pytest.mark.parametrize(
    ("part", "path", "said"),
    [
        ({"size": 0}, "parts.a.size", "the least is 1"),
        ({"siez": 1}, "parts.a.siez", "did you mean size?"),
        ({"size": 13}, "parts.a.size", "13 is not liked"),
        ({"size": "2"}, "parts.a.size", "must be a whole number"),
        (5, "parts.a", "must be an object"),
    ],
)
def test_what_is_wrong_with_a_part_has_its_path(part: Any, path: str, said: str) -> None:
    found = told({"parts": {"a": part, "good": {"size": 1}}})
    assert list(found) == [path]
    assert said in found[path]


def test_a_secret_of_a_part_is_not_shown() -> None:
    (reason,) = told({"parts": {"token": {"token": 4711}}}).values()
    assert "4711" not in reason


def test_unknown_parts_are_skipped() -> None:
    for parts in (UNKNOWN, {"a": UNKNOWN}, {"a": {"size": UNKNOWN}}):
        values, problems = validate_inputs(Whole, {"parts": parts})
        assert (values["parts"], problems) == (parts, [])


def compared(before: Any, after: Any) -> dict[str, tuple[str, bool]]:
    found = compute_changes(Whole, {"parts": before}, {"parts": after})
    return {each.path: (str(each.action), each.replaces) for each in found}


def test_parts_are_compared_by_their_keys() -> None:
    before = {"a": {"size": 1, "place": "x"}, "b": {"size": 2}, "c": {}}
    after = {"c": {}, "a": {"size": 3, "place": "y"}, "d": {"size": 4}}
    assert compared(before, after) == {
        'parts["a"].size': ("update", False),
        'parts["a"].place': ("update", True),
        'parts["d"]': ("add", False),
        'parts["b"]': ("delete", False),
    }
    assert compared(before, before) == {}
    assert compared(before, {**before, "a": UNKNOWN}) == {'parts["a"]': ("update", False)}
    (change,) = compute_changes(Whole, {"parts": before}, {"parts": {**before, "a": UNKNOWN}})
    assert (change.before, change.after) == (before["a"], UNKNOWN)


def test_declared_parts_are_selected_by_their_keys() -> None:
    like = {"a": {"size": 1}, "gone": {"size": 1}}
    seen = {"a": {"size": 2, "place": "filled in"}, "other": {"size": 3}}
    assert select_declared_fields(Whole, {"parts": seen}, {"parts": like}) == {
        "parts": {"a": {"size": 2}}
    }


def test_create_only_fields_are_never_a_change() -> None:
    assert compute_changes(Whole, {"note": "a"}, {"note": "b"}) == []
    assert compute_changes(Whole, {}, {"note": "b"}) == []
