"""Progress on a terminal: a row for each resource that is being worked on."""

import threading
from dataclasses import dataclass

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from gpuform.stacks.cli.terminal.progress import ended
from gpuform.stacks.cli.terminal.screen import Screen, harmless
from gpuform.stacks.engine.planning import Event, Progress, Step, StepDone, StepFailed, StepStarted
from gpuform.stacks.operations.runs.run_log import Stopwatch, is_news, is_work
from gpuform.stacks.review.summary_text import duration
from gpuform.stacks.review.text import step_text

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
        if isinstance(event, StepStarted) and is_work(event.step, planning=event.planning):
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
                self._styled(step_text.subject(step.op, step.urn, self._screen.paint)),
                Text(step_text.running(step.op, row.phase)),
                duration(self._watch.elapsed(id(step))),
            )
        if len(rows) > _MOST_ROWS:
            grid.add_row(f"   and {len(rows) - _MOST_ROWS} more")
        return grid

    def _end(self, event: StepDone | StepFailed) -> None:
        with self._lock:
            row = self._rows.pop(id(event.step), None)
        if row is not None and is_news(event):
            self.print(ended(event, self._watch.elapsed(id(event.step)), self._screen.paint))
