"""Test the log of a run: results appear at once, running operations now and then."""

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
from gpuform.stacks.engine.ci_job import CiJob
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


class TimedStream(io.StringIO):
    """A stream that knows when each line came."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self.clock = clock
        self.timed_lines: list[tuple[float, str]] = []

    def write(self, text: str) -> int:
        self.timed_lines.append((self.clock.time, text.rstrip("\n")))
        return len(text)


class ProgressLog:
    """A progress view, its clock, and the lines that it has printed."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.out = TimedStream(self.clock)
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
        return [line for _, line in self.out.timed_lines]


@pytest.fixture
def progress_log() -> ProgressLog:
    return ProgressLog()


def build_step(op: Op, name: str, type_: str = CLUSTER, **facts: Any) -> Step:
    urn = f"urn:pulumi:dev::demo::{type_}::{name}"
    state = ResourceState(urn, type_.startswith("pulumi-python"), type_)
    return Step(op, urn, state, None if op is Op.DELETE else state, **facts)


def test_one_resource_is_reported_at_start_at_intervals_and_at_its_end(
    progress_log: ProgressLog,
) -> None:
    train, stack = (
        build_step(Op.CREATE, "train"),
        build_step(Op.CREATE, "demo-dev", "pulumi:pulumi:Stack"),
    )
    progress_log.feed(StepStarted(stack, False), StepStarted(train, False))
    progress_log.feed(Progress(train.urn, "Scheduled (1s)"), Progress("other", "x"))
    progress_log.pass_time(9)
    progress_log.feed(Progress(train.urn, "WaitingForNodes (9s)"))
    progress_log.pass_time(1)
    progress_log.pass_time(50)
    progress_log.pass_time(10)
    progress_log.pass_time(1140)
    progress_log.feed(StepDone(train, False, seconds=0.4), StepDone(stack, False))
    assert progress_log.lines == [
        "+  train  together:Cluster  creating",
        "+  train  together:Cluster  creating: WaitingForNodes (9s)",
        "+  train  together:Cluster  creating: WaitingForNodes (9s), 1m10s so far",
        "+  train  together:Cluster  creating: WaitingForNodes (9s), 20m10s so far",
        "+  train  together:Cluster  created in 20m10s",
    ]


def test_a_few_running_resources_are_named_and_many_are_counted(progress_log: ProgressLog) -> None:
    few = [build_step(Op.CREATE, name) for name in ("train", "eval")]
    progress_log.feed(*(StepStarted(step, False) for step in few))
    progress_log.feed(*(Progress(step.urn, f"Scheduled ({n}s)") for n, step in enumerate(few)))
    progress_log.pass_time(10)
    many = [build_step(Op.CREATE, f"c{n}") for n in range(998)]
    progress_log.feed(*(StepStarted(step, False) for step in many))
    progress_log.feed(
        *(Progress(step.urn, f"Scheduled ({n}m00s)") for n, step in enumerate(many[:900]))
    )
    progress_log.pass_time(10)
    progress_log.feed(*(Progress(step.urn, f"no answer: {step.urn}") for step in many[:900]))
    progress_log.pass_time(10)
    progress_log.feed(StepDone(few[0], False))
    line = progress_log.lines[3]
    assert line.startswith("   1000 running, 0 done (30s): 98 creating, 2 creating: Scheduled, 1 ")
    assert line.endswith(", 897 in other phases")
    assert [*progress_log.lines[:3], *progress_log.lines[4:]] == [
        "+  train  together:Cluster  creating",
        "   2 running, 0 done (10s): train creating: Scheduled (0s), eval creating: Scheduled (1s)",
        "   1000 running, 0 done (20s): 902 creating: Scheduled, 98 creating",
        "+  train  together:Cluster  created in 30s",
    ]


def test_steps_of_a_replacement_and_failures_are_reported(progress_log: ProgressLog) -> None:
    original = build_step(Op.DELETE_REPLACED, "train", retain=True)
    created = build_step(Op.CREATE_REPLACEMENT, "train")
    progress_log.feed(StepStarted(original, False), StepDone(original, False))
    progress_log.feed(StepStarted(build_step(Op.REPLACE, "train"), False))
    progress_log.feed(StepStarted(created, False), StepFailed(created))
    assert progress_log.lines == [
        "-- train  together:Cluster  deleting original",
        "-- train  together:Cluster  deleted original in 1s  [retain]",
        "++ train  together:Cluster  creating replacement failed after 1s",
    ]


