"""Test the computation of changes, on a model that has every rule."""

import copy
import pickle
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from gpuform.schemas.changes import (
    UNKNOWN,
    Action,
    FieldChange,
    compute_changes,
    contains_unknown,
    find_refused_changes,
    requires_action,
    select_declared_fields,
)
from gpuform.schemas.models import InputModel, OutputModel
from gpuform.schemas.rules import (
    AlternativeSpelling,
    Computed,
    Default,
    EquivalentIf,
    GrowOnly,
    Immutable,
    KeyedBy,
    Local,
    ReplaceIf,
    Secret,
    Source,
    StateOnly,
    Unordered,
    WriteOnly,
    get_field_rules,
)


class Disk(InputModel):
    name: str = Field(description="Name.")
    size: Annotated[int | None, GrowOnly] = Field(default=None, description="Size.")
    kind: Annotated[str | None, Immutable] = Field(default=None, description="Kind.")
    enabled: bool | None = Field(default=None, description="Whether it is there.")


class Login(InputModel):
    user: str | None = Field(default=None, description="User.")
    password: Annotated[str | None, Secret] = Field(default=None, description="Password.")


class Machine(InputModel):
    name: Annotated[str, Immutable, Source("the reference")] = Field(description="Name.")
    cpus: int | None = Field(default=None, description="CPUs.")
    share: float | None = Field(default=None, description="Share.")
    size: Annotated[int | None, GrowOnly] = Field(default=None, description="Size.")
    mode: Annotated[str | None, Default("slow")] = Field(default=None, description="Mode.")
    fixed: Annotated[bool | None, Immutable, Default(False)] = Field(
        default=None, description="Fixed."
    )
    tier: Annotated[
        int | None, ReplaceIf(lambda before, after: after < before, "a lower tier is another one")
    ] = Field(default=None, description="Tier.")
    zones: Annotated[list[str] | None, Unordered] = Field(default=None, description="Zones.")
    steps: list[str] | None = Field(default=None, description="Steps, in order.")
    disks: Annotated[
        list[Disk] | None, KeyedBy("name", absent_when=lambda disk: disk.get("enabled") is False)
    ] = Field(default=None, description="Disks.")
    login: Login | None = Field(default=None, description="Login.")
    origin: Annotated[Login | None, Immutable] = Field(default=None, description="Origin.")
    token: Annotated[str | None, Secret, WriteOnly] = Field(default=None, description="Token.")
    labels: dict[str, str] | None = Field(default=None, description="Labels.")
    version: Annotated[
        str | None, Immutable, EquivalentIf(lambda one, other: one.lower() == other.lower())
    ] = Field(default=None, description="Version.")
    quota: Annotated[int | None, Secret, GrowOnly] = Field(default=None, description="Quota.")
    expires: Annotated[str | None, Local, StateOnly] = Field(default=None, description="Expires.")
    short: Annotated[str | None, AlternativeSpelling] = Field(
        default=None, description="A spelling."
    )
    address: Annotated[str | None, Computed] = Field(default=None, description="Address.")


def get_only_change(observed: Mapping[str, Any], declared: Mapping[str, Any]) -> FieldChange:
    (change,) = compute_changes(Machine, observed, declared)
    return change


def test_field_rules_come_from_annotations():
    rules = get_field_rules(Machine)
    assert rules["name"].immutable
    assert rules["name"].source == "the reference"
    assert rules["disks"].nested is Disk
    assert rules["size"].is_integer
    assert not rules["share"].is_integer
    assert rules["token"].secret
    assert rules["token"].write_only
    assert list(rules) == list(Machine.model_fields)


def test_equal_numbers_are_no_change():
    assert compute_changes(Machine, {"cpus": 16, "share": 1.0}, {"cpus": 16.0, "share": 1}) == []


def test_true_and_one_are_different_values():
    assert get_only_change({"fixed": 1}, {"fixed": True}).replaces


def test_a_mutable_change_updates_in_place():
    change = get_only_change({"name": "a", "cpus": 1}, {"name": "a", "cpus": 2})
    assert change == FieldChange("cpus", Action.UPDATE, 1, 2)


