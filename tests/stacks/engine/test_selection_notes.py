"""What a selection takes along, in words, against its definition."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.engine.planning import SelectionNotes
from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns, graph

TYPE = "pulumi-python:dynamic:Resource"


def entry_of(number: int, needs: list[int]) -> ResourceState:
    return ResourceState(urn_of(number), True, TYPE, dependencies=[*map(urn_of, needs)])


def urn_of(number: int) -> str:
    return f"urn:pulumi:dev::p::{TYPE}::r{number}"


def told(entries: list[ResourceState], targets: list[str]) -> list[str]:
    selection = Selection(UrnPatterns(targets), target_dependents=True)
    return [*SelectionNotes(selection, "destroy", entries, (), ()).format_notes()]


@st.composite
def states(draw) -> list[ResourceState]:
    numbers = st.integers(0, 7)
    return [entry_of(n, draw(st.lists(numbers, max_size=2))) for n in range(draw(numbers) + 1)]


@given(states(), st.lists(st.integers(0, 7), min_size=1, max_size=2))
def test_each_is_told_with_the_first_that_it_needs_or_that_needs_it(entries, targets):
    named = [urn_of(number) for number in targets]
    taken = graph.add_dependents(entries, {e.urn for e in entries if e.urn in named})
    members = [entry for entry in entries if entry.urn in taken]
    expected = []
    for entry in members:
        name = entry.urn.rpartition("::")[2]
        needed = next(
            (each for each in members if each.urn in graph.find_dependency_urns(entry)), None
        )
        user = next(
            (each for each in members if entry.urn in graph.find_dependency_urns(each)), None
        )
        if entry.urn not in named and needed and (user is None or needed.urn in named):
            expected.append(f"{name} (depends on {needed.urn.rpartition('::')[2]})")
        elif entry.urn not in named and user:
            expected.append(f"{name} ({user.urn.rpartition('::')[2]} depends on it)")
    told_of = [text.partition("also includes: ")[2] for text in told(entries, named)]
    assert told_of == ([", ".join(expected)] if expected else [])


def test_a_long_chain_is_looked_at_a_few_times(monkeypatch):
    entries = [entry_of(0, []), *(entry_of(n, [n - 1]) for n in range(1, 500))]
    looked, needs = [], graph.find_dependency_urns
    monkeypatch.setattr(
        graph, "find_dependency_urns", lambda entry: looked.append(1) or needs(entry)
    )
    assert told(entries, [urn_of(0)])
    assert len(looked) < 5 * len(entries)


def sentences(
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
            [*map(urn_of, declared)],
            {*map(urn_of, touched)},
        ).format_notes()
    ]


CHAIN = [entry_of(0, []), *(entry_of(n, [n - 1]) for n in range(1, 4))]


def test_an_update_of_targets_says_which_dependents_it_leaves():
    assert sentences(CHAIN, targets=["r0"], touched=(0,)) == [
        "--target r0 leaves 3 dependents unchanged: r1, r2, r3"
    ]
    named = [urn_of(0)]
    assert sentences(CHAIN, targets=named, touched=(0, 1)) == [
        "--target r0 leaves 2 dependents unchanged: r2, r3"
    ]
    assert sentences(CHAIN, targets=named, touched=(0, 1, 2)) == [
        "--target r0 leaves 1 dependent unchanged: r3"
    ]
    assert sentences(CHAIN, targets=named, touched=()) == []
    assert sentences(CHAIN, "destroy", targets=named, touched=(0,)) == []


def test_the_flags_are_named_with_what_was_given_to_each():
    targets = [urn_of(0), urn_of(1), "**::r9*"]
    said = sentences(CHAIN, targets=targets, replace=[urn_of(1)], touched=(0, 1))
    assert said == [
        "--target-replace r1 --target r0, **::r9* leaves 2 dependents unchanged: r2, r3"
    ]


def test_what_an_exclusion_keeps_beside_the_named_is_said():
    excludes = [urn_of(1)]
    everything = (0, 1, 2, 3)
    assert sentences(CHAIN, excludes=excludes, declared=everything) == []
    assert sentences(CHAIN, excludes=excludes, declared=everything, exclude_dependents=True) == [
        "--exclude r1 also keeps: r2 (depends on r1), r3 (depends on r2)"
    ]
    assert sentences(CHAIN, excludes=excludes) == ["--exclude r1 also keeps: r0 (r1 depends on it)"]
    assert sentences(CHAIN, "refresh", excludes=excludes) == []


def test_entries_that_wait_for_their_deletion_or_are_the_engines_own_are_not_named():
    own = ResourceState(
        "urn:pulumi:dev::p::pulumi:providers:x::own",
        True,
        "pulumi:providers:x",
        dependencies=[urn_of(0)],
    )
    waiting = replace(CHAIN[1], delete=True)
    assert told([CHAIN[0], own, waiting], [urn_of(0)]) == []


def test_ten_are_named():
    for count, more in ((10, ""), (11, " and 1 more"), (12, " and 2 more")):
        users = [entry_of(n, [0]) for n in range(1, count + 1)]
        (text,) = told([CHAIN[0], *users], [urn_of(0)])
        assert text.startswith(
            "--target r0 --target-dependents also includes: r1 (depends on r0), r2 "
        )
        assert text.endswith(f"r10 (depends on r0){more}")
