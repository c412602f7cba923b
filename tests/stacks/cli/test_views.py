"""Test the output during and after a run, from constructed events."""

import io
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.clocks.fake_clock import FakeClock

from gpuform.providers.errors import Unreachable
from gpuform.providers.values import Secret
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.stacks.cli.terminal.progress import LiveProgress
from gpuform.stacks.cli.terminal.prompts import confirm_plan
from gpuform.stacks.cli.terminal.screen import DisplayOptions, Screen
from gpuform.stacks.cli.terminal.views import HumanView
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    Op,
    Prelude,
    Progress,
    SkippedCheck,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
)
from gpuform.stacks.engine.state import ResourceState, Snapshot
from gpuform.stacks.gates.evaluating import GateEvaluator
from gpuform.stacks.operations.runs.callbacks import RunEnded, RunStarted
from gpuform.stacks.operations.runs.evaluator import PlanEvaluator, RunRecord
from gpuform.stacks.operations.runs.run_log import Stopwatch
from gpuform.stacks.pricing import PriceBook
from gpuform.stacks.review.paint import Paint


class UnreachableClock:
    def now(self) -> float:
        raise Unreachable("nobody")

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        raise Unreachable("nobody")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def screen() -> Screen:
    return Screen(io.StringIO(), io.StringIO(), Paint(), interactive=False)


def get_output(screen: Screen) -> str:
    assert isinstance(screen.out, io.StringIO)
    return screen.out.getvalue()


def build_step(
    op: Op, name: str, type_: str = "pulumi-python:dynamic/gpuform.together:Cluster", **facts: Any
) -> Step:
    urn = f"urn:pulumi:dev::demo::{type_}::{name}"
    state = ResourceState(urn, type_.startswith("pulumi-python"), type_)
    return Step(op, urn, state, None if op is Op.DELETE else state, **facts)


def feed(listener: Callable[[Event], None], events: Iterable[Event]) -> None:
    for event in events:
        listener(event)


def build_outcome(**facts: Any) -> Outcome:
    fields: dict[str, Any] = {
        "succeeded": True,
        "cancelled": False,
        "changes": {},
        "planned": [],
        "outputs_before": {},
        "outputs": {},
        "snapshot": Snapshot("organization/demo/dev"),
        "seconds": 2.0,
        **facts,
    }
    return Outcome(**fields)


def test_a_stopwatch_falls_back_to_real_time_if_the_clock_fails(screen: Screen) -> None:
    watch = Stopwatch(UnreachableClock())
    watch.synchronize_clock()
    watch.start("x")
    assert watch.is_real
    assert watch.get_elapsed("x") < 60
    assert watch.get_elapsed("never begun") == 0


def render_rows(live: LiveProgress) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=120).print(live.build_table())
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]


def test_live_progress_shows_a_row_for_each_running_step(screen: Screen, clock: FakeClock) -> None:
    live = LiveProgress(screen, Stopwatch(clock))
    try:
        train, eval_ = build_step(Op.CREATE, "train"), build_step(Op.DELETE, "eval")
        feed(live, [StepStarted(train, False), StepStarted(eval_, False)])
        feed(live, [Progress(train.urn, "InstallingDrivers (6m10s)"), Progress("other", "x")])
        clock.time += 400
        assert render_rows(live) == [
            "+  train  together:Cluster  creating: InstallingDrivers (6m10s)  6m40s",
            "-  eval  together:Cluster   deleting                             6m40s",
        ]
        live(StepDone(train, False))
        assert len(render_rows(live)) == 1
        assert "+  train  together:Cluster  created in 6m40s" in get_output(screen)
    finally:
        live.close()


def test_live_progress_cuts_many_rows(screen: Screen, clock: FakeClock) -> None:
    live = LiveProgress(screen, Stopwatch(clock))
    try:
        feed(live, [StepStarted(build_step(Op.CREATE, f"c{n}"), False) for n in range(30)])
        assert len(render_rows(live)) == 21
        assert "and 10 more" in render_rows(live)[-1]
    finally:
        live.close()


def render_run(screen: Screen, title: RunStarted, events: list[Event], ended: Outcome) -> str:
    clock = FakeClock()
    appraiser = PlanEvaluator(PriceBook(), GateEvaluator((), (), Path()), clock)
    view = HumanView(screen, DisplayOptions(), lambda: Stopwatch(clock))
    record, listen = RunRecord(), view.begin(title)
    for event in [Prelude(title.operation, title.preview, {}), *events]:
        record(event)
        listen(event)
    view.close()
    view.end(RunEnded(title, record, appraiser, ended), ended)
    return get_output(screen)


