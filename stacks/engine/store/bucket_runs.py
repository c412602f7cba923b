"""Store what a run leaves in a bucket: a lease as the lock of the stack, and a journal in segments.

A lease is written with If-None-Match and renewed with If-Match, so that it has one owner at a time.
Only the store's clock decides whether the owner is dead: the lease's last change against that of an
object written now. An owner that was stopped and wakes up finds its lease old, renews before
anything else, and is refused when it has a successor.

A create starts once a segment in the bucket names it as pending. A reader of the checkpoint alone,
like the Pulumi CLI, finds the pending operations of the first create of the run, and of at most
`WritePacing.max_idle_spacing` seconds before its end: a checkpoint for every group of creates would
send the complete state again and again. Until a person gives up the lock that an interrupted run
leaves (`pulumi cancel`), the Pulumi CLI does not continue from there; gpuform reads the journal
first.

Segments that the store refuses are in a local file. Each line of the file is JSON: the run, the
number of the segment in its journal, and the segment's lines. `Objects` creates lease and log;
`gpuform state recover` reads the file.
"""

import contextlib
import gzip
import json
import os
import threading
import time
import uuid
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.state import JournalError, WritePacing
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

_LEASE_SECONDS = 60.0
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
        """Renew the lease regularly until the release; a failed renewal is repeated later."""
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
        """Return True if the lease was released, or was not renewed for the lease's duration."""
        document = _parse_document(blob)
        if document.get("released"):
            return True
        return self._measure_silence(blob) > float(document.get("seconds") or _LEASE_SECONDS)

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
        seconds = float(setting) if setting else _LEASE_SECONDS
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


