"""Show the progress of a run: live rows on a terminal, else lines for results and long waits.

`views` creates one of the classes for each run, and passes the engine's events to it. Steps are
told apart by their numbers: the objects of one resource, old and new, have the same URN.
"""

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
from gpuform.stacks.review import step_text
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.value_text import format_elapsed

REPORT_INTERVAL_S: Final = 10.0
"""Seconds between two lines about running steps."""

SILENCE_LIMIT_S: Final = 60.0
"""Seconds without news after which running steps are printed again: CI systems end silent jobs."""

_MAX_NAMED_STEPS: Final = 3
_MAX_PHASES: Final = 5


class ProgressView(Protocol):
    """Shows running steps. `close` ends the display; `print` puts a line above the live rows."""

    def __call__(self, event: Event) -> None: ...

    def print(self, text: str) -> None:
        """Print a line, above the live rows if there are any."""

    def close(self) -> None:
        """End the display of running steps."""


def format_ended(event: StepDone | StepFailed, seconds: float, paint: Paint) -> str:
    """Return the line of an ended step: `+  train  together:Cluster  created in 20m10s`."""
    step = event.step
    if isinstance(event, StepFailed):
        result = step_text.format_failed(step.op, seconds, paint)
    else:
        result = step_text.format_succeeded(step.op, seconds, step.shown_op)
    subject = step_text.format_subject(step.op, step.urn, paint)
    return f"{subject}  {result}{'  [retain]' if step.retain else ''}"


@dataclass(slots=True)
class _RunningStep:
    step: Step
    phase: str = ""
    is_unreported: bool = True

    @property
    def description(self) -> str:
        """Return the running operation as text, with the phase the step last reported."""
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
                self._watch.start(event.step.number)
            elif isinstance(event, StepDone | StepFailed):
                planning = isinstance(event, StepDone) and event.planning
                if is_platform_request(event.step, planning=planning) and is_worth_showing(event):
                    seconds = self._watch.get_elapsed(event.step.number)
                    self._screen.print(format_ended(event, seconds, self._screen.paint))

    def print(self, text: str) -> None:
        """Print the text at once: no display has to be cleared for this."""
        self._screen.print(text)

    def close(self) -> None:
        """Do nothing: no display is open."""


class LineProgress:
    """Prints progress as lines, for logs and pipes.

    Results are printed at once; running steps at most every `REPORT_INTERVAL_S` seconds by the
    platform's clock, and again after `SILENCE_LIMIT_S`.

    `interval_s` is how often, in real seconds, a thread looks for something to print; without one
    only events cause lines.
    """

    def __init__(
        self, screen: Screen, watch: Stopwatch, *, interval_s: float | None = None
    ) -> None:
        self._screen = screen
        self._watch = watch
        self._running: dict[int, _RunningStep] = {}  # by number of the step: a URN may have several
        self._ended_count = 0
        self._has_reported = False
        watch.start(self)
        watch.start(_LAST_REPORT)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        # Without events nothing else would notice that a line is due.
        if interval_s is not None:
            threading.Thread(
                target=self._print_until_closed, args=(interval_s,), name="progress", daemon=True
            ).start()

    def __call__(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, StepStarted) and is_platform_request(
                event.step, planning=event.planning
            ):
                # Reads are short, and reported only after a silence.
                is_read = event.step.op is Op.REFRESH
                self._running[event.step.number] = _RunningStep(
                    event.step, is_unreported=not is_read
                )
                self._watch.start(event.step.number)
            elif isinstance(event, Progress):
                for running in self._running.values():
                    if running.step.urn == event.urn:
                        running.phase, running.is_unreported = event.text, True
            elif isinstance(event, StepDone | StepFailed) and event.step.number in self._running:
                del self._running[event.step.number]
                self._ended_count += 1
                if is_worth_showing(event):
                    seconds = self._watch.get_elapsed(event.step.number)
                    self._screen.print(format_ended(event, seconds, self._screen.paint))
            self._report_if_due()

    def print_if_due(self) -> None:
        """Print a line about running steps if one is due."""
        with self._lock:
            if not self._closed.is_set():
                self._report_if_due()

    def print(self, text: str) -> None:
        self._screen.print(text)

    def close(self) -> None:
        """End the lines about running steps; a line in progress is completed first."""
        with self._lock:  # a line in progress comes before the results
            self._closed.set()

    def _print_until_closed(self, interval_s: float) -> None:
        """Check every `interval_s` real seconds for a due line, until `close`."""
        while not self._closed.wait(interval_s):
            self.print_if_due()

    def _report_if_due(self) -> None:
        """Print the steps with news, or after a long silence all running steps.

        Except for the first time, at most once in REPORT_INTERVAL_S.
        """
        # The first line comes at once, later ones after the interval.
        silence_s = self._watch.get_elapsed(_LAST_REPORT) if self._running else 0.0
        if self._has_reported and silence_s < REPORT_INTERVAL_S:
            return
        reported = [running for running in self._running.values() if running.is_unreported]
        if not reported and silence_s >= SILENCE_LIMIT_S:
            reported = [*self._running.values()]
        if not reported:
            return
        self._screen.print(
            self._format_one(reported[0]) if len(reported) == 1 else self._format_many(reported)
        )
        for running in reported:
            running.is_unreported = False
        self._watch.start(_LAST_REPORT)
        self._has_reported = True

    def _format_one(self, running: _RunningStep) -> str:
        """Return the line of one step; without news, with the time the step has run."""
        step, elapsed = running.step, ""
        # Printed again after a silence: the time shows that the step still runs.
        if not running.is_unreported:
            elapsed = f", {format_elapsed(self._watch.get_elapsed(step.number))} so far"
        subject = step_text.format_subject(step.op, step.urn, self._screen.paint)
        return f"{subject}  {running.description}{elapsed}"

    def _format_many(self, reported: list[_RunningStep]) -> str:
        """Return a line such as `12 running, 3 done: 8 creating: InstallingDrivers, 4 creating`.

        Up to `_MAX_NAMED_STEPS` reported steps are named; else all running steps are counted by
        phase.
        """
        elapsed = format_elapsed(self._watch.get_elapsed(self))
        counts = f"{len(self._running)} running, {self._ended_count} done ({elapsed})"
        if len(reported) <= _MAX_NAMED_STEPS:
            parts = [f"{name_of(running.step.urn)} {running.description}" for running in reported]
        else:
            # The durations of waits differ: with them no two steps would be in one phase.
            phases = Counter(
                _WAIT_DURATION.sub("", running.description) for running in self._running.values()
            )
            parts = [
                f"{count} {description}" for description, count in phases.most_common(_MAX_PHASES)
            ]
            others = len(self._running) - sum(n for _, n in phases.most_common(_MAX_PHASES))
            parts += [f"{others} in other phases"] if others else []
        return f"   {counts}: {', '.join(parts)}"