def test_an_immutable_change_replaces():
    change = get_only_change({"name": "a"}, {"name": "b"})
    assert (change.replaces, change.because) == (True, "cannot be changed in place")


def test_immutability_is_inherited_by_nested_fields():
    change = get_only_change({"origin": {"user": "a"}}, {"origin": {"user": "b"}})
    assert (change.path, change.replaces) == ("origin.user", True)


def test_an_unknown_value_of_an_immutable_field_replaces():
    change = get_only_change({"name": "a"}, {"name": UNKNOWN})
    assert (change.replaces, change.because) == (True, "known after apply")


@pytest.mark.parametrize("name", ["version", "tier"])
def test_a_value_that_was_unknown_replaces_until_it_is_known(name: str):
    change = get_only_change({name: UNKNOWN}, {name: 2})
    assert (change.replaces, change.because) == (True, "known after apply")


def test_an_object_that_becomes_unknown_is_one_change():
    change = get_only_change({"login": {"user": "a"}}, {"login": UNKNOWN})
    assert (change.path, change.action, change.after) == ("login", Action.UPDATE, UNKNOWN)


def test_two_unknown_values_may_differ():
    assert get_only_change({"steps": [UNKNOWN]}, {"steps": [UNKNOWN]}).action is Action.UPDATE


@pytest.mark.parametrize("declared", [UNKNOWN, ["a", UNKNOWN]])
def test_an_unknown_value_elsewhere_updates(declared: Any):
    change = get_only_change({"steps": ["a", "b"]}, {"steps": declared})
    assert (change.action, change.replaces) == (Action.UPDATE, False)
    assert contains_unknown(change.after)


def test_a_predicate_decides_on_replacement():
    assert not get_only_change({"tier": 1}, {"tier": 2}).replaces
    lower = get_only_change({"tier": 2}, {"tier": 1})
    assert (lower.replaces, lower.because) == (True, "a lower tier is another one")
    assert get_only_change({"tier": 2}, {"tier": UNKNOWN}).replaces


def test_a_field_never_declared_is_never_compared():
    assert compute_changes(Machine, {}, {"name": "a"}) == [
        FieldChange(
            "name", Action.ADD, None, "a", replaces=True, because="cannot be changed in place"
        )
    ]
    assert compute_changes(Machine, {"login": {"user": "a"}}, {"login": {"user": "a"}}) == []


def test_a_field_no_longer_declared_is_reset_to_its_default():
    change = get_only_change({"mode": "fast"}, {})
    assert (change.action, change.before, change.after) == (Action.UPDATE, "fast", "slow")
    assert change.because == "no longer declared: the platform resets it to the default"
    assert compute_changes(Machine, {"mode": "slow"}, {}) == []


def test_a_field_without_a_default_is_unchanged_when_undeclared():
    changes = compute_changes(Machine, {"cpus": 4}, {"cpus": None})
    assert [(change.action, change.after) for change in changes] == [(Action.KEEP, 4)]
    assert changes[0].because == "no longer declared: the platform keeps its value"
    assert not requires_action(changes)


def test_a_recorded_field_that_is_no_longer_declared_is_deleted():
    change = get_only_change({"expires": "tomorrow"}, {})
    assert (change.action, change.before, change.after) == (Action.DELETE, "tomorrow", None)


def test_a_removed_immutable_field_is_unchanged_and_its_default_may_be_declared():
    assert get_only_change({"fixed": True}, {}).action is Action.KEEP
    assert compute_changes(Machine, {}, {"fixed": False}) == []
    assert get_only_change({}, {"fixed": True}).replaces


def test_unordered_lists_are_compared_as_multisets():
    assert compute_changes(Machine, {"zones": ["a", "b"]}, {"zones": ["b", "a"]}) == []
    assert requires_action(compute_changes(Machine, {"zones": ["a", "a"]}, {"zones": ["a", "b"]}))


def test_the_order_of_ordered_lists_matters():
    assert get_only_change({"steps": ["a", "b"]}, {"steps": ["b", "a"]}).path == "steps"


