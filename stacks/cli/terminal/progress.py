"""Progress without a live display: a line for each result, and now and then one for what runs."""

import re
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.engine.planning import (
    Event,
    Op,
    Progress,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
)
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.operations.runs.run_log import Stopwatch, is_news, is_work
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.summary_text import duration
from gpuform.stacks.review.text import step_text

SPACING: Final = 10.0
"""Seconds between two lines that tell what runs."""

SILENCE: Final = 60.0
"""Seconds without news, after which what runs is told again: CI systems end silent jobs."""

_MOST_NAMED: Final = 3
_MOST_PHASES: Final = 5


class ProgressView(Protocol):
    """Shows what is running. `close` ends it; `print` puts a line above what is live."""

    def __call__(self, event: Event) -> None: ...

    def print(self, text: str) -> None: ...

    def close(self) -> None: ...


def ended(event: StepDone | StepFailed, seconds: float, paint: Paint) -> str:
    """`+  train  together:Cluster  created in 20m10s`."""
    step = event.step
    if isinstance(event, StepFailed):
        told = step_text.failed(step.op, seconds, paint)
    else:
        told = step_text.succeeded(step.op, seconds, step.shown_op)
    who = step_text.subject(step.op, step.urn, paint)
    return f"{who}  {told}{'  [retain]' if step.retain else ''}"


@dataclass(slots=True)
class _Running:
    step: Step
    phase: str = ""
    is_untold: bool = True

    @property
    def doing(self) -> str:
        return step_text.running(self.step.op, self.phase)


class EndedProgress:
    """What has ended, and nothing of what is under way."""

    def __init__(self, screen: Screen, watch: Stopwatch) -> None:
        self._screen = screen
        self._watch = watch
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, StepStarted):
                self._watch.start(id(event.step))
            elif isinstance(event, StepDone | StepFailed):
                planning = isinstance(event, StepDone) and event.planning
                if is_work(event.step, planning=planning) and is_news(event):
                    seconds = self._watch.elapsed(id(event.step))
                    self._screen.print(ended(event, seconds, self._screen.paint))

    def print(self, text: str) -> None:
        self._screen.print(text)

    def close(self) -> None:
        """Nothing is open."""


class LineProgress:
    """For logs and pipes. Results come at once; what runs is told at most every `SPACING` seconds
    by the platform's clock, and again after `SILENCE`.

    `beat` is how often, in real seconds, it looks whether there is something to tell; without one
    it looks only when something happens.
    """

    def __init__(self, screen: Screen, watch: Stopwatch, *, beat: float | None = None) -> None:
        self._screen = screen
        self._watch = watch
        self._running: dict[int, _Running] = {}  # by id() of the step: a URN may have several
        self._done = 0
        self._has_told = False
        watch.start(self)
        watch.start(_LAST)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        if beat is not None:
            threading.Thread(target=self._beat, args=(beat,), name="progress", daemon=True).start()

    def __call__(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, StepStarted) and is_work(event.step, planning=event.planning):
                is_read = event.step.op is Op.REFRESH
                self._running[id(event.step)] = _Running(event.step, is_untold=not is_read)
                self._watch.start(id(event.step))
            elif isinstance(event, Progress):
                for running in self._running.values():
                    if running.step.urn == event.urn:
                        running.phase, running.is_untold = event.text, True
            elif isinstance(event, StepDone | StepFailed) and id(event.step) in self._running:
                del self._running[id(event.step)]
                self._done += 1
                if is_news(event):
                    seconds = self._watch.elapsed(id(event.step))
                    self._screen.print(ended(event, seconds, self._screen.paint))
            self._tell_what_is_due()

    def tick(self) -> None:
        """Tells what is due, if anything is."""
        with self._lock:
            if not self._closed.is_set():
                self._tell_what_is_due()

    def print(self, text: str) -> None:
        self._screen.print(text)

    def close(self) -> None:
        with self._lock:  # a line that is being told is told before what follows
            self._closed.set()

    def _beat(self, seconds: float) -> None:
        while not self._closed.wait(seconds):
            self.tick()

    def _tell_what_is_due(self) -> None:
        silent = self._watch.elapsed(_LAST) if self._running else 0.0
        if self._has_told and silent < SPACING:
            return
        told = [each for each in self._running.values() if each.is_untold]
        if not told and silent >= SILENCE:
            told = [*self._running.values()]
        if not told:
            return
        self._screen.print(self._one(told[0]) if len(told) == 1 else self._several(told))
        for each in told:
            each.is_untold = False
        self._watch.start(_LAST)
        self._has_told = True

    def _one(self, running: _Running) -> str:
        step, since = running.step, ""
        if not running.is_untold:
            since = f", {duration(self._watch.elapsed(id(step)))} so far"
        return f"{step_text.subject(step.op, step.urn, self._screen.paint)}  {running.doing}{since}"

    def _several(self, told: list[_Running]) -> str:
        """`12 running, 3 done: 8 creating: InstallingDrivers, 4 creating`."""
        elapsed = duration(self._watch.elapsed(self))
        counts = f"{len(self._running)} running, {self._done} done ({elapsed})"
        if len(told) <= _MOST_NAMED:
            parts = [f"{name_of(each.step.urn)} {each.doing}" for each in told]
        else:
            # How long each has waited differs, and would keep them apart.
            phases = Counter(_WAITED.sub("", each.doing) for each in self._running.values())
            parts = [f"{count} {doing}" for doing, count in phases.most_common(_MOST_PHASES)]
            others = len(self._running) - sum(n for _, n in phases.most_common(_MOST_PHASES))
            parts += [f"{others} in other phases"] if others else []
        return f"   {counts}: {', '.join(parts)}"


_LAST: Final = "the last line of what runs"
_WAITED: Final = re.compile(r" \([0-9hms]+\)$")
