"""The lock that kubectl takes on a kubeconfig: `<file>.lock`, which only one can make.

kubectl itself does not wait: with the lock there, it fails. A lock that an ended gpuform left is
taken over; the kernel's lock on the same file tells, where there is one, that its owner has ended.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.store import LockFile, content

PATIENCE: Final = 10.0
"""Seconds: who holds it reads and writes one small file."""
_PAUSE: Final = 0.05


@contextlib.contextmanager
def locked(path: Path, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Around changes of a file, under the name given and under the one that links lead to.

    Raises EngineError when somebody else keeps the lock, and OSError when it cannot be made.
    """
    names = dict.fromkeys([path, path.resolve()])
    with contextlib.ExitStack() as held:
        for name in names:
            lock = name.with_name(f"{name.name}.lock")
            held.callback(_release, lock, _taken(lock, sleep))
        yield


def _taken(lock: Path, sleep: Callable[[float], None]) -> int:
    waited = 0.0
    while True:
        with contextlib.suppress(FileExistsError):
            return _made(lock)
        handle = _left(lock)
        if handle is not None:
            return handle
        if waited >= PATIENCE:
            raise EngineError(
                f"another program is changing this file: {_holder(lock)}",
                hint=f"Nothing was changed. If no kubectl and no gpuform runs, delete {lock} and "
                "run the command again.",
            )
        sleep(_PAUSE)
        waited += _PAUSE


def _made(lock: Path) -> int:
    """The lock, new. It says from its first moment whose it is: an empty one is kubectl's."""
    handle, name = tempfile.mkstemp(prefix=f"{lock.name}.", dir=lock.parent)
    try:
        _flock(handle, wait=True)
        os.write(handle, content())
        os.link(name, lock)
    except FileExistsError:
        os.close(handle)
        raise
    except OSError:  # a file system without links
        os.close(handle)
        return _made_in_place(lock)
    finally:
        Path(name).unlink()
    return handle


def _made_in_place(lock: Path) -> int:
    handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    _flock(handle, wait=True)  # somebody who looks whether it was left holds it for a moment
    os.write(handle, content())
    return handle


def _left(lock: Path) -> int | None:
    """The lock of a gpuform that has ended, now this process's."""
    if sys.platform == "win32":
        return None
    try:
        handle = os.open(lock, os.O_RDWR)
    except OSError:  # released just now, or kubectl's, which nobody may open
        return None
    if _flock(handle, wait=False) and _is_ours(handle, lock):
        os.truncate(handle, 0)
        os.pwrite(handle, content(), 0)
        return handle
    os.close(handle)
    return None


def _is_ours(handle: int, lock: Path) -> bool:
    try:
        is_there = os.path.samestat(os.fstat(handle), lock.stat())
    except FileNotFoundError:
        return False
    found = LockFile.read(lock.name, str(lock), os.pread(handle, 10_000, 0))
    return is_there and found.is_gpuforms


def _flock(handle: int, *, wait: bool) -> bool:
    """Whether it is had; where the file system knows no such locks, it is not."""
    if sys.platform == "win32":
        return False
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _release(lock: Path, handle: int) -> None:
    if sys.platform == "win32":  # what is open cannot be removed there
        os.close(handle)
        lock.unlink(missing_ok=True)
        return
    lock.unlink(missing_ok=True)
    os.close(handle)


def _holder(lock: Path) -> str:
    try:
        data = lock.read_bytes()
    except OSError:
        return f"{lock} is there"
    with contextlib.suppress(ValueError):
        if isinstance(json.loads(data), dict):
            return LockFile.read(lock.name, str(lock), data).describe()
    return f"{lock} is there, as kubectl makes it"
