"""What each kind of step does: its provider's call, and what the snapshot keeps of it."""

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

from gpuform.providers.forms import PROVIDER_KEY
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.executing.deleted_outside import DeletedOutside, DeletionsOutside
from gpuform.stacks.engine.executing.stack_reference import StackReferences
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.provider_host import Created, ProviderHost
from gpuform.stacks.engine.state import ResourceState, SnapshotManager, timestamp
from gpuform.stacks.engine.urn import STACK_REFERENCE_TYPE, is_provider
from gpuform.stacks.engine.values import PropertyMap

_ENDING = {Op.DELETE: "deleted", Op.DELETE_REPLACED: "deleted", Op.REPLACE: "replaced"}
"""What is done to the nodes of an object that ends."""


@dataclass(slots=True)
class StepWork:
    """Does steps, each on the thread of its caller.

    `start` tells that a step begins. `turn` is around a provider's call: it waits until the step
    may begin, and starts it. What was found gone while it was deleted goes to `vanished`.
    """

    host: ProviderHost
    stack_references: StackReferences
    snapshot: SnapshotManager
    vanished: DeletionsOutside
    start: Callable[[Step], None]
    turn: Callable[[Step], AbstractContextManager[None]]
    is_unsettled: Callable[[str], bool]
    _deleting: set[tuple[str, str]] = field(init=False)
    _how: dict[Op, Callable[[Step], list[str]]] = field(init=False)

    def __post_init__(self) -> None:
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

    def do(self, step: Step) -> list[str]:
        """Does the step; the reasons why its object exists but is not ready are returned."""
        return self._how[step.op](step)

    def foresee(self, step: Step) -> None:
        """In a preview: gives the step what is known of its outputs, and of the nodes that go."""
        new, old = step.new, step.old
        self._foresee_leaving(step)
        others = self._foresee_others(step)
        if new is None:
            if step.op in (Op.DELETE, Op.DELETE_REPLACED) and not step.is_spared:
                gone = _old(step)
                self.host.may_delete(step.urn, gone.outputs, gone.provider, others)
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

    def _foresee_leaving(self, step: Step) -> None:
        """Says in the plan which nodes the step takes, and what runs on them."""
        old, new, change = step.old, step.new, step.change
        if old is None or change is None or step.is_spared or not old.custom or old.external:
            return
        if step.op is Op.UPDATE and new is not None:
            leaving = self.host.leaving(old.urn, old.id, old.outputs, new.inputs, new.provider)
        elif step.op in _ENDING and not old.pending_replacement:
            because = _ENDING[step.op]
            leaving = self.host.all_leaving(old.urn, old.id, old.outputs, because, old.provider)
        else:
            return
        if leaving is not None:
            step.change = change.model_copy(update={"leaving": leaving})

    def _foresee_others(self, step: Step) -> Sequence[str]:
        """Return what others have put into an object that ends, and say so in the plan."""
        old, change = step.old, step.change
        if old is None or step.is_spared or not old.custom or old.external:
            return ()
        if step.op not in _ENDING or old.pending_replacement:
            return ()
        others = self.host.others_within(old.urn, old.id, old.outputs, old.provider)
        if others and change is not None:
            step.change = change.model_copy(update={"others": tuple(others)})
        return others

    def _same(self, step: Step) -> list[str]:
        self.start(step)
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
            self.start(step)
            if new.custom:
                new.id, new.outputs = new.id or str(uuid.uuid4()), dict(new.inputs)
            self._keep_created(step, new)
            return []
        with self._calling(step, "creating", new):
            created = self.host.create(
                new.urn,
                new.inputs,
                _timeout(new, "create"),
                new.provider,
                replaces=self._replaced_by(step),
            )
            new.id = created.id
            self._take(new, created)
            self._keep_created(step, new)
        return list(created.init_errors)

    def _replaced_by(self, step: Step) -> str:
        """The id of the object that is there beside its replacement, if there is one."""
        old = step.old
        is_there = old is not None and not self.snapshot.is_pending_replacement(old)
        return old.id if is_there and old is not None else ""

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
            self.start(step)
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
        self.start(step)
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
            is_same = values.are_equal(new.inputs, old.inputs) and values.are_equal(
                read, old.outputs
            )
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
        self.start(step)
        self.snapshot.record_delete(_old(step))
        return []

    def _nothing(self, step: Step) -> list[str]:
        """A replacement's marker: the steps beside it do the work."""
        self.start(step)
        return []

    @contextmanager
    def _calling(self, step: Step, kind: str, resource: ResourceState) -> Iterator[None]:
        """Around a provider's call: noted in the state first, then when it is its turn."""
        token = self.snapshot.begin(kind, resource)
        is_over = True
        try:
            with self.turn(step):
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
