"""Keep a stack's records beside its state, under its lock, with one write for all records that
wait.

They follow resources that get other URNs.

They are in `.pulumi/gpuform/<project>/<stack>.records/`, where the Pulumi CLI does not look.

A batch is an object that holds records by name; null is one that was removed. Later batches count
before earlier ones. One in which nothing counts any more is removed, the earlier ones first, so
that nothing that was removed comes back.
"""

import json
import threading
import time
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuform.providers.environment import WrongEnvironment, read_environment, record_environment
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import (
    INTENT_PREFIX,
    Fields,
    Intent,
    Intents,
    Records,
    StoredObjects,
    build_record,
    parse_record,
)
from gpuform.stacks.engine.errors import EngineError
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

MANY = 64
"""So many batches become one: who reads them asks for each."""
_SUFFIX = ".json"

Change = Mapping[str, Fields | None]


class Batches:
    """The batches in a folder of a storage; not safe for threads.

    `current` is what counts of each record.
    """

    def __init__(self, storage: Storage, folder: str) -> None:
        self._storage = storage
        self._folder = folder
        self._names: dict[str, set[str]] = {}  # by batch, in their order
        self._holders: dict[str, list[str]] = {}  # by record, its batches in their order
        self._needed: dict[str, str | None] = {}  # by record, the batch that is kept for it
        self._needs: dict[str, int] = {}  # by batch, for how many records it is kept
        self._touched: set[str] = set()
        self.current: dict[str, Fields | None] = {}

    def read(self) -> None:
        """Reads what is there. Raises GpuformError for a batch that is damaged."""
        for entry in self._storage.entries(self._folder):
            found = self._storage.read(entry.name) if entry.name.endswith(_SUFFIX) else None
            if found is not None:
                self._take(entry.name, parse_record(found.data, self._storage.where(entry.name)))

    def write(self, change: Change) -> None:
        """Keeps a batch, and removes those that it has made needless."""
        if len(self._names) >= MANY:
            change = {**{k: v for k, v in self.current.items() if v is not None}, **change}
        name = f"{self._folder}/{time.time_ns():020d}-{uuid.uuid4().hex[:8]}{_SUFFIX}"
        last = next(reversed(self._names), "")
        if name <= last:  # the clock was put back
            name = f"{last.removesuffix(_SUFFIX)}+{_SUFFIX}"
        self._storage.write(name, json.dumps(change, indent=1).encode())
        self._take(name, change)
        while needless := sorted(batch for batch in self._touched if not self._needs[batch]):
            self._storage.delete(*needless)
            self._drop(needless)
        self._touched = set()

    def _take(self, batch: str, change: Change) -> None:
        self.current.update(change)
        self._names[batch], self._needs[batch] = set(change), 0
        self._touched.add(batch)
        for name in change:
            self._holders.setdefault(name, []).append(batch)
            self._weigh(name)

    def _drop(self, needless: Collection[str]) -> None:
        self._touched = set()
        names = [name for batch in needless for name in self._names.pop(batch)]
        for batch in needless:
            del self._needs[batch]
        for name in names:
            left = [batch for batch in self._holders[name] if batch in self._names]
            self._holders[name] = left
            if left:
                self._weigh(name)
            else:
                del self._holders[name], self._needed[name], self.current[name]

    def _weigh(self, name: str) -> None:
        """The last batch is kept for a record: for ever, or while an earlier one has what was
        removed."""
        holders, before = self._holders[name], self._needed.get(name)
        is_kept = self.current[name] is not None or len(holders) > 1
        after = holders[-1] if is_kept else None
        self._needed[name] = after
        for batch, more in ((before, -1), (after, 1)):
            if batch in self._needs:
                self._needs[batch] += more
        self._touched |= {batch for batch in (before, holders[-1]) if batch in self._needs}


class GroupCommit:
    """Lets many threads write batches: those that come while one is written share the next."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._lock = threading.Lock()
        self._waiting = _Round(threading.Condition(self._lock))
        self._is_writing = False

    def write(self, change: Change) -> None:
        """Returns when it is kept. Raises what the write of its batch has raised."""
        with self._lock:
            round_ = self._waiting
            round_.change.update(change)
            try:
                round_.news.wait_for(lambda: round_.is_over or not self._is_writing)
            except BaseException:
                round_.news.notify()  # another one has to lead
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
        try:
            self._batches.write(round_.change)
        except BaseException as error:  # noqa: BLE001 - raised by all who share the batch
            round_.error = error
        finally:
            with self._lock:
                self._is_writing, round_.is_over = False, True
                round_.news.notify_all()
                self._waiting.news.notify()


@dataclass(eq=False, slots=True)
class _Round:
    """What is written together; `news` tells its threads that it is over, or one to lead."""

    news: threading.Condition
    change: dict[str, Fields | None] = field(default_factory=dict)
    is_over: bool = False
    error: BaseException | None = None


@contextmanager
def errors_of_providers() -> Iterator[None]:
    """Turns the engine's errors into such as a provider may raise."""
    try:
        yield
    except EngineError as error:
        raise GpuformError(error.message, hint=error.hint) from None


@contextmanager
def errors_of_engine() -> Iterator[None]:
    """Turns what records raise into errors of the engine."""
    try:
        yield
    except GpuformError as error:
        raise EngineError(error.message, error.hint) from None


