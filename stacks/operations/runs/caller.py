"""Who wants an operation: is told what happens, is asked before a change, and may interrupt it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.deployment import Operation, Outcome
from gpuform.stacks.engine.planning import Event
from gpuform.stacks.operations.plans.appraising import Appraiser
from gpuform.stacks.operations.plans.record import RunRecord


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run of a stack begins: the engine's events that follow are its own."""

    operation: Operation
    preview: bool
    project: str
    stack: str
    emulated: bool = False


@dataclass(slots=True)
class RunEnded:
    """The run that started last has ended. `outcome` is None where an exception has ended it."""

    started: RunStarted
    record: RunRecord
    appraiser: Appraiser
    outcome: Outcome | None = None
    _plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """The plan that the run made. Made once: its gates may have to ask others."""
        if self.outcome is None:
            raise AssertionError("a run without an outcome made no plan")
        if self._plan is None:
            started = self.started
            plan = self.record.plan(started.project, started.stack, self.outcome)
            plan = plan.model_copy(update={"emulated": started.emulated})
            if started.preview:
                plan = self.appraiser.appraised(plan, self.record.steps)
            self._plan = plan
        return self._plan


@dataclass(frozen=True, slots=True)
class Message:
    """Something that a person may want to know, beside the run itself."""

    severity: Literal["info", "warning"]
    text: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The run was cancelled: it ends in good order. Comes from any thread."""


OperationEvent = Event | RunStarted | RunEnded | Message | Interrupted
"""What happens in an operation: the engine's events, and what is around them."""


class Interruptions(Protocol):
    """How an operation hears that it is to end."""

    def around(
        self, cancel: Callable[[], None], leave: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Around work that `cancel` ends in good order, and `leave` at once, with pending work.

        Both are called in other threads.
        """


class Cancellation:
    """Ends operations in good order, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[Callable[[], None]] = []
        self._is_cancelled = False

    def cancel(self) -> None:
        """No new work is begun and waiting ends; what is on its way is finished and kept.

        This holds for what runs under it now, and for all that begins later.
        """
        with self._lock:
            self._is_cancelled = True
            running = list(self._running)
        for cancel in running:
            cancel()

    @contextmanager
    def around(self, cancel: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
        del leave  # nobody ends the process here
        with self._lock:
            self._running.append(cancel)
            is_cancelled = self._is_cancelled
        if is_cancelled:
            cancel()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(cancel)


def ignore(_event: OperationEvent) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True)
class Caller:
    """`confirm` says whether a plan is to be done; without it nobody is asked."""

    on_event: Callable[[OperationEvent], None] = ignore
    confirm: Callable[[Plan], bool] | None = None
    interruptions: Interruptions = field(default_factory=Cancellation)

    def tell(self, text: str) -> None:
        """Something that was done."""
        self.on_event(Message("info", text))

    def warn(self, text: str) -> None:
        """Something to be looked at."""
        self.on_event(Message("warning", text))
