"""Append a run's journal to the store, with one write for all waiting steps (group commit).

Changes are logged at once. Checkpoints are spaced by `WritePacing`, on a disk so that they take a
tenth of the time at most: the cost of a run stays linear however large the state is. When all
running work waits for a checkpoint, a delay would gain nothing and the checkpoint is written at
once. `SnapshotManager` calls `StateWriter`; stores implement `Log`.
"""

import heapq
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Literal, Protocol

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import replace_file


class JournalError(EngineError):
    """A journal that cannot be written, or that this version of gpuform cannot read."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class WritePacing:
    """How often a run writes journal lines and checkpoints, in seconds.

    `group_commit_delay` is how long a line waits for others to be written together. After a
    checkpoint that took d seconds, the next one waits `checkpoint_spacing_factor` times d, and at
    most `max_idle_spacing` seconds when nobody waits for it; the first ones come sooner. A create
    waits for a checkpoint that names it, or, with `logs_suffice` and after the run's first
    checkpoint, for the journal alone.
    """

    group_commit_delay: float = 0.0
    # d seconds of writing and 9 d of pause: a tenth of the time
    checkpoint_spacing_factor: float = 9.0
    max_idle_spacing: float = 1.0
    logs_suffice: bool = False


class ReadableLog(Protocol):
    """The stored lines of journals."""

    @property
    def where(self) -> str:
        """Return the location of the lines, for messages."""

    def read(self) -> bytes:
        """Return all lines in order, or b"" without lines."""


class Log(ReadableLog, Protocol):
    """The journal lines of one run, and the lines that an earlier run may have left."""

    @property
    def pace(self) -> WritePacing:
        """Return how often a run writes lines and checkpoints to this storage."""

    def append(self, data: bytes) -> None:
        """Append journal lines of this run to the log.

        In a file, the first append replaces the lines of earlier runs.
        """

    def check(self) -> None:
        """Raise EngineError if the run must not begin another operation."""

    def close(self) -> str:
        """Close the log, keep the lines, and return a note for the user on location and use.

        The note may be empty.
        """

    def remove(self) -> None:
        """Remove all lines of the journal: the checkpoint has every change."""

    def set_aside(self) -> str | None:
        """Move the lines to a backup and return the path of the backup, or None without lines."""


class FileLog:
    """A journal log in a file."""

    pace = WritePacing()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    @property
    def where(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        """Return the file's lines, empty without a file. Raises JournalError."""
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise JournalError(
                f"the journal {self.path} cannot be read: {error.strerror}"
            ) from error

    def append(self, data: bytes) -> None:
        """Append journal lines and sync the file to disk. Raises JournalError.

        The first lines replace the file of an earlier run, whose changes are in the checkpoint by
        now.
        """
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                # The first write replaces the journal of an earlier run in one step: `recover` has
                # put its changes into the checkpoint by now.
                replace_file(self.path, data)
                self._file = self.path.open("ab")
            else:
                self._file.write(data)
                self._file.flush()
                # Without the sync a crash of the machine would lose the ids of created objects.
                os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(
                f"the journal {self.path} cannot be written: {error.strerror or error}",
                hint="Free some disk space or fix the permissions, and run the command again: "
                "the last checkpoint is unchanged.",
            ) from error

    def check(self) -> None:
        """Do nothing: no other run takes a file over, and a failed write raises."""

    def close(self) -> str:
        """Close the file, and return an empty note: there is nothing to tell the user."""
        if self._file is not None:
            self._file.close()
            self._file = None
        return ""

    def remove(self) -> None:
        """Close the log and delete the file; a missing file is no error."""
        self.close()
        self.path.unlink(missing_ok=True)

    def set_aside(self) -> str | None:
        """Rename the file and return the new path, or None without a file."""
        if not self.path.exists():
            return None
        backup_path = self.path.with_name(f"{self.path.name}.{time.time_ns()}")
        self.path.replace(backup_path)
        return str(backup_path)


# Seconds until the first checkpoint that nobody waits for; each checkpoint doubles the time, up to
# `WritePacing.max_idle_spacing`.
_FIRST_IDLE = 0.5

_Action = Literal["log", "write", "end"]


@dataclass(slots=True)
class _WaitQueue:
    """The steps that wait for a change. Each is woken once: there may be a thousand."""

    _waiting: list[tuple[int, int, threading.Event]] = field(default_factory=list)
    _joined: int = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, change: int) -> threading.Event:
        """Return an event, set when `change` or a later change is stored."""
        stored = threading.Event()
        self._joined += 1
        heapq.heappush(self._waiting, (change, self._joined, stored))
        return stored

    def release(self, change: int) -> None:
        """Wake the steps waiting for `change` or an earlier change."""
        while self._waiting and self._waiting[0][0] <= change:
            heapq.heappop(self._waiting)[-1].set()


