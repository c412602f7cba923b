"""Which old entry a resource stands for, and how its refused inputs are worded."""

from dataclasses import replace
from typing import Any

import pytest

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning.constraints import CheckFailed, check_inputs
from gpuform.stacks.engine.planning.dependent_replacements import OldEntries
from gpuform.stacks.engine.provider_host import Failure
from gpuform.stacks.engine.registration import Alias, Read, Registration
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.values import PropertyMap, Secret

TYPE = "lab:Machine"


def urn_of(name: str) -> str:
    return f"urn:pulumi:dev::lab::{TYPE}::{name}"


def entry(name: str, **fields: Any) -> ResourceState:
    return ResourceState(urn_of(name), True, TYPE, **fields)


def declared(name: str, line: int = 1, alias: str = "", **fields: Any) -> Registration:
    aliases = (Alias(urn=urn_of(alias)),) if alias else ()
    position = f"project:///main.py#{line}"
    return Registration(
        urn_of(name), TYPE, name, True, {}, aliases=aliases, source_position=position, **fields
    )


def among(*entries: ResourceState) -> OldEntries:
    return OldEntries.from_state("dev", "lab", entries)


def test_a_resource_stands_for_the_live_entry_of_its_urn():
    old = among(entry("a", id="live"), entry("a", id="old", delete=True), entry("b", delete=True))
    taken = old.match_entry(declared("a"))
    assert taken is not None
    assert taken.id == "live"
    assert old.match_entry(declared("b")) is None
    assert (sorted(old.declared), old.new_urns) == ([urn_of("a"), urn_of("b")], {})


def test_a_renamed_resource_stands_for_the_entry_of_its_alias():
    old = among(entry("a"))
    taken = old.match_entry(declared("b", alias="a"))
    assert taken is not None
    assert taken.urn == urn_of("a")
    assert old.new_urns == {urn_of("a"): urn_of("b")}


def test_its_own_urn_comes_before_an_alias():
    old = among(entry("a"), entry("b"))
    taken = old.match_entry(declared("b", alias="a"))
    assert taken is not None
    assert (taken.urn, old.new_urns) == (urn_of("b"), {})


def test_what_is_inside_a_renamed_resource_is_found_by_the_old_name_of_that():
    parent, new_parent = urn_of("a"), urn_of("b")
    inner = f"urn:pulumi:dev::lab::{TYPE}${TYPE}::inner"
    child = ResourceState(inner, True, TYPE, parent=parent)
    old = among(entry("a"), child)
    old.match_entry(declared("b", alias="a"))
    under = replace(declared("inner"), urn=f"{inner}-new", parent=new_parent)
    assert old.match_entry(under) is child


def test_a_urn_that_is_declared_twice_is_refused_with_both_places():
    old = among()
    old.match_entry(declared("a", line=1))
    with pytest.raises(EngineError) as raised:
        old.match_entry(declared("a", line=7))
    assert raised.value.message == (
        f"two resources have the URN {urn_of('a')}: one from main.py:1, one from main.py:7"
    )
    assert raised.value.hint == "give one of them another name"


def test_a_urn_that_was_taken_as_an_alias_is_refused():
    old = among(entry("a"))
    old.match_entry(declared("b", alias="a"))
    with pytest.raises(EngineError) as raised:
        old.match_entry(declared("a", line=7))
    assert raised.value.message == (
        f"{urn_of('a')} is declared at main.py:7, but it is already an alias of {urn_of('b')}"
    )
    assert raised.value.hint == "remove the alias, or give the new resource another name"


@pytest.mark.parametrize("first", [declared("a"), declared("b", alias="a")])
def test_an_alias_of_an_entry_that_somebody_has_is_refused(first: Registration):
    old = among(entry("a"))
    old.match_entry(first)
    with pytest.raises(EngineError) as raised:
        old.match_entry(declared("c", alias="a"))
    assert raised.value.message == (
        f"{urn_of('c')} has the alias {urn_of('a')}, which {first.urn} in this program uses already"
    )
    assert raised.value.hint == "remove the alias, or that other resource"


def test_a_read_has_no_aliases():
    read = Read(urn_of("r"), TYPE, "r", "m-1", {})
    assert among(entry("a")).match_entry(read) is None
    assert among(entry("r")).match_entry(read) is not None


def test_an_entry_that_is_left_as_it_is_keeps_its_old_name():
    old, renamed = among(entry("a")), declared("b", alias="a")
    taken = old.match_entry(renamed)
    assert taken is not None
    old.keep_old_urn(taken, renamed)
    assert (old.new_urns, old.declared[urn_of("a")]) == ({}, renamed)
    other, same = among(entry("a")), declared("a")
    other.match_entry(same)
    other.keep_old_urn(entry("a"), declared("z"))
    assert other.declared == {urn_of("a"): same}


class Host:
    """A provider that refuses properties."""

    def __init__(self, *failures: Failure) -> None:
        self.failures = failures
        self.asked: list[Any] = []

    def check(self, *question: Any) -> tuple[PropertyMap, tuple[Failure, ...]]:
        self.asked.append(question)
        return {"size": 2}, self.failures


def test_inputs_are_used_as_the_provider_has_them():
    host = Host()
    found = check_inputs(host, declared("a"), {"size": 0}, {"size": 1}, "p::1")  # type: ignore[arg-type]
    assert found == {"size": 2}
    assert host.asked == [(urn_of("a"), {"size": 0}, {"size": 1}, "p::1")]
    check_inputs(host, declared("a"), {}, {})  # type: ignore[arg-type]
    assert host.asked[1] == (urn_of("a"), {}, {}, "")


@pytest.mark.parametrize(
    ("value", "shown"),
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
def test_a_refusal_names_the_property_and_its_value_if_that_may_be_shown(value: Any, shown: str):
    host = Host(Failure("size", "is wrong"), Failure("other", "is missing"))
    with pytest.raises(CheckFailed) as raised:
        check_inputs(host, declared("a"), {}, {"size": value})  # type: ignore[arg-type]
    said = f"{TYPE} resource 'a': property"
    problems = (
        ("size", f"{said} size{shown} has a problem: is wrong"),
        ("other", f"{said} other has a problem: is missing"),
    )
    assert raised.value.problems == problems
    assert raised.value.message == "\n".join(text for _, text in problems)


def test_a_refused_part_shows_no_more_than_its_path():
    host = Host(Failure("config.token", "is wrong"))
    with pytest.raises(CheckFailed) as raised:
        check_inputs(host, declared("a"), {}, {"config": {"token": "x"}})  # type: ignore[arg-type]
    assert "property config.token has a problem: is wrong" in raised.value.message