_LAST_REPORT: Final = "the last line of what runs"
_WAIT_DURATION: Final = re.compile(r" \([0-9hms]+\)$")


_MAX_ROWS = 20


@dataclass(slots=True)
class _LiveRow:
    step: Step
    phase: str = ""


class LiveProgress:
    """Shows a row for each running step; steps that ended stay above as lines."""

    def __init__(self, screen: Screen, watch: Stopwatch) -> None:
        self._screen = screen
        self._watch = watch
        self._rows: dict[int, _LiveRow] = {}  # by number of the step: a URN may have several
        self._lock = threading.Lock()
        # The real stream: during a run the program's prints are captured from sys.stdout.
        self._console = Console(file=screen.out, highlight=False, no_color=not screen.paint.color)
        self._display = Live(
            console=self._console,
            get_renderable=self.build_table,
            # The rows disappear at the end: steps that ended stay above as lines.
            transient=True,
            # The engine captures the prints of the program itself.
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._display.start()

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted) and is_platform_request(
            event.step, planning=event.planning
        ):
            self._watch.start(event.step.number)
            with self._lock:
                self._rows[event.step.number] = _LiveRow(event.step)
        elif isinstance(event, Progress):
            with self._lock:
                # A progress event names the resource, which may have several running steps.
                for row in self._rows.values():
                    if row.step.urn == event.urn:
                        row.phase = event.text
        elif isinstance(event, StepDone | StepFailed):
            self._end(event)

    def print(self, text: str) -> None:
        """Print a line above the live rows of running steps."""
        # Through the console, which redraws the rows below the line.
        self._console.print(self._to_styled_text(text), soft_wrap=True)

    def close(self) -> None:
        """Stop the display of live rows."""
        self._display.stop()

    def _to_styled_text(self, text: str) -> Text:
        """Return the escaped text for rich, with colors if the screen has colors."""
        return Text.from_ansi(escape_text(text, color=self._screen.paint.color, in_ci=False))

    def build_table(self) -> Table:
        """Return the rows of the running steps; after the first 20 only the number of others."""
        grid = Table.grid(padding=(0, 2))
        with self._lock:
            rows = list(self._rows.values())
        # A display taller than the terminal cannot be redrawn in place.
        for row in rows[:_MAX_ROWS]:
            step = row.step
            grid.add_row(
                self._to_styled_text(
                    step_text.format_subject(step.op, step.urn, self._screen.paint)
                ),
                Text(step_text.format_running(step.op, row.phase)),
                format_elapsed(self._watch.get_elapsed(step.number)),
            )
        if len(rows) > _MAX_ROWS:
            grid.add_row(f"   and {len(rows) - _MAX_ROWS} more")
        return grid

    def _end(self, event: StepDone | StepFailed) -> None:
        """Remove the step's row; print the end of the step if worth showing."""
        with self._lock:
            row = self._rows.pop(event.step.number, None)
        if row is not None and is_worth_showing(event):
            self.print(
                format_ended(event, self._watch.get_elapsed(event.step.number), self._screen.paint)
            )
