"""Test the differences inside a value, and the keys that identify items of a list."""

from typing import Any

import pytest

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.review.differences import get_rules_at, list_differences

CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"
OTHER = "my:mod:Thing"


def list_changes(
    before: Any, after: Any, path: str = "p", type_: str = OTHER
) -> list[tuple[Any, ...]]:
    change = PropertyChange(path=path, action=Action.UPDATE, before=before, after=after)
    differences = list_differences(change, type_)
    return [(d.path, str(d.action), d.before, d.after) for d in differences]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1, "b": {"c": 2}}, {"a": 1, "b": {"c": 3}}, [("b.c", "update", 2, 3)]),
        ({"a": 1}, {"b": [2]}, [("a", "delete", 1, None), ("b", "add", None, [2])]),
        ({"a": 16.0}, {"a": 16}, []),
        ({"a": True}, {"a": 1}, [("a", "update", True, 1)]),
        ({"a": 1}, {"a": "1"}, [("a", "update", 1, "1")]),
        ({"a.b": 1, 'c"': 1}, {}, [('["a.b"]', "delete", 1, None), ('["c""]', "delete", 1, None)]),
        ([{"x": 1}, {"x": 2}], [{"x": 1}, {"x": 3}], [("[1].x", "update", 2, 3)]),
        ({"a": 1}, {"a": "[unknown]"}, [("a", "update", 1, "[known after apply]")]),
    ],
)
def test_differing_paths_are_listed_with_old_and_new_values(
    before: Any, after: Any, expected: list[Any]
) -> None:
    assert list_changes(before, after) == expected


@pytest.mark.parametrize(("before", "after"), [(1, 2), ([1], [2]), ("a", {"b": 1}), (None, {})])
def test_scalars_and_other_types_have_no_inner_differences(before: Any, after: Any) -> None:
    assert list_changes(before, after) == []


def test_list_items_are_matched_by_the_key_of_the_schema() -> None:
    ingress, metrics = {"name": "ingress", "config": {"n": 1}}, {"name": "metrics"}
    changed = {"name": "ingress", "config": {"n": 2}}
    moved = [metrics, changed]
    assert list_changes([ingress, metrics], moved, "add_ons", CLUSTER) == [
        ('["ingress"].config.n', "update", 1, 2)
    ]
    by_place = list_changes([ingress, metrics], moved)
    assert {path for path, *_ in by_place} > {"[0].name", "[1].name"}


def test_list_items_with_duplicate_keys_are_matched_by_index() -> None:
    twice = [{"name": "a", "n": 1}, {"name": "a", "n": 2}]
    assert list_changes(twice, [twice[0], {"name": "a", "n": 3}], "add_ons", CLUSTER) == [
        ("[1].n", "update", 2, 3)
    ]


def test_field_rules_are_found_by_path() -> None:
    assert get_rules_at(CLUSTER, "add_ons").keyed_by is not None
    assert get_rules_at(CLUSTER, 'add_ons["a"].name').keyed_by is None
    assert get_rules_at(CLUSTER, "region").immutable
    assert not get_rules_at(CLUSTER, "no_such_field.inside").immutable
    assert not get_rules_at(OTHER, "region").immutable


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (CLUSTER, ("together", "Cluster")),
        ("gpuform:scp:NodePool", ("scp", "NodePool")),
        ("pulumi-python:dynamic/gpuform.together:NodePool", None),
        (OTHER, None),
        ("", None),
    ],
)
def test_kinds_are_parsed_from_gpuforms_types(type_: str, kind: tuple[str, str] | None) -> None:
    assert find_kind(type_) == kind


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain ünicode 漢字", "plain ünicode 漢字"),
        ("a\nb\tc\r", "a\\nb\\tc\\r"),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("right\u202eleft", "right\\u202eleft"),
        ("half \ud800", "half \\ud800"),
        ("\u2028\U000e0001", "\\u2028\\U000e0001"),
    ],
)
def test_invisible_characters_are_escaped(text: str, escaped: str) -> None:
    assert escape_invisible(text) == escaped


def test_long_text_is_cut_with_its_length() -> None:
    assert truncate("short", 5) == "short"
    cut = truncate("x" * 2000, 100)
    assert len(cut) == 100
    assert cut.endswith("x... (2,000 characters)")
