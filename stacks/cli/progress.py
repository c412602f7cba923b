"""Progress without a live display: one line for each thing that happens."""

from dataclasses import dataclass
from typing import Protocol

from gpuform.stacks.cli.screen import Screen
from gpuform.stacks.cli.stopwatch import Stopwatch
from gpuform.stacks.engine.events import Event, Progress, StepDone, StepFailed, StepStarted
from gpuform.stacks.engine.steps import Op, Step
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.review.names import STYLES, is_noise, short_type
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.summary_text import duration


class ProgressView(Protocol):
    """Shows what is running. `close` ends it; `print` puts a line above what is live."""

    def __call__(self, event: Event) -> None: ...

    def print(self, text: str) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class _Words:
    symbol: str
    running: str
    done: str


_WORDS = {
    Op.CREATE: _Words("+", "creating", "created"),
    Op.UPDATE: _Words("~", "updating", "updated"),
    Op.DELETE: _Words("-", "deleting", "deleted"),
    Op.CREATE_REPLACEMENT: _Words("++", "creating replacement", "created replacement"),
    Op.DELETE_REPLACED: _Words("--", "deleting original", "deleted original"),
    Op.IMPORT: _Words("=", "importing", "imported"),
    Op.READ: _Words(">", "reading", "read"),
    Op.READ_REPLACEMENT: _Words(">>", "reading replacement", "read replacement"),
    Op.DISCARD: _Words("<", "forgetting", "forgotten"),
    Op.DISCARD_REPLACED: _Words("<<", "forgetting original", "forgotten original"),
    Op.REFRESH: _Words("~", "refreshing", "refreshed"),
}

_FOUND = {Op.UPDATE: "refreshed: changed outside of this stack", Op.DELETE: "refreshed: gone"}


def is_work(step: Step, *, planning: bool) -> bool:
    """Whether a step calls a platform: those of a plan do not, unless they refresh."""
    if is_noise(step.state.type) or not step.state.custom or step.op not in _WORDS:
        return False
    return not planning or step.op is Op.REFRESH


def subject(step: Step, paint: Paint) -> str:
    """`+  train  together:Cluster`."""
    symbol = _WORDS[step.op].symbol
    text = f"{symbol:<2} {name_of(step.urn)}  {short_type(step.state.type)}"
    return paint(STYLES[symbol], text)


def running(step: Step) -> str:
    """`creating`."""
    return _WORDS[step.op].running


def ended(event: StepDone | StepFailed, seconds: float, paint: Paint) -> str:
    """`+  train  together:Cluster  created in 20m10s`."""
    step = event.step
    words = _WORDS[step.op]
    if isinstance(event, StepFailed):
        told = paint("error", f"{words.running} failed") + f" after {duration(seconds)}"
    elif step.op is Op.REFRESH:
        told = _FOUND.get(step.shown_op, words.done)
    else:
        told = f"{words.done} in {duration(seconds)}"
    return f"{subject(step, paint)}  {told}{'  [retain]' if step.retain else ''}"


def is_news(event: StepDone | StepFailed) -> bool:
    """Whether the end of a step is worth a line: not when a refresh found nothing."""
    return not (isinstance(event, StepDone) and event.step.shown_op is Op.SAME)


class LineProgress:
    """For logs and pipes: start, change of phase, end."""

    def __init__(self, screen: Screen, watch: Stopwatch) -> None:
        self._screen = screen
        self._watch = watch
        self._running: dict[str, Step] = {}

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepStarted) and is_work(event.step, planning=event.planning):
            self._running[event.step.urn] = event.step
            self._watch.start(event.step.urn)
            if event.step.op is not Op.REFRESH:
                self._tell(event.step, running(event.step))
        elif isinstance(event, Progress) and event.urn in self._running:
            step = self._running[event.urn]
            self._tell(step, f"{running(step)}: {event.text}")
        elif isinstance(event, StepDone | StepFailed) and event.step.urn in self._running:
            del self._running[event.step.urn]
            if is_news(event):
                seconds = self._watch.elapsed(event.step.urn)
                self._screen.print(ended(event, seconds, self._screen.paint))

    def print(self, text: str) -> None:
        self._screen.print(text)

    def close(self) -> None:
        """There is nothing to put away."""

    def _tell(self, step: Step, text: str) -> None:
        self._screen.print(f"{subject(step, self._screen.paint)}  {text}")
