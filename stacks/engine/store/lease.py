"""Lock a bucket with a lease that its owner renews.

A lease is written with If-None-Match and renewed with If-Match, so that it has one owner at a time.
Only the store's clock decides whether the owner is dead: the lease's last change against that of an
object written now. An owner that was stopped and wakes up finds its lease old, renews before
anything else, and is refused when it has a successor. `StackLock` takes the lease of a bucket.
"""

import contextlib
import json
import os
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.store.lock import LockFile, describe_process
from gpuform.stacks.engine.store.storage import (
    ABSENT,
    Blob,
    BlobVersion,
    ChangedMeanwhile,
    Storage,
    StorageFailed,
)
from gpuform.stacks.engine.value_json import load

SECONDS = 60.0
"""How many seconds without a renewal make an owner count as dead.

GPUFORM_LEASE_SECONDS sets another duration; the one in the owner's lease file counts.
"""

_RENEWALS = 4
"""How often an owner renews the lease within its duration."""

_SURE = 0.5
"""The share of the duration after a renewal in which the owner need not ask the store."""


class LeaseLost(EngineError):
    """This process gave no sign of life for too long, and another one has taken its lease."""

    help_page = "guides/state-for-a-team"


class Lease:
    """The lease with a name in a storage."""

    everywhere = True

    def __init__(self, storage: Storage, name: str, environ: Mapping[str, str]) -> None:
        self._storage, self._name = storage, name
        self._seconds = _parse_lease_seconds(environ)
        self._id = str(uuid.uuid4())
        self._beat = 0
        self._version: BlobVersion | None = None
        self._renewed = (0.0, 0.0)
        self._pid = 0
        self._ended = threading.Event()
        # Reentrant: a signal handler may release the lease while this thread renews it.
        self._mutex = threading.RLock()

    def take(self) -> LockAttempt:
        """Try once to take the lease, and renew a taken one in a thread.

        HELD if another process holds it, or takes it at the same time.

        Raises:
            StorageFailed: the store cannot keep a lease; tested only while the stack has none.
        """
        blob = self._storage.read(self._name)
        if blob is not None and not self._is_free(blob):
            return LockAttempt.HELD
        if blob is None:
            # Several requests, so only for a bucket that has no lease of the stack yet.
            self._require_conditional_writes()
        # The store dates the lease at some moment of the request: its beginning is the safe side.
        began = _read_clocks()
        try:
            self._version = self._storage.write(
                self._name, self._encode(), replacing=blob.version if blob else ABSENT
            )
        except ChangedMeanwhile:
            return LockAttempt.HELD
        self._renewed, self._pid = began, os.getpid()
        self._ended.clear()
        threading.Thread(target=self._renew_until_released, name="lease", daemon=True).start()
        return LockAttempt.TAKEN

    def check(self) -> None:
        """Renew an old lease; raise LeaseLost if another process has taken over.

        In the first half of the duration after a renewal, the store is not asked.

        Raises:
            LeaseLost: another process has the lease.
            BackendError: the store does not answer, so that the owner is unknown.
        """
        if self._is_old(_SURE):
            self._renew()
        if self._version is None:
            raise LeaseLost(
                f"the lock {self._storage.locate(self._name)} was lost: this process did not "
                f"renew it for {self._seconds:g} s, and another process took it",
                hint="This process has overwritten nothing of the other's state.",
            )

    def release(self) -> None:
        """Mark the lease as released; without the lease, or in a forked child, do nothing."""
        # A forked child must not release the lock of its parent.
        if self._pid != os.getpid():
            return
        self._ended.set()
        self._pid = 0
        with self._mutex:
            if self._version is not None:
                self._write(released=True)
                self._version = None

    def describe_holder(self) -> str:
        """Describe location, owner and age of the lease as stored now."""
        blob = self._storage.read(self._name)
        where = self._storage.locate(self._name)
        return LockFile.read(self._name, where, blob.data if blob else None).describe()

    def _renew_until_released(self) -> None:
        """Renew the lease regularly until its release; a failed renewal is tried again later."""
        while not self._ended.wait(self._seconds / _RENEWALS):
            # The next renewal tries again; `check` raises if the lease was lost meanwhile.
            with contextlib.suppress(EngineError):
                self._renew()

    def _renew(self) -> None:
        """Write the lease again, if held; a lease taken over by another process is lost."""
        with self._mutex:
            if self._version is not None and not self._ended.is_set():
                began = _read_clocks()
                self._write()
                self._renewed = began

    def _write(self, *, released: bool = False) -> None:
        """Write the lease as renewed or released.

        If another process has written meanwhile, the lease is lost, and nothing is raised.
        """
        # Every renewal has other bytes: the storage takes equal bytes for an earlier try of its
        # own.
        self._beat += 1
        try:
            encoded = self._encode(released=released)
            self._version = self._storage.write(self._name, encoded, replacing=self._version)
        except ChangedMeanwhile:
            self._version = None

    def _is_old(self, share: float) -> bool:
        """Return True if the last renewal is older than this share of the lease, by either clock.

        The monotonic clock stands while the machine sleeps, the other one may be set.
        """
        passed = max(now - then for now, then in zip(_read_clocks(), self._renewed, strict=True))
        return passed > self._seconds * share

    def _is_free(self, blob: Blob) -> bool:
        """Return True if the lease was released, or has not been renewed for its duration."""
        document = _parse_document(blob)
        if document.get("released"):
            return True
        return self._measure_silence(blob) > float(document.get("seconds") or SECONDS)

    def _measure_silence(self, blob: Blob) -> float:
        """Return the seconds since the owner's last sign of life, by the store's clock.

        The clock is read by writing and removing a probe.
        """
        probe = f"{self._name}.clock-{self._id}"
        # The clocks of two machines differ, so both dates have to be the store's.
        self._storage.write(probe, b"")
        try:
            now = self._storage.read(probe)
        finally:
            self._storage.delete(probe)
        return (now.modified - blob.modified).total_seconds() if now else 0.0

    def _require_conditional_writes(self) -> None:
        """Raise StorageFailed if the store ignores If-Match or If-None-Match, as some S3 ones.

        A probe is written and removed.
        """
        probe = f"{self._name}.clock-{self._id}"
        stale = self._storage.write(probe, b"1")
        try:
            # Makes `stale` outdated: from now on the store must refuse it.
            self._storage.write(probe, b"2", replacing=stale)
            for refused in (stale, ABSENT):
                with contextlib.suppress(ChangedMeanwhile):
                    self._storage.write(probe, b"3", replacing=refused)
                    raise StorageFailed(
                        f"{self._storage.locate(self._name)} cannot be used as a lock: the "
                        "store does not support both If-Match and If-None-Match",
                        hint="Upgrade the store, or use another one: two runs at once would "
                        "overwrite each other's state.",
                    )
        finally:
            self._storage.delete(probe)

    def _encode(self, *, released: bool = False) -> bytes:
        """Encode the lease as JSON: owner, id, renewals so far, duration, and whether released."""
        document = {
            **describe_process(),
            "lease": self._id,
            "beat": self._beat,
            "seconds": self._seconds,
            "released": released,
        }
        return json.dumps(document).encode()


def _read_clocks() -> tuple[float, float]:
    """Return the seconds of the monotonic clock and of the system time."""
    return time.monotonic(), time.time()


def _parse_lease_seconds(environ: Mapping[str, str]) -> float:
    """Return GPUFORM_LEASE_SECONDS or the default. Raises EngineError outside of 2 to 3600."""
    setting = environ.get("GPUFORM_LEASE_SECONDS", "")
    try:
        seconds = float(setting) if setting else SECONDS
    except ValueError:
        seconds = 0.0
    if not 2 <= seconds <= 3600:
        raise EngineError(f"GPUFORM_LEASE_SECONDS is {setting!r}", hint="Set 2 to 3600 seconds.")
    return seconds


def _parse_document(blob: Blob) -> dict[str, Any]:
    """Return the lease's document; empty for a damaged one."""
    try:
        document = load(blob.data)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
