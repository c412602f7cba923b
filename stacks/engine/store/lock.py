"""Lock a stack with the lock files of Pulumi's DIY backend and with a lock of the storage.

Pulumi's protocol (list, write, list again) makes both engines respect each other. Between gpuform
processes the storage's own exclusion decides: in a folder `flock`, which the kernel releases when
its owner dies, in a bucket a lease, which a dead owner does not renew. The exclusion tells an
abandoned lock file from one in use. Windows folders have only the files, and an abandoned one needs
`gpuform cancel`. Operations take locks that `Backend` creates.
"""

import atexit
import getpass
import json
import os
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Self

from gpuform.providers.context import Clock, SystemClock
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.state import format_timestamp
from gpuform.stacks.engine.store.storage import BackendError, Exclusion, Storage
from gpuform.stacks.engine.value_json import load

_ENGINE = "gpuform"


def describe_process() -> dict[str, str | int]:
    """Describe this process as Pulumi does, plus the engine, which marks gpuform's own locks."""
    return {
        "pid": os.getpid(),
        "username": get_user(),
        "hostname": socket.gethostname(),
        "timestamp": format_timestamp(),
        "engine": _ENGINE,
    }


def encode_lock() -> bytes:
    """Encode the lock file of this process."""
    return json.dumps(describe_process()).encode()


@dataclass(frozen=True, slots=True)
class LockFile:
    """One lock file: who wrote it, where and when. A missing attribute is empty (`pid` 0).

    `fault` says why the file cannot be read.
    """

    name: str
    where: str
    pid: int = 0
    user: str = ""
    host: str = ""
    time: str = ""
    engine: str = ""
    fault: str = ""

    @classmethod
    def read(cls, name: str, where: str, data: bytes | None) -> "LockFile":
        """Parse a lock file, which may be gone (`data` is None); invalid files get a `fault`."""
        if data is None:
            return cls(name, where, fault="released just now; try again")
        try:
            fields = load(data)
        except ValueError:
            return cls(name, where, fault="not a readable lock")
        # The Pulumi CLI accepts `{}` as a lock.
        if not isinstance(fields, dict) or not fields:
            return cls(name, where, fault="its owner is unknown")
        pid = fields.get("pid")
        attributes = (
            str(fields.get(key) or "") for key in ("username", "hostname", "timestamp", "engine")
        )
        return cls(name, where, pid if isinstance(pid, int) else 0, *attributes)

    @property
    def is_gpuforms(self) -> bool:
        """True if gpuform wrote the lock, on any machine."""
        return self.engine == _ENGINE

    @property
    def runs_here(self) -> bool:
        """True if the lock's process runs on this machine."""
        return self._is_local and _is_running(self.pid)

    @property
    def has_ended(self) -> bool:
        """True if the lock's process was on this machine and has ended."""
        return self._is_local and not _is_running(self.pid)

    @property
    def is_left(self) -> bool:
        """True if a dead gpuform process of this machine left the lock.

        Ask only while this process holds the exclusion. Then no other gpuform process of this
        machine works on the stack, and a lock with this process's own number belongs to a dead
        process that had the same number.
        """
        ended = self.pid == os.getpid() or not _is_running(self.pid)
        return self.is_gpuforms and self._is_local and ended

    @property
    def _is_local(self) -> bool:
        """Return True if the lock names a process of this machine."""
        return self.pid > 0 and self.host == socket.gethostname()

    def describe(self) -> str:
        """Describe location, owner and age, and whether the process is known to have ended."""
        if self.fault:
            return f"{self.where}: {self.fault}"
        ended = "; that process no longer runs" if self.has_ended else ""
        return f"{self.where}: {self._owner}{_format_age(self.time, datetime.now(UTC))}{ended}"

    @property
    def who(self) -> str:
        """The owner and the time of the lock.

        `ada@build-7 (pid 4711) by gpuform, since ... UTC`.
        """
        since = _format_age(self.time, datetime.now(UTC)).removeprefix(", ")
        if not since:
            return self._owner
        moment = datetime.fromisoformat(self.time).astimezone(UTC)
        return f"{self._owner}, since {moment:%Y-%m-%d %H:%M:%S} UTC ({since}),"

    @property
    def _owner(self) -> str:
        """Return user, machine and process id of the lock's owner, for messages; `?` if unknown."""
        by = f" by {_ENGINE}" if self.is_gpuforms else ""
        return f"{self.user or '?'}@{self.host or '?'} (pid {self.pid or '?'}){by}"


