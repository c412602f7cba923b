"""Change a part of a user's file under kubectl's lock, completely or not at all.

Only the owner can read a changed private file. kubectl does not wait for the lock: it fails. A lock
that an ended gpuform left behind is taken over; the kernel's lock on the same file shows whether
its process still runs. `kubeconfig_files` and `ssh_files` call `UserFile`.
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

from gpuform.schemas.errors import EngineError
from gpuform.stacks.access import NoAccess
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.store import LockFile, encode_lock

LOCK_TIMEOUT_S: Final = 10.0
"""How long to wait for the lock: its owner reads and writes one small file."""
_LOCK_POLL_S: Final = 0.05


@contextlib.contextmanager
def lock_file(path: Path, sleep: Callable[[float], None] = time.sleep) -> Iterator[None]:
    """Hold the lock of a file during changes, under the given path and under the resolved one.

    Raises:
        EngineError: another program keeps the lock.
        OSError: the lock cannot be created.
    """
    # kubectl locks the path that it was given; another program may use the target of the link.
    names = dict.fromkeys([path, path.resolve()])
    with contextlib.ExitStack() as held_locks:
        for name in names:
            lock = name.with_name(f"{name.name}.lock")
            held_locks.callback(_release, lock, _acquire(lock, sleep))
        yield


def _acquire(lock: Path, sleep: Callable[[float], None]) -> int:
    """Wait for the lock, and return the open lock file; an ended gpuform's lock is taken over.

    Raises:
        EngineError: another program still has the lock after `LOCK_TIMEOUT_S`.
    """
    waited_s = 0.0
    while True:
        with contextlib.suppress(FileExistsError):
            return _create_lock(lock)
        handle = _take_over_lock(lock)
        if handle is not None:
            return handle
        if waited_s >= LOCK_TIMEOUT_S:
            raise EngineError(
                f"another program is changing this file: {_describe_holder(lock)}",
                hint=f"Nothing was changed. If neither kubectl nor gpuform is running, delete "
                f"{lock} and run the command again.",
            )
        sleep(_LOCK_POLL_S)
        waited_s += _LOCK_POLL_S


def _create_lock(lock: Path) -> int:
    """Create the lock and return the open file.

    The file names the owner from the first moment on: an empty lock is kubectl's.

    Raises:
        FileExistsError: the lock exists.
    """
    # In the folder of the lock, because a link cannot lead to another file system.
    handle, name = tempfile.mkstemp(prefix=f"{lock.name}.", dir=lock.parent)
    try:
        # Before the lock has its name: without the kernel's lock, another gpuform would take the
        # owner for an ended process.
        _acquire_kernel_lock(handle, wait=True)
        os.write(handle, encode_lock())
        # A link appears with its content, unlike a file that is created and then written.
        os.link(name, lock)
    except FileExistsError:
        os.close(handle)
        raise
    except OSError:  # a file system without links
        os.close(handle)
        return _create_lock_in_place(lock)
    finally:
        Path(name).unlink()
    return handle


def _create_lock_in_place(lock: Path) -> int:
    """Create the lock without a link, for file systems without links, and return the open file.

    The open file holds the kernel's lock, and names this process as the owner: closing gives it up.

    Raises:
        FileExistsError: the lock exists.
    """
    handle = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
    # Another process may hold the lock for a moment, to check whether its owner ended.
    _acquire_kernel_lock(handle, wait=True)
    os.write(handle, encode_lock())
    return handle


def _take_over_lock(lock: Path) -> int | None:
    """Return the open lock of an ended gpuform, now this process's, or None for another lock.

    On Windows always None.
    """
    if sys.platform == "win32":
        return None
    try:
        handle = os.open(lock, os.O_RDWR)
    except OSError:  # just released, or kubectl's, whose mode forbids opening
        return None
    if _acquire_kernel_lock(handle, wait=False) and _is_gpuform_lock(handle, lock):
        # The lock keeps its file: a new one would allow a third process in between.
        os.truncate(handle, 0)
        os.pwrite(handle, encode_lock(), 0)
        return handle
    os.close(handle)
    return None


def _is_gpuform_lock(handle: int, lock: Path) -> bool:
    """Return whether the open file is still the lock, written by a gpuform."""
    try:
        # Between the opening and the kernel's lock, the owner may have removed the file: that lock
        # holds nothing.
        is_current_file = os.path.samestat(os.fstat(handle), lock.stat())
    except FileNotFoundError:
        return False
    lock_content = LockFile.read(lock.name, str(lock), os.pread(handle, 10_000, 0))
    return is_current_file and lock_content.is_gpuforms


def _acquire_kernel_lock(handle: int, *, wait: bool) -> bool:
    """Return whether this process got the kernel's lock; False where the file system has none."""
    if sys.platform == "win32":
        return False
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _release(lock: Path, handle: int) -> None:
    """Delete the lock, and close the open file, in the order that the operating system needs."""
    if sys.platform == "win32":  # Windows cannot remove an open file
        os.close(handle)
        lock.unlink(missing_ok=True)
        return
    # The name is removed while the kernel's lock is still held: without the lock the owner would
    # look like an ended process.
    lock.unlink(missing_ok=True)
    os.close(handle)


