"""Append a run's journal to the store, with one write for all steps that wait (group commit).

Changes are logged at once; whole checkpoints are spaced as the `Pace` says, on a disk so that they
take a tenth of the time at most, and the cost of a run stays linear however large the state is.
Only when everything that is being worked on waits for a checkpoint there is nothing to gain by
putting it off.
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

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file


class JournalError(EngineError):
    """A journal that cannot be written, or that this gpuform cannot read."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class Pace:
    """How often what is kept.

    `linger` is how long a line waits for others to go with it, in seconds. After a checkpoint that
    took d seconds the next one waits `share` times d, and `idle` seconds when nobody waits for it,
    at most: the first ones come sooner. A create waits for a checkpoint that names it, or where
    `logs_suffice` for the journal alone, once there is a checkpoint of this run.
    """

    linger: float = 0.0
    share: float = 9.0
    idle: float = 1.0
    logs_suffice: bool = False


class Readable(Protocol):
    """Lines that are there."""

    @property
    def where(self) -> str: ...

    def read(self) -> bytes:
        """All of them, in their order; nothing when there are none."""


class Log(Readable, Protocol):
    """Lines of one run, and what another may have left."""

    @property
    def pace(self) -> Pace: ...

    def append(self, data: bytes) -> None:
        """Keeps more of this run's lines; the first ones take the place of what was left."""

    def check(self) -> None:
        """Raises EngineError when nothing more may be begun."""

    def close(self) -> str:
        """The run is over and its lines stay; tells where what is left is, and how it is used."""

    def remove(self) -> None:
        """Nothing of it is needed any more."""

    def set_aside(self) -> str | None:
        """Keeps what is there beside its place, which is returned."""


class FileLog:
    """A log in a file."""

    pace = Pace()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    @property
    def where(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise JournalError(
                f"the journal {self.path} cannot be read: {error.strerror}"
            ) from error

    def append(self, data: bytes) -> None:
        """Raises JournalError."""
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(self.path, data)
                self._file = self.path.open("ab")
            else:
                self._file.write(data)
                self._file.flush()
                os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(
                f"the journal {self.path} cannot be written: {error.strerror or error}",
                hint="Make room or fix the permissions, and run the command again: the last "
                "checkpoint is untouched.",
            ) from error

    def check(self) -> None:
        """A file stays ours; a write that fails tells it."""

    def close(self) -> str:
        if self._file is not None:
            self._file.close()
            self._file = None
        return ""

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def set_aside(self) -> str | None:
        if not self.path.exists():
            return None
        kept = self.path.with_name(f"{self.path.name}.{time.time_ns()}")
        self.path.replace(kept)
        return str(kept)


_FIRST_IDLE = 0.5  # seconds, doubled by each checkpoint, until the pace's `idle` is reached

_Action = Literal["log", "write", "end"]


@dataclass(slots=True)
class _Queue:
    """Who waits for which change. Each is woken once: there may be a thousand of them."""

    _waiting: list[tuple[int, int, threading.Event]] = field(default_factory=list)
    _joined: int = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, change: int) -> threading.Event:
        """What will be set when the change, or one after it, is kept."""
        kept = threading.Event()
        self._joined += 1
        heapq.heappush(self._waiting, (change, self._joined, kept))
        return kept

    def release(self, change: int) -> None:
        """Wakes those that wait for this change or an earlier one."""
        while self._waiting and self._waiting[0][0] <= change:
            heapq.heappop(self._waiting)[-1].set()


@dataclass(slots=True)
class Writer:
    """Calls `log` after each change or group of changes and `write` now and then and at the end,
    on a thread of its own.

    What fails is tried once more, at the end. Where a checkpoint fails, logging goes on.
    """

    log: Callable[[], None]
    write: Callable[[], None]
    pace: Pace = field(default_factory=Pace)
    _changes: int = 0
    _logged: int = 0
    _written: int = 0
    _working: int = 0
    _for_checkpoint: _Queue = field(default_factory=_Queue)
    _for_log: _Queue = field(default_factory=_Queue)
    _error: EngineError | None = None
    _log_failed: bool = False
    _checkpoints: int = 0
    _closing: bool = False
    _began: float = 0.0
    _took: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: threading.Condition = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._news = threading.Condition(self._lock)
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._work, name="state", daemon=True)
        self._thread.start()

    def changed(self) -> int:
        """Asks for what is there now to be kept; the number of this change."""
        with self._lock:
            self._changes += 1
            self._news.notify()
            return self._changes

    def check(self) -> None:
        """Raises EngineError when the last write failed."""
        if self._error is not None:
            raise self._error

    def wait(self, change: int) -> None:
        """Returns when what is begun with the change is kept; raises EngineError when it cannot be.

        In a checkpoint, or where the pace has it so in the log, once a checkpoint of this run tells
        that something was begun.
        """
        with self._lock:
            in_log = self.pace.logs_suffice and self._checkpoints > 0
            kept_now = max(self._logged, self._written) if in_log else self._written
            waiting = self._error is None and kept_now < change
            if waiting:
                kept = (self._for_log if in_log else self._for_checkpoint).join(change)
                self._news.notify()
        if waiting:
            kept.wait()
        self.check()

    def wait_logged(self, change: int) -> None:
        """Returns when the change is logged, or cannot be."""
        with self._lock:
            waiting = self._error is None and self._logged < change
            if waiting:
                kept = self._for_log.join(change)
        if waiting:
            kept.wait()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around work that may come to wait for a checkpoint."""
        with self._lock:
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1
                if self._all_wait():
                    self._news.notify()

    def close(self) -> None:
        """Writes what is not written yet; raises EngineError when it cannot be."""
        with self._lock:
            self._closing = True
            self._news.notify()
        self._thread.join()
        self.check()

    def _work(self) -> None:
        while True:
            with self._lock:
                action = self._next_action()
            if action == "log" and self.pace.linger:
                time.sleep(self.pace.linger)
            with self._lock:
                change = self._changes
                if action == "end" and change == self._written:
                    return
            self._try(action, change)
            if action == "end":
                return

    def _next_action(self) -> _Action:
        """Waits, with the lock held, until there is something to do."""
        while True:
            if self._closing:
                return "end"
            pause = None
            if not self._log_failed and self._changes > self._logged:
                return "log"
            if self._error is None and self._changes > self._written:
                pause = self._pause()
                if pause <= 0:
                    return "write"
            self._news.wait(pause)

    def _pause(self) -> float:
        """Seconds until the next checkpoint is due."""
        if self._all_wait():
            return 0
        spacing = self._took * self.pace.share
        if not self._for_checkpoint:
            spacing = max(spacing, min(self.pace.idle, _FIRST_IDLE * 2**self._checkpoints))
        elif not self._took:
            return 0
        return self._began + spacing - time.monotonic()

    def _all_wait(self) -> bool:
        """Whether nobody works who is not waiting for a checkpoint."""
        return 0 < self._working <= len(self._for_checkpoint)

    def _try(self, action: _Action, change: int) -> None:
        began = time.monotonic()
        error = None
        try:
            if action == "log":
                self.log()
            else:
                self.write()
        except EngineError as refused:
            error = refused
        except Exception as bug:  # noqa: BLE001 - it is raised where someone waits
            error = EngineError(f"the state cannot be written: {type(bug).__name__}: {bug}")
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
            self._for_log.release(self._changes if error else self._logged)
            self._for_checkpoint.release(self._changes if error else self._written)
