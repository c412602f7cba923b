"""Store a stack's records beside its state, with one write for all waiting records.

The files are in `.pulumi/gpuform/<project>/<stack>.records/`, where the Pulumi CLI does not look. A
batch is an object with records by name; null is a removed record. Later batches override earlier
ones. A batch without any valid record is deleted, earlier batches first, so that no removed record
comes back. `stack`, `deployment` and provider hosts call this module.
"""

import json
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuform.providers.catalog import has_kind, load_lifecycle_class
from gpuform.providers.environment import WrongEnvironment, read_environment, record_environment
from gpuform.providers.records import (
    INTENT_PREFIX,
    Fields,
    Intent,
    Intents,
    Records,
    StoredObjects,
    build_record,
    parse_record,
    read_record,
)
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.project import find_project
from gpuform.stacks.engine.state import load_checkpoint
from gpuform.stacks.engine.store import (
    Backend,
    Storage,
    build_full_name,
    find_owners,
    get_backend_url,
    layout,
)
from gpuform.stacks.engine.urn import get_own_type

MOVED_RECORD = "moved"
MAX_BATCHES = 64
"""The number of batches that are merged into one: a reader requests each batch."""
_SUFFIX = ".json"

Change = Mapping[str, Fields | None]


class Batches:
    """The batches in a folder of a storage; not safe for threads.

    `current` has the valid fields of each record.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        # batch -> its records, in the order of the batches
        self._names: dict[str, set[str]] = {}
        # record -> the batches that contain it, in their order
        self._holders: dict[str, list[str]] = {}
        # record -> the one batch that must stay because of it, or None
        self._needed: dict[str, str | None] = {}
        # batch -> the number of records for which it must stay
        self._needs: dict[str, int] = {}
        self._touched: set[str] = set()
        self.current: dict[str, Fields | None] = {}

    def read(self) -> None:
        """Read the stored batches. Raises EngineError for a damaged one."""
        for entry in self._storage.list_entries(self._folder):
            blob = self._storage.read(entry.name) if entry.name.endswith(_SUFFIX) else None
            if blob is not None:
                self._add_batch(
                    entry.name, parse_record(blob.data, self._storage.locate(entry.name))
                )

    def write(self, change: Change) -> None:
        """Write a change (None removes a record) as a new batch, and delete obsolete batches.

        From MAX_BATCHES on the new batch has all records, so that the old ones become obsolete.
        """
        if len(self._names) >= MAX_BATCHES:
            change = {**{k: v for k, v in self.current.items() if v is not None}, **change}
        # Batches are read in the order of their names: nanoseconds, padded to 20 digits.
        name = f"{self._folder}/{time.time_ns():020d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
        last = next(reversed(self._names), "")
        # Names are the order of the batches, also after the clock was set back.
        if name <= last:
            name = f"{last.removesuffix(_SUFFIX)}+{_SUFFIX}"
        self._storage.write(name, json.dumps(change, indent=1).encode())
        self._add_batch(name, change)
        # Old batches go only now that the new one is stored.
        while needless := sorted(batch for batch in self._touched if not self._needs[batch]):
            self._storage.delete(*needless)
            self._remove_batches(needless)
        self._touched = set()

    def _add_batch(self, batch: str, change: Change) -> None:
        """Add the records of a stored batch, in place of records of the same names."""
        self.current.update(change)
        self._names[batch], self._needs[batch] = set(change), 0
        self._touched.add(batch)
        for name in change:
            self._holders.setdefault(name, []).append(batch)
            self._update_needed_batch(name)

    def _remove_batches(self, needless: Collection[str]) -> None:
        """Forget batches after their deletion from the storage."""
        self._touched = set()
        names = [name for batch in needless for name in self._names.pop(batch)]
        for batch in needless:
            del self._needs[batch]
        for name in names:
            remaining_batches = [batch for batch in self._holders[name] if batch in self._names]
            self._holders[name] = remaining_batches
            if remaining_batches:
                self._update_needed_batch(name)
            else:
                del self._holders[name], self._needed[name], self.current[name]

    def _update_needed_batch(self, name: str) -> None:
        """Update which batch is needed for the record `name`: the last batch that contains it.

        If the record was removed, and no earlier batch contains it, no batch is needed.
        """
        holders, before = self._holders[name], self._needed.get(name)
        is_kept = self.current[name] is not None or len(holders) > 1
        after = holders[-1] if is_kept else None
        self._needed[name] = after
        for batch, more in ((before, -1), (after, 1)):
            if batch in self._needs:
                self._needs[batch] += more
        self._touched |= {batch for batch in (before, holders[-1]) if batch in self._needs}


class GroupCommit:
    """Lets many threads write batches: changes that arrive during a write share the next one."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._lock = threading.Lock()
        self._waiting = _Round(threading.Condition(self._lock))
        self._is_writing = False

    def write(self, change: Change) -> None:
        """Write a change and return once stored. Raises the errors of the batch's write.

        Changes of threads that wait at the same time share a batch.
        """
        with self._lock:
            round_ = self._waiting
            round_.change.update(change)
            try:
                round_.wakeup.wait_for(lambda: round_.is_over or not self._is_writing)
            except BaseException:
                # This thread was to write, perhaps: another one has to.
                round_.wakeup.notify()
                raise
            leads = not round_.is_over
            if leads:
                self._is_writing = True
                self._waiting = _Round(threading.Condition(self._lock))
        if leads:
            self._lead(round_)
        if round_.error is not None:
            raise round_.error

    def _lead(self, round_: "_Round") -> None:
        """Write the changes of a round for all waiting threads, and wake the threads.

        An error is stored in the round: each of the threads raises it.
        """
        try:
            self._batches.write(round_.change)
        except BaseException as error:  # noqa: BLE001 - raised by all who share the batch
            round_.error = error
        finally:
            with self._lock:
                self._is_writing, round_.is_over = False, True
                round_.wakeup.notify_all()
                self._waiting.wakeup.notify()