@dataclass(slots=True)
class StateWriter:
    """Calls `log` after each group of changes, and `write` sometimes and at the end, on a thread.

    A failed write is tried once more, at the end. When a checkpoint fails, logging continues.
    """

    log: Callable[[], None]
    write: Callable[[], None]
    pace: WritePacing = field(default_factory=WritePacing)
    _changes: int = 0
    _logged: int = 0
    _written: int = 0
    _working: int = 0
    _for_checkpoint: _WaitQueue = field(default_factory=_WaitQueue)
    _for_log: _WaitQueue = field(default_factory=_WaitQueue)
    _error: EngineError | None = None
    _log_failed: bool = False
    _checkpoints: int = 0
    _closing: bool = False
    _began: float = 0.0
    _took: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _wakeup: threading.Condition = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._wakeup = threading.Condition(self._lock)
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="state", daemon=True)
        self._thread.start()

    def request_write(self) -> int:
        """Request a write of all changes so far; return the number of the last change."""
        with self._lock:
            self._changes += 1
            self._wakeup.notify()
            return self._changes

    def check(self) -> None:
        """Raise EngineError if the last write of the state failed."""
        if self._error is not None:
            raise self._error

    def wait_durable(self, change: int) -> None:
        """Wait until the operation begun with `change` is stored in a checkpoint.

        The journal suffices if the pacing allows it and this run has written a checkpoint.

        Raises:
            EngineError: the change cannot be stored.
        """
        with self._lock:
            in_log = self.pace.logs_suffice and self._checkpoints > 0
            stored_change = max(self._logged, self._written) if in_log else self._written
            waiting = self._error is None and stored_change < change
            if waiting:
                stored = (self._for_log if in_log else self._for_checkpoint).join(change)
                self._wakeup.notify()
        if waiting:
            stored.wait()
        self.check()

    def wait_logged(self, change: int) -> None:
        """Wait until `change` is logged, or a write has failed.

        An error is not raised here, but by `check`.
        """
        with self._lock:
            waiting = self._error is None and self._logged < change
            if waiting:
                stored = self._for_log.join(change)
        if waiting:
            stored.wait()

    @contextmanager
    def track_work(self) -> Iterator[None]:
        """Count the context as running work.

        When all running work waits for a checkpoint, the checkpoint is written at once.
        """
        with self._lock:
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1
                if self._is_everyone_waiting():
                    self._wakeup.notify()

    def close(self) -> None:
        """Write the remaining changes and stop the thread. Raises EngineError if that fails."""
        with self._lock:
            self._closing = True
            self._wakeup.notify()
        self._thread.join()
        self.check()

    def _run(self) -> None:
        """Write the log and checkpoints when due, until `close`; runs in a thread."""
        while True:
            with self._lock:
                action = self._wait_for_action()
            if action == "log" and self.pace.group_commit_delay:
                # Steps that end during the pause share the write.
                time.sleep(self.pace.group_commit_delay)
            with self._lock:
                change = self._changes
                if action == "end" and change == self._written:
                    return
            self._perform(action, change)
            if action == "end":
                return

    def _wait_for_action(self) -> _Action:
        """Wait, with the lock held, until the log or a checkpoint is due, or the writer closes."""
        while True:
            if self._closing:
                return "end"
            pause = None
            # A log that has failed is not written again; `close` tries once more with a checkpoint.
            if not self._log_failed and self._changes > self._logged:
                return "log"
            if self._error is None and self._changes > self._written:
                pause = self._get_seconds_until_checkpoint()
                if pause <= 0:
                    return "write"
            self._wakeup.wait(pause)

    def _get_seconds_until_checkpoint(self) -> float:
        """Return the seconds until the next checkpoint is due; 0 or less if due now."""
        if self._is_everyone_waiting():
            return 0
        spacing = self._took * self.pace.checkpoint_spacing_factor
        if not self._for_checkpoint:
            spacing = max(
                spacing, min(self.pace.max_idle_spacing, _FIRST_IDLE * 2**self._checkpoints)
            )
        elif not self._took:
            return 0
        return self._began + spacing - time.monotonic()

    def _is_everyone_waiting(self) -> bool:
        """Return True if all running work waits for a checkpoint, which is then due."""
        return 0 < self._working <= len(self._for_checkpoint)

    def _perform(self, action: _Action, change: int) -> None:
        """Log or write a checkpoint, and wake the waiting threads.

        An error is kept for `check`.
        """
        began = time.monotonic()
        error = None
        try:
            if action == "log":
                self.log()
            else:
                self.write()
        except EngineError as write_error:
            error = write_error
        except Exception as unexpected:  # noqa: BLE001 - it is raised where someone waits
            error = EngineError(
                f"the state cannot be written: {type(unexpected).__name__}: {unexpected}"
            )
        with self._lock:
            if action == "log":
                self._log_failed = error is not None
            if action != "log" or error is not None:
                self._error = error
            if error is None:
                self._logged = change
            if error is None and action != "log":
                self._written = change
                self._checkpoints += 1
                self._began = time.monotonic()
                self._took = self._began - began
            # An error wakes every waiting step: each raises it from `check`.
            self._for_log.release(self._changes if error else self._logged)
            self._for_checkpoint.release(self._changes if error else self._written)
