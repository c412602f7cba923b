"""Execute steps: call providers, record each new state in the snapshot, publish events.

The resource monitor, refreshes and the delete phase hand over the steps of one resource at a time;
`step_work` applies a single step. A step waits for earlier steps of the same resource. A preview
calls no provider to change something and records nothing; the program continues with the checked
inputs, as under the Pulumi CLI.

Some resources may no longer exist on their platforms although this stack did not delete them. A few
may have been deleted outside of gpuform. Many at once suggest that the run uses another account,
project or base URL than the one where they exist: the executor asks for permission before it
removes them from the state.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from gpuform.providers.context import RunContext, trace_span
from gpuform.providers.errors import GpuformError, NoCredit
from gpuform.providers.permissions import Permission
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import PlanReason, ResourceChange
from gpuform.stacks.engine.dynamic_providers import ProviderError
from gpuform.stacks.engine.executing.builtin_resources import StackReferences
from gpuform.stacks.engine.executing.step_work import StepApplier
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
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.state import ResourceState, SnapshotManager
from gpuform.stacks.engine.urn import is_provider, name_of

CONFIRMATION_THRESHOLD: Final = 3
"""Removing this many missing resources from the state needs explicit permission."""

MAX_LISTED_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class OutsideDeletion:
    """A state entry whose object a step found missing on its platform.

    `cause` is the id of the missing object that explains the deletion: the id of the entry itself,
    or of the object that contained the entry's object. `seconds` is the time the step took.
    """

    step: Step
    entry: ResourceState
    cause: str
    seconds: float


@dataclass(slots=True)
class OutsideDeletions:
    """The missing objects that one run finds; thread-safe.

    Their state entries stay until the end of the run, when the number is known. Entries that are
    replaced cannot wait, because their replacements are created at once. `interrupted` holds URN
    and id of each object that an interrupted run was deleting: its absence is expected.
    """

    run_context: RunContext
    interrupted: Collection[tuple[str, str]] = ()
    _undecided: dict[int, OutsideDeletion] = field(default_factory=dict)  # by number of the step
    _names_by_cause: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, step: Step, entry: ResourceState, cause: str, started_at: float) -> None:
        """Add the missing object of `entry`; the entry stays in the state until `take_all`.

        `started_at` is the monotonic time at which `step` began.
        """
        seconds = time.monotonic() - started_at
        with self._lock:
            self._undecided[step.number] = OutsideDeletion(step, entry, cause, seconds)
            self._record_name(entry, cause)

    def is_expected(self, entry: ResourceState) -> bool:
        """Return True if an interrupted run was deleting the object of `entry`."""
        return (entry.urn, entry.id) in self.interrupted

    def contains_step(self, step: Step) -> bool:
        """Return True if `step` found no object and the entry is still undecided."""
        with self._lock:
            return step.number in self._undecided

    @property
    def entries(self) -> Sequence[ResourceState]:
        """State entries of the missing objects not yet decided."""
        with self._lock:
            return [deletion.entry for deletion in self._undecided.values()]

    def count_replaced(self, entry: ResourceState, cause: str) -> None:
        """Count a missing object whose entry is about to be replaced.

        `cause` is as in `OutsideDeletion`: entries with the same cause count once.

        Raises:
            EngineError: CONFIRMATION_THRESHOLD or more objects are missing, and the user has not
                permitted to remove them from the state.
        """
        with self._lock:
            self._record_name(entry, cause)
        permission_error = self._find_permission_error()
        if permission_error is not None:
            raise permission_error

    def take_all(self) -> tuple[Sequence[OutsideDeletion], EngineError | None]:
        """Remove and return the undecided deletions, with an error if the user must permit them.

        The error is None when their entries may be removed from the state: fewer than
        CONFIRMATION_THRESHOLD objects were missing in the whole run, or the user gave the
        permission.
        """
        with self._lock:
            deletions = list(self._undecided.values())
            self._undecided.clear()
        return deletions, self._find_permission_error() if deletions else None

    def _record_name(self, entry: ResourceState, cause: str) -> None:
        """Record the missing object's name under `cause`: parts of one object count once."""
        # A missing part of another object is listed under the name of the containing object, if
        # the state has this object.
        if cause == entry.id or cause not in self._names_by_cause:
            self._names_by_cause[cause] = name_of(entry.urn)

    def _find_permission_error(self) -> EngineError | None:
        """Return an error, or None if the missing entries may be removed from the state.

        They may if fewer than CONFIRMATION_THRESHOLD objects are missing, or if the user has
        permitted it.
        """
        with self._lock:
            names = sorted(self._names_by_cause.values())
        if len(names) < CONFIRMATION_THRESHOLD:
            return None
        listed_names = ", ".join(names[:MAX_LISTED_NAMES])
        listed_names += (
            f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
        )
        try:
            self.run_context.require_permission(
                Permission.FORGET_MANY,
                f"{len(names)} resources no longer exist on their platforms, and this run "
                f"did not delete them: {listed_names}. The state keeps all of them. Does "
                "this run use the key of another account or project, or another base URL",
            )
        except GpuformError as error:
            return EngineError(f"{error.message}?", hint=error.hint)
        return None