class BackendRecords:
    """The records of one stack. They are read once: the stack's lock keeps others out."""

    def __init__(self, backend: Backend, project: str, stack: str) -> None:
        self._backend = backend
        self._project = project
        self._stack = stack
        self._lock = threading.Lock()
        self._batches = Batches(backend.storage, backend.get_records_folder(project, stack))
        self._commit = GroupCommit(self._batches)
        self._kept: dict[str, Fields] | None = None

    @property
    def place(self) -> str:
        folder = self._backend.get_records_folder(self._project, self._stack)
        return self._backend.storage.where(folder)

    def names(self) -> list[str]:
        """The records that there are now."""
        with self._lock:
            return list(self._read())

    def read(self, name: str) -> Fields | None:
        """One record."""
        with self._lock:
            return self._read().get(name)

    def write(self, name: str, fields: Fields) -> None:
        """Raises GpuformError when the stack's lock is another's by now."""
        self._write({name: fields})

    def delete(self, *names: str) -> None:
        """Raises GpuformError when the stack's lock is another's by now."""
        there = set(self.names())
        change = {name: None for name in names if name in there}
        if change:
            self._write(change)

    def add(self, name: str, fields: Fields) -> None:
        """Keep a new record, also when the stack's lock is another's by now."""
        # What others have kept is not read: this batch stands beside theirs and replaces none.
        folder = self._backend.get_records_folder(self._project, self._stack)
        with errors_of_providers():
            Batches(self._backend.storage, folder).write({name: fields})

    def stored(self) -> StoredObjects | None:
        """What the stack's checkpoint has."""
        with errors_of_providers():
            data = self._backend.read(self._project, self._stack)
            latest = load_checkpoint(data).latest if data else {}
        return [
            (str(each.get("urn")), str(each["id"]))
            for each in latest.get("resources") or ()
            if each.get("id") and not each.get("pendingReplacement")
        ]

    def _write(self, change: Change) -> None:
        with self._lock:
            self._read()
        with errors_of_providers():
            self._backend.check_lock(self._project, self._stack)
            self._commit.write(change)
        with self._lock:
            kept = self._read()
            for name, fields in change.items():
                if fields is None:
                    kept.pop(name, None)
                else:
                    kept[name] = fields

    def _read(self) -> dict[str, Fields]:
        """The records, with the lock held."""
        if self._kept is None:
            with errors_of_providers():
                self._batches.read()
            self._kept = _there(self._batches)
        return self._kept


def _there(batches: Batches) -> dict[str, Fields]:
    return {name: fields for name, fields in batches.current.items() if fields is not None}


def intents_of(backend: Backend, project: str, stack: str) -> Intents:
    """The intents of a stack, as they are now."""
    return Intents(BackendRecords(backend, project, stack))


def all_intents(backend: Backend) -> list[Intent]:
    """Those of every stack of a backend, also of stacks that are no more."""
    folders = set()
    for entry in backend.storage.entries(layout.build_name("gpuform")):
        folder, is_batch, _ = entry.name.rpartition(".records/")
        if is_batch:
            folders.add(f"{folder}.records")
    found = []
    for folder in sorted(folders):
        batches = Batches(backend.storage, folder)
        batches.read()
        there = _there(batches)
        names = (name for name in there if name.startswith(INTENT_PREFIX))
        found += [build_record(there[name], Intent, f"{name} in {folder}") for name in names]
    return found


def records_for_host(
    project: str, stack: str, directory: Path, environ: Mapping[str, str]
) -> Records | None:
    """Those of a stack, for a process of Pulumi's; None where its state cannot be reached.

    Then the state is in a service, or this process lacks what reads its bucket.
    """
    try:
        found = find_project(directory, any_runtime=True)
    except EngineError:
        found = None
    try:
        backend = Backend.open(get_backend_url(environ, found), environ)
        return BackendRecords(backend, project, stack) if backend.exists(project, stack) else None
    except EngineError:
        return None


@dataclass(slots=True)
class Elsewhere:
    """The objects of all stacks beside one, read when somebody asks first; safe for threads."""

    backend: Backend
    project: str
    stack: str
    _ids: set[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def has(self, id_: str) -> bool:
        """Whether another stack has an object, or a record of having made it."""
        with self._lock:
            if self._ids is None:
                self._ids = self._read()
            return id_ in self._ids

    def _read(self) -> set[str]:
        own = f"urn:pulumi:{self.stack}::{self.project}::"
        with errors_of_providers():
            records = all_intents(self.backend)
            states = find_owners(
                self.backend, excluded_stack=build_full_name(self.project, self.stack)
            )
        theirs = (each for each in records if not str(each.urn).startswith(own))
        made = {id_ for each in theirs for id_ in each.made}
        return made | {entry.id for _, entry in states.resources}


@contextmanager
def intents_follow(source: Intents, target: Intents, names: Mapping[str, str]) -> Iterator[None]:
    """Around the writing of a state in which URNs change, old -> new; `target` is the new stack's.

    Both are kept meanwhile; in the end those of the state that was written. Raises EngineError when
    the two stacks live in different worlds.
    """
    with errors_of_engine():
        _follow_world(source.records, target.records)
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


def _follow_world(source: Records, target: Records) -> None:
    world, known = read_environment(source), read_environment(target)
    if world is None or world == known:
        return
    if known is not None and known.emulated != world.emulated:
        raise WrongEnvironment(
            "one of the two stacks lives on the emulator, the other one on real platforms",
            hint="move resources between stacks of one world",
        )
    if known is not None and known.emulator and world.emulator not in (None, "", known.emulator):
        raise WrongEnvironment(
            f"one stack lives on emulator {world.emulator}, the other one on {known.emulator}",
            hint="move resources between stacks of one emulator",
        )
    for platform, address in world.addresses.items():
        there = known.addresses.get(platform, address) if known else address
        if there != address:
            raise WrongEnvironment(
                f"one stack's objects of {platform} are at {address}, the other one's at {there}",
                hint="move resources between stacks of one world",
            )
    addresses = {**world.addresses, **(known.addresses if known else {})}
    emulator = (known and known.emulator) or world.emulator
    record_environment(target, replace(world, addresses=addresses, emulator=emulator))
