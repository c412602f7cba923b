"""What a log shows while a run goes on: results at once, what runs now and then."""

import io
import itertools
import re
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes.limits import LAST_RESORT
from support.clocks.fake_clock import FakeClock

from gpuform.stacks.cli.terminal.progress import REPORT_INTERVAL_S, LineProgress
from gpuform.stacks.cli.terminal.screen import Screen, create_fold_marks
from gpuform.stacks.engine.machine import CiJob
from gpuform.stacks.engine.planning import (
    Event,
    Op,
    Progress,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
)
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.operations.runs.run_log import Stopwatch
from gpuform.stacks.review.paint import Paint

CLUSTER = "pulumi-python:dynamic/gpuform.together:Cluster"


class Noted(io.StringIO):
    """A stream that knows when each line came."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.noted: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        self.noted.append((self.clock.time, text.rstrip("\n")))
        return len(text)


class Log:
    """A progress view, its clock, and the lines that it has printed."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.out = Noted(self.clock)
        self.screen = Screen(self.out, io.StringIO(), Paint(), interactive=False)
        self.progress = LineProgress(self.screen, Stopwatch(self.clock))

    def feed(self, *events: Event) -> None:
        for event in events:
            self.progress(event)

    def pass_time(self, seconds: float) -> None:
        self.clock.time += seconds
        self.progress.print_if_due()

    @property
    def lines(self) -> list[str]:
        return [line for _, line in self.out.noted]


@pytest.fixture
def log() -> Log:
    return Log()


def step(op: Op, name: str, type_: str = CLUSTER, **facts: Any) -> Step:
    urn = f"urn:pulumi:dev::demo::{type_}::{name}"
    state = ResourceState(urn, type_.startswith("pulumi-python"), type_)
    return Step(op, urn, state, None if op is Op.DELETE else state, **facts)


def test_one_resource(log: Log) -> None:
    train, stack = step(Op.CREATE, "train"), step(Op.CREATE, "demo-dev", "pulumi:pulumi:Stack")
    log.feed(StepStarted(stack, False), StepStarted(train, False))
    log.feed(Progress(train.urn, "Scheduled (1s)"), Progress("other", "x"))
    log.pass_time(9)
    log.feed(Progress(train.urn, "WaitingForNodes (9s)"))
    log.pass_time(1)
    log.pass_time(50)
    log.pass_time(10)
    log.pass_time(1140)
    log.feed(StepDone(train, False, seconds=0.4), StepDone(stack, False))
    assert log.lines == [
        "+  train  together:Cluster  creating",
        "+  train  together:Cluster  creating: WaitingForNodes (9s)",
        "+  train  together:Cluster  creating: WaitingForNodes (9s), 1m10s so far",
        "+  train  together:Cluster  creating: WaitingForNodes (9s), 20m10s so far",
        "+  train  together:Cluster  created in 20m10s",
    ]


def test_a_few_are_named_and_many_are_counted(log: Log) -> None:
    few = [step(Op.CREATE, name) for name in ("train", "eval")]
    log.feed(*(StepStarted(each, False) for each in few))
    log.feed(*(Progress(each.urn, f"Scheduled ({n}s)") for n, each in enumerate(few)))
    log.pass_time(10)
    many = [step(Op.CREATE, f"c{n}") for n in range(998)]
    log.feed(*(StepStarted(each, False) for each in many))
    log.feed(*(Progress(each.urn, f"Scheduled ({n}m00s)") for n, each in enumerate(many[:900])))
    log.pass_time(10)
    log.feed(*(Progress(each.urn, f"no answer: {each.urn}") for each in many[:900]))
    log.pass_time(10)
    log.feed(StepDone(few[0], False))
    told = log.lines[3]
    assert told.startswith("   1000 running, 0 done (30s): 98 creating, 2 creating: Scheduled, 1 ")
    assert told.endswith(", 897 in other phases")
    assert [*log.lines[:3], *log.lines[4:]] == [
        "+  train  together:Cluster  creating",
        "   2 running, 0 done (10s): train creating: Scheduled (0s), eval creating: Scheduled (1s)",
        "   1000 running, 0 done (20s): 902 creating: Scheduled, 98 creating",
        "+  train  together:Cluster  created in 30s",
    ]


