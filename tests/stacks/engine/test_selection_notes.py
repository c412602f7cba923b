"""Test the messages about resources that a selection includes or leaves out."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.engine.planning import SelectionNotes
from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns, graph

TYPE = "pulumi-python:dynamic:Resource"


def build_entry(number: int, needs: list[int]) -> ResourceState:
    return ResourceState(build_urn(number), True, TYPE, dependencies=[*map(build_urn, needs)])


def build_urn(number: int) -> str:
    return f"urn:pulumi:dev::p::{TYPE}::r{number}"


def find_related_by_definition(entries: list[ResourceState], targets: list[str]) -> list[str]:
    selection = Selection(UrnPatterns(targets), target_dependents=True)
    return [*SelectionNotes(selection, "destroy", entries, (), ()).format_notes()]


@st.composite
def states(draw) -> list[ResourceState]:
    numbers = st.integers(0, 7)
    return [build_entry(n, draw(st.lists(numbers, max_size=2))) for n in range(draw(numbers) + 1)]


@given(states(), st.lists(st.integers(0, 7), min_size=1, max_size=2))
def test_each_related_resource_is_reported_with_its_first_relation(entries, targets):
    named = [build_urn(number) for number in targets]
    taken = graph.add_dependents(entries, {e.urn for e in entries if e.urn in named})
    members = [entry for entry in entries if entry.urn in taken]
    expected = []
    for entry in members:
        name = entry.urn.rpartition("::")[2]
        needed = next(
            (member for member in members if member.urn in graph.find_dependency_urns(entry)), None
        )
        user = next(
            (member for member in members if entry.urn in graph.find_dependency_urns(member)), None
        )
        if entry.urn not in named and needed and (user is None or needed.urn in named):
            expected.append(f"{name} (depends on {needed.urn.rpartition('::')[2]})")
        elif entry.urn not in named and user:
            expected.append(f"{name} ({user.urn.rpartition('::')[2]} depends on it)")
    related = [
        note.partition("also includes: ")[2] for note in find_related_by_definition(entries, named)
    ]
    assert related == ([", ".join(expected)] if expected else [])


def test_a_long_chain_is_traversed_a_few_times(monkeypatch):
    entries = [build_entry(0, []), *(build_entry(n, [n - 1]) for n in range(1, 500))]
    looked, needs = [], graph.find_dependency_urns
    monkeypatch.setattr(
        graph, "find_dependency_urns", lambda entry: looked.append(1) or needs(entry)
    )
    assert find_related_by_definition(entries, [build_urn(0)])
    assert len(looked) < 5 * len(entries)


def list_notes(
    entries: list[ResourceState],
    operation: str = "update",
    declared: tuple[int, ...] = (),
    touched: tuple[int, ...] = (),
    **selection: Any,
) -> list[str]:
    for name in ("targets", "excludes", "replace"):
        if name in selection:
            selection[name] = UrnPatterns(selection[name])
    return [
        *SelectionNotes(
            Selection(**selection),
            operation,
            entries,
            [*map(build_urn, declared)],
            {*map(build_urn, touched)},
        ).format_notes()
    ]


CHAIN = [build_entry(0, []), *(build_entry(n, [n - 1]) for n in range(1, 4))]


def test_an_update_of_targets_reports_skipped_dependents():
    assert list_notes(CHAIN, targets=["r0"], touched=(0,)) == [
        "--target r0 leaves 3 dependents unchanged: r1, r2, r3"
    ]
    named = [build_urn(0)]
    assert list_notes(CHAIN, targets=named, touched=(0, 1)) == [
        "--target r0 leaves 2 dependents unchanged: r2, r3"
    ]
    assert list_notes(CHAIN, targets=named, touched=(0, 1, 2)) == [
        "--target r0 leaves 1 dependent unchanged: r3"
    ]
    assert list_notes(CHAIN, targets=named, touched=()) == []
    assert list_notes(CHAIN, "destroy", targets=named, touched=(0,)) == []


def test_notes_name_the_flags_with_their_values():
    targets = [build_urn(0), build_urn(1), "**::r9*"]
    notes = list_notes(CHAIN, targets=targets, replace=[build_urn(1)], touched=(0, 1))
    assert notes == [
        "--target-replace r1 --target r0, **::r9* leaves 2 dependents unchanged: r2, r3"
    ]


def test_resources_kept_beside_the_excluded_ones_are_reported():
    excludes = [build_urn(1)]
    everything = (0, 1, 2, 3)
    assert list_notes(CHAIN, excludes=excludes, declared=everything) == []
    assert list_notes(CHAIN, excludes=excludes, declared=everything, exclude_dependents=True) == [
        "--exclude r1 also leaves unchanged: r2 (depends on r1), r3 (depends on r2)"
    ]
    assert list_notes(CHAIN, excludes=excludes) == [
        "--exclude r1 also leaves unchanged: r0 (r1 depends on it)"
    ]
    assert list_notes(CHAIN, "refresh", excludes=excludes) == []


def test_entries_pending_deletion_and_providers_are_not_reported():
    own = ResourceState(
        "urn:pulumi:dev::p::pulumi:providers:x::own",
        True,
        "pulumi:providers:x",
        dependencies=[build_urn(0)],
    )
    waiting = replace(CHAIN[1], delete=True)
    assert find_related_by_definition([CHAIN[0], own, waiting], [build_urn(0)]) == []


def test_at_most_ten_resources_are_named():
    for count, more in ((10, ""), (11, " and 1 more"), (12, " and 2 more")):
        users = [build_entry(n, [0]) for n in range(1, count + 1)]
        (note,) = find_related_by_definition([CHAIN[0], *users], [build_urn(0)])
        assert note.startswith(
            "--target r0 --target-dependents also includes: r1 (depends on r0), r2 "
        )
        assert note.endswith(f"r10 (depends on r0){more}")