def test_keyed_items_are_matched_by_their_key():
    observed = {"disks": [{"name": "a", "size": 1}, {"name": "b"}, {"name": "c"}]}
    declared = {"disks": [{"name": "d"}, {"name": "c"}, {"name": "a", "size": 2}]}
    changes = [
        (change.action, change.path) for change in compute_changes(Machine, observed, declared)
    ]
    assert changes == [
        (Action.ADD, 'disks["d"]'),
        (Action.UPDATE, 'disks["a"].size'),
        (Action.DELETE, 'disks["b"]'),
    ]
    assert compute_changes(Machine, observed, declared)[-1].because == "no longer declared"


def test_removing_a_disabled_item_is_no_change():
    assert (
        compute_changes(Machine, {"disks": [{"name": "a", "enabled": False}]}, {"disks": []}) == []
    )


@pytest.mark.parametrize(
    "declared",
    [
        [UNKNOWN],
        [{"name": UNKNOWN}],
        [{"name": "a"}, {"name": "a"}],
    ],
)
def test_items_without_distinct_keys_are_one_change(declared: Any):
    assert get_only_change({"disks": [{"name": "a"}]}, {"disks": declared}).path == "disks"


def test_free_mappings_are_compared_by_key():
    changes = compute_changes(
        Machine, {"labels": {"a": "1", "b": "2"}}, {"labels": {"a": "3", "c": "4"}}
    )
    assert [(change.action, change.path, change.before) for change in changes] == [
        (Action.UPDATE, "labels.a", "1"),
        (Action.DELETE, "labels.b", "2"),
        (Action.ADD, "labels.c", None),
    ]


def test_another_spelling_is_no_change():
    assert compute_changes(Machine, {"version": "V1"}, {"version": "v1"}) == []
    assert get_only_change({"version": "V1"}, {"version": "v2"}).replaces


def test_an_unknown_value_is_never_equivalent_to_another_spelling():
    assert get_only_change({"version": "v1"}, {"version": UNKNOWN}).replaces
    assert get_only_change({"version": UNKNOWN}, {"version": "v1"}).replaces


def test_spellings_and_computed_fields_are_never_compared():
    assert (
        compute_changes(Machine, {"short": "a", "address": "x"}, {"short": "b", "address": "y"})
        == []
    )


@pytest.mark.parametrize(
    ("observed", "declared"),
    [
        ({"token": "hunter1"}, {"token": "hunter2"}),
        ({"login": {"password": "hunter1"}}, {"login": {"password": "hunter2"}}),
        ({}, {"login": {"user": "me", "password": "hunter2"}}),
        ({"token": "hunter1"}, {}),
    ],
)
def test_changes_hide_secrets(observed: dict[str, Any], declared: dict[str, Any]):
    change = get_only_change(observed, declared)
    assert change.secret
    assert "hunter" not in f"{change!r} {change}"


def test_a_change_shows_its_values_and_whether_it_replaces():
    assert repr(get_only_change({"cpus": 1}, {"cpus": 2})) == "<update cpus: 1 -> 2>"
    assert (
        repr(get_only_change({"name": "a"}, {"name": "b"}))
        == "<update name: 'a' -> 'b' (replaces)>"
    )


def test_shrinking_is_refused():
    (problem,) = find_refused_changes(Machine, {"size": 3}, {"size": 2.0})
    assert problem.path == "size"
    assert problem.reason == (
        "cannot shrink from 3 to 2: the platform only lets it grow. "
        "Declare the present size or more, or create a new object and move the data"
    )
    assert find_refused_changes(Machine, {"size": 2}, {"size": 3}) == []
    assert find_refused_changes(Machine, {"size": 2}, {"size": UNKNOWN}) == []


def test_a_secret_size_that_shrinks_is_refused_without_its_values():
    (problem,) = find_refused_changes(Machine, {"quota": 31}, {"quota": 29})
    assert problem.reason.startswith("cannot shrink: the platform only lets it grow")


def test_an_equal_size_of_another_type_is_no_shrinking():
    assert get_only_change({"size": True}, {"size": 1}).action is Action.UPDATE
    assert find_refused_changes(Machine, {"size": True}, {"size": 1}) == []