@dataclass(eq=False, slots=True)
class _Round:
    """Changes written together; `wakeup` tells threads that the round is over or wants a leader."""

    wakeup: threading.Condition
    change: dict[str, Fields | None] = field(default_factory=dict)
    is_over: bool = False
    error: BaseException | None = None


class BackendRecords:
    """The records of one stack, read once: the stack's lock keeps other writers out."""

    def __init__(self, backend: Backend, project: str, stack: str) -> None:
        self._backend = backend
        self._project = project
        self._stack = stack
        self._lock = threading.Lock()
        self._batches = Batches(backend.storage, backend.get_records_folder(project, stack))
        self._commit = GroupCommit(self._batches)
        self._records: dict[str, Fields] | None = None

    @property
    def place(self) -> str:
        """Return the location of the stack's records, for messages."""
        folder = self._backend.get_records_folder(self._project, self._stack)
        return self._backend.storage.locate(folder)

    def names(self) -> list[str]:
        """List the names of the records in the backend."""
        with self._lock:
            return list(self._read())

    def read(self, name: str) -> Fields | None:
        """Return the fields of a record, or None for a missing record."""
        with self._lock:
            return self._read().get(name)

    def write(self, name: str, fields: Fields) -> None:
        """Write a record. Raises EngineError if the stack's lock is lost."""
        self._write({name: fields})

    def delete(self, *names: str) -> None:
        """Delete existing records. Raises EngineError if the stack's lock is lost."""
        existing_names = set(self.names())
        change = {name: None for name in names if name in existing_names}
        if change:
            self._write(change)

    def add(self, name: str, fields: Fields) -> None:
        """Write a new record, even if the stack's lock is lost."""
        # Without the lock the batches of other processes are not read: this one stands beside them
        # and replaces none.
        folder = self._backend.get_records_folder(self._project, self._stack)
        Batches(self._backend.storage, folder).write({name: fields})

    def list_stored_objects(self) -> StoredObjects | None:
        """Return URN and id of each object in the stack's checkpoint.

        Objects that wait for a replacement are left out: they are deleted. So are objects that the
        program only reads. The journal is not read.
        """
        return [
            (str(resource.get("urn")), str(resource["id"]))
            for resource in self._list_managed_resources()
        ]

    def list_stored_parts(self) -> StoredObjects:
        """Return URN and part id of each part, such as a node, of the objects in the checkpoint."""
        parts = []
        for resource in self._list_managed_resources():
            platform, _, kind = get_own_type(str(resource.get("type"))).partition(":")
            if not has_kind(platform, kind):
                continue
            name = load_lifecycle_class(platform, kind).parts_field
            part_ids = (resource.get("outputs") or {}).get(name) if name else None
            if isinstance(part_ids, list):
                parts += [(str(resource.get("urn")), str(part_id)) for part_id in part_ids]
        return parts

    def _list_managed_resources(self) -> list[dict[str, Any]]:
        """Return the checkpoint's entries of existing objects that the stack manages."""
        data = self._backend.read(self._project, self._stack)
        latest = load_checkpoint(data).latest if data else {}
        return [
            resource
            for resource in latest.get("resources") or ()
            if resource.get("id")
            and not resource.get("pendingReplacement")
            and not resource.get("external")
        ]

    def _write(self, change: Change) -> None:
        """Write changed records, None for a removed record, visible to later reads of this object.

        Raises EngineError if the stack's lock is lost.
        """
        with self._lock:
            self._read()
        self._backend.check_lock(self._project, self._stack)
        self._commit.write(change)
        with self._lock:
            records = self._read()
            for name, fields in change.items():
                if fields is None:
                    records.pop(name, None)
                else:
                    records[name] = fields

    def _read(self) -> dict[str, Fields]:
        """Return the records; the caller holds the lock."""
        if self._records is None:
            self._batches.read()
            self._records = _list_existing(self._batches)
        return self._records


