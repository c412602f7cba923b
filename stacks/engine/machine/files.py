"""Write files atomically, and lock them by a kernel lock that ends with its owner."""

import errno
import os
import sys
import tempfile
from enum import Enum
from pathlib import Path

from gpuform.stacks.engine.errors import EngineError


def replace_file(path: Path, data: bytes, *, mode: int | None = None) -> None:
    """Write the whole file in one step and wait until it is on disk.

    An existing file keeps its permissions and a symbolic link stays one; a new file gets `mode`,
    or else only its owner can read it. Folders are made as needed. When this raises OSError the
    old file is untouched.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        mode = path.stat().st_mode & 0o7777
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where the system can: Windows cannot open folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_UNSUPPORTED = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}


class LockAttempt(Enum):
    """What came of trying to take a lock."""

    TAKEN = "taken"
    HELD = "held"
    UNSUPPORTED = "unsupported"


class KernelLock:
    """A `flock` on a file of its own; the file is there while the lock is held.

    Windows and some network file systems have no `flock`: there `take` says so, and nothing is
    locked. A forked child of the owner shares the lock, but only the owner gives it back.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    everywhere = False

    def take(self) -> LockAttempt:
        """Tries once, without waiting. Raises EngineError when the file cannot be made."""
        try:
            return self._take()
        except OSError as error:
            raise EngineError(
                f"the stack cannot be locked: {self.path} cannot be written: "
                f"{error.strerror or error}",
                hint="Nothing was changed. Fix the permissions, or make room, and run the command "
                "again.",
            ) from error

    def check(self) -> None:
        """Nobody takes it away from a process that lives."""

    def holder(self) -> str:
        """The kernel does not tell; the process's file in Pulumi's folder does."""
        return ""

    def release(self) -> None:
        """Gives the lock back; without effect when it is not held."""
        handle, self._handle = self._handle, None
        if handle is None or sys.platform == "win32":
            return
        import fcntl  # noqa: PLC0415 - Windows has none

        self.path.unlink(missing_ok=True)
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    def _take(self) -> LockAttempt:
        if sys.platform == "win32":
            return LockAttempt.UNSUPPORTED
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(self.path, os.O_RDONLY | os.O_CREAT, 0o666)
            taking = _flock(handle)
            if taking is LockAttempt.TAKEN and self._is_file_of(handle):
                self._handle = handle
                return taking
            os.close(handle)
            if taking is not LockAttempt.TAKEN:
                return taking

    def _is_file_of(self, handle: int) -> bool:
        """Not when the last owner removed the file after it was opened here."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(handle), there)


def _flock(handle: int) -> LockAttempt:
    if sys.platform == "win32":
        return LockAttempt.UNSUPPORTED
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return LockAttempt.HELD
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return LockAttempt.UNSUPPORTED
        os.close(handle)
        raise
    return LockAttempt.TAKEN