def test_a_replacement_and_a_failure(log: Log) -> None:
    original = step(Op.DELETE_REPLACED, "train", retain=True)
    created = step(Op.CREATE_REPLACEMENT, "train")
    log.feed(StepStarted(original, False), StepDone(original, False))
    log.feed(StepStarted(step(Op.REPLACE, "train"), False))
    log.feed(StepStarted(created, False), StepFailed(created))
    assert log.lines == [
        "-- train  together:Cluster  deleting original",
        "-- train  together:Cluster  deleted original in 1s  [retain]",
        "++ train  together:Cluster  creating replacement failed after 1s",
    ]


def test_several_objects_of_one_resource_end_each_for_itself(log: Log) -> None:
    originals = [step(Op.DELETE_REPLACED, "a") for _ in range(2)]
    half_replaced = step(Op.REMOVE_PENDING_REPLACE, "a")
    log.feed(*(StepStarted(each, planning=False) for each in (*originals, half_replaced)))
    log.feed(*(StepDone(each, planning=False) for each in (half_replaced, *originals)))
    assert log.lines[1:] == ["-- a  together:Cluster  deleted original in 1s"] * 2


def test_a_refresh_tells_only_what_it_found(log: Log) -> None:
    for found in (Op.SAME, Op.UPDATE, Op.DELETE):
        read = step(Op.REFRESH, str(found), result_op=found)
        log.feed(StepStarted(read, True), StepDone(read, True))
    assert log.lines == [
        "~  update  together:Cluster  refreshed: changed outside of this stack",
        "~  delete  together:Cluster  refreshed: no longer exists on the platform",
    ]


def test_a_preview_does_no_work(log: Log) -> None:
    planned = step(Op.CREATE, "train")
    log.feed(StepStarted(planned, True), StepDone(planned, True))
    log.pass_time(1000)
    assert log.lines == []


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from(["start", "progress", "progress", "done", "fail"]),
            st.floats(0, 30),
        )
    )
)
def test_there_is_a_pause_between_two_lines_of_what_runs(
    happenings: list[tuple[int, str, float]],
) -> None:
    log = Log()
    steps = [step(Op.CREATE, f"c{number}") for number in range(6)]
    running: set[str] = set()
    ended = 0
    for number, what, pause in happenings:
        one = steps[number]
        if what == "start" and one.urn not in running:
            running.add(one.urn)
            log.feed(StepStarted(one, False))
        elif what == "progress":
            log.feed(Progress(one.urn, f"phase {pause}"))
        elif one.urn in running and what in ("done", "fail"):
            running.discard(one.urn)
            ended += 1
            log.feed(StepDone(one, False) if what == "done" else StepFailed(one))
        log.pass_time(pause)
    results = [line for line in log.lines if re.search(" created in | failed ", line)]
    assert len(results) == ended
    told = [time for time, line in log.out.noted if line not in results]
    pauses = [later - earlier for earlier, later in itertools.pairwise(told)]
    assert all(pause >= REPORT_INTERVAL_S for pause in pauses)


def test_it_looks_by_itself_whether_something_is_due() -> None:
    told = threading.Event()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            told.set()
            return len(text)

    screen = Screen(Out(), io.StringIO(), Paint(), interactive=False)
    clock = FakeClock()
    progress = LineProgress(screen, Stopwatch(clock), interval_s=0.001)
    try:
        progress(StepStarted(step(Op.CREATE, "train"), False))
        told.clear()
        clock.time += 100
        assert told.wait(LAST_RESORT)
    finally:
        progress.close()


class TestFolds:
    def test_github(self) -> None:
        folds = create_fold_marks(CiJob("GitHub Actions"))
        assert folds is not None
        assert folds.begin("Updating (dev)") == "::group::Updating (dev)"
        assert folds.end() == "::endgroup::"

    def test_gitlab(self) -> None:
        folds = create_fold_marks(CiJob("GitLab CI/CD"))
        assert folds is not None
        begun = re.fullmatch(
            "\x1b\\[0Ksection_start:\\d+:(gpuform_\\d+)\r\x1b\\[0KUpdating \\(dev\\)",
            folds.begin("Updating (dev)"),
        )
        assert begun
        assert re.fullmatch(f"\x1b\\[0Ksection_end:\\d+:{begun[1]}\r\x1b\\[0K", folds.end())

    def test_azure_and_others(self) -> None:
        folds = create_fold_marks(CiJob("Azure Pipelines"))
        assert folds is not None
        assert (folds.begin("x"), folds.end()) == ("##[group]x", "##[endgroup]")
        assert create_fold_marks(CiJob("Jenkins")) is None
        assert create_fold_marks(None) is None