def _list_existing(batches: Batches) -> dict[str, Fields]:
    """Return the records by name, without the removed ones."""
    return {name: fields for name, fields in batches.current.items() if fields is not None}


def open_intents(backend: Backend, project: str, stack: str) -> Intents:
    """Open the intents (records of creates) of a stack."""
    return Intents(BackendRecords(backend, project, stack))


def read_all_intents(backend: Backend) -> list[Intent]:
    """Read the intents of all stacks of a backend, removed stacks included."""
    folders = set()
    for entry in backend.storage.list_entries(layout.build_name("gpuform")):
        folder, is_batch, _ = entry.name.rpartition(".records/")
        if is_batch:
            folders.add(f"{folder}.records")
    intents = []
    for folder in sorted(folders):
        batches = Batches(backend.storage, folder)
        batches.read()
        existing_records = _list_existing(batches)
        names = (name for name in existing_records if name.startswith(INTENT_PREFIX))
        intents += [
            build_record(existing_records[name], Intent, f"{name} in {folder}") for name in names
        ]
    return intents


def records_for_host(
    project: str, stack: str, directory: Path, environ: Mapping[str, str]
) -> Records | None:
    """Open a stack's records for a process of Pulumi's; return None if the state is unreachable.

    The state is unreachable in Pulumi's service, and where this process lacks the library for a
    bucket. None as well for a stack that does not exist.
    """
    try:
        project_file = find_project(directory, any_runtime=True)
    except EngineError:
        project_file = None
    try:
        backend = Backend.open(get_backend_url(environ, project_file), environ)
        return BackendRecords(backend, project, stack) if backend.exists(project, stack) else None
    except EngineError:
        return None


