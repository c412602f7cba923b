"""Hypothesis strategies of operations and of what fails in them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from hypothesis import strategies as st
from randomized.memory_platform import Fault
from randomized.strategies import draw_chance

from gpuform.stacks.engine.state import Selection, UrnPatterns

_FAILURES = [
    *[("create", "raise"), ("create", "raise"), ("create", "init")],
    *[("update", "raise"), ("update", "init"), ("delete", "raise"), ("delete", "raise")],
    *[("read", "raise"), ("diff", "raise"), ("check", "raise"), ("check", "refuse")],
]


@dataclass(frozen=True)
class Run:
    """An operation and its options, as `Lab.run` takes them.

    `changed` are outside changes before the run: which object (counted), and its new size, or "" if
    it is removed.
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
            selection_field.name: getattr(value, "raw_patterns", value)
            for selection_field in fields(self.selection)
            if (value := getattr(self.selection, selection_field.name))
        }
        others = {key: value for key, value in self.options.items() if key != "selection" and value}
        return f"{self.operation} {others | chosen} {[*self.faults]}"


@st.composite
def runs(draw: st.DrawFn, names: Collection[str]) -> Run:
    """Draw any operation with any options; `names` are the selectable names."""
    name_strategy = st.sampled_from(sorted(names) or ["a"])
    operation = draw(st.sampled_from(["update"] * 6 + ["refresh", "destroy"]))
    options: dict[str, Any] = {
        "parallel": draw(st.sampled_from([1, 4, 64])),
        "selection": draw(_selections(name_strategy)),
        "continue_on_error": draw(st.booleans()),
    }
    if operation == "update":
        options["refresh"] = draw_chance(draw, 20)
    changed = st.tuples(st.integers(0, 9), st.sampled_from(["", "7"]))
    return Run(
        operation, options, draw(_faults(name_strategy)), draw(st.lists(changed, max_size=2))
    )


@st.composite
def updates(draw: st.DrawFn, names: Collection[str]) -> Run:
    """Draw an update of all resources or some, in which nothing fails."""
    name_strategy = st.sampled_from(sorted(names) or ["a"])
    options = {"selection": draw(_selections(name_strategy)), "refresh": draw_chance(draw, 20)}
    return Run("update", options)


@st.composite
def _selections(draw: st.DrawFn, name_strategy: st.SearchStrategy[str]) -> Selection:
    """Draw a selection: mostly all resources, else some by name or pattern."""
    named = st.lists(name_strategy.flatmap(_draw_patterns), min_size=1, max_size=3).map(UrnPatterns)
    which = draw(st.sampled_from(["", "", "", "targets", "targets", "excludes", "replace"]))
    selected = {which: draw(named)} if which else {}
    if which == "targets" and draw_chance(draw, 25):
        selected["replace"] = draw(named)
    return Selection(
        **selected,
        target_dependents=which == "targets" and draw(st.booleans()),
        exclude_dependents=which == "excludes" and draw(st.booleans()),
    )


def _draw_patterns(name: str) -> st.SearchStrategy[str]:
    return st.sampled_from([name, f"**::{name}", f"**::{name}*"])


@st.composite
def _faults(draw: st.DrawFn, name_strategy: st.SearchStrategy[str]) -> list[Fault]:
    """Draw up to three failures of the platform; often none."""
    faults = []
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3]))):
        verb, how = draw(st.sampled_from(_FAILURES))
        faults.append(Fault(verb, draw(name_strategy), how, once=draw(st.booleans())))
    return faults
