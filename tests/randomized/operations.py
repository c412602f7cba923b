"""Random operations, and what goes wrong in them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hypothesis import strategies as st
from randomized.strategies import chance
from randomized.world import Fault

from gpuform.stacks.engine.state import Selection, UrnPatterns

_FAILURES = [
    *[("create", "raise"), ("create", "raise"), ("create", "init")],
    *[("update", "raise"), ("update", "init"), ("delete", "raise"), ("delete", "raise")],
    *[("read", "raise"), ("diff", "raise"), ("check", "raise"), ("check", "refuse")],
]


@dataclass(frozen=True)
class Run:
    """An operation and its options, as `Lab.run` takes them.

    `changed` is what somebody else does before it: which object (counted), and its new size; none
    when it is removed.
    """

    operation: str = "update"
    options: Mapping[str, Any] = field(default_factory=dict)
    faults: Sequence[Fault] = ()
    changed: Sequence[tuple[int, str]] = ()

    @property
    def selection(self) -> Selection:
        return self.options.get("selection", Selection())

    def __str__(self) -> str:
        chosen = {
            each.name: getattr(value, "given", value)
            for each in fields(self.selection)
            if (value := getattr(self.selection, each.name))
        }
        others = {key: value for key, value in self.options.items() if key != "selection" and value}
        return f"{self.operation} {others | chosen} {[*self.faults]}"


@st.composite
def runs(draw: st.DrawFn, names: Collection[str]) -> Run:
    """Any operation in any manner; `names` are those that it may pick resources by."""
    known = st.sampled_from(sorted(names) or ["a"])
    operation = draw(st.sampled_from(["update"] * 6 + ["refresh", "destroy"]))
    options: dict[str, Any] = {
        "parallel": draw(st.sampled_from([1, 4, 64])),
        "selection": draw(_selections(known)),
        "continue_on_error": draw(st.booleans()),
    }
    if operation == "update":
        options["refresh"] = chance(draw, 20)
    changed = st.tuples(st.integers(0, 9), st.sampled_from(["", "7"]))
    return Run(operation, options, draw(_faults(known)), draw(st.lists(changed, max_size=2)))


@st.composite
def updates(draw: st.DrawFn, names: Collection[str]) -> Run:
    """An update of all or a part, in which nothing fails."""
    known = st.sampled_from(sorted(names) or ["a"])
    options = {"selection": draw(_selections(known)), "refresh": chance(draw, 20)}
    return Run("update", options)


@st.composite
def _selections(draw: st.DrawFn, known: st.SearchStrategy[str]) -> Selection:
    """Mostly everything, else some resources by name or pattern."""
    named = st.lists(known.flatmap(_patterns), min_size=1, max_size=3).map(UrnPatterns)
    which = draw(st.sampled_from(["", "", "", "targets", "targets", "excludes", "replace"]))
    given = {which: draw(named)} if which else {}
    if which == "targets" and chance(draw, 25):
        given["replace"] = draw(named)
    return Selection(
        **given,
        target_dependents=which == "targets" and draw(st.booleans()),
        exclude_dependents=which == "excludes" and draw(st.booleans()),
    )


def _patterns(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from([name, f"**::{name}", f"**::{name}*"])


@st.composite
def _faults(draw: st.DrawFn, known: st.SearchStrategy[str]) -> list[Fault]:
    """Up to three failures of the platform; often none."""
    found = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        verb, how = draw(st.sampled_from(_FAILURES))
        found.append(Fault(verb, draw(known), how, once=draw(st.booleans())))
    return found
