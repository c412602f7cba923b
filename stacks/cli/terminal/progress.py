"""Show a run's progress: rows on a terminal, else lines for results and long waits."""

import re
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuform.stacks.cli.terminal.screen import Screen, harmless
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
from gpuform.stacks.operations.runs.run_log import Stopwatch, is_platform_request, is_worth_showing
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.summary_text import format_elapsed
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
        told = step_text.format_failed(step.op, seconds, paint)
    else:
        told = step_text.format_succeeded(step.op, seconds, step.shown_op)
    who = step_text.format_subject(step.op, step.urn, paint)
    return f"{who}  {told}{'  [retain]' if step.retain else ''}"


@dataclass(slots=True)
class _Running:
    step: Step
    phase: str = ""
    is_untold: bool = True

    @property
    def doing(self) -> str:
        return step_text.format_running(self.step.op, self.phase)


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
                if is_platform_request(event.step, planning=planning) and is_worth_showing(event):
                    seconds = self._watch.get_elapsed(id(event.step))
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
            if isinstance(event, StepStarted) and is_platform_request(
                event.step, planning=event.planning
            ):
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
                if is_worth_showing(event):
                    seconds = self._watch.get_elapsed(id(event.step))
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
        silent = self._watch.get_elapsed(_LAST) if self._running else 0.0
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
            since = f", {format_elapsed(self._watch.get_elapsed(id(step)))} so far"
        subject = step_text.format_subject(step.op, step.urn, self._screen.paint)
        return f"{subject}  {running.doing}{since}"

    def _several(self, told: list[_Running]) -> str:
        """`12 running, 3 done: 8 creating: InstallingDrivers, 4 creating`."""
        elapsed = format_elapsed(self._watch.get_elapsed(self))
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


_MOST_ROWS = 20


@dataclass(slots=True)
class _Row:
    step: Step
    phase: str = ""


class LiveProgress:
    """Rows while they run; what has ended stays above as a line."""

    def __init__(self, screen: Screen, watch: Stopwatch) -> None:
        self._screen = screen
        self._watch = watch
        self._rows: dict[int, _Row] = {}  # by id() of the step: a URN may have several
        self._lock = threading.Lock()
        # The real stream: what the program prints is taken from sys.stdout meanwhile.
        self._console = Console(file=screen.out, highlight=False, no_color=not screen.paint.color)
        self._live = Live(
            console=self._console,
            get_renderable=self.table,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted) and is_platform_request(
            event.step, planning=event.planning
        ):
            self._watch.start(id(event.step))
            with self._lock:
                self._rows[id(event.step)] = _Row(event.step)
        elif isinstance(event, Progress):
            with self._lock:
                for row in self._rows.values():
                    if row.step.urn == event.urn:
                        row.phase = event.text
        elif isinstance(event, StepDone | StepFailed):
            self._end(event)

    def print(self, text: str) -> None:
        self._console.print(self._styled(text), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()

    def _styled(self, text: str) -> Text:
        return Text.from_ansi(harmless(text, color=self._screen.paint.color, in_ci=False))

    def table(self) -> Table:
        """The rows as they are now."""
        grid = Table.grid(padding=(0, 2))
        with self._lock:
            rows = list(self._rows.values())
        for row in rows[:_MOST_ROWS]:
            step = row.step
            grid.add_row(
                self._styled(step_text.format_subject(step.op, step.urn, self._screen.paint)),
                Text(step_text.format_running(step.op, row.phase)),
                format_elapsed(self._watch.get_elapsed(id(step))),
            )
        if len(rows) > _MOST_ROWS:
            grid.add_row(f"   and {len(rows) - _MOST_ROWS} more")
        return grid

    def _end(self, event: StepDone | StepFailed) -> None:
        with self._lock:
            row = self._rows.pop(id(event.step), None)
        if row is not None and is_worth_showing(event):
            self.print(ended(event, self._watch.get_elapsed(id(event.step)), self._screen.paint))
