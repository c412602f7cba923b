"""What the engine tells while it works: one typed stream for every view, log and test.

Events arrive from many threads; `EventBus` hands them on one at a time, in order.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from gpuform.providers.values import Redactor
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning.steps import Step
from gpuform.stacks.engine.registration import Source

Severity = Literal["debug", "info", "info#err", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Prelude:
    """The first event of a run. `config` has secrets blinded."""

    operation: str
    preview: bool
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step begins (in a preview: would begin)."""

    step: Step
    planning: bool


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step has succeeded. `seconds` is the time it took."""

    step: Step
    planning: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step has failed; the reason came before, as a `Diagnostic` of the same URN."""

    step: Step
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """What a running step waits for, in the platform's words."""

    urn: str
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something to be read by a person. `urn` is empty when it concerns the whole run.

    `source` is where the program declares the resource; `path` the property that it is about.
    `error` is what has failed, for who asks for more than the message.
    """

    severity: Severity
    message: str
    urn: str = ""
    path: str = ""
    source: Source | None = None
    error: EngineError | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unchecked:
    """A check that could not be made while planning, and why."""

    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The last event of a run. `changes` counts logical operations, providers left out."""

    preview: bool
    result: Literal["succeeded", "failed"]
    changes: Mapping[str, int]
    seconds: float


Event = Prelude | StepStarted | StepDone | StepFailed | Progress | Diagnostic | Unchecked | Summary
Listener = Callable[[Event], None]


@dataclass(slots=True)
class EventBus:
    """Hands each event to every listener, one event at a time.

    Messages of severity debug, some four for each resource, are handed on with `debug` only.
    """

    listeners: list[Listener] = field(default_factory=list)
    debug: bool = False
    sources: dict[str, Source] = field(default_factory=dict)
    """Where the program declares resources, by URN: errors of these tell it."""
    _redactor: Redactor = field(default_factory=lambda: Redactor(()))
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _emitting: int | None = None

    @property
    def is_emitting_here(self) -> bool:
        """Whether this thread is inside a listener."""
        return self._emitting == threading.get_ident()

    def hide(self, secrets: Iterable[str]) -> None:
        """Whatever is told says `[secret]` for these texts from now on."""
        self._redactor = Redactor(secrets)

    def emit(self, event: Event) -> None:
        if isinstance(event, Diagnostic):
            if event.severity == "debug" and not self.debug:
                return
            source = self.sources.get(event.urn) if event.severity == "error" else None
            message = self._redactor.redact(event.message)
            if event.error is not None:
                event.error.redact(self._redactor.redact)
            event = replace(event, message=message, source=source)
        elif isinstance(event, Progress | Unchecked):
            event = replace(event, text=self._redactor.redact(event.text))
        with self._lock:
            outer, self._emitting = self._emitting, threading.get_ident()
            try:
                for listener in self.listeners:
                    listener(event)
            finally:
                self._emitting = outer
