"""Lock a stack: with the lock files of Pulumi's DIY backend, and with a kernel lock that the death
of its owner releases.

Pulumi's protocol (list, write, list again) makes both engines respect each other. Between gpuform
processes the storage's own exclusion decides: in a folder `flock`, which no death leaves behind, in
a bucket a lease, which a dead owner does not renew. So a file that a gpuform process left is told
from one that is in use. In a folder on Windows there are only the files, and a left one needs
`gpuform cancel`.
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
from types import TracebackType
from typing import Self

from gpuform.providers.context import Clock, SystemClock
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.state import format_timestamp
from gpuform.stacks.engine.store.backend_files import BackendError
from gpuform.stacks.engine.store.storage.protocol import Exclusion, Storage
from gpuform.stacks.engine.values import load

_ENGINE = "gpuform"


def owner() -> dict[str, str | int]:
    """This process, as Pulumi tells it, and one field by which gpuform knows its own."""
    return {
        "pid": os.getpid(),
        "username": user(),
        "hostname": socket.gethostname(),
        "timestamp": format_timestamp(),
        "engine": _ENGINE,
    }


def content() -> bytes:
    """The text of this process's lock."""
    return json.dumps(owner()).encode()


@dataclass(frozen=True, slots=True)
class LockFile:
    """One lock: who made it, where and when. What it does not say is empty (`pid` 0).

    `fault` says why it tells nothing.
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
        """The lock under a name, which may be gone; never fails."""
        if data is None:
            return cls(name, where, fault="released just now; try again")
        try:
            fields = load(data)
        except ValueError:
            return cls(name, where, fault="not a readable lock")
        if not isinstance(fields, dict) or not fields:
            return cls(name, where, fault="it does not say by whom")
        pid = fields.get("pid")
        texts = (
            str(fields.get(key) or "") for key in ("username", "hostname", "timestamp", "engine")
        )
        return cls(name, where, pid if isinstance(pid, int) else 0, *texts)

    @property
    def is_gpuforms(self) -> bool:
        """Whether gpuform made it, on any machine."""
        return self.engine == _ENGINE

    @property
    def runs_here(self) -> bool:
        """Whether its process runs on this machine."""
        return self._is_local and _runs(self.pid)

    @property
    def has_ended(self) -> bool:
        """Whether its process was one of this machine and runs no more."""
        return self._is_local and not _runs(self.pid)

    @property
    def is_left(self) -> bool:
        """Whether gpuform left it here, for who knows that no gpuform process of this machine is
        at work on the stack: this one may have got the number of the one that died."""
        ended = self.pid == os.getpid() or not _runs(self.pid)
        return self.is_gpuforms and self._is_local and ended

    @property
    def _is_local(self) -> bool:
        return self.pid > 0 and self.host == socket.gethostname()

    def describe(self) -> str:
        """Who holds it, since when, and whether the process still runs where that can be told."""
        if self.fault:
            return f"{self.where}: {self.fault}"
        ended = "; this process no longer runs" if self.has_ended else ""
        return f"{self.where}: {self._owner}{_age(self.time, datetime.now(UTC))}{ended}"

    @property
    def who(self) -> str:
        """Whose it is, and since when: `ada@build-7 (pid 4711) by gpuform, since ... UTC`."""
        since = _age(self.time, datetime.now(UTC)).removeprefix(", ")
        if not since:
            return self._owner
        moment = datetime.fromisoformat(self.time).astimezone(UTC)
        return f"{self._owner}, since {moment:%Y-%m-%d %H:%M:%S} UTC ({since}),"

    @property
    def _owner(self) -> str:
        by = f" by {_ENGINE}" if self.is_gpuforms else ""
        return f"{self.user or '?'}@{self.host or '?'} (pid {self.pid or '?'}){by}"


def _age(text: str, now: datetime) -> str:
    try:
        since = now - datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return ""
    return f", {timedelta(seconds=max(0, int(since.total_seconds())))} ago"


def user() -> str:
    """The account that this process runs as."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return str(os.getuid())


def _runs(pid: int) -> bool:
    """Whether the process is there; where that cannot be asked, it is taken to be."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_LONGEST_REMOTE_PAUSE = 5.0


class LockedError(EngineError):
    """Another process works on the stack, or one that died left its lock."""

    help_page = "guides/state-for-a-team"


def _say_nothing(_text: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds to wait for a lock that another process has, and who hears of it."""

    seconds: float = 0.0
    tell: Callable[[str], None] = _say_nothing
    clock: Clock = field(default_factory=SystemClock)


