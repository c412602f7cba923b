"""The schedule of a multi-stack run: each stack after its dependencies, few at a time."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
class ScheduledStacks:
    """The behavior of a schedule's stacks, and all observations.

    `asks` are the stacks whose outputs each stack requests, one after the other; `fails` the stacks
    that end with 1.
    """

    asks: Mapping[str, list[str]] = field(default_factory=dict)
    fails: frozenset[str] = frozenset()
    started: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    received_outputs: dict[tuple[str, str], OutputsResponse] = field(default_factory=dict)
    working: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    most_running: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class FakeStackProcess(StackProcess):
    """Runs its stack in a thread, and sends messages as a real process does."""

    def __init__(self, played: ScheduledStacks, needs: Mapping[str, set[str]]) -> None:
        super().__init__(Interpreter("python"), main_module="")
        self.stacks, self.dependencies = played, needs
        self.answers: list[Any] = []
        self.answered = threading.Semaphore(0)

    def run_task(self, name: str, task: Task, listener: Any) -> None:
        self.name, self.listener = name, listener
        with self.stacks.lock:
            assert self.dependencies[name] <= set(self.stacks.ended)
            self.stacks.started.append(name)
            self.stacks.working.add(name)
            self.stacks.most_running = max(self.stacks.most_running, len(self.stacks.working))
        threading.Thread(target=self.run_stack, daemon=True).start()

    def send(self, message: Any) -> None:
        if isinstance(message, OutputsResponse):
            with self.stacks.lock:
                self.stacks.waiting.discard(self.name)
                self.stacks.working.add(self.name)
        self.answers.append(message)
        self.answered.release()

    def close(self) -> None:
        """Do nothing: a fake process holds no resources."""

    def run_stack(self) -> None:
        code, played = int(self.name in self.stacks.fails), self.stacks
        for number, about in enumerate(played.asks.get(self.name, ())):
            project, _, stack = about.partition("/")
            with played.lock:
                played.working.discard(self.name)
                played.waiting.add(self.name)
            self.listener(self, OutputsRequest(number=number, project=project, stack=stack))
            self.answered.acquire()
            answer = self.answers.pop(0)
            if isinstance(answer, Cancel):
                code = 1
                break
            played.received_outputs[self.name, about] = answer
            if answer.error:
                code = 1
                break
        with played.lock:
            played.working.discard(self.name)
            played.ended.append(self.name)
        self.listener(self, TaskResult(code=code, outputs=pack_outputs({}), summary=self.name))


class FakeProcessPool(ProcessPool):
    def __init__(self, played: ScheduledStacks, needs: Mapping[str, set[str]]) -> None:
        super().__init__(main_module="")
        self.stacks, self.dependencies = played, needs

    def acquire(self, interpreter: Interpreter) -> StackProcess:
        return FakeStackProcess(self.stacks, self.dependencies)


def build_schedule(
    needs: Mapping[str, set[str]], played: ScheduledStacks, jobs: int = 4
) -> Schedule:
    members = {}
    for name in needs:
        project, _, stack = name.partition("/")
        stack_project = Project(project, Path("/nowhere") / project / "Pulumi.yaml")
        members[name] = WorkspaceStack(
            stack_project, stack, "file:///state", SourcePosition("stacks.yaml")
        )
    order = StackOrder(
        MultiStackWorkspace(Path("/nowhere"), members), {name: {} for name in needs}, {}, {}
    )
    return Schedule(
        order,
        needs,
        jobs,
        lambda name: Task(folder=Path("/nowhere"), stack=name, options={}),
        dict.fromkeys(needs, Interpreter("python")),
        FakeProcessPool(played, needs),
        lambda _name, _line: None,
        lambda _name, _ended: None,
        lambda _name, _prompt: None,
    )


NAMES = [f"p{number}/dev" for number in range(8)]


@st.composite
def draw_acyclic_dependencies(draw: st.DrawFn) -> dict[str, set[str]]:
    """Draw dependencies without a cycle: each stack depends only on stacks before it."""
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    return {
        name: set(draw(st.lists(st.sampled_from(names[:at]), max_size=3))) if at else set()
        for at, name in enumerate(names)
    }


@given(draw_acyclic_dependencies(), st.sets(st.sampled_from(NAMES)), st.integers(1, 3), st.data())
@settings(max_examples=60, deadline=None)
def test_each_stack_runs_once_after_its_dependencies(
    needs: dict[str, set[str]], fails: set[str], jobs: int, data: st.DataObject
) -> None:
    names = list(needs)
    asks = {
        name: data.draw(st.lists(st.sampled_from(names[:at]), max_size=2)) if at else []
        for at, name in enumerate(names)
    }
    played = ScheduledStacks(asks, frozenset(fails))
    results = build_schedule(needs, played, jobs).run()
    assert set(results) == set(names)
    assert len(played.started) == len(set(played.started))
    for name in names:
        if any(results[other].code for other in needs[name]):
            assert results[name].code == NOT_STARTED
            assert name not in played.started
        else:
            assert name in played.started
            read_bad = any(results[other].code for other in asks[name])
            assert bool(results[name].code) == (name in fails or read_bad)
    for (name, about), answer in played.received_outputs.items():
        assert bool(answer.error) == bool(results[about].code), (name, about)


@given(draw_acyclic_dependencies(), st.integers(1, 3))
@settings(max_examples=40, deadline=None)
def test_no_more_stacks_run_at_a_time_than_jobs(needs: dict[str, set[str]], jobs: int) -> None:
    played = ScheduledStacks()
    build_schedule(needs, played, jobs).run()
    assert played.most_running <= jobs


def test_waiting_stack_does_not_count_as_a_job() -> None:
    played = ScheduledStacks({"p0/dev": ["p1/dev"], "p1/dev": ["p2/dev"]})
    needs: dict[str, set[str]] = {"p0/dev": set(), "p1/dev": set(), "p2/dev": set()}
    results = build_schedule(needs, played, jobs=1).run()
    assert [result.code for result in results.values()] == [0, 0, 0]
    assert played.ended == ["p2/dev", "p1/dev", "p0/dev"]


def test_stacks_that_wait_for_each_other_fail() -> None:
    played = ScheduledStacks({"p0/dev": ["p1/dev"], "p1/dev": ["p0/dev"]})
    needs: dict[str, set[str]] = {"p0/dev": set(), "p1/dev": set(), "p2/dev": set()}
    results = build_schedule(needs, played).run()
    assert (results["p0/dev"].code, results["p1/dev"].code) == (1, 1)
    assert results["p2/dev"].code == 0
    errors = [answer.error for answer in played.received_outputs.values()]
    assert all("these stacks depend on each other in a cycle: p" in error for error in errors)


def test_stack_that_waits_for_its_dependent_fails() -> None:
    played = ScheduledStacks({"p0/dev": ["p1/dev"]})
    results = build_schedule({"p0/dev": set(), "p1/dev": {"p0/dev"}}, played).run()
    assert results["p0/dev"].code == 1
    assert results["p1/dev"].code == NOT_STARTED
    assert "depend on each other" in played.received_outputs["p0/dev", "p1/dev"].error


@pytest.mark.parametrize("jobs", [1, 4])
def test_cancelled_run_starts_no_stack(jobs: int) -> None:
    played = ScheduledStacks({"p0/dev": ["p3/dev"]})
    needs = {"p0/dev": set[str](), "p1/dev": {"p0/dev"}, "p3/dev": {"p1/dev"}}
    plan = build_schedule(needs, played, jobs)
    plan.cancel()
    results = plan.run()
    assert played.started == []
    assert {result.code for result in results.values()} == {NOT_STARTED}
    assert results["p0/dev"].summary == "not started: the run was interrupted"


def test_outputs_of_a_stack_outside_of_the_run_are_those_of_its_state() -> None:
    played = ScheduledStacks({"p0/dev": ["elsewhere/dev"]})
    results = build_schedule({"p0/dev": set()}, played).run()
    assert results["p0/dev"].code == 0
    assert played.received_outputs["p0/dev", "elsewhere/dev"] == OutputsResponse(number=0)


def test_a_stack_planned_on_another_machine_answers_with_its_planned_outputs() -> None:
    played = ScheduledStacks({"p0/dev": ["p1/dev"]})
    schedule = build_schedule({"p0/dev": set()}, played)
    # Stacks of other parts are in the workspace, and not in the run.
    schedule = replace(
        schedule, order=build_schedule({"p0/dev": set(), "p1/dev": set()}, played).order
    )
    outputs = pack_outputs({"size": 5.0})
    schedule.results["p1/dev"] = TaskResult(code=0, outputs=outputs)
    results = schedule.run()
    assert played.started == ["p0/dev"]
    assert results["p0/dev"].code == 0
    assert played.received_outputs["p0/dev", "p1/dev"].outputs == outputs


def test_a_stack_whose_part_is_not_there_does_not_answer_with_its_state() -> None:
    played = ScheduledStacks({"p0/dev": ["p1/dev"]})
    schedule = replace(build_schedule({"p0/dev": set()}, played), planned_elsewhere=["p1/dev"])
    results = schedule.run()
    assert results["p0/dev"].code == 1
    error = played.received_outputs["p0/dev", "p1/dev"].error
    assert "p0/dev reads p1/dev, which is planned in another part" in error
    assert "add `after: [p1/dev]` to p0/dev in stacks.yaml" in error
