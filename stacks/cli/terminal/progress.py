"""Show the progress of a run: live rows on a terminal, else lines for results and long waits."""

import re
import threading
from collections import Counter
from dataclasses import dataclass
from typing import Final, Protocol

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuform.stacks.cli.terminal.screen import Screen, escape_text
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
"""Seconds between two lines about running steps."""

SILENCE: Final = 60.0
"""Seconds without news after which running steps are printed again: CI systems end silent jobs."""

_MOST_NAMED: Final = 3
_MOST_PHASES: Final = 5


class ProgressView(Protocol):
    """Shows running steps. `close` ends the display; `print` puts a line above the live rows."""

    def __call__(self, event: Event) -> None: ...

    def print(self, text: str) -> None: ...

    def close(self) -> None: ...


def format_ended(event: StepDone | StepFailed, seconds: float, paint: Paint) -> str:
    """Return the line of a step that ended: `+  train  together:Cluster  created in 20m10s`."""
    step = event.step
    if isinstance(event, StepFailed):
        result = step_text.format_failed(step.op, seconds, paint)
    else:
        result = step_text.format_succeeded(step.op, seconds, step.shown_op)
    who = step_text.format_subject(step.op, step.urn, paint)
    return f"{who}  {result}{'  [retain]' if step.retain else ''}"


@dataclass(slots=True)
class _Running:
    step: Step
    phase: str = ""
    is_unreported: bool = True

    @property
    def doing(self) -> str:
        return step_text.format_running(self.step.op, self.phase)


class EndedProgress:
    """Prints steps that ended, and nothing about running steps."""

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
                    self._screen.print(format_ended(event, seconds, self._screen.paint))

    def print(self, text: str) -> None:
        self._screen.print(text)

    def close(self) -> None:
        """Do nothing: no display is open."""


class LineProgress:
    """Prints progress as lines, for logs and pipes.

    Results are printed at once; running steps at most every `SPACING` seconds by the platform's
    clock, and again after `SILENCE`.

    `beat` is how often, in real seconds, a thread looks for something to print; without one only
    events cause lines.
    """

    def __init__(self, screen: Screen, watch: Stopwatch, *, beat: float | None = None) -> None:
        self._screen = screen
        self._watch = watch
        self._running: dict[int, _Running] = {}  # by id() of the step: a URN may have several
        self._done = 0
        self._has_reported = False
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
                self._running[id(event.step)] = _Running(event.step, is_unreported=not is_read)
                self._watch.start(id(event.step))
            elif isinstance(event, Progress):
                for running in self._running.values():
                    if running.step.urn == event.urn:
                        running.phase, running.is_unreported = event.text, True
            elif isinstance(event, StepDone | StepFailed) and id(event.step) in self._running:
                del self._running[id(event.step)]
                self._done += 1
                if is_worth_showing(event):
                    seconds = self._watch.get_elapsed(id(event.step))
                    self._screen.print(format_ended(event, seconds, self._screen.paint))
            self._report_if_due()

    def tick(self) -> None:
        """Print running steps if a line is due."""
        with self._lock:
            if not self._closed.is_set():
                self._report_if_due()

    def print(self, text: str) -> None:
        self._screen.print(text)

    def close(self) -> None:
        with self._lock:  # a line that is being told is told before what follows
            self._closed.set()

    def _beat(self, seconds: float) -> None:
        while not self._closed.wait(seconds):
            self.tick()

    def _report_if_due(self) -> None:
        silent = self._watch.get_elapsed(_LAST) if self._running else 0.0
        if self._has_reported and silent < SPACING:
            return
        reported = [running for running in self._running.values() if running.is_unreported]
        if not reported and silent >= SILENCE:
            reported = [*self._running.values()]
        if not reported:
            return
        self._screen.print(
            self._format_one(reported[0]) if len(reported) == 1 else self._format_many(reported)
        )
        for running in reported:
            running.is_unreported = False
        self._watch.start(_LAST)
        self._has_reported = True

    def _format_one(self, running: _Running) -> str:
        step, since = running.step, ""
        if not running.is_unreported:
            since = f", {format_elapsed(self._watch.get_elapsed(id(step)))} so far"
        subject = step_text.format_subject(step.op, step.urn, self._screen.paint)
        return f"{subject}  {running.doing}{since}"

    def _format_many(self, reported: list[_Running]) -> str:
        """`12 running, 3 done: 8 creating: InstallingDrivers, 4 creating`."""
        elapsed = format_elapsed(self._watch.get_elapsed(self))
        counts = f"{len(self._running)} running, {self._done} done ({elapsed})"
        if len(reported) <= _MOST_NAMED:
            parts = [f"{name_of(running.step.urn)} {running.doing}" for running in reported]
        else:
            # How long each has waited differs, and would keep them apart.
            phases = Counter(_WAITED.sub("", running.doing) for running in self._running.values())
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
    """Shows a row for each running step; steps that ended stay above as lines."""

    def __init__(self, screen: Screen, watch: Stopwatch) -> None:
        self._screen = screen
        self._watch = watch
        self._rows: dict[int, _Row] = {}  # by id() of the step: a URN may have several
        self._lock = threading.Lock()
        # The real stream: what the program prints is taken from sys.stdout meanwhile.
        self._console = Console(file=screen.out, highlight=False, no_color=not screen.paint.color)
        self._live = Live(
            console=self._console,
            get_renderable=self.build_table,
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
        self._console.print(self._to_styled_text(text), soft_wrap=True)

    def close(self) -> None:
        self._live.stop()

    def _to_styled_text(self, text: str) -> Text:
        return Text.from_ansi(escape_text(text, color=self._screen.paint.color, in_ci=False))

    def build_table(self) -> Table:
        """Return the rows of the running steps."""
        grid = Table.grid(padding=(0, 2))
        with self._lock:
            rows = list(self._rows.values())
        for row in rows[:_MOST_ROWS]:
            step = row.step
            grid.add_row(
                self._to_styled_text(
                    step_text.format_subject(step.op, step.urn, self._screen.paint)
                ),
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
            self.print(
                format_ended(event, self._watch.get_elapsed(id(event.step)), self._screen.paint)
            )
