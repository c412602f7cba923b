"""A lock that the kernel gives back when its owner ends, however that happens."""

import errno
import os
import sys
from enum import Enum
from pathlib import Path

_UNSUPPORTED = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}


class Taking(Enum):
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

    def take(self) -> Taking:
        """Tries once, without waiting. Raises OSError when the file cannot be made."""
        if sys.platform == "win32":
            return Taking.UNSUPPORTED
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(self.path, os.O_RDONLY | os.O_CREAT, 0o666)
            taking = _flock(handle)
            if taking is Taking.TAKEN and self._is_file_of(handle):
                self._handle = handle
                return taking
            os.close(handle)
            if taking is not Taking.TAKEN:
                return taking

    def release(self) -> None:
        """Gives the lock back; without effect when it is not held."""
        handle, self._handle = self._handle, None
        if handle is None or sys.platform == "win32":
            return
        import fcntl  # noqa: PLC0415 - Windows has none

        self.path.unlink(missing_ok=True)
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    def _is_file_of(self, handle: int) -> bool:
        """Not when the last owner removed the file after it was opened here."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(handle), there)


def _flock(handle: int) -> Taking:
    if sys.platform == "win32":
        return Taking.UNSUPPORTED
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Taking.HELD
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return Taking.UNSUPPORTED
        os.close(handle)
        raise
    return Taking.TAKEN