def _format_age(timestamp: str, now: datetime) -> str:
    """Return the age as `, H:MM:SS ago`, or an empty text if `timestamp` is not a time."""
    try:
        since = now - datetime.fromisoformat(timestamp)
    except (ValueError, TypeError):
        return ""
    return f", {timedelta(seconds=max(0, int(since.total_seconds())))} ago"


def get_user() -> str:
    """Return the name of the account of this process, or the account's number without a name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return str(os.getuid())


def _is_running(pid: int) -> bool:
    """Return True if the process runs, or if the system does not let this process ask."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process of another user runs, although it cannot be signalled.
    except (OSError, OverflowError):
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Return True if the process has ended, and its parent has not asked for the exit code yet.

    A container without an init process keeps the orphans of a killed run as zombies.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # a system without /proc, or a process that is gone by now
        return False
    # The name before the state is in parentheses, and may contain some itself.
    return status.rpartition(") ")[2].startswith(("Z", "X"))


_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_LONGEST_REMOTE_PAUSE = 5.0


class LockedError(EngineError):
    """Another process works on the stack, or a dead one left its lock."""

    help_page = "guides/state-for-a-team"


def _ignore_message(_text: str) -> None:
    """Do nothing with a message: the default of `report`."""


@dataclass(frozen=True, slots=True)
class LockTimeout:
    """How many seconds to wait for a lock of another process; `report` gets the messages."""

    seconds: float = 0.0
    report: Callable[[str], None] = _ignore_message
    clock: Clock = field(default_factory=SystemClock)


