"""Lock a bucket by one object that its owner keeps renewing, and find which stack of a backend owns
an object.

It is made with If-None-Match and renewed with If-Match, so that it has one owner at a time. Whether
the owner is dead is judged by the store's clock alone: the lease's last change against that of an
object written now. An owner that was stopped and wakes up finds its lease old, renews it before
anything else, and is refused when it has a successor.

Read without any passphrase: of a secret nothing is known here but that it is one.
"""

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.state import (
    JournalError,
    ResourceState,
    Snapshot,
    journal,
    load_checkpoint,
)
from gpuform.stacks.engine.store.backend import Backend
from gpuform.stacks.engine.store.lock import LockFile, owner
from gpuform.stacks.engine.store.storage.protocol import (
    ABSENT,
    Blob,
    ChangedMeanwhile,
    Storage,
    StorageFailed,
    Version,
)
from gpuform.stacks.engine.urn import is_provider
from gpuform.stacks.engine.values import load

SECONDS = 60.0
"""After that long without a sign of life an owner is dead. GPUFORM_LEASE_SECONDS is another time,
of which the owner's counts."""

_RENEWALS = 4  # in that time
_SURE = 0.5  # of it an owner is sure without asking


class LeaseLost(EngineError):
    """This process was silent for too long, and another one has taken its place."""

    help_page = "guides/state-for-a-team"


class Lease:
    """The lease with a name in a storage."""

    everywhere = True

    def __init__(self, storage: Storage, name: str, environ: Mapping[str, str]) -> None:
        self._storage, self._name = storage, name
        self._seconds = _seconds(environ)
        self._id = str(uuid.uuid4())
        self._beat = 0
        self._version: Version | None = None
        self._renewed = (0.0, 0.0)
        self._pid = 0
        self._ended = threading.Event()
        self._mutex = threading.RLock()  # a signal may release what is being renewed

    def take(self) -> LockAttempt:
        found = self._storage.read(self._name)
        if found is not None and not self._is_free(found):
            return LockAttempt.HELD
        if found is None:
            self._prove_conditions()
        began = _now()
        try:
            self._version = self._storage.write(
                self._name, self._text(), replacing=found.version if found else ABSENT
            )
        except ChangedMeanwhile:
            return LockAttempt.HELD
        self._renewed, self._pid = began, os.getpid()
        self._ended.clear()
        threading.Thread(target=self._keep, name="lease", daemon=True).start()
        return LockAttempt.TAKEN

    def check(self) -> None:
        """Raises LeaseLost, or BackendError when that cannot be told."""
        if self._is_old(_SURE):
            self._renew()
        if self._version is None:
            raise LeaseLost(
                f"the lock {self._storage.where(self._name)} was lost: this process gave no sign "
                f"of life for {self._seconds:g} s, and another one has taken over",
                hint="Nothing was written over what that one writes.",
            )

    def release(self) -> None:
        if self._pid != os.getpid():
            return
        self._ended.set()
        self._pid = 0
        with self._mutex:
            if self._version is not None:
                self._write(released=True)
                self._version = None

    def holder(self) -> str:
        found = self._storage.read(self._name)
        where = self._storage.where(self._name)
        return LockFile.read(self._name, where, found.data if found else None).describe()

    def _keep(self) -> None:
        while not self._ended.wait(self._seconds / _RENEWALS):
            with contextlib.suppress(EngineError):  # it is tried again, and `check` tells
                self._renew()

    def _renew(self) -> None:
        with self._mutex:
            if self._version is not None and not self._ended.is_set():
                began = _now()
                self._write()
                self._renewed = began

    def _write(self, *, released: bool = False) -> None:
        self._beat += 1
        try:
            text = self._text(released=released)
            self._version = self._storage.write(self._name, text, replacing=self._version)
        except ChangedMeanwhile:
            self._version = None

    def _is_old(self, share: float) -> bool:
        """By both clocks: one stands while the machine sleeps, the other may be set."""
        passed = max(now - then for now, then in zip(_now(), self._renewed, strict=True))
        return passed > self._seconds * share

    def _is_free(self, found: Blob) -> bool:
        document = _document(found)
        if document.get("released"):
            return True
        return self._silence(found) > float(document.get("seconds") or SECONDS)

    def _silence(self, found: Blob) -> float:
        """Seconds since the owner's last sign of life, by the store's clock."""
        probe = f"{self._name}.clock-{self._id}"
        self._storage.write(probe, b"")
        try:
            now = self._storage.read(probe)
        finally:
            self._storage.delete(probe)
        return (now.modified - found.modified).total_seconds() if now else 0.0

    def _prove_conditions(self) -> None:
        """Not every store that speaks S3 honours conditions, and one that does not is refused."""
        probe = f"{self._name}.clock-{self._id}"
        stale = self._storage.write(probe, b"1")
        try:
            self._storage.write(probe, b"2", replacing=stale)
            for refused in (stale, ABSENT):
                with contextlib.suppress(ChangedMeanwhile):
                    self._storage.write(probe, b"3", replacing=refused)
                    raise StorageFailed(
                        f"{self._storage.where(self._name)} cannot be a lock: the store honours "
                        "neither If-Match nor If-None-Match, or only one of them",
                        hint="Bring the store up to date, or use another one: two runs at once "
                        "would write over each other's state.",
                    )
        finally:
            self._storage.delete(probe)

    def _text(self, *, released: bool = False) -> bytes:
        document = {
            **owner(),
            "lease": self._id,
            "beat": self._beat,
            "seconds": self._seconds,
            "released": released,
        }
        return json.dumps(document).encode()


