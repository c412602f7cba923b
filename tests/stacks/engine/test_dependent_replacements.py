"""Test which dependents are replaced with a resource, and the number of diffs."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.values import UNKNOWN
from gpuform.stacks.engine.planning.existing_objects import DependentReplacements
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.state import ResourceState, graph

TYPE = "pulumi-python:dynamic:Resource"


@dataclass
class Host:
    """A provider that replaces a resource whose `uses` is unknown, unless `stays` is set."""

    asked: list[str] = field(default_factory=list)

    def diff(self, urn: str, id_: str, olds: Any, news: Any, provider: str) -> Diff:
        self.asked.append(urn)
        forced = ["uses"] if news["uses"] is UNKNOWN and not news["stays"] else []
        return Diff(bool(forced), forced, delete_before_replace=False)


def build_entry(
    urn: str, uses: list[str], needs: list[str], *, stays: bool = False
) -> ResourceState:
    return ResourceState(
        urn,
        True,
        TYPE,
        inputs={"uses": "x", "stays": stays},
        dependencies=needs,
        property_dependencies={"uses": uses},
    )


@st.composite
def states(draw) -> list[ResourceState]:
    """Draw entries with dependencies on earlier ones only, some pending deletion."""
    entries: list[ResourceState] = []
    for number in range(draw(st.integers(1, 10))):
        earlier = st.sampled_from([entry.urn for entry in entries]) if entries else st.nothing()
        uses = draw(st.lists(earlier, max_size=2)) if entries else []
        needs = draw(st.lists(earlier, max_size=1)) if entries else []
        entry = build_entry(f"urn:{number}", uses, needs, stays=draw(st.integers(0, 4)) == 0)
        entry.replace_with = draw(st.lists(earlier, max_size=1)) if entries else []
        entry.deleted_with = draw(earlier) if entries and draw(st.integers(0, 3)) == 0 else ""
        entry.external = draw(st.integers(0, 7)) == 0
        entries.append(entry)
        if draw(st.integers(0, 3)) == 0:
            entries.append(replace(entry, delete=True))
    return entries


def find_dependents_by_definition(
    entries: list[ResourceState], root: ResourceState, spared: Collection[str], host: Host
) -> list[tuple[str, list[str]]]:
    """Return the replaced dependents by visiting all entries once, in order."""
    replaced, dependents = {root.urn}, []
    for entry in entries:
        if entry.urn in {root.urn, *spared} or entry.external:
            continue
        if entry.deleted_with in replaced:
            keys = ["deleted_with"]
        elif replaced.isdisjoint(entry.property_dependencies["uses"]):
            keys = []
        else:
            host.asked.append(entry.urn)
            keys = [] if entry.inputs["stays"] else ["uses"]
        if keys:
            replaced.add(entry.urn)
        elif root.urn in entry.replace_with and not entry.delete:
            keys = ["replace_with"]
        if keys:
            dependents.append((entry.urn, keys))
    return dependents


@given(states(), st.data())
def test_found_dependents_are_those_of_the_definition(entries, data):
    spared = data.draw(st.sets(st.sampled_from([entry.urn for entry in entries]), max_size=2))
    for root in entries:
        host, plain = Host(), Host()
        dependents = DependentReplacements(entries, host).find_dependents(root, spared)
        expected = find_dependents_by_definition(entries, root, spared, plain)
        assert [
            (dependent.resource.urn, list(dependent.keys)) for dependent in dependents
        ] == expected
        assert host.asked == plain.asked


@given(states())
def test_prefetched_diffs_include_those_of_each_root_alone(entries):
    host, each_alone = Host(), Host()
    assert list(DependentReplacements(entries, host).find_incomparable_roots(entries, ())) == []
    for root in entries:
        find_dependents_by_definition(entries, root, (), each_alone)
    assert set(host.asked) == set(each_alone.asked)


def test_each_entry_of_a_replaced_chain_is_diffed_once():
    entries = [build_entry("urn:0", [], [])]
    entries += [build_entry(f"urn:{n}", [f"urn:{n - 1}"], []) for n in range(1, 300)]
    host = Host()
    list(DependentReplacements(entries, host).find_incomparable_roots(entries, ()))
    assert host.asked == [entry.urn for entry in entries[1:]]


def test_only_direct_dependents_of_a_chain_that_stays_are_diffed(monkeypatch):
    entries = [build_entry("urn:0", [], [])]
    entries += [build_entry(f"urn:{n}", [], [f"urn:{n - 1}"]) for n in range(1, 300)]
    looked, needs = [], graph.find_dependency_urns
    monkeypatch.setattr(
        graph, "find_dependency_urns", lambda entry, **how: looked.append(1) or needs(entry, **how)
    )
    list(DependentReplacements(entries, Host()).find_incomparable_roots(entries, ()))
    assert len(looked) < 3 * len(entries)


def test_a_dependent_that_never_became_ready_is_not_replaced():
    root = build_entry("urn:0", [], [])
    broken = build_entry("urn:1", ["urn:0"], [], stays=True)
    broken.init_errors, broken.replace_on_changes = ["still booting"], ["#initerror"]
    assert DependentReplacements([root, broken], Host()).find_dependents(root, ()) == []


def test_each_entry_of_interleaved_chains_is_diffed_once():
    entries = [
        build_entry("urn:0", [], []),
        build_entry("urn:other", [], []),
        build_entry("urn:1", ["urn:0"], []),
        build_entry("urn:2", ["urn:1"], []),
    ]
    host = Host()
    assert list(DependentReplacements(entries, host).find_incomparable_roots(entries, ())) == []
    assert host.asked == ["urn:1", "urn:2"]


def test_a_dependent_of_two_replaced_resources_is_diffed_for_each():
    entries = [
        build_entry("urn:0", [], []),
        build_entry("urn:1", ["urn:0"], []),
        build_entry("urn:2", ["urn:0", "urn:1"], []),
    ]
    host = Host()
    assert list(DependentReplacements(entries, host).find_incomparable_roots(entries, ())) == []
    assert host.asked == ["urn:1", "urn:2", "urn:2"]