@dataclass(slots=True)
class OtherStackObjects:
    """The objects of all other stacks, read at the first question; safe for threads."""

    backend: Backend
    project: str
    stack: str
    _ids: set[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def has(self, id_: str) -> bool:
        """Return True if another stack has the object with the id, or a record of the creation.

        A stack whose state cannot be read counts as having no objects. Raises EngineError if a
        record cannot be read.
        """
        with self._lock:
            if self._ids is None:
                self._ids = self._read()
            return id_ in self._ids

    def _read(self) -> set[str]:
        """Return the ids of objects in the states and intents of all other stacks.

        States that cannot be read are left out. Raises EngineError for an unreadable record.
        """
        own = f"urn:pulumi:{self.stack}::{self.project}::"
        records = read_all_intents(self.backend)
        states = find_owners(self.backend, excluded_stack=build_full_name(self.project, self.stack))
        other_intents = (intent for intent in records if not str(intent.urn).startswith(own))
        created_ids = {id_ for intent in other_intents for id_ in intent.made}
        return created_ids | {entry.id for _, entry in states.resources}


@dataclass(frozen=True, slots=True)
class MovedResources:
    """The full name of the new stack of each resource that `state move` has moved, by old URN."""

    stacks: Mapping[str, str] = field(default_factory=dict)


def read_moved_resources(records: Records) -> Mapping[str, str]:
    """Return the new stack of each resource moved out of the stack, by the old URN.

    Raises EngineError for a damaged record.
    """
    moved = read_record(records, MOVED_RECORD, MovedResources)
    return moved.stacks if moved else {}


def record_moved_resources(
    source: Records, target: Records, names: Mapping[str, str], target_stack: str
) -> None:
    """Record in the source where the moved resources are now, for the source's next plan.

    `names` are the new URNs by the old ones, `target_stack` is a full name. A resource that comes
    back is removed from the record of the target.
    """
    moved = {**read_moved_resources(source), **dict.fromkeys(names, target_stack)}
    source.write(MOVED_RECORD, {"stacks": moved})
    target_moved = read_moved_resources(target)
    remaining = {urn: stack for urn, stack in target_moved.items() if urn not in names.values()}
    if remaining != target_moved:
        target.write(MOVED_RECORD, {"stacks": remaining})


@contextmanager
def move_intents(source: Intents, target: Intents, names: Mapping[str, str]) -> Iterator[None]:
    """Move the records of unfinished creates to new URNs while the context writes the new state.

    Before the context begins, a copy of each intent under its new URN is written, so that a crash
    loses none. If the context succeeds, the old intents are removed. If it raises, the new ones are
    removed, but the target keeps the source's environment.

    Args:
        source: the intents of the old stack.
        target: the intents of the new stack.
        names: the new URN of each old URN; intents of other URNs stay.

    Raises:
        WrongEnvironment: one stack is on real platforms and the other on an emulator, or the two
            are on different emulators or addresses.
    """
    _move_environment(source.records, target.records)
    old = [intent for intent in source.list_all() if intent.urn in names]
    new = [replace(intent, urn=names[intent.urn]) for intent in old if intent.urn]
    for intent in new:
        target.record(intent)
    try:
        yield
    except BaseException:
        target.forget_all(new)
        raise
    source.forget_all(old)


def _move_environment(source: Records, target: Records) -> None:
    """Add the source's environment, if any, to the target's environment.

    Raises WrongEnvironment if the two contradict each other.
    """
    environment, target_environment = read_environment(source), read_environment(target)
    if environment is None or environment == target_environment:
        return
    if target_environment is not None and target_environment.emulated != environment.emulated:
        raise WrongEnvironment(
            "one stack's resources are on the emulator, the other's on real platforms",
            hint="move resources between stacks of the same environment",
        )
    if (
        target_environment is not None
        and target_environment.emulator
        and environment.emulator not in (None, "", target_environment.emulator)
    ):
        raise WrongEnvironment(
            f"one stack's resources are on emulator {environment.emulator}, the other's on "
            f"{target_environment.emulator}",
            hint="move resources between stacks of the same emulator",
        )
    for platform, address in environment.addresses.items():
        target_address = (
            target_environment.addresses.get(platform, address) if target_environment else address
        )
        if target_address != address:
            raise WrongEnvironment(
                f"one stack's {platform} objects are at {address}, the other's at {target_address}",
                hint="move resources between stacks of the same environment",
            )
    addresses = {
        **environment.addresses,
        **(target_environment.addresses if target_environment else {}),
    }
    emulator = (target_environment and target_environment.emulator) or environment.emulator
    record_environment(target, replace(environment, addresses=addresses, emulator=emulator))
