"""Which stack works when: after all that it needs, and never more than so many at a time."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.engine.project import Project
from gpuform.stacks.multi_stack import MultiStackWorkspace, StackOrder, WorkspaceStack
from gpuform.stacks.operations.multi_stack.schedule import NOT_STARTED, Schedule
from gpuform.stacks.operations.multi_stack.stack_process import (
    Cancel,
    Interpreter,
    OutputsRequest,
    OutputsResponse,
    ProcessPool,
    StackProcess,
    Task,
    TaskResult,
    pack_outputs,
)


@dataclass
class Played:
    """What the stacks of a schedule do, and what was seen of it.

    `asks` are the stacks that each reads when it runs, one after the other; `fails` those that end
    with 1.
    """

    asks: Mapping[str, list[str]] = field(default_factory=dict)
    fails: frozenset[str] = frozenset()
    begun: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    foretold: dict[tuple[str, str], OutputsResponse] = field(default_factory=dict)
    working: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    most: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class Process(StackProcess):
    """One that plays its stack in a thread, and answers as a real one does."""

    def __init__(self, played: Played, needs: Mapping[str, set[str]]) -> None:
        super().__init__(Interpreter("python"))
        self.played, self.needs = played, needs
        self.answers: list[Any] = []
        self.answered = threading.Semaphore(0)

    def run_task(self, name: str, task: Task, listener: Any) -> None:
        self.name, self.heard = name, listener
        with self.played.lock:
            assert self.needs[name] <= set(self.played.ended)
            self.played.begun.append(name)
            self.played.working.add(name)
            self.played.most = max(self.played.most, len(self.played.working))
        threading.Thread(target=self.play, daemon=True).start()

    def send(self, message: Any) -> None:
        if isinstance(message, OutputsResponse):
            with self.played.lock:
                self.played.waiting.discard(self.name)
                self.played.working.add(self.name)
        self.answers.append(message)
        self.answered.release()

    def close(self) -> None:
        """Nothing is held."""

    def play(self) -> None:
        code, played = int(self.name in self.played.fails), self.played
        for number, about in enumerate(played.asks.get(self.name, ())):
            project, _, stack = about.partition("/")
            with played.lock:
                played.working.discard(self.name)
                played.waiting.add(self.name)
            self.heard(self, OutputsRequest(number=number, project=project, stack=stack))
            self.answered.acquire()
            answer = self.answers.pop(0)
            if isinstance(answer, Cancel):
                code = 1
                break
            played.foretold[self.name, about] = answer
            if answer.error:
                code = 1
                break
        with played.lock:
            played.working.discard(self.name)
            played.ended.append(self.name)
        self.heard(self, TaskResult(code=code, outputs=pack_outputs({}), summary=self.name))


class Taken(ProcessPool):
    def __init__(self, played: Played, needs: Mapping[str, set[str]]) -> None:
        super().__init__()
        self.played, self.needs = played, needs

    def acquire(self, interpreter: Interpreter) -> StackProcess:
        return Process(self.played, self.needs)


def schedule(needs: Mapping[str, set[str]], played: Played, jobs: int = 4) -> Schedule:
    members = {}
    for name in needs:
        project, _, stack = name.partition("/")
        found = Project(project, Path("/nowhere") / project / "Pulumi.yaml")
        members[name] = WorkspaceStack(found, stack, "file:///state", SourcePosition("stacks.yaml"))
    order = StackOrder(
        MultiStackWorkspace(Path("/nowhere"), members), {name: {} for name in needs}, {}, {}
    )
    return Schedule(
        order,
        needs,
        jobs,
        lambda name: Task(folder=Path("/nowhere"), stack=name, options={}),
        dict.fromkeys(needs, Interpreter("python")),
        Taken(played, needs),
        lambda _name, _line: None,
        lambda _name, _ended: None,
        lambda _name, _prompt: None,
    )


NAMES = [f"p{number}/dev" for number in range(8)]


@st.composite
def acyclic(draw: st.DrawFn) -> dict[str, set[str]]:
    """Needs without a circle: each needs only stacks before it."""
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    return {
        name: set(draw(st.lists(st.sampled_from(names[:at]), max_size=3))) if at else set()
        for at, name in enumerate(names)
    }


@given(acyclic(), st.sets(st.sampled_from(NAMES)), st.integers(1, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_each_is_worked_on_once_after_what_it_needs(
    needs: dict[str, set[str]], fails: set[str], jobs: int, data: st.DataObject
) -> None:
    names = list(needs)
    asks = {
        name: data.draw(st.lists(st.sampled_from(names[:at]), max_size=2)) if at else []
        for at, name in enumerate(names)
    }
    played = Played(asks, frozenset(fails))
    results = schedule(needs, played, jobs).run()
    assert set(results) == set(names)
    assert len(played.begun) == len(set(played.begun))
    for name in names:
        if any(results[other].code for other in needs[name]):
            assert results[name].code == NOT_STARTED
            assert name not in played.begun
        else:
            assert name in played.begun
            read_bad = any(results[other].code for other in asks[name])
            assert bool(results[name].code) == (name in fails or read_bad)
    for (name, about), answer in played.foretold.items():
        assert bool(answer.error) == bool(results[about].code), (name, about)


@given(acyclic(), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_no_more_work_at_a_time_than_is_allowed(needs: dict[str, set[str]], jobs: int) -> None:
    played = Played()
    schedule(needs, played, jobs).run()
    assert played.most <= jobs


def test_one_that_waits_for_another_lets_it_work() -> None:
    played = Played({"p0/dev": ["p1/dev"], "p1/dev": ["p2/dev"]})
    needs: dict[str, set[str]] = {"p0/dev": set(), "p1/dev": set(), "p2/dev": set()}
    results = schedule(needs, played, jobs=1).run()
    assert [each.code for each in results.values()] == [0, 0, 0]
    assert played.ended == ["p2/dev", "p1/dev", "p0/dev"]


def test_two_that_wait_for_each_other_fail_and_nobody_waits_for_ever() -> None:
    played = Played({"p0/dev": ["p1/dev"], "p1/dev": ["p0/dev"]})
    needs: dict[str, set[str]] = {"p0/dev": set(), "p1/dev": set(), "p2/dev": set()}
    results = schedule(needs, played).run()
    assert (results["p0/dev"].code, results["p1/dev"].code) == (1, 1)
    assert results["p2/dev"].code == 0
    said = [answer.error for answer in played.foretold.values()]
    assert all("these stacks need each other: p" in text for text in said)


def test_one_that_waits_for_what_needs_it_fails() -> None:
    played = Played({"p0/dev": ["p1/dev"]})
    results = schedule({"p0/dev": set(), "p1/dev": {"p0/dev"}}, played).run()
    assert results["p0/dev"].code == 1
    assert results["p1/dev"].code == NOT_STARTED
    assert "need each other" in played.foretold["p0/dev", "p1/dev"].error


@pytest.mark.parametrize("jobs", [1, 4])
def test_a_cancelled_run_begins_nothing_more(jobs: int) -> None:
    played = Played({"p0/dev": ["p3/dev"]})
    needs = {"p0/dev": set[str](), "p1/dev": {"p0/dev"}, "p3/dev": {"p1/dev"}}
    plan = schedule(needs, played, jobs)
    plan.cancel()
    results = plan.run()
    assert played.begun == []
    assert {each.code for each in results.values()} == {NOT_STARTED}
    assert results["p0/dev"].summary == "not begun: the run was interrupted"


def test_a_stack_outside_of_the_run_is_told_by_its_state() -> None:
    played = Played({"p0/dev": ["elsewhere/dev"]})
    results = schedule({"p0/dev": set()}, played).run()
    assert results["p0/dev"].code == 0
    assert played.foretold["p0/dev", "elsewhere/dev"] == OutputsResponse(number=0)
