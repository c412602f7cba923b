"""The state of a stack while it changes, and on its way to disk.

Steps tell the manager what they begin and what they end. It records every change in the journal
and writes whole checkpoints, each checked against the integrity rules first.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from gpuform.providers.context import trace_span
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import edits
from gpuform.stacks.engine.state.checkpoint import (
    Manifest,
    PendingOperation,
    ResourceState,
    Snapshot,
    encode_operation,
    encode_resource,
    join_checkpoint,
)
from gpuform.stacks.engine.state.entries import Entries
from gpuform.stacks.engine.state.journal import Journal, Record, checkpoint_record
from gpuform.stacks.engine.state.journal_log import Pace, Writer
from gpuform.stacks.engine.values import (
    Crypter,
    Json,
    PropertyMap,
    are_equal,
    keep_ciphertexts,
    value_json,
)


@dataclass(frozen=True, slots=True)
class _Change:
    """A record before it is encoded: by then the entry's text is ready."""

    op: str
    facts: Mapping[str, Json]
    resource: ResourceState | None = None
    operation: PendingOperation | None = None
    outputs: PropertyMap | None = None


@dataclass(slots=True)
class SnapshotManager:
    """State of one stack during one run.

    `write` puts a checkpoint on disk; None keeps nothing (previews). When that fails, `begin` and
    `close` raise EngineError: nothing more is sent to a provider that could not be kept. With a
    `journal`, what has ended is on disk when the method that tells it returns.
    """

    base: Snapshot
    crypter: Crypter | None
    write: Callable[[bytes], None] | None
    journal: Journal | None = None
    _entries: Entries = field(init=False)
    _changes: list[_Change] = field(default_factory=list)
    _texts: dict[int, tuple[ResourceState, PropertyMap, bytes]] = field(default_factory=dict)
    _operation_texts: dict[int, tuple[PendingOperation, bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writer: Writer | None = None

    def __post_init__(self) -> None:
        self._entries = Entries.load(self.base.resources, self.base.pending_operations)
        if self.write is not None:
            pace = self.journal.log.pace if self.journal is not None else Pace()
            self._writer = Writer(self._log, self._checkpoint, pace)
            if any(each.type != "creating" for each in self.base.pending_operations):
                self._writer.changed()  # those are over, and no checkpoint may go on saying them

    def working(self) -> AbstractContextManager[None]:
        """Around work that may come to `begin` a create."""
        return self._writer.working() if self._writer is not None else nullcontext()

    def check(self) -> None:
        """Raises EngineError when what is begun now could not be kept."""
        if self._writer is not None:
            self._writer.check()
            if self.journal is not None:
                self.journal.log.check()

    def begin(self, kind: str, resource: ResourceState) -> int:
        """Notes an operation on its way to a provider; a create waits until that is kept."""
        self.check()
        operation = PendingOperation(replace(resource, outputs={}), kind)
        if self._writer is not None:
            self._operation_text(operation)
        with self._lock:
            token = self._entries.begin(operation)
            change = self._record("begin", {"token": token}, operation=operation)
        if kind == "creating" and self._writer is not None:
            with trace_span("state", "wait for a checkpoint", resource.urn):
                self._writer.wait(change)
            self.check()
        return token

    def end(self, token: int) -> None:
        """The operation has ended, well or not."""
        with self._lock:
            operation = self._entries.end(token)
            self._operation_texts.pop(id(operation), None)
            self._record("end", {"token": token})

    def record_settled(self, urn: str) -> None:
        """What an interrupted create of this URN may have made is known now."""
        with self._lock:
            for token in self._entries.settle(urn):
                self._record("end", {"token": token})

    def record_create(self, new: ResourceState) -> None:
        """A resource was created."""
        self._prepare(new)
        with self._lock:
            self._entries.add(new)
            change = self._record("add", {"new": self._entries.number(new)}, new)
        self._wait_logged(change)

    def record_replacement(self, old: ResourceState, new: ResourceState) -> None:
        """`new` stands for what `old` stood for. Secrets that are the same keep their text."""
        new.inputs = _kept(new.inputs, old.inputs)
        new.outputs = _kept(new.outputs, old.outputs)
        changed = not _equal(new, old)
        if changed:
            self._prepare(new)
        with self._lock:
            facts: dict[str, Json] = {"old": self._entries.number(old)}
            self._entries.replace(old, new)
            facts["new"] = self._entries.number(new)
            if not changed:
                self._changes.append(_Change("same", facts))
                return
            change = self._record("replace", facts, new)
        self._wait_logged(change)

    def record_create_replacement(self, old: ResourceState, new: ResourceState) -> None:
        """`new` was created first; the old object is still there and must be deleted."""
        self._prepare(new)
        with self._lock:
            number = self._entries.number(old)
            self._entries.replace_keeping(old, new)
            facts: dict[str, Json] = {"old": number, "new": self._entries.number(new)}
            change = self._record("replace_keeping", facts, new)
        self._wait_logged(change)

    def record_pending_replacement(self, old: ResourceState) -> None:
        """The old object was deleted to be replaced; its entry stays until the new one exists."""
        with self._lock:
            facts: dict[str, Json] = {"old": self._entries.number(old)}
            self._entries.await_replacement(old)
            change = self._record("await_replacement", facts)
        self._wait_logged(change)

    def is_pending_replacement(self, old: ResourceState) -> bool:
        """Whether the old object of a replacement is deleted already."""
        with self._lock:
            return self._entries.awaits_replacement(old.urn)

    def record_refresh(self, old: ResourceState, new: ResourceState) -> None:
        """`new` is what the platform says of `old`; it keeps its place."""
        new.outputs = _kept(new.outputs, old.outputs)
        with self._lock:
            facts: dict[str, Json] = {"old": self._entries.number(old)}
            self._entries.put(old, new)
            if not _equal(new, old):
                self._record("put", facts, new)

    def rebuild(self) -> list[ResourceState]:
        """The entries to go on with after a refresh, or after the program of a destroy."""
        with self._lock:
            before = {id(entry) for entry in self._entries.all()}
            after = self._entries.rebuild()
            if any(id(entry) not in before for entry in after):
                self._record("rebuild", {})
            return after

    def leftovers(self) -> list[ResourceState]:
        """The entries of the old state that no step of this run has dealt with, in their order."""
        with self._lock:
            return self._entries.leftovers()

    def record_delete(self, old: ResourceState) -> None:
        """The object is gone."""
        with self._lock:
            facts: dict[str, Json] = {"old": self._entries.number(old)}
            self._entries.remove(old)
            change = self._record("remove", facts)
        self._wait_logged(change)

    def outputs(self, resource: ResourceState, outputs: PropertyMap) -> None:
        """A component's or the stack's outputs."""
        with self._lock:
            before, resource.outputs = resource.outputs, _kept(outputs, resource.outputs)
            if not are_equal(resource.outputs, before):
                facts: dict[str, Json] = {"of": self._entries.number(resource)}
                self._record("outputs", facts, outputs=resource.outputs)

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        with self._lock:
            resources, pending, _ = self._entries.current()
        return self._as_snapshot(resources, pending)

    def close(self) -> Snapshot:
        """Writes what is not written yet; the final state."""
        try:
            if self._writer is not None:
                self._writer.close()
        except EngineError as error:
            if self.journal is not None:
                self.journal.leave(error)
            raise
        if self.journal is not None:
            self.journal.end()
        return self.snapshot()

    def _record(
        self,
        op: str,
        facts: Mapping[str, Json],
        resource: ResourceState | None = None,
        *,
        operation: PendingOperation | None = None,
        outputs: PropertyMap | None = None,
    ) -> int:
        if self._writer is None:
            return 0
        if self.journal is not None:
            self._changes.append(_Change(op, facts, resource, operation, outputs))
        return self._writer.changed()

    def _wait_logged(self, change: int) -> None:
        if self._writer is not None:
            with trace_span("state", "wait for the journal"):
                self._writer.wait_logged(change)

    def _as_snapshot(
        self, resources: list[ResourceState], pending: list[PendingOperation]
    ) -> Snapshot:
        return replace(
            self.base, resources=resources, pending_operations=pending, manifest=Manifest()
        )

    def _log(self) -> None:
        if self.journal is None:
            return
        with self._lock:
            changes, self._changes = self._changes, []
        if changes:
            with trace_span("state", "append to the journal"):
                self.journal.append([self._encoded(change) for change in changes])

    @trace_span("state", "write a checkpoint")
    def _checkpoint(self) -> None:
        """Everything that led to the checkpoint is in the journal before it is replaced."""
        if self.write is None:
            return
        with self._lock:
            changes, self._changes = self._changes, []
            resources, pending, order = self._entries.current()
        snapshot = self._as_snapshot(resources, pending)
        edits.check(snapshot)
        texts = [self._text(resource) for resource in snapshot.resources]
        operations = [self._operation_text(o) for o in snapshot.pending_operations]
        data = join_checkpoint(snapshot, texts, operations)
        if self.journal is not None:
            records = [self._encoded(change) for change in changes]
            announced = checkpoint_record(data, order)
            self.journal.append([*records, announced])
        try:
            self.write(data)
        except EngineError:
            if self.journal is not None:
                self.journal.deny(announced)
            raise

    def _encoded(self, change: _Change) -> Record:
        raw: dict[str, bytes] = {}
        if change.resource is not None:
            raw["resource"] = self._text(change.resource)
        if change.operation is not None:
            raw["operation"] = self._operation_text(change.operation)
        if change.outputs is not None:
            raw["outputs"] = value_json.dump(value_json.encode_map(change.outputs, self.crypter))
        return Record(change.op, change.facts, raw)

    def _prepare(self, resource: ResourceState) -> None:
        """Encrypts and encodes on the thread of the step: the writer has only to join the texts."""
        if self._writer is not None:
            self._text(resource)

    def _operation_text(self, operation: PendingOperation) -> bytes:
        cached = self._operation_texts.get(id(operation))
        if cached is None or cached[0] is not operation:
            cached = (operation, encode_operation(operation, self.crypter))
            self._operation_texts[id(operation)] = cached
        return cached[1]

    def _text(self, resource: ResourceState) -> bytes:
        # Outputs may be registered meanwhile: the text is good for these only.
        outputs = resource.outputs
        cached = self._texts.get(id(resource))
        if cached is not None and cached[0] is resource and cached[1] is outputs:
            return cached[2]
        text = encode_resource(resource, self.crypter)
        self._texts[id(resource)] = (resource, outputs, text)
        return text


def _equal(a: ResourceState, b: ResourceState) -> bool:
    return a == b and are_equal(a.inputs, b.inputs) and are_equal(a.outputs, b.outputs)


def _kept(new: PropertyMap, old: PropertyMap) -> PropertyMap:
    return {key: keep_ciphertexts(value, old.get(key)) for key, value in new.items()}
