"""The lock of a stack: Pulumi's files, and one of our own that the kernel releases.

Pulumi's protocol (list, write, list again) makes both engines respect each other. Between gpuform
processes of one machine `flock` decides, which no death leaves behind: a file that a gpuform
process of this machine left is told from one that is in use. On Windows there are only the files,
and a left one needs `gpuform cancel`.
"""

import atexit
import os
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from gpuform.providers.clock import Clock, SystemClock
from gpuform.stacks.engine.atomic import replace_file
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.kernel_lock import KernelLock, Taking
from gpuform.stacks.engine.lock_files import LockFile, content

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class LockedError(EngineError):
    """Another process works on the stack, or one that died left its lock."""


def _say_nothing(_text: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Patience:
    """How many seconds to wait for a lock that another process has, and who hears of it."""

    seconds: float = 0.0
    tell: Callable[[str], None] = _say_nothing
    clock: Clock = field(default_factory=SystemClock)


class StackLock:
    """The lock of one stack: `folder` is Pulumi's, `own` our file; a context manager.

    It is also released when the interpreter ends. A process that is killed leaves its file in
    Pulumi's folder: the next gpuform process of the machine takes it away, and tells.
    """

    def __init__(self, folder: Path, own: Path, patience: Patience | None = None) -> None:
        self._folder = folder
        self._path = folder / f"{uuid.uuid4()}.json"
        self._kernel = KernelLock(own)
        self._patience = patience or Patience()
        self._owner = 0

    def acquire(self) -> None:
        """Take the lock, at once or as soon as it is free; LockedError tells who has it."""
        patience, waited, pause = self._patience, 0.0, _FIRST_PAUSE
        while True:
            try:
                self._take()
            except LockedError as error:
                if waited >= patience.seconds:
                    raise
                if not waited:
                    patience.tell(f"{error}\nwaiting for it")
            else:
                return
            pause = min(pause, patience.seconds - waited)
            patience.clock.sleep(pause, threading.Event())
            waited, pause = waited + pause, min(pause * 2, _LONGEST_PAUSE)

    def release(self) -> None:
        """Give the lock back; without effect when it is not held, and in a forked child."""
        if self._owner != os.getpid():
            return
        self._owner = 0
        atexit.unregister(self.release)
        self._path.unlink(missing_ok=True)
        self._kernel.release()

    def holders(self) -> list[LockFile]:
        """The locks that others have or left, oldest name first."""
        found = sorted(path for path in self._folder.glob("*.json") if path != self._path)
        return [LockFile.read(path) for path in found]

    def cancel(self) -> None:
        """Remove all locks of the stack. LockedError when a gpuform process here holds one."""
        taking = self._take_own()
        if taking is Taking.HELD:
            raise _in_use(self.holders())
        try:
            holders = self.holders()
            running = [lock for lock in holders if lock.is_gpuforms and lock.runs_here]
            # A process that runs without having the kernel's lock only has the owner's number.
            if running and taking is Taking.UNSUPPORTED:
                raise _in_use(running)
            self._empty_folder()
        finally:
            self._kernel.release()

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
        taking = self._take_own()
        if taking is Taking.HELD:
            raise _in_use(self.holders())
        self._owner = os.getpid()
        atexit.register(self.release)
        try:
            if taking is Taking.TAKEN:
                self._take_over()
            self._refuse_others()
            self._write()
            self._refuse_others()
        except BaseException:
            self.release()
            raise

    def _empty_folder(self) -> None:
        try:
            for path in self._folder.glob("*"):  # also what a write that was cut off left
                path.unlink(missing_ok=True)
        except OSError as error:
            raise EngineError(
                f"the lock {error.filename} cannot be removed: {error.strerror}",
                hint="Fix the permissions, or remove the file by hand.",
            ) from error

    def _take_own(self) -> Taking:
        try:
            return self._kernel.take()
        except OSError as error:
            raise _unwritable(self._kernel.path, error) from error

    def _write(self) -> None:
        try:
            replace_file(self._path, content())
        except OSError as error:
            raise _unwritable(self._path, error) from error

    def _take_over(self) -> None:
        """Remove what a gpuform process of this machine left when it died."""
        for lock in self.holders():
            if lock.is_left:
                lock.path.unlink(missing_ok=True)
                self._patience.tell(
                    "warning: a gpuform process ended without giving its lock back, which is taken "
                    f"over:\n  {lock.describe()}"
                )

    def _refuse_others(self) -> None:
        holders = self.holders()
        if holders:
            raise LockedError(
                _locked_by(holders),
                hint="Wait until the other process has ended (--lock-timeout 10m waits for it). "
                "If it is gone, `gpuform cancel` removes its lock.",
            )


def _in_use(holders: Sequence[LockFile]) -> LockedError:
    message = (
        _locked_by(holders)
        if holders
        else "the stack is locked: another gpuform process of this machine works on it"
    )
    return LockedError(
        message,
        hint="A gpuform process of this machine holds it: wait (--lock-timeout 10m), or end it.",
    )


def _locked_by(holders: Sequence[LockFile]) -> str:
    return "the stack is locked:\n  " + "\n  ".join(lock.describe() for lock in holders)


def _unwritable(path: Path, error: OSError) -> EngineError:
    return EngineError(
        f"the stack cannot be locked: {path} cannot be written: {error.strerror or error}",
        hint="Nothing was changed. Fix the permissions, or make room, and run the command again.",
    )
