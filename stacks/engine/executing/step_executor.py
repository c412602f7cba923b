"""Execute steps: call providers, keep each state in the snapshot, publish events.

A step waits for others of the same resource.

In a preview nothing is called and nothing kept; the values that the program goes on with are the
checked inputs, as under the Pulumi CLI.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuform.providers.context import trace_span
from gpuform.schemas.plan import ResourceChange
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.deleted_outside import DeletionsOutside
from gpuform.stacks.engine.executing.stack_reference import StackReferences
from gpuform.stacks.engine.executing.step_work import StepWork
from gpuform.stacks.engine.planning import (
    Diagnostic,
    EventBus,
    Op,
    PlanConstraint,
    Step,
    StepDone,
    StepFailed,
    StepStarted,
)
from gpuform.stacks.engine.provider_host import OutOfCredit, ProviderHost
from gpuform.stacks.engine.state import ResourceState, SnapshotManager
from gpuform.stacks.engine.urn import is_provider


@dataclass(slots=True)
class FinishedSteps:
    """Lets a step wait for one of another resource.

    A dependent is made again only when its deletion is over, which is among the steps of what it
    depends on.
    """

    _over: dict[int, Step] = field(default_factory=dict)  # by id()
    _moved: threading.Condition = field(default_factory=threading.Condition)

    def end(self, steps: Iterable[Step]) -> None:
        """Nothing more is done of these steps, whether they were done or not."""
        with self._moved:
            self._over.update({id(step): step for step in steps})
            self._moved.notify_all()

    def wake(self) -> None:
        """Lets those who wait ask again whether they still have to."""
        with self._moved:
            self._moved.notify_all()

    def wait(self, step: Step, stopped: Callable[[], bool]) -> None:
        """Returns when the step is over, or the run is."""
        with self._moved:
            self._moved.wait_for(lambda: id(step) in self._over or stopped())


_ASKING = frozenset({Op.READ, Op.READ_REPLACEMENT, Op.REFRESH, Op.DELETE, Op.DELETE_REPLACED})
"""The steps for which a provider may be asked in a preview."""


class Stopped(Exception):
    """No step may start any more: an earlier one failed, or the user cancelled."""


class StepError(Exception):
    """A step failed; everything that there is to say has been told as events."""


@dataclass(slots=True)
class StepExecutor:
    """Runs chains of steps, at most `parallel` provider calls at a time.

    `failed` holds the URNs whose registration or deletion did not succeed. With
    `continue_on_error` a failed step does not keep those that do not need it from starting. What
    is not within the `constraint` ends the run. `effects` holds what was done, by URN;
    `out_of_credit` says that a platform has refused a step for want of credit. `is_unsettled` says
    of a URN whose create has failed whether it may have made something all the same. `read_anew`
    does the steps of a refresh.
    """

    host: ProviderHost
    stack_references: StackReferences
    snapshot: SnapshotManager
    events: EventBus
    preview: bool
    parallel: int
    continue_on_error: bool = False
    constraint: PlanConstraint | None = None
    is_unsettled: Callable[[str], bool] = lambda _urn: False
    read_anew: Callable[[Step], None] | None = None
    failed: set[str] = field(default_factory=set)
    out_of_credit: bool = False
    changes: Counter[str] = field(default_factory=Counter)
    planned: list[ResourceChange] = field(default_factory=list)
    effects: dict[str, set[str]] = field(default_factory=dict)
    vanished: DeletionsOutside = field(default_factory=DeletionsOutside)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _turns: FinishedSteps = field(default_factory=FinishedSteps)
    _slots: threading.BoundedSemaphore = field(init=False)
    _work: StepWork = field(init=False)

    def __post_init__(self) -> None:
        self._slots = threading.BoundedSemaphore(max(1, self.parallel))
        self._work = StepWork(
            host=self.host,
            stack_references=self.stack_references,
            snapshot=self.snapshot,
            vanished=self.vanished,
            start=self._start,
            turn=self._turn,
            is_unsettled=self.is_unsettled,
        )

    @property
    def stopping(self) -> bool:
        """Whether no new step may start."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """No new step starts; running ones finish."""
        self._stopping.set()
        self._turns.wake()

    def fail(self, urn: str, error: EngineError) -> None:
        """Tells why a resource failed. In a preview the others are still planned."""
        self.note_failure(urn, error)
        if not self.preview:
            self.stop()

    def fail_step(self, step: Step, error: EngineError, seconds: float = 0.0) -> None:
        """Tells why a step failed."""
        self.note_failure(step.urn, error)
        if not self.preview and not self.continue_on_error:
            self.stop()
        self.events.emit(StepFailed(step, seconds))

    def refuse(self, step: Step, error: EngineError) -> None:
        """Tells why a step may not be done, as one that failed; the others go on."""
        self.events.emit(StepStarted(step, self.preview))
        self.note_failure(step.urn, error)
        if not self.preview:
            self.events.emit(StepFailed(step))

    def skip(self, urn: str) -> None:
        """Leaves a resource as it is because something that it needs has failed."""
        with self._lock:
            self.failed.add(urn)

    def note_failure(self, urn: str, error: EngineError) -> None:
        """Tells why a resource failed; what is independent of it goes on."""
        message = "\n".join(filter(None, [error.message, error.hint]))
        self.events.emit(Diagnostic("error", message, urn, error.path, error=error))
        with self._lock:
            self.failed.add(urn)
            self.out_of_credit |= isinstance(error, OutOfCredit)

    def run(self, steps: Iterable[Step]) -> None:
        """Does one resource's steps in order.

        Raises Stopped before a step that may not start any more, StepError after one that failed.
        """
        steps = list(steps)
        try:
            self._keep_within_bound(steps)
            for step in steps:
                self._wait(step)
                if self.stopping:
                    raise Stopped
                self._run_one(step)
                if step.op is Op.DELETE_REPLACED:
                    self._turns.end([step])
        finally:
            self.drop(steps)

    def may_wait(self, steps: Iterable[Step]) -> bool:
        """Whether doing the steps may take time: of a provider's, or until the state is kept."""
        return not self.preview or any(step.op in _ASKING for step in steps)

    def _keep_within_bound(self, steps: Sequence[Step]) -> None:
        if self.constraint is None or self.stopping:
            return
        for step in steps:
            try:
                self.constraint.check_step(step)
            except EngineError as error:
                self.fail(step.urn, error)
                raise StepError from None

    def drop(self, steps: Iterable[Step]) -> None:
        """Nothing more is done of these steps: nobody needs to wait for them."""
        self._turns.end(step for step in steps if step.op is Op.DELETE_REPLACED)

    def _wait(self, step: Step) -> None:
        """Lets the deletion come first that another resource's steps make room with."""
        if step.after is None or self.preview:
            return
        self._turns.wait(step.after, self._stopping.is_set)
        old = step.old
        if not self.stopping and (old is None or not self.snapshot.is_pending_replacement(old)):
            self.skip(step.urn)
            raise StepError

    def run_layer(self, steps: list[Step]) -> list[Step]:
        """Does independent steps side by side; those that were not done, when all have ended."""
        if len(steps) == 1 or self.parallel <= 1:
            done = [self._run_quietly(step) for step in steps]
        else:
            with ThreadPoolExecutor(min(self.parallel, len(steps))) as pool:
                done = list(pool.map(self._run_quietly, steps))
        return [step for step, is_done in zip(steps, done, strict=True) if not is_done]

    def _run_quietly(self, step: Step) -> bool:
        try:
            self.run([step])
        except (Stopped, StepError):
            return False
        return True

    def _run_one(self, step: Step) -> None:
        planning = self.preview
        began = time.monotonic()
        try:
            with trace_span("step", str(step.op), step.urn):
                warnings = self._apply(step)
        except EngineError as error:
            self.fail_step(step, error, time.monotonic() - began)
            raise StepError from None
        if warnings:
            # The object exists, and the state knows it; the step has failed all the same.
            self.fail_step(step, EngineError("; ".join(warnings)), time.monotonic() - began)
            raise StepError
        if self.vanished.holds(step):
            return
        self.count(step)
        self.warn_of_secret_id(step)
        # A component is done when the program has registered its outputs.
        if planning or step.state.custom or step.op is Op.DELETE:
            self.events.emit(StepDone(step, planning, time.monotonic() - began))

    def settle_vanished(self, *, counted: bool = True) -> None:
        """Forgets the entries that were found gone; keeps them all and fails if they are many.

        A preview tells them all the same. With `counted` they are changes of the run.
        """
        found, refusal = self.vanished.take()
        if refusal is not None:
            self.note_failure("", refusal)
        for each in found:
            if counted and (refusal is None or self.preview):
                self.count(each.step)
            if refusal is None:
                self.snapshot.record_delete(each.entry)
                self.events.emit(StepDone(each.step, self.preview, each.seconds))
            else:
                self.skip(each.step.urn)
                self.events.emit(StepFailed(each.step, each.seconds))

    def count(self, step: Step) -> None:
        """Adds a step to the run's summary and plan."""
        shown = step.shown_op
        if step.effect:
            with self._lock:
                self.effects.setdefault(step.urn, set()).add(step.effect)
        if not shown.is_logical or is_provider(step.state.type) or step.says_nothing_new:
            return
        with self._lock:
            # As in Pulumi, a first read is no change of the stack's; the plan shows it.
            if step.op is not Op.READ or step.old is not None:
                self.changes[shown] += 1
            if step.change is not None:
                self.planned.append(step.change)

    def warn_of_secret_id(self, step: Step) -> None:
        """The one output that cannot be made secret."""
        new = step.new
        if new and step.op is not Op.REPLACE and "id" in new.additional_secret_outputs:
            text = "the id of a resource cannot be made secret: take it out of its options"
            self.events.emit(Diagnostic("warning", text, step.urn))

    def _apply(self, step: Step) -> list[str]:
        """Does the step; the reasons why its object exists but is not ready are returned."""
        if step.op is Op.REFRESH and self.read_anew is not None:
            self.read_anew(step)
            return []
        if self.preview:
            self._start(step)
            self._work.foresee(step)
            return []
        reasons = self._work.do(step)
        if step.new is not None and self.host.finds_its_creates(step.new):
            self.snapshot.record_settled(step.urn)
        return reasons

    def _start(self, step: Step) -> None:
        self.events.emit(StepStarted(step, self.preview))

    @contextmanager
    def _turn(self, step: Step) -> Iterator[None]:
        """Around a provider's call: when it is its turn. Raises Stopped."""
        with self._slots:
            if self.stopping:
                raise Stopped
            self.snapshot.check()  # its turn may have been long in coming
            self._start(step)
            yield

    def was_deleting(self, entry: ResourceState) -> bool:
        """Whether an interrupted run was deleting the object: that it is gone is no wonder."""
        return self._work.was_deleting(entry)
