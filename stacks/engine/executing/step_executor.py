"""Does the steps: calls providers, keeps the state of each in the snapshot, tells the events.

In a preview nothing is called and nothing kept; the values that the program goes on with are the
checked inputs, as under the Pulumi CLI.
"""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from gpuform.providers.calls import span
from gpuform.providers.properties import PROVIDER_KEY
from gpuform.schemas.plan import ResourceChange
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.deleted_outside import DeletedOutside, DeletionsOutside
from gpuform.stacks.engine.executing.finished_steps import FinishedSteps
from gpuform.stacks.engine.executing.stack_reference import StackReferences
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
from gpuform.stacks.engine.provider_host import Created, OutOfCredit, ProviderHost
from gpuform.stacks.engine.state import ResourceState, SnapshotManager, timestamp
from gpuform.stacks.engine.urn import STACK_REFERENCE_TYPE, is_provider
from gpuform.stacks.engine.values import PropertyMap

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
    _deleting: set[tuple[str, str]] = field(init=False)
    _how: dict[Op, Callable[[Step], list[str]]] = field(init=False)

    def __post_init__(self) -> None:
        self._slots = threading.BoundedSemaphore(max(1, self.parallel))
        self._deleting = {
            (each.resource.urn, each.resource.id)
            for each in self.snapshot.base.pending_operations
            if each.type == "deleting"
        }
        self._how = {
            Op.SAME: self._same,
            Op.CREATE: self._create,
            Op.CREATE_REPLACEMENT: self._create,
            Op.UPDATE: self._update,
            Op.IMPORT: self._import,
            Op.READ: self._read,
            Op.READ_REPLACEMENT: self._read,
            Op.DELETE: self._delete,
            Op.DELETE_REPLACED: self._delete,
            Op.DISCARD: self._delete,
            Op.DISCARD_REPLACED: self._delete,
            Op.REPLACE: self._nothing,
            Op.REMOVE_PENDING_REPLACE: self._forget,
        }

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
        if not self.stopping and not self.snapshot.is_pending_replacement(_old(step)):
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
            with span("step", str(step.op), step.urn):
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

    def _plan(self, step: Step) -> None:
        self._start(step)
        new, old = step.new, step.old
        if new is None:
            if step.op in (Op.DELETE, Op.DELETE_REPLACED) and not step.is_spared:
                self.host.may_delete(step.urn, _old(step).outputs, _old(step).provider)
            return
        if step.op in (Op.READ, Op.READ_REPLACEMENT):
            self._read_object(step)
            return
        if step.op is Op.SAME and old is not None:
            new.id, new.outputs = old.id, _same_outputs(old, new)
        elif step.op is Op.UPDATE and old is not None:
            new.id, new.outputs = old.id, dict(new.inputs) if new.custom else {}
        elif step.op in (Op.CREATE, Op.CREATE_REPLACEMENT):
            new.outputs = dict(new.inputs) if new.custom else {}
        new.outputs = _with_secrets(new)

    def _apply(self, step: Step) -> list[str]:
        """Does the step; the reasons why its object exists but is not ready are returned."""
        if step.op is Op.REFRESH and self.read_anew is not None:
            self.read_anew(step)
            return []
        if self.preview:
            self._plan(step)
            return []
        reasons = self._how[step.op](step)
        if step.new is not None and self.host.finds_its_creates(step.new):
            self.snapshot.record_settled(step.urn)
        return reasons

    def _start(self, step: Step) -> None:
        self.events.emit(StepStarted(step, self.preview))

    def _same(self, step: Step) -> list[str]:
        self._start(step)
        if step.skipped:
            return []
        old, new = _both(step)
        new.id, new.outputs = old.id, _same_outputs(old, new)
        new.outputs = _with_secrets(new)
        new.created, new.modified = old.created, old.modified
        new.init_errors = old.init_errors
        self.snapshot.record_replacement(old, new)
        return []

    def _create(self, step: Step) -> list[str]:
        new = _new(step)
        new.created = new.modified = timestamp()
        if not new.custom or is_provider(new.type):
            self._start(step)
            if new.custom:
                new.id, new.outputs = new.id or str(uuid.uuid4()), dict(new.inputs)
            self._keep_created(step, new)
            return []
        with self._calling(step, "creating", new):
            created = self.host.create(new.urn, new.inputs, _timeout(new, "create"), new.provider)
            new.id = created.id
            self._take(new, created)
            self._keep_created(step, new)
        return list(created.init_errors)

    def _keep_created(self, step: Step, new: ResourceState) -> None:
        old = step.old
        if old is None:
            self.snapshot.record_create(new)
        elif self.snapshot.is_pending_replacement(old):
            self.snapshot.record_replacement(old, new)
        else:
            self.snapshot.record_create_replacement(old, new)

    def _update(self, step: Step) -> list[str]:
        old, new = _both(step)
        new.id, new.created, new.modified = old.id, old.created, timestamp()
        if not new.custom or is_provider(new.type):
            self._start(step)
            if new.custom:
                new.outputs = dict(new.inputs)
            else:
                # The program registers its outputs anew.
                new.outputs, new.modified = {}, old.modified
            self.snapshot.record_replacement(old, new)
            return []
        with self._calling(step, "updating", new):
            updated = self.host.update(
                new.urn, old.id, old.outputs, new.inputs, _timeout(new, "update"), new.provider
            )
            self._take(new, updated)
            if updated.init_errors:
                # The old inputs stay, so that the next run compares with them and tries again.
                new.inputs = old.inputs
            self.snapshot.record_replacement(old, new)
        return list(updated.init_errors)

    def _take(self, new: ResourceState, created: Created) -> None:
        new.outputs = created.outputs
        new.outputs = _with_secrets(new)
        new.init_errors = list(created.init_errors)

    def _import(self, step: Step) -> list[str]:
        self._start(step)
        new = _new(step)
        new.created = new.modified = timestamp()
        if step.old is None:
            self.snapshot.record_create(new)
        else:
            self.snapshot.record_replacement(step.old, new)
        return []

    def _read(self, step: Step) -> list[str]:
        old, new = step.old, _new(step)
        with self._calling(step, "reading", new):
            self._read_object(step)
            if old is None:
                self.snapshot.record_create(new)
            elif step.op is Op.READ or self.snapshot.is_pending_replacement(old):
                self.snapshot.record_replacement(old, new)
            else:
                self.snapshot.record_create_replacement(old, new)
        return list(new.init_errors)

    def _read_object(self, step: Step) -> None:
        """Asks for the object that a program names by its id, in previews as well."""
        new, old = _new(step), step.old
        found = None
        if new.id == values.UNKNOWN_TEXT:
            new.id = ""
            return
        if new.type == STACK_REFERENCE_TYPE:
            new.outputs = self.stack_references.read(new.inputs)
        else:
            found = self.host.read(new.urn, new.id, new.inputs, new.inputs, provider=new.provider)
            if found is None:
                raise EngineError(
                    f"resource '{new.id}' does not exist",
                    hint="check the id, and that the credentials are those of its owner",
                )
            self._take(new, found[0])
            new.id = found[0].id
        if old is not None:
            # As in Pulumi: what `additional_secret_outputs` seals differs from what was read.
            read = new.outputs if found is None else found[0].outputs
            is_same = values.equal(new.inputs, old.inputs) and values.equal(read, old.outputs)
            new.created = old.created
            new.modified = old.modified if is_same else timestamp()

    def _delete(self, step: Step) -> list[str]:
        old = _old(step)
        began, causes = time.monotonic(), list[str]()
        with self._calling(step, "deleting", old):
            if not step.is_spared:
                timeout = _timeout(old, "delete")
                self.host.delete(
                    old.urn, old.id, old.outputs, timeout, old.provider, on_gone=causes.append
                )
            if step.op is Op.DELETE_REPLACED and not old.delete:
                for cause in () if self.was_deleting(old) else causes:
                    self.vanished.note_replaced(old, cause)
                self.snapshot.record_pending_replacement(old)
            elif causes and not self.was_deleting(old):
                seconds = time.monotonic() - began
                self.vanished.hold(DeletedOutside(step, old, causes[0], seconds))
            else:
                self.snapshot.record_delete(old)
        return []

    def was_deleting(self, entry: ResourceState) -> bool:
        """Whether an interrupted run was deleting the object: that it is gone is no wonder."""
        return (entry.urn, entry.id) in self._deleting

    def _forget(self, step: Step) -> list[str]:
        self._start(step)
        self.snapshot.record_delete(_old(step))
        return []

    def _nothing(self, step: Step) -> list[str]:
        """A replacement's marker: the steps beside it do the work."""
        self._start(step)
        return []

    @contextmanager
    def _calling(self, step: Step, kind: str, resource: ResourceState) -> Iterator[None]:
        """Around a provider's call: noted in the state first, then when it is its turn."""
        token = self.snapshot.begin(kind, resource)
        is_over = True
        try:
            with self._slots:
                if self.stopping:
                    raise Stopped
                self.snapshot.check()  # its turn may have been long in coming
                self._start(step)
                yield
        except EngineError:
            # Nobody knows what it has made: who finds it needs what was declared.
            is_over = kind != "creating" or not self.is_unsettled(resource.urn)
            raise
        finally:
            if is_over:
                self.snapshot.end(token)


def _new(step: Step) -> ResourceState:
    if step.new is None:
        raise AssertionError(f"{step.op} of {step.urn} has no new state")
    return step.new


def _old(step: Step) -> ResourceState:
    if step.old is None:
        raise AssertionError(f"{step.op} of {step.urn} has no old state")
    return step.old


def _both(step: Step) -> tuple[ResourceState, ResourceState]:
    return _old(step), _new(step)


def _same_outputs(old: ResourceState, new: ResourceState) -> PropertyMap:
    """The old outputs, with the provider that a resource has got that comes from plugin form."""
    if not new.custom or PROVIDER_KEY not in new.inputs or PROVIDER_KEY in old.outputs:
        return old.outputs
    return {**old.outputs, PROVIDER_KEY: new.inputs[PROVIDER_KEY]}


def _with_secrets(new: ResourceState) -> PropertyMap:
    return values.mark_secret_outputs(new.outputs, new.inputs, new.additional_secret_outputs)


def _timeout(resource: ResourceState, verb: str) -> float | None:
    return resource.custom_timeouts.get(verb)
