"""Events and callbacks of an operation: reports, confirmation and interruption.

Commands and the Python API create `OperationCallbacks`; every operation reports to them.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol

from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.stacks.engine.deployment import Operation, Outcome
from gpuform.stacks.engine.planning import Event
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.evaluator import PlanEvaluator, RunRecord


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run of a stack begins. The engine's events that follow belong to this run."""

    operation: Operation
    preview: bool
    project: str
    stack: str
    emulated: bool = False


@dataclass(slots=True)
class RunEnded:
    """The latest run has ended. `outcome` is None where an exception ended the run."""

    started: RunStarted
    record: RunRecord
    evaluator: PlanEvaluator
    outcome: Outcome | None = None
    _plan: Plan | None = None

    @property
    def plan(self) -> Plan:
        """Return the plan of the run, built at the first use because gates may send requests.

        Costs and gates are in the plan of a preview only. The run must have an outcome.
        """
        if self.outcome is None:
            raise AssertionError("a run without an outcome has no plan")
        if self._plan is None:
            started = self.started
            plan = self.record.build_plan(started.project, started.stack, self.outcome)
            plan = plan.model_copy(update={"emulated": started.emulated})
            if started.preview:
                plan = self.evaluator.evaluate(plan, self.record.steps)
            self._plan = plan
        return self._plan


@dataclass(frozen=True, slots=True)
class Message:
    """A message to the user, beside the events of a run."""

    severity: Literal["info", "warning"]
    message: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The run was cancelled and ends in good order. Comes from any thread."""


OperationEvent = Event | RunStarted | RunEnded | Message | Interrupted
"""An event of an operation: the engine's, or one of the operation itself."""


class Interruptions(Protocol):
    """The source of an operation's interruptions, such as signals."""

    def register(
        self, cancel: Callable[[], None], terminate: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Call `cancel` or `terminate` on interruptions, until the context ends.

        `cancel` ends the work in good order; `terminate` ends the work at once, with pending
        operations. Both are called in other threads.
        """


class Cancellation:
    """Cancel operations in good order, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: list[Callable[[], None]] = []
        self._is_cancelled = False

    def cancel(self) -> None:
        """Begin no new work and stop waiting; work in progress is finished and recorded.

        This holds for the operations that run now, and for all later ones with this object.
        """
        with self._lock:
            self._is_cancelled = True
            # Called without the lock: the end of an operation takes the lock to unregister.
            running = list(self._running)
        for cancel in running:
            cancel()

    @contextmanager
    def register(self, cancel: Callable[[], None], terminate: Callable[[], None]) -> Iterator[None]:
        """Call `cancel` at a cancellation in the context, or at once if cancelled already.

        `terminate` is never called.
        """
        del terminate  # nobody ends the process here
        with self._lock:
            self._running.append(cancel)
            is_cancelled = self._is_cancelled
        # Cancelled before the operation began, or during an earlier one with this object.
        if is_cancelled:
            cancel()
        try:
            yield
        finally:
            with self._lock:
                self._running.remove(cancel)


def ignore_event(_event: OperationEvent) -> None:
    """Do nothing with an operation's event: the default callback."""


@dataclass(frozen=True, slots=True)
class OperationCallbacks:
    """The callbacks of an operation. Without `confirm` every plan is applied.

    `rehearse` plays the plan of a preview on the emulator; without it no plan is rehearsed.
    """

    on_event: Callable[[OperationEvent], None] = ignore_event
    confirm: Callable[[Plan], bool] | None = None
    interruptions: Interruptions = field(default_factory=Cancellation)
    rehearse: Callable[[SelectedStack, Plan], Rehearsal | None] | None = None

    def report(self, message: str) -> None:
        """Send `message` to the user as information."""
        self.on_event(Message("info", message))

    def warn(self, message: str) -> None:
        """Send `message` to the user as a warning."""
        self.on_event(Message("warning", message))