class StackLock:
    """The lock of one stack, a context manager: `folder` is Pulumi's, `own` gpuform's exclusion.

    The interpreter's end releases the lock. A killed process leaves its file in Pulumi's folder:
    the next gpuform process that can prove the death removes the file and reports that.
    """

    def __init__(
        self, storage: Storage, folder: str, own: Exclusion, timeout: LockTimeout | None = None
    ) -> None:
        self._storage, self._folder, self._own = storage, folder, own
        self._name = f"{folder}/{uuid.uuid4()}.json"
        self._timeout = timeout or LockTimeout()
        self._owner = 0

    def acquire(self) -> None:
        """Take the lock, waiting up to the lock timeout; a wait is reported once.

        Raises:
            LockedError: names the holder.
            EngineError: the lock file cannot be written.
        """
        timeout, waited, pause = self._timeout, 0.0, _FIRST_PAUSE
        longest = _LONGEST_REMOTE_PAUSE if self._own.everywhere else _LONGEST_PAUSE
        while True:
            try:
                self._take_once()
            except LockedError as error:
                if waited >= timeout.seconds:
                    raise
                if not waited:
                    timeout.report(f"{error.message}\nwaiting for it")
            else:
                return
            pause = min(pause, timeout.seconds - waited)
            timeout.clock.sleep(pause, threading.Event())
            waited, pause = waited + pause, min(pause * 2, longest)

    def release(self) -> None:
        """Release the lock if this process holds the lock, which a forked child never does.

        A failure is only a warning.
        """
        if self._owner != os.getpid():
            return
        self._owner = 0
        atexit.unregister(self.release)
        # The run itself is over: a lock that could not be deleted is a warning, not a failure. The
        # process gives up its own lock all the same, so that others take the file for a dead one.
        for release in (partial(self._storage.delete, self._name), self._own.release):
            try:
                release()
            except EngineError as error:
                message = f"could not release the stack's lock: {error.message}"
                self._timeout.report(f"warning: {message}")

    def check(self) -> None:
        """Raise EngineError if this process took the lock and may have lost the exclusion."""
        if self._owner == os.getpid():
            self._own.check()

    def list_holders(self) -> list[LockFile]:
        """Return the locks of other processes, dead or unreadable ones included, sorted by name."""
        names = [entry.name for entry in self._storage.list_entries(self._folder)]
        lock_names = [name for name in names if name.endswith(".json") and name != self._name]
        return [self._read_lock_file(name) for name in lock_names]

    def describe_worker(self) -> str:
        """Describe who works on the stack now and since when, or return ""."""
        active_locks = [
            lock_file
            for lock_file in self.list_holders()
            if not (lock_file.has_ended or lock_file.fault)
        ]
        return f"{active_locks[0].who} is running on the stack" if active_locks else ""

    def cancel(self) -> None:
        """Remove all locks of the stack, also locks of other machines and of a running Pulumi CLI.

        Raises:
            LockedError: a gpuform process works on the stack: one that holds gpuform's own lock or,
                where the system has no such locks, one that runs on this machine.
        """
        taking = self._own.take()
        if taking is LockAttempt.HELD:
            raise self._build_in_use_error(self.list_holders())
        try:
            holders = self.list_holders()
            running = [lock for lock in holders if lock.is_gpuforms and lock.runs_here]
            # Where the kernel has locks, a running process that does not hold this one has only got
            # the process id of the dead owner.
            if running and taking is LockAttempt.UNSUPPORTED:
                raise self._build_in_use_error(running)
            # With the remains of interrupted writes.
            names = [entry.name for entry in self._storage.list_entries(self._folder)]
            self._storage.delete(*names)
        finally:
            self._own.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *_error: object) -> None:
        self.release()

    def _take_once(self) -> None:
        """Try once to take gpuform's lock and Pulumi's, removing locks of ended gpuform processes.

        Where the system has no lock of its own, the locks of ended processes stay.

        Raises:
            LockedError: another process holds one of the two locks; then this process holds
                neither.
        """
        taking = self._own.take()
        if taking is LockAttempt.HELD:
            raise self._build_in_use_error(self.list_holders())
        self._owner = os.getpid()
        atexit.register(self.release)
        try:
            # Only the holder of the exclusion knows that no other gpuform process uses a lock file.
            if taking is LockAttempt.TAKEN:
                self._remove_abandoned_locks()
            self._reject_other_holders()
            # Pulumi's protocol: two processes that both saw no lock see each other in the second
            # listing
            self._write_lock_file()
            self._reject_other_holders()
        # Ctrl-C, too, must not leave a lock behind.
        except BaseException:
            self.release()
            raise

    def _read_lock_file(self, name: str) -> LockFile:
        """Return the lock file's content; an unreadable one has a `fault`."""
        try:
            blob = self._storage.read(name)
        except BackendError:
            return LockFile(name, self._storage.locate(name), fault="not a readable lock")
        return LockFile.read(name, self._storage.locate(name), blob.data if blob else None)

    def _write_lock_file(self) -> None:
        """Write Pulumi's lock file. Raises EngineError."""
        try:
            self._storage.write(self._name, encode_lock())
        except BackendError as error:
            raise EngineError(
                f"the stack cannot be locked: {error.message}",
                hint=f"Nothing was changed. {error.hint}",
            ) from error

    def _remove_abandoned_locks(self) -> None:
        """Remove the lock files of dead gpuform processes, with a warning.

        Beside a lease, gpuform's lock files of other machines count as abandoned: a living owner
        would still hold the lease.
        """
        for lock in self.list_holders():
            # Beside a lease, lock files of other machines are abandoned too: a living owner would
            # renew.
            if lock.is_left or (self._own.everywhere and lock.is_gpuforms):
                self._storage.delete(lock.name)
                self._timeout.report(
                    "warning: a gpuform process ended without releasing its lock; this "
                    f"command takes over the lock:\n  {lock.describe()}"
                )

    def _build_in_use_error(self, holders: Sequence[LockFile]) -> LockedError:
        """Build the error for a stack locked by another gpuform process."""
        holder = self._own.describe_holder()
        if holder:
            return LockedError(
                f"the stack is locked:\n  {holder}",
                hint="Wait for that process to end (--lock-timeout 10m). If the process no "
                "longer runs, its lock expires, and the next command takes over the lock.",
            )
        message = (
            _format_lock_message(holders)
            if holders
            else "the stack is locked: another gpuform process on this machine has locked it"
        )
        return LockedError(
            message,
            hint="A gpuform process on this machine has the lock: wait for it (--lock-timeout "
            "10m), or end it.",
        )

    def _reject_other_holders(self) -> None:
        """Raise LockedError if Pulumi's folder has the lock of another process."""
        holders = self.list_holders()
        if holders:
            raise LockedError(
                _format_lock_message(holders),
                hint="Wait for the other process to end (--lock-timeout 10m). If the process no "
                "longer runs, `gpuform cancel` removes its lock.",
            )


def _format_lock_message(holders: Sequence[LockFile]) -> str:
    """Return the message about a locked stack, with a line for each holder, without the hint."""
    return "the stack is locked:\n  " + "\n  ".join(lock.describe() for lock in holders)
