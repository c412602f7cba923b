"""Keep the state of a stack while a run changes it, and write it to the store.

The step executor reports the begin and end of each operation to `SnapshotManager`, which records
every change in the journal and writes checkpoints, each verified by `edits.check` first.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from gpuform.providers.context import trace_span
from gpuform.providers.values import PropertyMap, are_equal, keep_ciphertexts
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
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
from gpuform.stacks.engine.state.journal import Journal, Record, create_checkpoint_record
from gpuform.stacks.engine.state.journal_log import StateWriter, WritePacing
from gpuform.stacks.engine.value_json import Crypter, Json


@dataclass(frozen=True, slots=True)
class _UnencodedRecord:
    """A journal record before encoding; by then the entry is encoded already."""

    op: str
    facts: Mapping[str, Json]
    resource: ResourceState | None = None
    operation: PendingOperation | None = None
    outputs: PropertyMap | None = None


@dataclass(slots=True)
class SnapshotManager:
    """The state of one stack during one run.

    `write` stores a checkpoint; None stores nothing (previews). When a write fails, `begin` and
    `close` raise EngineError: no operation is sent to a provider whose result could not be stored.
    With a `journal`, the end of an operation is stored when its recording method returns.
    """

    base: Snapshot
    crypter: Crypter | None
    write: Callable[[bytes], None] | None
    journal: Journal | None = None
    _entries: Entries = field(init=False)
    _changes: list[_UnencodedRecord] = field(default_factory=list)
    # URN and `delete` of an entry: a URN has one live entry, and rarely several deleted ones
    _texts: dict[tuple[str, bool], tuple[ResourceState, PropertyMap, bytes]] = field(
        default_factory=dict
    )
    # URN -> the encoded operation
    _operation_texts: dict[str, tuple[PendingOperation, bytes]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writer: StateWriter | None = None

    def __post_init__(self) -> None:
        self._entries = Entries.load(self.base.resources, self.base.pending_operations)
        if self.write is not None:
            pace = self.journal.log.pace if self.journal is not None else WritePacing()
            self._writer = StateWriter(self._write_journal, self._write_checkpoint, pace)
            if any(operation.type != "creating" for operation in self.base.pending_operations):
                # Only creates outlive their run, as in Pulumi: the next checkpoint must not list
                # the other operations any more.
                self._writer.request_write()

    def track_work(self) -> AbstractContextManager[None]:
        """Count the context as running work, able to wait for a checkpoint."""
        return self._writer.track_work() if self._writer is not None else nullcontext()

    def check(self) -> None:
        """Raise EngineError if the result of a new operation could not be stored."""
        if self._writer is not None:
            self._writer.check()
            if self.journal is not None:
                self.journal.log.check()

    def begin(self, kind: str, resource: ResourceState) -> int:
        """Record a pending operation and return a token for `end`.

        A create waits until the operation is stored.

        Raises:
            EngineError: the state cannot be written any more. The operation of a create stays
                recorded if only the wait has failed.
        """
        self.check()
        operation = PendingOperation(replace(resource, outputs={}), kind)
        if self._writer is not None:
            self._encode_operation(operation)
        with self._lock:
            token = self._entries.begin(operation)
            change = self._record("begin", {"token": token}, operation=operation)
        # A create starts only when the store names it: after a crash, the next run has to know that
        # an object may exist.
        if kind == "creating" and self._writer is not None:
            with trace_span("state", "wait for a checkpoint", resource.urn):
                self._writer.wait_durable(change)
            self.check()
        return token

    def end(self, token: int) -> None:
        """Remove a pending operation, successful or failed, without waiting for the journal."""
        with self._lock:
            operation = self._entries.end(token)
            self._operation_texts.pop(operation.resource.urn, None)
            self._record("end", {"token": token})

    def record_recovered(self, urn: str) -> None:
        """Remove the interrupted creates of `urn`: their objects are known now."""
        with self._lock:
            for token in self._entries.end_interrupted_creates(urn):
                self._record("end", {"token": token})

    def record_create(self, new: ResourceState) -> None:
        """Record a created resource; return once the record is logged or a write has failed."""
        self._encode_early(new)
        with self._lock:
            self._entries.add(new)
            change = self._record("add", {"new": self._entries.get_number(new)}, new)
        self._wait_logged(change)

    def record_replacement(self, old: ResourceState, new: ResourceState) -> None:
        """Record `new` as the entry for the object of `old`, and wait for the journal's write.

        The wait also ends when a write has failed. Unchanged secrets keep their ciphertext. An
        unchanged entry is logged with the next change.
        """
        new.inputs = _keep_ciphertexts(new.inputs, old.inputs)
        new.outputs = _keep_ciphertexts(new.outputs, old.outputs)
        changed = not _is_equal(new, old)
        if changed:
            self._encode_early(new)
        with self._lock:
            facts: dict[str, Json] = {"old": self._entries.get_number(old)}
            self._entries.replace(old, new)
            facts["new"] = self._entries.get_number(new)
            if not changed:
                # Only the order has changed: the record is stored together with the next change.
                self._changes.append(_UnencodedRecord("same", facts))
                return
            change = self._record("replace", facts, new)
        self._wait_logged(change)

    def record_create_replacement(self, old: ResourceState, new: ResourceState) -> None:
        """Record `new`, created before the old object is deleted, and mark `old` for deletion.

        Returns once the record is logged or a write has failed.
        """
        self._encode_early(new)
        with self._lock:
            number = self._entries.get_number(old)
            self._entries.add_replacement(old, new)
            facts: dict[str, Json] = {"old": number, "new": self._entries.get_number(new)}
            change = self._record("replace_keeping", facts, new)
        self._wait_logged(change)

    def record_pending_replacement(self, old: ResourceState) -> None:
        """Record the deletion of the object of `old` ahead of the replacement."""
        with self._lock:
            facts: dict[str, Json] = {"old": self._entries.get_number(old)}
            self._entries.mark_awaiting_replacement(old)
            change = self._record("await_replacement", facts)
        self._wait_logged(change)

    def is_pending_replacement(self, old: ResourceState) -> bool:
        """Return True if the replacement of `old` has deleted the old object already."""
        with self._lock:
            return self._entries.is_awaiting_replacement(old.urn)

    def record_refresh(self, old: ResourceState, new: ResourceState) -> None:
        """Record `new`, read from the platform, at the position of `old`, without waiting.

        An unchanged entry is not logged.
        """
        new.outputs = _keep_ciphertexts(new.outputs, old.outputs)
        with self._lock:
            facts: dict[str, Json] = {"old": self._entries.get_number(old)}
            self._entries.set_in_place(old, new)
            # Nobody waits for the journal: a crash only makes the next run read the object again.
            if not _is_equal(new, old):
                self._record("put", facts, new)

    def rebuild(self) -> list[ResourceState]:
        """Return the entries to continue with after a refresh or a destroy's program.

        References to removed and renamed entries are updated in them.
        """
        with self._lock:
            before = {entry.number: entry for entry in self._entries.iterate_all()}
            after = self._entries.rebuild()
            if any(before[entry.number] is not entry for entry in after):
                self._record("rebuild", {})
            return after

    def list_unprocessed(self) -> list[ResourceState]:
        """Return the old entries without a step in this run, in the order of the state."""
        with self._lock:
            return self._entries.list_unprocessed()

    def record_delete(self, old: ResourceState) -> None:
        """Remove the entry of a deleted object.

        Returns once the removal is logged or a write has failed.
        """
        with self._lock:
            facts: dict[str, Json] = {"old": self._entries.get_number(old)}
            self._entries.remove(old)
            change = self._record("remove", facts)
        self._wait_logged(change)

    def record_outputs(self, resource: ResourceState, outputs: PropertyMap) -> None:
        """Set the outputs of a component or of the stack, and record the change without waiting.

        Outputs that have not changed are not recorded.
        """
        with self._lock:
            before, resource.outputs = (
                resource.outputs,
                _keep_ciphertexts(outputs, resource.outputs),
            )
            if not are_equal(resource.outputs, before):
                facts: dict[str, Json] = {"of": self._entries.get_number(resource)}
                self._record("outputs", facts, outputs=resource.outputs)

    def build_snapshot(self) -> Snapshot:
        """Return the state with all changes up to now."""
        with self._lock:
            resources, pending, _ = self._entries.build_current()
        return self._build_snapshot(resources, pending)

    def close(self) -> Snapshot:
        """Write the remaining changes, remove the journal and return the final state.

        Raises EngineError if the write fails; then the journal stays.
        """
        try:
            if self._writer is not None:
                self._writer.close()
        except EngineError as error:
            if self.journal is not None:
                self.journal.close_after_failure(error)
            raise
        if self.journal is not None:
            self.journal.end()
        return self.build_snapshot()

    def _record(
        self,
        op: str,
        facts: Mapping[str, Json],
        resource: ResourceState | None = None,
        *,
        operation: PendingOperation | None = None,
        outputs: PropertyMap | None = None,
    ) -> int:
        """Keep the change for the journal, request a write, and return the change's number.

        Without a writer, as in previews, nothing is kept and the number is 0.
        """
        if self._writer is None:
            return 0
        if self.journal is not None:
            self._changes.append(_UnencodedRecord(op, facts, resource, operation, outputs))
        return self._writer.request_write()

    def _wait_logged(self, change: int) -> None:
        """Wait until the journal has the change or a write has failed; no wait without a writer."""
        if self._writer is not None:
            with trace_span("state", "wait for the journal"):
                self._writer.wait_logged(change)

    def _build_snapshot(
        self, resources: list[ResourceState], pending: list[PendingOperation]
    ) -> Snapshot:
        """Return the state with `resources` and pending operations, and a new manifest."""
        return replace(
            self.base, resources=resources, pending_operations=pending, manifest=Manifest()
        )

    def _write_journal(self) -> None:
        """Append all changes since the last write to the journal, if there is one."""
        if self.journal is None:
            return
        with self._lock:
            changes, self._changes = self._changes, []
        if changes:
            with trace_span("state", "append to the journal"):
                self.journal.append([self._encode_record(change) for change in changes])

    @trace_span("state", "write a checkpoint")
    def _write_checkpoint(self) -> None:
        """Write a checkpoint, after storing all earlier changes in the journal; not in a preview.

        Raises IntegrityError, before anything is written, for entries that break a rule.
        """
        if self.write is None:
            return
        with self._lock:
            changes, self._changes = self._changes, []
            resources, pending, order = self._entries.build_current()
        snapshot = self._build_snapshot(resources, pending)
        # Pulumi checks after writing, when the bad file is stored already; here the check comes
        # first.
        edits.check(snapshot)
        encoded_resources = [self._encode_resource(resource) for resource in snapshot.resources]
        encoded_operations = [self._encode_operation(o) for o in snapshot.pending_operations]
        data = join_checkpoint(snapshot, encoded_resources, encoded_operations)
        if self.journal is not None:
            records = [self._encode_record(change) for change in changes]
            # Announced before the write: after a crash in between, the journal fits both the old
            # and the new checkpoint.
            announced = create_checkpoint_record(data, order)
            self.journal.append([*records, announced])
        try:
            self.write(data)
        except EngineError:
            if self.journal is not None:
                self.journal.record_failed_checkpoint(announced)
            raise

    def _encode_record(self, change: _UnencodedRecord) -> Record:
        """Encode a change as a record of the journal, secrets encrypted."""
        raw: dict[str, bytes] = {}
        if change.resource is not None:
            raw["resource"] = self._encode_resource(change.resource)
        if change.operation is not None:
            raw["operation"] = self._encode_operation(change.operation)
        if change.outputs is not None:
            raw["outputs"] = value_json.dump(value_json.encode_map(change.outputs, self.crypter))
        return Record(change.op, change.facts, raw)

    def _encode_early(self, resource: ResourceState) -> None:
        """Encrypt and encode an entry on the step's thread, ahead of the writer's thread."""
        if self._writer is not None:
            self._encode_resource(resource)

    def _encode_operation(self, operation: PendingOperation) -> bytes:
        """Encode a pending operation as JSON; cached until the operation ends."""
        cached = self._operation_texts.get(operation.resource.urn)
        # An interrupted create of an earlier run may have the URN, too.
        if cached is None or cached[0] is not operation:
            cached = (operation, encode_operation(operation, self.crypter))
            self._operation_texts[operation.resource.urn] = cached
        return cached[1]

    def _encode_resource(self, resource: ResourceState) -> bytes:
        """Return the entry as encoded JSON, cached until a component gets other outputs."""
        # The program may register other outputs of a component later: the cached JSON is valid for
        # these outputs only.
        outputs = resource.outputs
        key = (resource.urn, resource.delete)
        cached = self._texts.get(key)
        if cached is not None and cached[0] is resource and cached[1] is outputs:
            return cached[2]
        encoded = encode_resource(resource, self.crypter)
        self._texts[key] = (resource, outputs, encoded)
        return encoded


def _is_equal(a: ResourceState, b: ResourceState) -> bool:
    """Return True if two entries are equal by Pulumi's rules: unlike in Python, true is not 1."""
    return a == b and are_equal(a.inputs, b.inputs) and are_equal(a.outputs, b.outputs)


def _keep_ciphertexts(new: PropertyMap, old: PropertyMap) -> PropertyMap:
    """Return the new properties with the ciphertexts of secrets unchanged since `old`."""
    # As the CLI: an unchanged secret keeps its ciphertext, so that the file differs only where
    # values do.
    return {key: keep_ciphertexts(value, old.get(key)) for key, value in new.items()}