def test_shrinking_inside_an_item_is_refused_with_its_path():
    observed = {"disks": [{"name": "a", "size": 3}]}
    (problem,) = find_refused_changes(Machine, observed, {"disks": [{"name": "a", "size": 1}]})
    assert problem.path == 'disks["a"].size'


def test_a_replacement_may_shrink():
    assert find_refused_changes(Machine, {"name": "a", "size": 3}, {"name": "b", "size": 2}) == []


def test_selecting_declared_fields_omits_platform_values():
    observed = {
        "cpus": 8,
        "mode": "fast",
        "login": {"user": "b", "password": "filled"},
        "zones": ["b", "a"],
        "disks": [
            {"name": "other"},
            {"name": "b", "size": 9, "kind": "ssd"},
            {"name": "a", "size": 1},
        ],
        "token": "rotated",
        "version": "V1",
    }
    like = {
        "cpus": 4,
        "login": {"user": "a"},
        "zones": ["a", "b"],
        "disks": [
            {"name": "a"},
            {"name": "gone"},
            {"name": "off", "enabled": False},
            {"name": "b", "size": 2},
        ],
        "token": "mine",
        "steps": ["kept"],
        "version": "v1",
    }
    assert select_declared_fields(Machine, observed, like) == {
        "cpus": 8,
        "login": {"user": "b"},
        "zones": ["a", "b"],
        "disks": [{"name": "a"}, {"name": "off", "enabled": False}, {"name": "b", "size": 9}],
        "token": "mine",
        "steps": ["kept"],
        "version": "v1",
    }


def test_a_label_that_the_platform_no_longer_has_is_drift():
    declared = {"labels": {"mine": "1", "gone": "2"}}
    observed = select_declared_fields(Machine, {"labels": {"mine": "1", "theirs": "3"}}, declared)
    assert observed == {"labels": {"mine": "1"}}
    (change,) = compute_changes(Machine, observed, declared)
    assert (change.path, change.action) == ("labels.gone", Action.ADD)


def test_selecting_declared_fields_accepts_an_object_instead_of_a_text():
    assert select_declared_fields(Machine, {"mode": {"speed": 1}}, {"mode": "slow"}) == {
        "mode": {"speed": 1}
    }


def test_unknown_is_a_singleton_and_false():
    assert not UNKNOWN
    assert repr(UNKNOWN) == "[unknown]"
    assert copy.deepcopy({"a": [UNKNOWN]})["a"][0] is UNKNOWN
    assert pickle.loads(pickle.dumps(UNKNOWN)) is UNKNOWN


def test_outputs_name_their_secrets():
    class Outputs(OutputModel):
        key: Annotated[str, Secret] = Field(repr=False, description="Key.")

    assert Outputs.get_secret_names() == {"key"}


# Invariants


def _build_optional_fields(
    fields: dict[str, st.SearchStrategy[Any]],
) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=fields)


