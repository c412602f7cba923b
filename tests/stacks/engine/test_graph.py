"""Test the order of deletions against the definition."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.engine.state import ResourceState, graph

TYPE = "pulumi-python:dynamic:Resource"


@st.composite
def states(draw) -> list[ResourceState]:
    """Draw entries with dependencies on earlier ones only, some pending deletion."""
    entries: list[ResourceState] = []
    for number in range(draw(st.integers(0, 12))):
        urn = f"urn:pulumi:dev::p::{TYPE}::{number}"
        earlier = st.sampled_from([entry.urn for entry in entries]) if entries else st.nothing()
        needed = draw(st.lists(earlier, max_size=3)) if entries else []
        parent = draw(st.one_of(st.just(""), earlier)) if entries else ""
        entry = ResourceState(
            urn,
            True,
            TYPE,
            parent=parent,
            dependencies=needed[:1],
            property_dependencies={"uses": needed[1:]},
        )
        entries.append(entry)
        if draw(st.booleans()):
            entries.append(replace(entry, delete=True))
    return entries


@pytest.mark.slow
@given(states())
def test_every_entry_is_deleted_once_and_after_its_dependents(entries):
    layers = list(graph.group_for_deletion(entries))
    assert sorted(id(entry) for layer in layers for entry in layer) == sorted(map(id, entries))
    remaining_entries = list(entries)
    for layer in layers:
        needed = {urn for entry in remaining_entries for urn in graph.find_dependency_urns(entry)}
        assert [entry for entry in remaining_entries if entry.urn not in needed] == layer
        remaining_entries = [
            entry for entry in remaining_entries if all(entry is not deleted for deleted in layer)
        ]


@given(states(), st.data())
def test_dependencies_found_together_equal_those_found_one_by_one(entries, data):
    starting_entries = data.draw(st.lists(st.sampled_from(entries), max_size=4)) if entries else []
    reached: set[str] = set()
    for entry in starting_entries:
        graph.extend_with_dependencies(reached, graph.index_live(entries), [entry.urn])
    assert reached == graph.add_dependencies(entries, [entry.urn for entry in starting_entries])
    expected = {entry.urn for entry in starting_entries}
    for entry in reversed([state for state in entries if not state.delete]):
        expected |= graph.find_dependency_urns(entry) if entry.urn in expected else set()
    assert reached == expected


def test_the_entries_of_a_cycle_are_deleted_together():
    entries = [
        ResourceState("a", True, TYPE, dependencies=["b"]),
        ResourceState("b", True, TYPE, dependencies=["a"]),
        ResourceState("c", True, TYPE, dependencies=["a"]),
    ]
    assert [[entry.urn for entry in layer] for layer in graph.group_for_deletion(entries)] == [
        ["c"],
        ["a", "b"],
    ]