def test_a_failed_run_lists_unfinished_resources_and_the_next_step(screen: Screen) -> None:
    train = build_step(Op.CREATE, "train")
    train.state.init_errors = ["not ready after 1h"]
    output = render_run(
        screen,
        RunStarted("update", False, "demo", "dev"),
        [
            StepStarted(train, False),
            Diagnostic("error", "no capacity", train.urn),
            StepFailed(train),
        ],
        build_outcome(
            succeeded=False, snapshot=Snapshot("s", resources=[train.state]), outputs={"old": "x"}
        ),
    )
    assert "    error: no capacity" in output
    assert "    1 errored" in output
    assert "train exists and is in the state, but is not ready yet." in output
    assert "run `gpuform up` again" in output
    assert "Outputs" not in output


def test_an_interrupted_run_names_the_command_to_repeat(screen: Screen) -> None:
    ended = build_outcome(succeeded=False, cancelled=True)
    output = render_run(screen, RunStarted("destroy", False, "demo", "dev"), [], ended)
    assert "The destroy was interrupted." in output
    assert "Next: run `gpuform destroy` again" in output


def test_a_finished_run_shows_outputs_and_summary(screen: Screen) -> None:
    train = build_step(Op.CREATE, "train")
    output = render_run(
        screen,
        RunStarted("update", False, "demo", "dev"),
        [StepDone(train, False), SkippedCheck("no key")],
        build_outcome(outputs={"kubeconfig": Secret("apiVersion: v1"), "status": "Ready"}),
    )
    assert output.splitlines() == [
        "Updating (dev):",
        "",
        "Outputs:",
        "    kubeconfig: [secret]",
        '    status:     "Ready"',
        "",
        "Not checked:",
        "    no key",
        "",
        "Resources:",
        "    + 1 created",
        "Duration: 2s",
    ]


def test_a_refresh_without_preview_shows_drift(screen: Screen) -> None:
    drift = ResourceChange(
        urn="urn:pulumi:dev::demo::my:mod:Comp::train",
        type="my:mod:Comp",
        name="train",
        action=PlanAction.UPDATE,
        reason=PlanReason.DRIFT,
    )
    title = RunStarted("refresh", False, "demo", "dev")
    assert "changed outside of this stack" in render_run(
        screen, title, [], build_outcome(planned=[drift])
    )


def test_a_run_record_counts_each_declared_resource_once() -> None:
    record = RunRecord()
    component = build_step(Op.CREATE, "group", "my:mod:Group")
    stack = build_step(Op.CREATE, "demo-dev", "pulumi:pulumi:Stack")
    feed(
        record, [Prelude("update", True, {}), StepDone(component, True), StepDone(component, True)]
    )
    feed(record, [StepDone(stack, True), StepDone(build_step(Op.SAME, "other"), True)])
    feed(record, [StepDone(build_step(Op.REFRESH, "other", result_op=Op.UPDATE), True)])
    assert dict(record.counts) == {"create": 1, "same": 1}
    plan = record.build_plan("demo", "dev", build_outcome())
    assert [(c.name, c.action) for c in plan.changes] == [("group", PlanAction.CREATE)]


def build_plan(*gpus: int, stack: str = "dev", operation: Any = "update") -> Plan:
    changes = [
        ResourceChange(
            urn=f"urn:{n}",
            type="t",
            name=f"n{n}",
            action=PlanAction.DELETE,
            reason=PlanReason.DESTROYED,
            gpus_added=0,
            gpus_removed=n,
        )
        for n in gpus
    ]
    return Plan.from_changes("demo", stack, changes).model_copy(update={"operation": operation})


@pytest.mark.parametrize(
    ("operation", "answers", "expected"),
    [
        ("update", "yes\n", True),
        ("update", "no\n", False),
        ("update", "", False),
        ("update", "details\nyes\n", True),
        ("update", "sure\nno\n", False),
        ("destroy", "yes\nno\n", False),
        ("destroy", "dev\n", True),
    ],
)
def test_confirm_plan_accepts_only_valid_answers(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, operation: Any, answers: str, expected: bool
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    assert confirm_plan(screen, build_plan(16, 8, operation=operation)) is expected
    assert "24 GPUs will be lost" in get_output(screen)
    assert ("urn: urn:16" in get_output(screen)) == ("details" in answers)


def test_the_question_of_a_destroy_shows_lost_resources_and_gpus(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("dev\n"))
    confirm_plan(screen, build_plan(16, operation="destroy"))
    assert "deletes 1 resource of stack dev" in get_output(screen)
    assert "16 GPUs will be lost" in get_output(screen)
