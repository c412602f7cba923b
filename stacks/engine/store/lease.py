"""The lock of a bucket: one object that its owner writes again and again while it lives.

It is made with If-None-Match and renewed with If-Match, so that it has one owner at a time. Whether
the owner is dead is judged by the store's clock alone: the lease's last change against that of an
object written now. An owner that was stopped and wakes up finds its lease old, renews it before
anything else, and is refused when it has a successor.
"""

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.store.lock_files import LockFile, owner
from gpuform.stacks.engine.store.storage.protocol import (
    ABSENT,
    Blob,
    ChangedMeanwhile,
    Storage,
    StorageFailed,
    Version,
)
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
