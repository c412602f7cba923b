"""Keep a stack's records in the backend beside its state, under its lock.

They follow resources that get other URNs.

They are in `.pulumi/gpuform/<project>/<stack>.records/`, where the Pulumi CLI does not look.
"""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuform.providers.environment import WrongEnvironment, read_environment, record_environment
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import INTENT_PREFIX, Fields, Intent, Intents, Records, Stored, typed
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import find_project
from gpuform.stacks.engine.records.batches import Batches, Change, GroupCommit
from gpuform.stacks.engine.state import load_checkpoint
from gpuform.stacks.engine.store import Backend, backend_url, full_name, layout, owners


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
        self._batches = Batches(backend.storage, backend.folder_of_records(project, stack))
        self._commit = GroupCommit(self._batches)
        self._kept: dict[str, Fields] | None = None

    @property
    def place(self) -> str:
        folder = self._backend.folder_of_records(self._project, self._stack)
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
        folder = self._backend.folder_of_records(self._project, self._stack)
        with errors_of_providers():
            Batches(self._backend.storage, folder).write({name: fields})

    def stored(self) -> Stored | None:
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
    for entry in backend.storage.entries(layout.folder("gpuform")):
        folder, is_batch, _ = entry.name.rpartition(".records/")
        if is_batch:
            folders.add(f"{folder}.records")
    found = []
    for folder in sorted(folders):
        batches = Batches(backend.storage, folder)
        batches.read()
        there = _there(batches)
        names = (name for name in there if name.startswith(INTENT_PREFIX))
        found += [typed(there[name], Intent, f"{name} in {folder}") for name in names]
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
        backend = Backend.open(backend_url(environ, found), environ)
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
            states = owners(self.backend, besides=full_name(self.project, self.stack))
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
    old = [intent for intent in source.all() if intent.urn in names]
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
