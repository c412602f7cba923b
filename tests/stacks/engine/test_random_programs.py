"""Whatever programs follow each other and whatever fails: no object is lost, none kept twice."""

import itertools
import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

NAMES = "abcde"
VERBS = ("create", "update", "delete")


@dataclass
class Declared:
    """One resource of a program; it may use those declared before it."""

    name: str
    uses: dict[str, str] = field(default_factory=dict)  # property -> resource
    properties: dict[str, object] = field(default_factory=dict)
    after: list[str] = field(default_factory=list)
    option: str = ""

    def line(self, *, failing: bool) -> str:
        given = {key: repr(value) for key, value in self.properties.items()}
        given |= {key: f"{name}.address" for key, name in self.uses.items()}
        if not failing:
            given.pop("refuse", None)
        options = [f"depends_on=[{', '.join(self.after)}]"] if self.after else []
        options += [self.option] if self.option else []
        if options:
            given["opts"] = f"ResourceOptions({', '.join(options)})"
        arguments = "".join(f", {key}={value}" for key, value in given.items())
        return f"{self.name} = Machine({self.name!r}{arguments})\n"


PROPERTIES = st.fixed_dictionaries(
    {},
    optional={
        "size": st.integers(1, 2),
        "rack": st.sampled_from("xy"),
        "slot": st.sampled_from("xy"),
        "refuse": st.sampled_from(VERBS),
        "lazy": st.integers(1, 2),
        "slow": st.just(True),
    },
)
OPTIONS = st.sampled_from(["", "", "", "delete_before_replace=True", "delete_before_replace=False"])


@st.composite
def programs(draw) -> list[Declared]:
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=5))
    declared = []
    for place, name in enumerate(names):
        earlier = st.sampled_from(names[:place]) if place else st.nothing()
        uses = st.dictionaries(st.sampled_from(["uses", "rack", "slot"]), earlier, max_size=2)
        after = st.lists(earlier, unique=True, max_size=2)
        declared.append(
            Declared(
                name,
                draw(uses) if place else {},
                draw(PROPERTIES),
                draw(after) if place else [],
                draw(OPTIONS),
            )
        )
    return declared


def text(program: list[Declared], *, failing: bool) -> str:
    return "".join(one.line(failing=failing) for one in program)


def check_books(lab) -> None:
    """Every object of the platform is an entry of the state, once, and every entry an object."""
    entries = [r for r in lab.snapshot.resources if r.id and "Machine" in r.urn]
    held = [r.id for r in entries if not r.pending_replacement]
    assert sorted(held) == sorted(lab.world), lab.errors
    assert lab.snapshot.pending_operations == []


numbers = itertools.count()


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(programs(), min_size=1, max_size=4), st.sampled_from([1, 4, 64]))
def test_no_object_is_lost_or_kept_twice(lab, tmp_path: Path, history, parallel):
    directory = tmp_path / f"example{next(numbers)}"
    directory.mkdir()
    shutil.copy(tmp_path / "lab.py", directory)
    lab.directory, lab.snapshot = directory, type(lab.snapshot)("organization/lab/dev")
    for program in history:
        lab.up(text(program, failing=True), parallel=parallel)
        check_books(lab)
    # What refused to go is let go, as its owner would by hand.
    for entry in lab.snapshot.resources:
        for properties in (entry.inputs, entry.outputs):
            properties.pop("refuse", None)
    last = text(history[-1], failing=False)
    settled = lab.up(last, parallel=parallel)
    if not any("slow" in one.properties for one in history[-1]):
        assert settled.succeeded, lab.errors
        check_books(lab)
        assert not lab.preview(last).has_changes, lab.steps
        assert len(lab.world) == len(history[-1])
    assert lab.run("destroy", parallel=parallel).succeeded, lab.errors
    assert lab.snapshot.resources == []
    assert json.loads(json.dumps(lab.world)) == {}