def _build_machines(words: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    numbers = words if words is UNKNOWNS else st.integers(0, 4) | st.sampled_from([1.0, 2.0])
    disk = st.fixed_dictionaries(
        {"name": st.sampled_from("abc")}, optional={"size": numbers, "kind": words}
    )
    login = _build_optional_fields({"user": words, "password": words})
    return _build_optional_fields(
        {
            "name": words,
            "cpus": numbers,
            "size": numbers,
            "mode": words,
            "fixed": st.booleans(),
            "tier": numbers,
            "zones": st.lists(words, max_size=4),
            "steps": st.lists(words, max_size=3),
            "disks": st.lists(disk, max_size=3, unique_by=lambda disk: disk["name"]),
            "login": login,
            "origin": login,
            "token": words,
            "labels": st.dictionaries(st.sampled_from("xyz"), words),
        }
    )


WORDS = st.sampled_from(["slow", "a", "b", "c"])
UNKNOWNS = st.just(UNKNOWN)
KNOWN = _build_machines(WORDS)


@given(KNOWN)
def test_equal_values_have_no_changes(values: dict[str, Any]):
    assert compute_changes(Machine, values, values) == []


@given(KNOWN, KNOWN)
def test_applied_changes_leave_no_change(observed: dict[str, Any], declared: dict[str, Any]):
    applied = copy.deepcopy(observed)
    for change in compute_changes(Machine, observed, declared):
        if change.action is not Action.KEEP:
            _apply_change(applied, change)
    assert not requires_action(compute_changes(Machine, applied, declared))


def _apply_change(values: Any, change: FieldChange) -> None:
    *outer, last = _split_path(change.path)
    container = _get_at_path(values, outer)
    if not isinstance(container, list):
        container[last] = change.after
        if change.after is None:
            del container[last]
    elif change.action is Action.ADD:
        container.append(change.after)
    else:
        container.remove(change.before)


@pytest.mark.slow
@given(KNOWN, KNOWN)
def test_no_change_means_the_platform_has_what_is_declared(
    observed: dict[str, Any], declared: dict[str, Any]
):
    if not requires_action(compute_changes(Machine, observed, declared)):
        observed_values = {**observed, "fixed": observed.get("fixed", False)}
        for name in ("name", "cpus", "size", "fixed", "tier", "steps", "token"):
            if name in declared:
                assert observed_values[name] == declared[name]


@given(KNOWN, st.permutations(["a", "b", "b", "c"]), st.permutations(["a", "b", "b", "c"]))
def test_the_order_of_unordered_values_is_no_change(
    values: dict[str, Any], zones: list[str], other: list[str]
):
    disks = [{"name": name} for name in dict.fromkeys(zones)]
    reordered = {**values, "zones": zones, "disks": disks}
    right = {**values, "zones": other, "disks": disks[::-1]}
    assert compute_changes(Machine, reordered, right) == []


@pytest.mark.slow
@given(KNOWN, _build_machines(UNKNOWNS))
def test_unknown_values_raise_no_error(observed: dict[str, Any], declared: dict[str, Any]):
    changes = compute_changes(Machine, observed, declared)
    assert all(repr(change) for change in changes)
    assert find_refused_changes(Machine, observed, declared) == []


@pytest.mark.slow
@given(KNOWN, KNOWN)
def test_the_path_of_a_change_leads_to_its_values(
    observed: dict[str, Any], declared: dict[str, Any]
):
    for change in compute_changes(Machine, observed, declared):
        side = observed if change.action in (Action.DELETE, Action.KEEP) else declared
        if change.because == "no longer declared: the platform resets it to the default":
            side = observed
        expected_value = change.before if side is observed else change.after
        assert _get_at_path(side, _split_path(change.path)) == expected_value


def _split_path(path: str) -> list[str]:
    return path.replace('["', ".").replace('"]', "").split(".")


def _get_at_path(values: Any, steps: list[str]) -> Any:
    for step in steps:
        if isinstance(values, list):
            values = next(item for item in values if item["name"] == step)
        else:
            values = values[step]
    return values


@given(KNOWN, KNOWN)
def test_selecting_declared_fields_from_the_declaration_returns_it(
    observed: dict[str, Any], like: dict[str, Any]
):
    assert select_declared_fields(Machine, like, like) == like
    assert set(select_declared_fields(Machine, observed, like)) == set(like)


@given(KNOWN, KNOWN)
def test_values_filled_in_by_the_platform_are_no_change(
    filled_in: dict[str, Any], declared: dict[str, Any]
):
    answer = {**filled_in, **declared}
    if "login" in declared:
        answer["login"] = {**filled_in.get("login", {}), **declared["login"]}
    echo = select_declared_fields(Machine, answer, declared)
    assert compute_changes(Machine, echo, declared) == []


class Rack(InputModel):
    disks: Annotated[list[Disk], KeyedBy("name", closed=True)] = Field(description="All disks.")


def test_an_undeclared_item_changes_a_closed_list():
    declared = {"disks": [{"name": "a", "size": 1}]}
    theirs = {"name": "b", "size": 2, "kind": "fast"}
    declared_fields = select_declared_fields(
        Rack, {"disks": [theirs, {"name": "a", "size": 1, "kind": "slow"}]}, declared
    )
    assert declared_fields == {"disks": [{"name": "a", "size": 1}, theirs]}
    (change,) = compute_changes(Rack, declared_fields, declared)
    assert (change.path, change.action, change.before) == ('disks["b"]', Action.DELETE, theirs)
