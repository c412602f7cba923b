"""What a selection takes along, in words, against its definition."""

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
    return [*SelectionNotes(selection, "destroy", entries, (), ()).sentences()]


@st.composite
def states(draw) -> list[ResourceState]:
    numbers = st.integers(0, 7)
    return [entry_of(n, draw(st.lists(numbers, max_size=2))) for n in range(draw(numbers) + 1)]


@given(states(), st.lists(st.integers(0, 7), min_size=1, max_size=2))
def test_each_is_told_with_the_first_that_it_needs_or_that_needs_it(entries, targets):
    named = [urn_of(number) for number in targets]
    taken = graph.with_dependents(entries, {e.urn for e in entries if e.urn in named})
    members = [entry for entry in entries if entry.urn in taken]
    expected = []
    for entry in members:
        name = entry.urn.rpartition("::")[2]
        needed = next((each for each in members if each.urn in graph.needs(entry)), None)
        user = next((each for each in members if entry.urn in graph.needs(each)), None)
        if entry.urn not in named and needed and (user is None or needed.urn in named):
            expected.append(f"{name} (needs {needed.urn.rpartition('::')[2]})")
        elif entry.urn not in named and user:
            expected.append(f"{name} ({user.urn.rpartition('::')[2]} needs it)")
    told_of = [text.partition("also takes: ")[2] for text in told(entries, named)]
    assert told_of == ([", ".join(expected)] if expected else [])


def test_a_long_chain_is_looked_at_a_few_times(monkeypatch):
    entries = [entry_of(0, []), *(entry_of(n, [n - 1]) for n in range(1, 500))]
    looked, needs = [], graph.needs
    monkeypatch.setattr(graph, "needs", lambda entry: looked.append(1) or needs(entry))
    assert told(entries, [urn_of(0)])
    assert len(looked) < 5 * len(entries)
