"""Log what happens in a run and how long it takes."""

import threading
import time
from collections.abc import Callable
from typing import Final

from gpuform.providers.context import Clock, SystemClock
from gpuform.providers.errors import GpuformError
from gpuform.providers.values import Redactor
from gpuform.schemas.plan import Plan, PlanAction
from gpuform.schemas.stacks_plan import LogLine, RunLog
from gpuform.stacks.engine.deployment import Outcome
from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    Op,
    Progress,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
    Unchecked,
)
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.engine.urn import is_noise
from gpuform.stacks.engine.values import PropertyMap, collect_secret_texts
from gpuform.stacks.operations.plans.plan_masking import mask_plan
from gpuform.stacks.review.text import step_text


class Stopwatch:
    """Measures named stretches of time, in seconds, on one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._starts: dict[object, float] = {}

    @property
    def is_real(self) -> bool:
        """Whether the clock is this machine's."""
        return isinstance(self._clock, SystemClock)

    def synchronise(self) -> None:
        """Brings a clock that others move up to date; one that does not answer is given up."""
        try:
            self._clock.sleep(0, threading.Event())
        except GpuformError:
            self._clock = SystemClock()

    def start(self, what: object) -> None:
        """Begins a stretch."""
        self._starts[what] = self._now()

    def elapsed(self, what: object) -> float:
        """The seconds since the stretch began; 0 when it never did."""
        return max(0.0, self._now() - self._starts.get(what, self._now()))

    def _now(self) -> float:
        try:
            return self._clock.now()
        except GpuformError:
            return time.time()


MOST_PRINTED: Final = 1000
"""Lines that a program prints and that are kept: the others are counted."""


def is_work(step: Step, *, planning: bool) -> bool:
    """Whether a step calls a platform: those of a plan do not, unless they refresh."""
    if is_noise(step.state.type) or not step.state.custom or not step_text.has_description(step.op):
        return False
    return not planning or step.op is Op.REFRESH


def is_news(event: StepDone | StepFailed) -> bool:
    """Whether the end of a step is worth a line: not when a refresh found nothing."""
    return not (isinstance(event, StepDone) and event.step.shown_op is Op.SAME)


class LogKeeper:
    """A listener of one run. Times of lines are real, durations by the platform's clock."""

    def __init__(self, watch: Stopwatch, now: Callable[[], float] = time.time) -> None:
        self._watch = watch
        self._now = now
        self._lines: list[LogLine] = []
        self._running: set[str] = set()
        self._printed = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted) and is_work(event.step, planning=event.planning):
            self._start(event.step)
        elif isinstance(event, Progress) and event.urn in self._running:
            self._keep(event="progress", urn=event.urn, text=event.text)
        elif isinstance(event, StepDone | StepFailed) and event.step.urn in self._running:
            self._end(event)
        elif isinstance(event, Diagnostic) and event.severity != "debug":
            self._keep_message(event)
        elif isinstance(event, Unchecked):
            self._keep(event="unchecked", text=event.text)

    def log(self, plan: Plan, stack: Stack, outcome: Outcome) -> RunLog:
        """What was kept, with the plan of the run.

        No text of it contains a secret of the configuration, and no message one that the state or
        the outputs mark: of those there may be as many as resources, and who prints them says so
        in messages.
        """
        configured = stack.subject().program.secrets()
        if self._printed > MOST_PRINTED:
            more = self._printed - MOST_PRINTED
            self._keep(event="message", severity="info", text=f"... and {more} lines more")
        messages = [line.text for line in self._lines if line.event == "message"]
        known = {*configured, *secrets_of(outcome.snapshot, outcome.outputs)} if messages else ()
        few, many = Redactor(configured), Redactor(known, within=messages)
        lines = tuple(
            _without(line, many if line.event == "message" else few) for line in self._lines
        )
        changed = tuple(each for each in plan.changes if each.action is not PlanAction.SAME)
        plan = plan.model_copy(update={"changes": changed})
        return RunLog(plan=mask_plan(plan, configured), lines=lines)

    def _start(self, step: Step) -> None:
        self._running.add(step.urn)
        self._watch.start(step.urn)
        if step.op is not Op.REFRESH:
            self._keep(event="started", urn=step.urn, op=step.op)

    def _end(self, event: StepDone | StepFailed) -> None:
        step = event.step
        self._running.discard(step.urn)
        if is_news(event):
            self._keep(
                event="failed" if isinstance(event, StepFailed) else "done",
                urn=step.urn,
                op=step.op,
                found=step.result_op or "",
                seconds=round(self._watch.elapsed(step.urn), 1),
            )

    def _keep_message(self, event: Diagnostic) -> None:
        severity = event.severity.partition("#")[0]
        if severity == "info":
            self._printed += 1
            if self._printed > MOST_PRINTED:
                return
        self._keep(event="message", urn=event.urn, severity=severity, text=event.message)

    def _keep(self, **facts: object) -> None:
        self._lines.append(LogLine.model_validate({"time": round(self._now(), 3), **facts}))


def secrets_of(snapshot: Snapshot, outputs: PropertyMap) -> set[str]:
    """The texts that a state and the outputs of a run mark as secret."""
    found = {*collect_secret_texts(outputs)}
    for entry in snapshot.resources:
        found.update(collect_secret_texts(entry.inputs))
        found.update(collect_secret_texts(entry.outputs))
    return found


def _without(line: LogLine, redactor: Redactor) -> LogLine:
    return line.model_copy(update={"text": redactor.redact(line.text)}) if line.text else line