def _describe_holder(lock: Path) -> str:
    """Return who has the lock: gpuform with the facts in the lock, kubectl, or unknown."""
    try:
        data = lock.read_bytes()
    except OSError:
        return f"{lock} exists"
    with contextlib.suppress(ValueError):
        if isinstance(json.loads(data), dict):
            return LockFile.read(lock.name, str(lock), data).describe()
    return f"{lock} is a lock of kubectl"


TextChange = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class UserFile:
    """A file outside of the project. `label` names the file in messages: `the kubeconfig`.

    With `is_private` only the owner can read the file after its first change. Symbolic links are
    followed and stay. Every method raises EngineError.
    """

    path: Path
    label: str
    is_private: bool = True

    def read(self) -> str:
        """Return the file's text, or an empty text if there is no file."""
        try:
            # Path.read_text would change the line breaks, which must stay as they are.
            return self.path.read_bytes().decode()
        except FileNotFoundError:
            return ""
        except UnicodeDecodeError:
            raise NoAccess(f"{self.label} {self.path} is not UTF-8 text") from None
        except OSError as error:
            raise self._create_error("read", error) from None

    def refuse_inside(self, project: Path) -> None:
        """Refuse a file inside the project.

        Projects are committed and shared; credentials are not.
        """
        real_path, folder = self.path.resolve(), project.resolve()
        if real_path.is_relative_to(folder):
            link_note = f" (a link to {real_path})" if real_path != self.path.absolute() else ""
            raise NoAccess(
                f"{self.path}{link_note} is inside the project {folder}",
                hint="Projects are committed and shared: keep files with credentials elsewhere. "
                "Choose another file with --file, such as ~/.kube/config.",
            )

    def update(self, change: TextChange) -> bool:
        """Replace the text with the result of `change`; return whether the text changed.

        The change happens under kubectl's lock; `change` is called again if the file changes
        meanwhile. A missing folder is created.
        """
        try:
            if not self.path.parent.is_dir():
                self.path.parent.mkdir(parents=True, mode=0o700)
            with lock_file(self.path):
                return self._write_change(change)
        except OSError as error:
            raise self._create_error("changed", error) from None

    def delete(self) -> bool:
        """Delete the file, without the lock, and return whether the file existed."""
        try:
            self.path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._create_error("deleted", error) from None
        return True

    def _write_change(self, change: TextChange) -> bool:
        """Write the result of `change` into the file; return False if the text stays the same.

        `change` is applied again if the file changed meanwhile. A private file loses other users'
        rights.
        """
        while True:
            current = self.read()
            changed = change(current)
            if changed == current:
                return False
            self._refuse_unwritable()
            if self.read() == current:  # else an editor, which ignores locks, wrote in between
                break
        if self.is_private and self.path.exists():
            # The mode is narrowed before the new content is in place.
            self.path.chmod(stat.S_IMODE(self.path.stat().st_mode) & 0o600)
        replace_file(self.path, changed.encode())
        return True

    def _refuse_unwritable(self) -> None:
        """Refuse a read-only file, or one of another type than a regular file.

        The rights on the folder allow to replace a file whatever its own mode is, so the mode is
        checked here.
        """
        if not self.path.exists():
            return
        mode = self.path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise NoAccess(f"{self.label} {self.path} is not a regular file")
        if not mode & stat.S_IWUSR or not os.access(self.path, os.W_OK):
            raise NoAccess(
                f"{self.label} {self.path} is read-only",
                hint="Nothing was changed. Make it writable, or choose another file with --file.",
            )

    def _create_error(self, operation: str, error: OSError) -> EngineError:
        """Return, without raising, the error that the file cannot be `read`, `changed`, ..."""
        return EngineError(
            f"{self.label} {self.path} cannot be {operation}: {error.strerror or error}",
            hint="Nothing was changed.",
        )
