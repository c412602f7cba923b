"""Change a part of a user's file under the lock that kubectl takes: completely or not at all,
readable by its owner alone.

kubectl itself does not wait: with the lock there, it fails. A lock that an ended gpuform left is
taken over; the kernel's lock on the same file tells, where there is one, that its owner has ended.
"""

import contextlib
import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpuform.stacks.access.errors import NoAccess
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.store import LockFile, encode_lock

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
        os.write(handle, encode_lock())
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
    os.write(handle, encode_lock())
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
        os.pwrite(handle, encode_lock(), 0)
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


Change = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file outside of the project. `what` names it in messages: `the kubeconfig`.

    `is_private`: from its first change on, only its owner can read it. Symbolic links are followed
    and stay. Every method raises EngineError.
    """

    path: Path
    what: str
    is_private: bool = True

    def read(self) -> str:
        """Its text; empty when there is no such file."""
        try:
            return self.path.read_bytes().decode()
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            raise NoAccess(f"{self.what} {self.path} is not UTF-8 text") from None
        except OSError as error:
            raise self._failed("read", error) from None

    def refuse_inside(self, project: Path) -> None:
        """What a project has is committed and handed on; credentials are not."""
        real, folder = self.path.resolve(), project.resolve()
        if real.is_relative_to(folder):
            leads = f", which leads to {real}," if real != self.path.absolute() else ""
            raise NoAccess(
                f"{self.path}{leads} is inside the project {folder}",
                hint="Files with credentials are kept out of projects, which are committed and "
                "handed on. Choose a file elsewhere with --file, such as ~/.kube/config.",
            )

    def update(self, change: Change) -> bool:
        """Puts in its place what `change` makes of its text; whether that was another one.

        Under the lock that kubectl takes, too.
        """
        try:
            if not self.path.parent.is_dir():
                self.path.parent.mkdir(parents=True, mode=0o700)
            with locked(self.path):
                return self._update(change)
        except OSError as error:
            raise self._failed("changed", error) from None

    def delete(self) -> bool:
        """Deletes it; whether it was there."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._failed("deleted", error) from None
        return True

    def _update(self, change: Change) -> bool:
        while True:
            before = self.read()
            after = change(before)
            if after == before:
                return False
            self._refuse_unwritable()
            if self.read() == before:  # else an editor, which knows no locks, was faster
                break
        if self.is_private and self.path.exists():
            self.path.chmod(stat.S_IMODE(self.path.stat().st_mode) & 0o600)
        replace_file(self.path, after.encode())
        return True

    def _refuse_unwritable(self) -> None:
        """A file is put in its place by its folder's leave: its own mode has to be asked."""
        if not self.path.exists():
            return
        mode = self.path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise NoAccess(f"{self.what} {self.path} is no ordinary file")
        if not mode & stat.S_IWUSR or not os.access(self.path, os.W_OK):
            raise NoAccess(
                f"{self.what} {self.path} is read-only",
                hint="Nothing was changed. Make it writable, or choose another file with --file.",
            )

    def _failed(self, done: str, error: OSError) -> EngineError:
        return EngineError(
            f"{self.what} {self.path} cannot be {done}: {error.strerror or error}",
            hint="Nothing was changed.",
        )