_OPS_WITH_PROVIDER_CALLS = frozenset(
    {Op.READ, Op.READ_REPLACEMENT, Op.REFRESH, Op.DELETE, Op.DELETE_REPLACED}
)
"""Operations that may call a provider in a preview."""


class Stopped(Exception):
    """No further step may start: an earlier step failed, or the user cancelled the run."""


class StepError(Exception):
    """A step failed; the reasons were already reported as events."""


@dataclass(slots=True)
class StepExecutor:
    """Runs chains of steps, with at most `parallel` provider calls at a time.

    `failed` holds the URNs whose registration or deletion failed. With `continue_on_error`, a
    failed step does not stop steps that do not depend on it. A step outside of the `constraint`
    ends the run. `effects` holds the effects of the executed steps by URN; `out_of_credit` is True
    once a platform refused a step for lack of credit. `may_have_created` says whether a failed
    create of this URN may have made an object all the same. `refresh_step` runs the steps of a
    refresh.
    """

    host: ProviderHost
    stack_references: StackReferences
    snapshot: SnapshotManager
    events: EventBus
    preview: bool
    parallel: int
    continue_on_error: bool = False
    constraint: PlanConstraint | None = None
    may_have_created: Callable[[str], bool] = lambda _urn: False
    refresh_step: Callable[[Step], None] | None = None
    failed: set[str] = field(default_factory=set)
    out_of_credit: bool = False
    changes: Counter[str] = field(default_factory=Counter)
    planned_changes: list[ResourceChange] = field(default_factory=list)
    effects: dict[str, set[str]] = field(default_factory=dict)
    outside_deletions: OutsideDeletions = field(init=False)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    # The numbers of the finished deletions that steps of other resources may wait for.
    _finished: set[int] = field(default_factory=set)
    _has_finished: threading.Condition = field(default_factory=threading.Condition)
    _provider_call_slots: threading.BoundedSemaphore = field(init=False)
    _applier: StepApplier = field(init=False)

    def __post_init__(self) -> None:
        self.outside_deletions = OutsideDeletions(
            self.host.run_context,
            {
                (operation.resource.urn, operation.resource.id)
                for operation in self.snapshot.base.pending_operations
                if operation.type == "deleting"
            },
        )
        self._provider_call_slots = threading.BoundedSemaphore(max(1, self.parallel))
        self._applier = StepApplier(
            host=self.host,
            stack_references=self.stack_references,
            snapshot=self.snapshot,
            outside_deletions=self.outside_deletions,
            report_start=self._report_start,
            limit_provider_calls=self._limit_provider_calls,
            may_have_created=self.may_have_created,
        )

    @property
    def is_stopping(self) -> bool:
        """True once no further step may start."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Prevent further steps from starting; running steps finish."""
        self._stopping.set()
        self._release_waiting_steps(())

    def fail_resource(self, urn: str, error: GpuformError) -> None:
        """Report why a resource failed and stop the run; a preview plans the other resources.

        The run stops even with `continue_on_error`.
        """
        self.report_failure(urn, error)
        if not self.preview:
            self.stop()

    def fail_step(self, step: Step, error: EngineError, seconds: float = 0.0) -> None:
        """Report why a step failed, and stop the run unless `continue_on_error` is set.

        A preview does not stop. `seconds` is the time the step took.
        """
        self.report_failure(step.urn, error)
        # As in Pulumi, the first failure lets running steps finish and starts no others.
        if not self.preview and not self.continue_on_error:
            self.stop()
        self.events.emit(StepFailed(step, seconds))

    def refuse_step(self, step: Step, error: EngineError) -> None:
        """Report a forbidden step as failed; other steps continue.

        A preview reports the error and the start of the step, but no failed step.
        """
        self.events.emit(StepStarted(step, self.preview))
        self.report_failure(step.urn, error)
        if not self.preview:
            self.events.emit(StepFailed(step))

    def skip_resource(self, urn: str) -> None:
        """Add the URN of a resource to `failed` without an error message.

        The resource is left as it is because one of its dependencies failed.
        """
        with self._lock:
            self.failed.add(urn)

    def report_failure(self, urn: str, error: GpuformError) -> None:
        """Report why a resource failed; independent resources continue.

        The URN is added to `failed`. An error with the cause NoCredit sets `out_of_credit`.
        """
        message = "\n".join(filter(None, [error.message, error.hint]))
        self.events.emit(Diagnostic("error", message, urn, error.property_path, error=error))
        with self._lock:
            self.failed.add(urn)
            cause = error.cause if isinstance(error, ProviderError) else None
            self.out_of_credit |= isinstance(cause, NoCredit)

    def run_steps(self, steps: Iterable[Step]) -> None:
        """Run the steps of one resource in order, if the saved plan allows every step.

        Raises:
            Stopped: a step may not start any more.
            StepError: a step failed, is not in the saved plan, or waits for a deletion that failed;
                the reason is reported.
        """
        steps = list(steps)
        try:
            self._check_constraint(steps)
            for step in steps:
                self._wait_for_prior_step(step)
                if self.is_stopping:
                    raise Stopped
                self._run_step(step)
                # The recreation of a dependent waits for this deletion, not for the rest of the
                # chain.
                if step.op is Op.DELETE_REPLACED:
                    self._release_waiting_steps([step])
        finally:
            self._release_waiting_steps(steps)

    def may_block(self, steps: Iterable[Step]) -> bool:
        """Return True if the steps may block: for a provider call, or to write the state."""
        return not self.preview or any(step.op in _OPS_WITH_PROVIDER_CALLS for step in steps)

    def _check_constraint(self, steps: Sequence[Step]) -> None:
        """Report the first step missing in the saved plan, and raise StepError; a real run stops.

        Nothing without a saved plan, or if the run is stopping.
        """
        if self.constraint is None or self.is_stopping:
            return
        for step in steps:
            try:
                self.constraint.check_step(step)
            except EngineError as error:
                self.fail_resource(step.urn, error)
                raise StepError from None

    def _release_waiting_steps(self, steps: Iterable[Step]) -> None:
        """Wake the steps waiting for deletions among `steps`, done or abandoned, or for the end."""
        with self._has_finished:
            self._finished.update(step.number for step in steps if step.op is Op.DELETE_REPLACED)
            self._has_finished.notify_all()

    def _wait_for_prior_step(self, step: Step) -> None:
        """Wait for the step in `after`; if the old object still exists, skip the resource.

        A dependent is recreated only after its deletion, which is among the steps of the resource
        that it depends on. Raises StepError then. A preview does not wait.
        """
        if step.after is None or self.preview:
            return
        number = step.after.number
        with self._has_finished:
            self._has_finished.wait_for(lambda: number in self._finished or self.is_stopping)
        old = step.old
        if not self.is_stopping and (old is None or not self.snapshot.is_pending_replacement(old)):
            self.skip_resource(step.urn)
            raise StepError

    def run_layer(self, steps: list[Step]) -> list[Step]:
        """Run independent steps in parallel and return the steps not done.

        Failures are reported, not raised.
        """
        if len(steps) == 1 or self.parallel <= 1:
            done = [self._try_run(step) for step in steps]
        else:
            with ThreadPoolExecutor(min(self.parallel, len(steps))) as pool:
                done = list(pool.map(self._try_run, steps))
        return [step for step, is_done in zip(steps, done, strict=True) if not is_done]

    def _try_run(self, step: Step) -> bool:
        """Run the step; return False if it failed, exceeds the saved plan, or may not start."""
        try:
            self.run_steps([step])
        except (Stopped, StepError):
            return False
        return True

    def _run_step(self, step: Step) -> None:
        """Apply or predict the step, then count and report it.

        Raises StepError, after a report, if it failed or left init errors. A step whose object was
        missing already is counted at the end of the phase. In a real run a component is reported as
        done only when it registers its outputs.
        """
        is_preview = self.preview
        started_at = time.monotonic()
        try:
            with trace_span("step", str(step.op), step.urn):
                warnings = self._apply_step(step)
        except EngineError as error:
            self.fail_step(step, error, time.monotonic() - started_at)
            raise StepError from None
        if warnings:
            # Pulumi's partial failure: the object exists and is in the state with its init errors,
            # and the step fails all the same.
            self.fail_step(step, EngineError("; ".join(warnings)), time.monotonic() - started_at)
            raise StepError
        if self.outside_deletions.contains_step(step):
            return
        self.count_step(step)
        self.warn_of_secret_id(step)
        # Pulumi reports a component as done at RegisterResourceOutputs, not at its registration.
        if is_preview or step.state.custom or step.op is Op.DELETE:
            self.events.emit(StepDone(step, is_preview, time.monotonic() - started_at))

    def forget_missing_objects(self, *, count_changes: bool = True) -> None:
        """Remove the entries of missing objects from the state, or fail if there are too many.

        Too many without the user's permission are reported as failed, and all entries stay. With
        `count_changes` removals count as changes of the run, in a preview also those refused.
        """
        deletions, permission_error = self.outside_deletions.take_all()
        if permission_error is not None:
            self.report_failure("", permission_error)
        for deletion in deletions:
            if count_changes and (permission_error is None or self.preview):
                self.count_step(deletion.step)
            if permission_error is None:
                self.snapshot.record_delete(deletion.entry)
                self.events.emit(StepDone(deletion.step, self.preview, deletion.seconds))
            else:
                self.skip_resource(deletion.step.urn)
                self.events.emit(StepFailed(deletion.step, deletion.seconds))

    def count_step(self, step: Step) -> None:
        """Add a step to the run's effects, changes and planned changes.

        Of the single steps of a replacement only the effects count; providers and unchanged reads
        do not count. A first read counts as a planned change only.
        """
        shown_op = step.shown_op
        if step.effect:
            with self._lock:
                self.effects.setdefault(step.urn, set()).add(step.effect)
                # The replacement was part of the plan of an earlier run, the deletion is of this.
                if step.change is not None and step.change.reason is PlanReason.REPLACED_EARLIER:
                    self.planned_changes.append(step.change)
        if not shown_op.is_logical or is_provider(step.state.type) or step.is_unchanged_read:
            return
        with self._lock:
            # As in Pulumi, the first read of an external object does not count as a change of the
            # stack; the plan shows the read.
            if step.op is not Op.READ or step.old is not None:
                self.changes[shown_op] += 1
            if step.change is not None:
                self.planned_changes.append(step.change)

    def warn_of_secret_id(self, step: Step) -> None:
        """Warn if a program marks the id of a resource as secret: ids cannot be encrypted."""
        new = step.new
        if new and step.op is not Op.REPLACE and "id" in new.additional_secret_outputs:
            message = (
                "the id of a resource cannot be secret: remove it from additional_secret_outputs"
            )
            self.events.emit(Diagnostic("warning", message, step.urn))

    def _apply_step(self, step: Step) -> list[str]:
        """Apply the step, or predict its result in a preview; return the object's init errors.

        These say why the object exists without being ready; a preview has none. A refresh step
        reads the object also in a preview.
        """
        if step.op is Op.REFRESH and self.refresh_step is not None:
            self.refresh_step(step)
            return []
        if self.preview:
            self._report_start(step)
            self._applier.predict(step)
            return []
        reasons = self._applier.apply(step)
        # gpuform's providers find the object of an interrupted create: its pending operation is
        # settled now.
        if step.new is not None and self.host.can_find_created(step.new):
            self.snapshot.record_recovered(step.urn)
        return reasons

    def _report_start(self, step: Step) -> None:
        """Emit the event for the start of the step."""
        self.events.emit(StepStarted(step, self.preview))

    @contextmanager
    def _limit_provider_calls(self, step: Step) -> Iterator[None]:
        """Wait for a free provider call slot, report the start of the step and hold the slot.

        Raises:
            Stopped: the run was stopped while the step waited.
            EngineError: the state cannot be written any more.
        """
        with self._provider_call_slots:
            if self.is_stopping:
                raise Stopped
            # The wait for the slot may have been long, and the state may have become unwritable.
            # An object that is created now could not be recorded.
            self.snapshot.check()
            self._report_start(step)
            yield
