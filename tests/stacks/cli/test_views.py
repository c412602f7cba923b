"""What people see while a run goes on and when it has ended, from hand-made events."""

import io
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from support.clocks.fake_clock import FakeClock

from gpuform.providers.errors import Unreachable
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
from gpuform.stacks.engine.values import Secret
from gpuform.stacks.gates.evaluating import GateEvaluator
from gpuform.stacks.operations.plans.evaluator import PlanEvaluator
from gpuform.stacks.operations.plans.run_record import RunRecord
from gpuform.stacks.operations.runs.callbacks import RunEnded, RunStarted
from gpuform.stacks.operations.runs.run_log import Stopwatch
from gpuform.stacks.pricing.price_book import PriceBook
from gpuform.stacks.review.paint import Paint


class DeadClock:
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


def text(screen: Screen) -> str:
    assert isinstance(screen.out, io.StringIO)
    return screen.out.getvalue()


def step(
    op: Op, name: str, type_: str = "pulumi-python:dynamic/gpuform.together:Cluster", **facts: Any
) -> Step:
    urn = f"urn:pulumi:dev::demo::{type_}::{name}"
    state = ResourceState(urn, type_.startswith("pulumi-python"), type_)
    return Step(op, urn, state, None if op is Op.DELETE else state, **facts)


def feed(listener: Callable[[Event], None], events: Iterable[Event]) -> None:
    for event in events:
        listener(event)


def outcome(**facts: Any) -> Outcome:
    given: dict[str, Any] = {
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
    return Outcome(**given)


def test_a_clock_that_does_not_answer_is_given_up(screen: Screen) -> None:
    watch = Stopwatch(DeadClock())
    watch.synchronize_clock()
    watch.start("x")
    assert watch.is_real
    assert watch.get_elapsed("x") < 60
    assert watch.get_elapsed("never begun") == 0


def rows(live: LiveProgress) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=120).print(live.build_table())
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]


def test_live_rows_while_they_run(screen: Screen, clock: FakeClock) -> None:
    live = LiveProgress(screen, Stopwatch(clock))
    try:
        train, eval_ = step(Op.CREATE, "train"), step(Op.DELETE, "eval")
        feed(live, [StepStarted(train, False), StepStarted(eval_, False)])
        feed(live, [Progress(train.urn, "InstallingDrivers (6m10s)"), Progress("other", "x")])
        clock.time += 400
        assert rows(live) == [
            "+  train  together:Cluster  creating: InstallingDrivers (6m10s)  6m40s",
            "-  eval  together:Cluster   deleting                             6m40s",
        ]
        live(StepDone(train, False))
        assert len(rows(live)) == 1
        assert "+  train  together:Cluster  created in 6m40s" in text(screen)
    finally:
        live.close()


def test_many_live_rows_are_cut(screen: Screen, clock: FakeClock) -> None:
    live = LiveProgress(screen, Stopwatch(clock))
    try:
        feed(live, [StepStarted(step(Op.CREATE, f"c{n}"), False) for n in range(30)])
        assert len(rows(live)) == 21
        assert "and 10 more" in rows(live)[-1]
    finally:
        live.close()


def shown(screen: Screen, title: RunStarted, events: list[Event], ended: Outcome) -> str:
    clock = FakeClock()
    appraiser = PlanEvaluator(PriceBook(), GateEvaluator((), (), Path()), clock)
    view = HumanView(screen, DisplayOptions(), lambda: Stopwatch(clock))
    record, listen = RunRecord(), view.begin(title)
    for event in [Prelude(title.operation, title.preview, {}), *events]:
        record(event)
        listen(event)
    view.close()
    view.end(RunEnded(title, record, appraiser, ended), ended)
    return text(screen)


def test_after_a_failure_it_says_what_was_kept_and_what_to_do(screen: Screen) -> None:
    train = step(Op.CREATE, "train")
    train.state.init_errors = ["not ready after 1h"]
    told = shown(
        screen,
        RunStarted("update", False, "demo", "dev"),
        [
            StepStarted(train, False),
            Diagnostic("error", "no capacity", train.urn),
            StepFailed(train),
        ],
        outcome(
            succeeded=False, snapshot=Snapshot("s", resources=[train.state]), outputs={"old": "x"}
        ),
    )
    assert "    error: no capacity" in told
    assert "    1 errored" in told
    assert "train exists and is in the state, but is not ready yet." in told
    assert "run `gpuform up` again" in told
    assert "Outputs" not in told


def test_an_interrupted_run_has_no_cause_to_remove(screen: Screen) -> None:
    ended = outcome(succeeded=False, cancelled=True)
    told = shown(screen, RunStarted("destroy", False, "demo", "dev"), [], ended)
    assert "The destroy was interrupted." in told
    assert "Next: run `gpuform destroy` again" in told


def test_a_result_has_outputs_and_summary(screen: Screen) -> None:
    train = step(Op.CREATE, "train")
    told = shown(
        screen,
        RunStarted("update", False, "demo", "dev"),
        [StepDone(train, False), SkippedCheck("no key")],
        outcome(outputs={"kubeconfig": Secret("apiVersion: v1"), "status": "Ready"}),
    )
    assert told.splitlines() == [
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


def test_a_refresh_without_preview_shows_the_drift(screen: Screen) -> None:
    drift = ResourceChange(
        urn="urn:pulumi:dev::demo::my:mod:Comp::train",
        type="my:mod:Comp",
        name="train",
        action=PlanAction.UPDATE,
        reason=PlanReason.DRIFT,
    )
    title = RunStarted("refresh", False, "demo", "dev")
    assert "changed outside of this stack" in shown(screen, title, [], outcome(planned=[drift]))


def test_the_record_counts_people_s_resources_once() -> None:
    record = RunRecord()
    component = step(Op.CREATE, "group", "my:mod:Group")
    stack = step(Op.CREATE, "demo-dev", "pulumi:pulumi:Stack")
    feed(
        record, [Prelude("update", True, {}), StepDone(component, True), StepDone(component, True)]
    )
    feed(record, [StepDone(stack, True), StepDone(step(Op.SAME, "other"), True)])
    feed(record, [StepDone(step(Op.REFRESH, "other", result_op=Op.UPDATE), True)])
    assert dict(record.counts) == {"create": 1, "same": 1}
    plan = record.build_plan("demo", "dev", outcome())
    assert [(c.name, c.action) for c in plan.changes] == [("group", PlanAction.CREATE)]


def plan(*gpus: int, stack: str = "dev", operation: Any = "update") -> Plan:
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
def test_the_question(
    screen: Screen, monkeypatch: pytest.MonkeyPatch, operation: Any, answers: str, expected: bool
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    assert confirm_plan(screen, plan(16, 8, operation=operation)) is expected
    assert "24 GPUs will be lost" in text(screen)
    assert ("urn: urn:16" in text(screen)) == ("details" in answers)


def test_a_destroy_says_how_much_goes(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("dev\n"))
    confirm_plan(screen, plan(16, operation="destroy"))
    assert "deletes 1 resource of stack dev" in text(screen)
    assert "16 GPUs will be lost" in text(screen)