def test_each_object_of_one_resource_is_reported(progress_log: ProgressLog) -> None:
    originals = [build_step(Op.DELETE_REPLACED, "a") for _ in range(2)]
    half_replaced = build_step(Op.REMOVE_PENDING_REPLACE, "a")
    progress_log.feed(*(StepStarted(step, planning=False) for step in (*originals, half_replaced)))
    progress_log.feed(*(StepDone(step, planning=False) for step in (half_replaced, *originals)))
    assert progress_log.lines[1:] == ["-- a  together:Cluster  deleted original in 1s"] * 2


def test_a_refresh_reports_only_changed_resources(progress_log: ProgressLog) -> None:
    for result_op in (Op.SAME, Op.UPDATE, Op.DELETE):
        read = build_step(Op.REFRESH, str(result_op), result_op=result_op)
        progress_log.feed(StepStarted(read, True), StepDone(read, True))
    assert progress_log.lines == [
        "~  update  together:Cluster  refreshed: changed outside of this stack",
        "~  delete  together:Cluster  refreshed: no longer exists on the platform",
    ]


def test_a_preview_reports_no_progress(progress_log: ProgressLog) -> None:
    planned = build_step(Op.CREATE, "train")
    progress_log.feed(StepStarted(planned, True), StepDone(planned, True))
    progress_log.pass_time(1000)
    assert progress_log.lines == []


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from(["start", "progress", "progress", "done", "fail"]),
            st.floats(0, 30),
        )
    )
)
def test_lines_about_running_resources_keep_a_pause(
    happenings: list[tuple[int, str, float]],
) -> None:
    log = ProgressLog()
    steps = [build_step(Op.CREATE, f"c{number}") for number in range(6)]
    running: set[str] = set()
    ended = 0
    for number, happening, pause in happenings:
        running_step = steps[number]
        if happening == "start" and running_step.urn not in running:
            running.add(running_step.urn)
            log.feed(StepStarted(running_step, False))
        elif happening == "progress":
            log.feed(Progress(running_step.urn, f"phase {pause}"))
        elif running_step.urn in running and happening in ("done", "fail"):
            running.discard(running_step.urn)
            ended += 1
            log.feed(
                StepDone(running_step, False) if happening == "done" else StepFailed(running_step)
            )
        log.pass_time(pause)
    results = [line for line in log.lines if re.search(" created in | failed ", line)]
    assert len(results) == ended
    matching_times = [time for time, line in log.out.timed_lines if line not in results]
    pauses = [later - earlier for earlier, later in itertools.pairwise(matching_times)]
    assert all(pause >= REPORT_INTERVAL_S for pause in pauses)


def test_due_lines_are_printed_without_an_event() -> None:
    printed = threading.Event()

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            printed.set()
            return len(text)

    screen = Screen(Out(), io.StringIO(), Paint(), interactive=False)
    clock = FakeClock()
    progress = LineProgress(screen, Stopwatch(clock), interval_s=0.001)
    try:
        progress(StepStarted(build_step(Op.CREATE, "train"), False))
        printed.clear()
        clock.time += 100
        assert printed.wait(LAST_RESORT)
    finally:
        progress.close()


class TestFolds:
    def test_github_folds_are_group_commands(self) -> None:
        folds = create_fold_marks(CiJob("GitHub Actions"))
        assert folds is not None
        assert folds.begin("Updating (dev)") == "::group::Updating (dev)"
        assert folds.end() == "::endgroup::"

    def test_gitlab_folds_are_section_marks(self) -> None:
        folds = create_fold_marks(CiJob("GitLab CI/CD"))
        assert folds is not None
        begun = re.fullmatch(
            "\x1b\\[0Ksection_start:\\d+:(gpuform_\\d+)\r\x1b\\[0KUpdating \\(dev\\)",
            folds.begin("Updating (dev)"),
        )
        assert begun
        assert re.fullmatch(f"\x1b\\[0Ksection_end:\\d+:{begun[1]}\r\x1b\\[0K", folds.end())

    def test_azure_has_folds_and_other_systems_have_none(self) -> None:
        folds = create_fold_marks(CiJob("Azure Pipelines"))
        assert folds is not None
        assert (folds.begin("x"), folds.end()) == ("##[group]x", "##[endgroup]")
        assert create_fold_marks(CiJob("Jenkins")) is None
        assert create_fold_marks(None) is None