def _now() -> tuple[float, float]:
    return time.monotonic(), time.time()


def _seconds(environ: Mapping[str, str]) -> float:
    given = environ.get("GPUFORM_LEASE_SECONDS", "")
    try:
        seconds = float(given) if given else SECONDS
    except ValueError:
        seconds = 0.0
    if not 2 <= seconds <= 3600:
        raise EngineError(f"GPUFORM_LEASE_SECONDS is {given!r}", hint="Give 2 to 3600 seconds.")
    return seconds


def _document(found: Blob) -> dict[str, Any]:
    try:
        document = load(found.data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


ATTEMPTS = 3


class UnreadableStack(EngineError):
    """It is not known what a stack has."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class Owners:
    """The objects of a backend's stacks, those of interrupted runs among them.

    `resources` are the entries that stand for an object, each with the full name of its stack;
    `unreadable` says why nothing is known of a stack.
    """

    resources: list[tuple[str, ResourceState]] = field(default_factory=list)
    unreadable: list[UnreadableStack] = field(default_factory=list)


class OtherStacks:
    """The stacks of a backend beside one of them, whose run may import what they do not have."""

    def __init__(self, backend: Backend, stack: str) -> None:
        self._backend = backend
        self._stack = stack
        self._lock = backend.import_lock

    def owners(self, *, claim: bool) -> Owners:
        """What they have. With `claim` none of them imports anything before `release`.

        Raises EngineError where one of them does so at the moment.
        """
        if claim and self._lock.take() is LockAttempt.HELD:
            raise EngineError(
                f"another command is importing into a stack of {self._backend.url}",
                hint="run it again when that has ended",
            )
        return owners(self._backend, self._stack)

    def release(self) -> None:
        """What was claimed is in the state."""
        self._lock.release()


def owners(backend: Backend, besides: str = "") -> Owners:
    """Those of all stacks, or of all `besides` the one of this full name."""
    found = Owners()
    for stack in backend.stacks():
        if stack == besides:
            continue
        try:
            entries = _whole(backend, *stack.split("/")[1:])
        except EngineError as error:
            found.unreadable.append(
                UnreadableStack(
                    f"it is not known what stack {stack} has: {error.message}", error.hint
                )
            )
        else:
            found.resources.extend((stack, entry) for entry in entries)
    return found


def _whole(backend: Backend, project: str, name: str) -> list[ResourceState]:
    """A run may write between a look at the state and one at its journal: then once more."""
    for _ in range(ATTEMPTS - 1):
        with suppress(JournalError):
            return list(_entries(backend, project, name))
    return list(_entries(backend, project, name))


def _entries(backend: Backend, project: str, name: str) -> Iterator[ResourceState]:
    data = backend.read(project, name)
    if data is None:
        return  # it was removed meanwhile
    snapshot = Snapshot.from_json(load_checkpoint(data), _Blind())
    recovered = journal.recover(backend.journal(project, name), data, snapshot, _Blind())
    lost = [
        entry for each in recovered.orphaned_journals for entry in each.find_lost_objects(snapshot)
    ]
    for entry in (*recovered.snapshot.resources, *lost):
        # A replaced object that is gone already has its entry until the new one is there.
        is_object = entry.custom and entry.id and not is_provider(entry.type)
        if is_object and not entry.external and not entry.pending_replacement:
            yield entry


class _Blind:
    """Reads secrets as nothing at all."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        raise AssertionError(f"nothing is written ({len(plaintext)}, {previous})")

    def decrypt(self, ciphertext: str) -> str:  # noqa: ARG002 - as a Crypter has it
        return "null"