class UnsavedRun(EngineError):
    """A run ended whose state is still on this machine."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class UnsavedSegment:
    """One segment of a journal that the store may not have."""

    journal: str
    run: str
    number: int
    lines: bytes


@dataclass(frozen=True, slots=True)
class UnsavedFile:
    """The local file at `path` for the segments of the run whose journal is at `journal`."""

    path: Path
    journal: str

    @property
    def advice(self) -> str:
        """Return a message with the file's path and the command to store the file's changes."""
        return (
            f"The later changes of this run are saved in {self.path}: when the store answers "
            "again, run `gpuform state recover`."
        )

    def append(self, run: str, number: int, lines: bytes) -> None:
        """Append a journal segment and sync the file to this machine's disk.

        Raises JournalError.
        """
        document = {"journal": self.journal, "run": run, "number": number, "lines": lines.decode()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # The lines are parts of the state: only this user may read them.
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(json.dumps(document).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise JournalError(
                "the changes of this run can be written neither to the store nor to "
                f"{self.path}: {error.strerror}",
                hint="Compare the state with the platform before the next run: `gpuform refresh`.",
            ) from error

    def remove(self) -> None:
        """Remove the local file of unsaved journal lines; a missing file is no error."""
        self.path.unlink(missing_ok=True)

    def read_segments(self) -> list[UnsavedSegment]:
        """Read the segments; without a file there are none. Raises JournalError.

        An incomplete last line of a crashed run is skipped.
        """
        try:
            content = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise JournalError(f"{self.path} cannot be read: {error}") from error
        try:
            # The last part is empty, or a line cut off by a crash.
            return [_parse_part(line) for line in content.split("\n")[:-1]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise JournalError(
                f"{self.path} is damaged: {error}",
                hint="Compare the state with the platform and import the objects that exist. Then "
                "remove the file.",
            ) from error


def reject_unsaved_run(path: Path) -> None:
    """Raise UnsavedRun if there is an unsaved run at `path`."""
    if path.exists():
        raise UnsavedRun(
            f"the last run here could not write its state: its changes are in {path}",
            hint="Run `gpuform state recover` first.",
        )


def _parse_part(line: str) -> UnsavedSegment:
    """Parse a line of the local file into a segment of a journal."""
    document = load(line)
    return UnsavedSegment(
        document["journal"], document["run"], document["number"], document["lines"].encode()
    )


class SegmentLog:
    """A journal log in a bucket; each run writes to its own folder.

    So an owner that was stopped and wakes up neither changes nor removes the segments of its
    successor. Segments that the store refuses go to `unsaved`, and `check` raises from then on.
    """

    pace = WritePacing(
        group_commit_delay=0.03,
        # d seconds of writing and 99 d of pause: each checkpoint sends the complete state again
        checkpoint_spacing_factor=99.0,
        max_idle_spacing=60.0,
        logs_suffice=True,
    )

    def __init__(
        self,
        storage: Storage,
        name: str,
        guard: Callable[[], None],
        unsaved: UnsavedFile | None = None,
    ) -> None:
        self._storage, self._name = storage, name
        self._guard, self._unsaved = guard, unsaved
        self._run = uuid.uuid4().hex
        self._count = 0
        self._failure: EngineError | None = None

    @property
    def where(self) -> str:
        """Return the location of the log's folder in the bucket, for messages."""
        return self._storage.locate(self._name)

    def read(self) -> bytes:
        """Return the lines of all runs, of each run up to the first missing segment."""
        return b"".join(
            lines for run in sorted(self.list_runs()) for lines in self.read_segments(run)
        )

    def list_runs(self) -> set[str]:
        """Return the runs with segments in the bucket; usually one at most."""
        return {name.split("/")[-2] for name in self._list_names()}

    def read_segments(self, run: str) -> list[bytes]:
        """Return the lines of a run's segments up to the first missing one. Raises JournalError."""
        segments: list[bytes] = []
        while (
            blob := self._storage.read(self._build_segment_name(run, len(segments)))
        ) is not None:
            segments.append(self._decompress(run, len(segments), blob.data))
        return segments

    def append(self, data: bytes) -> None:
        """Append lines as the next segment, or to the local file if the store refuses the segment.

        After a first refusal all later lines go to the local file.

        Raises:
            JournalError: neither the store nor the local file takes the lines.
            EngineError: the store refuses the lines and there is no local file.
        """
        if self._failure is None:
            try:
                self._write_segment(data)
            except EngineError as error:
                # Later segments go to the local file too: readers stop at the first missing one.
                self._failure = error
        if self._failure is not None:
            if self._unsaved is None:
                raise self._failure
            self._unsaved.append(self._run, self._count, data)
        self._count += 1

    def check(self) -> None:
        """Raise EngineError if the store has refused a segment, or the lock is lost."""
        if self._failure is not None:
            raise EngineError(
                f"the state cannot be stored: {self._failure.message}",
                hint="\n".join(filter(None, [self._failure.hint, self.close()])),
            )
        self._guard()

    def close(self) -> str:
        """Return a line for the user on where the changes of this run are."""
        if self._failure is None or self._unsaved is None:
            return (
                f"The changes of this run are in its journal {self.where}: the next command "
                "continues from there."
            )
        return self._unsaved.advice

    def remove(self) -> None:
        """Remove the journal's segments listed before the guard's check.

        Later ones belong to a successor. Also removes the local file. Raises EngineError, with
        nothing removed, if the lock is lost.
        """
        names = self._list_names()
        self._guard()
        if self._unsaved is not None:
            self._unsaved.remove()
        self._storage.delete(*names)

    def set_aside(self) -> str | None:
        """Move the segments to another name and return the new location, or None without segments.

        The local file stays.
        """
        names = self._list_names()
        if not names:
            return None
        backup_name = f"{self._name}.{time.time_ns()}"
        for name in names:
            self._storage.copy(name, f"{backup_name}{name.removeprefix(self._name)}")
        self._storage.delete(*names)
        return self._storage.locate(backup_name)

    def _write_segment(self, data: bytes) -> None:
        """Write the next segment while the lock is held; a segment written too late is removed.

        Raises:
            EngineError: the store refuses it, or the lock was lost.
        """
        name = self._build_segment_name(self._run, self._count)
        # mtime=0: equal lines give equal bytes, so that the storage recognizes a repeated request.
        packed = gzip.compress(data, 6, mtime=0)
        self._guard()
        self._storage.write(name, packed, replacing=ABSENT)
        try:
            # Only a lock that is still held now proves that the segment was written in time for a
            # successor to read it.
            self._guard()
        except EngineError:
            with contextlib.suppress(EngineError):
                self._storage.delete(name)
            raise

    def _decompress(self, run: str, number: int, data: bytes) -> bytes:
        """Return the segment's lines. Raises JournalError for a damaged one."""
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            where = self._storage.locate(self._build_segment_name(run, number))
            raise JournalError(
                f"{where} is not a part of a journal: {error}",
                hint="Discard its changes with `gpuform state repair --discard-journal`.",
            ) from error

    def _build_segment_name(self, run: str, number: int) -> str:
        """Build the name of a run's segment, with the number in eight digits."""
        return f"{self._name}/{run}/{number:08d}"

    def _list_names(self) -> list[str]:
        """Return the names of all segments of all runs, sorted."""
        return [entry.name for entry in self._storage.list_entries(self._name)]
