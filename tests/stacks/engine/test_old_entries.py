"""Test which old entry a resource takes, and the messages of failed checks."""

from dataclasses import replace
from typing import Any

import pytest

from gpuform.providers.values import PropertyMap, Secret
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.planning.constraints import CheckFailed, check_inputs
from gpuform.stacks.engine.planning.existing_objects import OldEntries
from gpuform.stacks.engine.provider_host import PropertyFailure
from gpuform.stacks.engine.registration import Alias, Read, Registration
from gpuform.stacks.engine.state import ResourceState

TYPE = "lab:Machine"


def build_urn(name: str) -> str:
    return f"urn:pulumi:dev::lab::{TYPE}::{name}"


def build_entry(name: str, **fields: Any) -> ResourceState:
    return ResourceState(build_urn(name), True, TYPE, **fields)


def build_goal(name: str, line: int = 1, alias: str = "", **fields: Any) -> Registration:
    aliases = (Alias(urn=build_urn(alias)),) if alias else ()
    position = f"project:///main.py#{line}"
    return Registration(
        build_urn(name), TYPE, name, True, {}, aliases=aliases, source_position=position, **fields
    )


def build_old_entries(*entries: ResourceState) -> OldEntries:
    return OldEntries.from_state("dev", "lab", entries)


def test_a_resource_takes_the_entry_of_its_urn_that_is_not_pending_deletion():
    old = build_old_entries(
        build_entry("a", id="live"),
        build_entry("a", id="old", delete=True),
        build_entry("b", delete=True),
    )
    taken = old.match_entry(build_goal("a"))
    assert taken is not None
    assert taken.id == "live"
    assert old.match_entry(build_goal("b")) is None
    assert (sorted(old.declared), old.new_urns) == ([build_urn("a"), build_urn("b")], {})


def test_a_renamed_resource_takes_the_entry_of_its_alias():
    old = build_old_entries(build_entry("a"))
    taken = old.match_entry(build_goal("b", alias="a"))
    assert taken is not None
    assert taken.urn == build_urn("a")
    assert old.new_urns == {build_urn("a"): build_urn("b")}


def test_the_current_urn_wins_over_an_alias():
    old = build_old_entries(build_entry("a"), build_entry("b"))
    taken = old.match_entry(build_goal("b", alias="a"))
    assert taken is not None
    assert (taken.urn, old.new_urns) == (build_urn("b"), {})


def test_children_of_a_renamed_resource_are_found_under_its_old_name():
    parent, new_parent = build_urn("a"), build_urn("b")
    inner = f"urn:pulumi:dev::lab::{TYPE}${TYPE}::inner"
    child = ResourceState(inner, True, TYPE, parent=parent)
    old = build_old_entries(build_entry("a"), child)
    old.match_entry(build_goal("b", alias="a"))
    under = replace(build_goal("inner"), urn=f"{inner}-new", parent=new_parent)
    assert old.match_entry(under) is child


def test_a_duplicate_urn_is_an_error_with_both_source_positions():
    old = build_old_entries()
    old.match_entry(build_goal("a", line=1))
    with pytest.raises(EngineError) as raised:
        old.match_entry(build_goal("a", line=7))
    assert raised.value.message == (
        f"two resources have the URN {build_urn('a')}: one from main.py:1, one from main.py:7"
    )
    assert raised.value.hint == "give one of them another name"


def test_declaring_a_urn_already_used_as_an_alias_is_an_error():
    old = build_old_entries(build_entry("a"))
    old.match_entry(build_goal("b", alias="a"))
    with pytest.raises(EngineError) as raised:
        old.match_entry(build_goal("a", line=7))
    assert raised.value.message == (
        f"{build_urn('a')} is declared at main.py:7, but it is already an alias of {build_urn('b')}"
    )
    assert raised.value.hint == "remove the alias, or give the new resource another name"


@pytest.mark.parametrize("first", [build_goal("a"), build_goal("b", alias="a")])
def test_an_alias_of_an_entry_already_in_use_is_an_error(first: Registration):
    old = build_old_entries(build_entry("a"))
    old.match_entry(first)
    with pytest.raises(EngineError) as raised:
        old.match_entry(build_goal("c", alias="a"))
    assert raised.value.message == (
        f"{build_urn('c')} has the alias {build_urn('a')}, "
        f"which {first.urn} in this program uses already"
    )
    assert raised.value.hint == "remove the alias, or that other resource"


def test_a_read_ignores_aliases():
    read = Read(build_urn("r"), TYPE, "r", "m-1", {})
    assert build_old_entries(build_entry("a")).match_entry(read) is None
    assert build_old_entries(build_entry("r")).match_entry(read) is not None


def test_a_skipped_entry_keeps_its_old_name():
    old, renamed = build_old_entries(build_entry("a")), build_goal("b", alias="a")
    taken = old.match_entry(renamed)
    assert taken is not None
    old.keep_old_urn(taken, renamed)
    assert (old.new_urns, old.declared[build_urn("a")]) == ({}, renamed)
    other, same = build_old_entries(build_entry("a")), build_goal("a")
    other.match_entry(same)
    other.keep_old_urn(build_entry("a"), build_goal("z"))
    assert other.declared == {build_urn("a"): same}


class Host:
    """A provider with check failures that a test sets."""

    def __init__(self, *failures: PropertyFailure) -> None:
        self.failures = failures
        self.asked: list[Any] = []

    def check(self, *question: Any, **_: Any) -> tuple[PropertyMap, tuple[PropertyFailure, ...]]:
        self.asked.append(question)
        return {"size": 2}, self.failures


def test_the_inputs_returned_by_check_are_used():
    host = Host()
    checked_inputs = check_inputs(host, build_goal("a"), {"size": 0}, {"size": 1}, "p::1")  # type: ignore[arg-type]
    assert checked_inputs == {"size": 2}
    assert host.asked == [(build_urn("a"), {"size": 0}, {"size": 1}, "p::1")]
    check_inputs(host, build_goal("a"), {}, {})  # type: ignore[arg-type]
    assert host.asked[1] == (build_urn("a"), {}, {}, "")


@pytest.mark.parametrize(
    ("value", "shown_value"),
    [
        ("größe", ' value "größe"'),
        (-1, " value -1"),
        (-1.0, " value -1"),
        (2.5, " value 2.5"),
        (True, " value true"),
        (Secret("hunter2"), ""),
        (["a"], ""),
        (None, ""),
    ],
)
def test_a_check_failure_names_the_property_and_its_value_unless_secret(
    value: Any, shown_value: str
):
    host = Host(PropertyFailure("size", "is wrong"), PropertyFailure("other", "is missing"))
    with pytest.raises(CheckFailed) as raised:
        check_inputs(host, build_goal("a"), {}, {"size": value})  # type: ignore[arg-type]
    message_start = f"{TYPE} resource 'a': property"
    problems = (
        ("size", f"{message_start} size{shown_value} has a problem: is wrong"),
        ("other", f"{message_start} other has a problem: is missing"),
    )
    assert raised.value.problems == problems
    assert raised.value.message == "\n".join(message for _, message in problems)


def test_a_check_failure_of_a_nested_property_has_only_its_path():
    host = Host(PropertyFailure("config.token", "is wrong"))
    with pytest.raises(CheckFailed) as raised:
        check_inputs(host, build_goal("a"), {}, {"config": {"token": "x"}})  # type: ignore[arg-type]
    assert "property config.token has a problem: is wrong" in raised.value.message
