"""The state of a stack while it changes.

Steps tell it what they begin and what they end; it keeps the list of entries in Pulumi's order
(those of this run as they completed, then the untouched old ones) and writes whole checkpoints,
each checked against the integrity rules first.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

from gpuform.stacks.engine import integrity
from gpuform.stacks.engine.state import (
    Manifest,
    PendingOperation,
    ResourceState,
    Snapshot,
    encode_operation,
    encode_resource,
    join_checkpoint,
)
from gpuform.stacks.engine.value_json import Crypter
from gpuform.stacks.engine.values import PropertyMap, equal, keep_ciphertexts
from gpuform.stacks.engine.writing import Writer


@dataclass(slots=True)
class SnapshotManager:
    """State of one stack during one run.

    `write` puts a checkpoint on disk; None keeps nothing (previews). When that fails, `begin` and
    `close` raise EngineError: nothing more is sent to a provider that could not be kept.
    """

    base: Snapshot
    crypter: Crypter | None
    write: Callable[[bytes], None] | None
    _done: dict[int, ResourceState] = field(default_factory=dict)  # by id(), as they completed
    _old: dict[int, ResourceState] = field(default_factory=dict)  # by place in the old state
    _places: dict[int, int] = field(default_factory=dict)  # id() of an entry -> its place
    _replacing: dict[str, int] = field(default_factory=dict)  # URN -> place, already deleted
    _gone: dict[str, ResourceState] = field(default_factory=dict)
    _renamed: dict[str, str] = field(default_factory=dict)
    _pending: dict[int, PendingOperation] = field(default_factory=dict)
    _carried: dict[str, list[int]] = field(default_factory=dict)  # URN -> creates of earlier runs
    _texts: dict[int, tuple[ResourceState, PropertyMap, bytes]] = field(default_factory=dict)
    _operation_texts: dict[int, tuple[PendingOperation, bytes]] = field(default_factory=dict)
    _tokens: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _writer: Writer | None = None

    def __post_init__(self) -> None:
        for place, resource in enumerate(self.base.resources):
            self._put(place, resource)
            if resource.pending_replacement:
                self._replacing[resource.urn] = place
        # Other kinds of pending operations end with the run that began them.
        for operation in self.base.pending_operations:
            if operation.type == "creating":
                self._tokens += 1
                self._pending[self._tokens] = operation
                self._carried.setdefault(operation.resource.urn, []).append(self._tokens)
        if self.write is not None:
            self._writer = Writer(self._write_once)

    def working(self) -> AbstractContextManager[None]:
        """Around work that may come to `begin` a create."""
        return self._writer.working() if self._writer is not None else nullcontext()

    def begin(self, kind: str, resource: ResourceState) -> int:
        """Notes an operation on its way to a provider; a create waits until it is on disk."""
        if self._writer is not None:
            self._writer.check()
        operation = PendingOperation(replace(resource, outputs={}), kind)
        if self._writer is not None:
            self._operation_text(operation)
        with self._lock:
            self._tokens += 1
            token = self._tokens
            self._pending[token] = operation
            change = self._touch()
        if kind == "creating" and self._writer is not None:
            self._writer.wait(change)
        return token

    def end(self, token: int) -> None:
        """The operation has ended, well or not."""
        with self._lock:
            operation = self._pending.pop(token)
            self._operation_texts.pop(id(operation), None)
            self._touch()

    def settled(self, urn: str) -> None:
        """What an interrupted create of this URN may have made is known now."""
        with self._lock:
            for token in self._carried.pop(urn, ()):
                del self._pending[token]
                self._touch()

    def added(self, new: ResourceState) -> None:
        """A resource was created."""
        with self._lock:
            self._done[id(new)] = new
            self._touch()
        self._prepare(new)

    def replaced(self, old: ResourceState, new: ResourceState) -> None:
        """`new` stands for what `old` stood for. Secrets that are the same keep their text."""
        new.inputs = _kept(new.inputs, old.inputs)
        new.outputs = _kept(new.outputs, old.outputs)
        changed = not _equal(new, old)
        with self._lock:
            self._take(old)
            self._done[id(new)] = new
            if changed:
                self._touch()
        if changed:
            self._prepare(new)

    def replaced_keeping_old(self, old: ResourceState, new: ResourceState) -> None:
        """`new` was created first; the old object is still there and must be deleted."""
        with self._lock:
            self._put(self._places[id(old)], replace(old, delete=True))
            self._done[id(new)] = new
            self._touch()
        self._prepare(new)

    def pending_replacement(self, old: ResourceState) -> None:
        """The old object was deleted to be replaced; its entry stays until the new one exists."""
        with self._lock:
            place = self._places[id(old)]
            self._put(place, replace(old, pending_replacement=True))
            self._replacing[old.urn] = place
            self._touch()

    def is_pending_replacement(self, old: ResourceState) -> bool:
        """Whether the old object of a replacement is deleted already."""
        with self._lock:
            return old.urn in self._replacing

    def refreshed(self, old: ResourceState, new: ResourceState) -> None:
        """`new` is what the platform says of `old`; it keeps its place."""
        new.outputs = _kept(new.outputs, old.outputs)
        with self._lock:
            self._put(self._places[id(old)], new)
            if not _equal(new, old):
                self._touch()

    def rebuild(self) -> list[ResourceState]:
        """After a refresh: the entries to go on with, which name nothing that is gone.

        As under the Pulumi CLI, a property that depends on nothing loses its key in
        `property_dependencies`.
        """
        with self._lock:
            gone = self._missing()
            for place, entry in list(self._old.items()):
                rebuilt = _rewired(entry, gone, {}, keep_empty=False)
                if rebuilt is not entry:
                    self._put(place, rebuilt)
                    self._touch()
            self._gone.clear()
            return list(self._old.values())

    def leftovers(self) -> list[ResourceState]:
        """The entries of the old state that no step of this run has dealt with, in their order."""
        with self._lock:
            return list(self._old.values())

    def removed(self, old: ResourceState) -> None:
        """The object is gone."""
        with self._lock:
            self._take(old)
            self._gone[old.urn] = old
            self._touch()

    def outputs(self, resource: ResourceState, outputs: PropertyMap) -> None:
        """A component's or the stack's outputs."""
        with self._lock:
            before, resource.outputs = resource.outputs, _kept(outputs, resource.outputs)
            if not equal(resource.outputs, before):
                self._touch()

    def renamed(self, names: Mapping[str, str]) -> None:
        """Entries found by an alias: old URN -> new URN, in every reference."""
        with self._lock:
            if names and dict(names) != self._renamed:
                self._renamed = dict(names)
                self._touch()

    def snapshot(self) -> Snapshot:
        """The state as it is now."""
        with self._lock:
            resources = [*self._done.values(), *self._old.values()]
            pending = list(self._pending.values())
            gone, renamed = self._missing(), self._renamed
        if gone or renamed:
            resources = [_rewired(resource, gone, renamed) for resource in resources]
        return replace(
            self.base, resources=resources, pending_operations=pending, manifest=Manifest()
        )

    def close(self) -> Snapshot:
        """Writes what is not written yet; the final state."""
        if self._writer is not None:
            self._writer.close()
        return self.snapshot()

    def _put(self, place: int, resource: ResourceState) -> None:
        self._old[place] = resource
        self._places[id(resource)] = place

    def _take(self, old: ResourceState) -> None:
        if self._done.pop(id(old), None) is None:
            self._old.pop(self._places[id(old)], None)
        self._old.pop(self._replacing.pop(old.urn, -1), None)

    def _missing(self) -> dict[str, ResourceState]:
        """The entries that are gone and have no other of their URN, by URN."""
        if not self._gone:
            return {}
        live = {entry.urn for entry in (*self._done.values(), *self._old.values())}
        return {urn: entry for urn, entry in self._gone.items() if urn not in live}

    def _touch(self) -> int:
        return self._writer.changed() if self._writer is not None else 0

    def _write_once(self) -> None:
        if self.write is None:
            return
        snapshot = self.snapshot()
        integrity.check(snapshot)
        texts = [self._text(resource) for resource in snapshot.resources]
        operations = [self._operation_text(o) for o in snapshot.pending_operations]
        self.write(join_checkpoint(snapshot, texts, operations))

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
    return a == b and equal(a.inputs, b.inputs) and equal(a.outputs, b.outputs)


def _kept(new: PropertyMap, old: PropertyMap) -> PropertyMap:
    return {key: keep_ciphertexts(value, old.get(key)) for key, value in new.items()}


def _rewired(
    resource: ResourceState,
    gone: Mapping[str, ResourceState],
    renamed: Mapping[str, str],
    *,
    keep_empty: bool = True,
) -> ResourceState:
    """The entry with references to missing resources dropped and renamed ones brought up to date.

    `keep_empty`: properties that depend on nothing keep their key.
    """

    def current(urns: Iterable[str]) -> list[str]:
        return [renamed.get(urn, urn) for urn in urns if urn not in gone]

    parent = resource.parent
    while parent in gone:
        parent = gone[parent].parent
    properties = {key: current(urns) for key, urns in resource.property_dependencies.items()}
    rewired = replace(
        resource,
        urn=renamed.get(resource.urn, resource.urn),
        parent=renamed.get(parent, parent),
        dependencies=current(resource.dependencies),
        property_dependencies={k: urns for k, urns in properties.items() if urns or keep_empty},
        deleted_with=next(iter(current([resource.deleted_with])), ""),
        replace_with=current(resource.replace_with),
    )
    return resource if rewired == resource else rewired