class StackLock:
    """The lock of one stack: `folder` is Pulumi's, `own` gpuform's; a context manager.

    It is also released when the interpreter ends. A process that is killed leaves its file in
    Pulumi's folder: the next gpuform process that may tell so takes it away, and says it.
    """

    def __init__(
        self, storage: Storage, folder: str, own: Exclusion, patience: Patience | None = None
    ) -> None:
        self._storage, self._folder, self._own = storage, folder, own
        self._name = f"{folder}/{uuid.uuid4()}.json"
        self._patience = patience or Patience()
        self._owner = 0

    def acquire(self) -> None:
        """Take the lock, at once or as soon as it is free; LockedError tells who has it."""
        patience, waited, pause = self._patience, 0.0, _FIRST_PAUSE
        longest = _LONGEST_REMOTE_PAUSE if self._own.everywhere else _LONGEST_PAUSE
        while True:
            try:
                self._take()
            except LockedError as error:
                if waited >= patience.seconds:
                    raise
                if not waited:
                    patience.tell(f"{error.message}\nwaiting for it")
            else:
                return
            pause = min(pause, patience.seconds - waited)
            patience.clock.sleep(pause, threading.Event())
            waited, pause = waited + pause, min(pause * 2, longest)

    def release(self) -> None:
        """Give the lock back; without effect when it is not held, and in a forked child."""
        if self._owner != os.getpid():
            return
        self._owner = 0
        atexit.unregister(self.release)
        try:
            self._storage.delete(self._name)
            self._own.release()
        except EngineError as error:
            self._patience.tell(f"warning: the stack's lock was not given back: {error.message}")

    def check(self) -> None:
        """Raises EngineError when this was held and may be another's by now."""
        if self._owner == os.getpid():
            self._own.check()

    def holders(self) -> list[LockFile]:
        """The locks that others have or left, oldest name first."""
        names = [entry.name for entry in self._storage.entries(self._folder)]
        found = [name for name in names if name.endswith(".json") and name != self._name]
        return [self._read(name) for name in found]

    def worker(self) -> str:
        """Who works on the stack now, and since when; empty where nobody does."""
        at_work = [each for each in self.holders() if not (each.has_ended or each.fault)]
        return f"{at_work[0].who} is at work on the stack" if at_work else ""

    def cancel(self) -> None:
        """Remove all locks of the stack. LockedError when a gpuform process holds one."""
        taking = self._own.take()
        if taking is LockAttempt.HELD:
            raise self._in_use(self.holders())
        try:
            holders = self.holders()
            running = [lock for lock in holders if lock.is_gpuforms and lock.runs_here]
            # A process that runs without having the kernel's lock only has the owner's number.
            if running and taking is LockAttempt.UNSUPPORTED:
                raise self._in_use(running)
            self._empty_folder()
        finally:
            self._own.release()

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _take(self) -> None:
        taking = self._own.take()
        if taking is LockAttempt.HELD:
            raise self._in_use(self.holders())
        self._owner = os.getpid()
        atexit.register(self.release)
        try:
            if taking is LockAttempt.TAKEN:
                self._take_over()
            self._refuse_others()
            self._write()
            self._refuse_others()
        except BaseException:
            self.release()
            raise

    def _empty_folder(self) -> None:
        """With what a write that was cut off left."""
        names = [entry.name for entry in self._storage.entries(self._folder)]
        self._storage.delete(*names)

    def _read(self, name: str) -> LockFile:
        try:
            found = self._storage.read(name)
        except BackendError:
            return LockFile(name, self._storage.where(name), fault="not a readable lock")
        return LockFile.read(name, self._storage.where(name), found.data if found else None)

    def _write(self) -> None:
        try:
            self._storage.write(self._name, content())
        except BackendError as error:
            raise EngineError(
                f"the stack cannot be locked: {error.message}",
                hint=f"Nothing was changed. {error.hint}",
            ) from error

    def _take_over(self) -> None:
        """Remove what a gpuform process left when it died."""
        for lock in self.holders():
            if lock.is_left or (self._own.everywhere and lock.is_gpuforms):
                self._storage.delete(lock.name)
                self._patience.tell(
                    "warning: a gpuform process ended without giving its lock back, which is taken "
                    f"over:\n  {lock.describe()}"
                )

    def _in_use(self, holders: Sequence[LockFile]) -> LockedError:
        holder = self._own.holder()
        if holder:
            return LockedError(
                f"the stack is locked:\n  {holder}",
                hint="Wait until it has ended (--lock-timeout 10m waits for it). The lock of one "
                "that is gone is taken over when it was silent for that long.",
            )
        message = (
            _locked_by(holders)
            if holders
            else "the stack is locked: another gpuform process of this machine works on it"
        )
        return LockedError(
            message,
            hint="A gpuform process of this machine holds it: wait (--lock-timeout 10m), or end "
            "it.",
        )

    def _refuse_others(self) -> None:
        holders = self.holders()
        if holders:
            raise LockedError(
                _locked_by(holders),
                hint="Wait until the other process has ended (--lock-timeout 10m waits for it). "
                "If it is gone, `gpuform cancel` removes its lock.",
            )


def _locked_by(holders: Sequence[LockFile]) -> str:
    return "the stack is locked:\n  " + "\n  ".join(lock.describe() for lock in holders)
