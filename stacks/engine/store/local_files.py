"""Store state in a local folder, and wrap a storage so that it is read-only.

`open_storage` creates both; files are replaced by `machine.files`.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from gpuform.providers.context import READS_ONLY
from gpuform.stacks.engine.machine import KernelLock, LockAttempt, replace_file
from gpuform.stacks.engine.state import FileLog, Log, WritePacing
from gpuform.stacks.engine.store.storage import (
    ABSENT,
    MAKE_ROOM,
    BackendError,
    Blob,
    BlobEntry,
    BlobVersion,
    Exclusion,
    Storage,
    Unwritable,
)


class Files:
    """A storage in the existing folder `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: str) -> Blob | None:
        """Return the file, or None for a missing one. Raises BackendError."""
        path = self._path(name)
        try:
            return Blob(path.read_bytes(), ABSENT, _get_modified_time(path))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise BackendError(f"{path} cannot be read: {error.strerror or error}") from error

    def write(self, name: str, data: bytes, replacing: BlobVersion | None = None) -> BlobVersion:
        """Replace the file in one step and return ABSENT; `replacing` is ignored.

        Raises Unwritable.
        """
        # The kernel's lock keeps other writers out, so that no version is compared.
        del replacing
        path = self._path(name)
        try:
            replace_file(path, data)
        except OSError as error:
            raise Unwritable(
                f"{path} cannot be written: {error.strerror or error}",
                hint=f"The previous file is unchanged. {MAKE_ROOM}",
            ) from error
        return ABSENT

    def copy(self, source: str, target: str) -> bool:
        """Copy the file; return False if there is none. Raises BackendError."""
        blob = self.read(source)
        if blob is not None:
            self.write(target, blob.data)
        return blob is not None

    def delete(self, *names: str) -> None:
        """Delete the files; missing ones are ignored. Raises BackendError."""
        for name in names:
            path = self._path(name)
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise BackendError(
                    f"{path} cannot be removed: {error.strerror or error}",
                    hint="Fix the permissions, or remove the file by hand.",
                ) from error

    def list_entries(self, folder: str, after: str = "") -> list[BlobEntry]:
        """List all files below the folder with names after `after`, sorted by name."""
        files = (path for path in self._path(folder).rglob("*") if path.is_file())
        named = sorted((path.relative_to(self.root).as_posix(), path) for path in files)
        entries = []
        for name, path in named:
            # Another process may remove a file after the listing, such as its lock file.
            with suppress(FileNotFoundError):
                if name > after:
                    entries.append(BlobEntry(name, _get_modified_time(path)))
        return entries

    def locate(self, name: str) -> str:
        """Return the file's path as text."""
        return str(self._path(name))

    def get_name(self, where: str) -> str | None:
        """Return the name of the file at a path, or None outside of the folder."""
        path = Path.cwd() / where
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) else None

    def create_exclusion(self, name: str) -> Exclusion:
        """Create the kernel's lock on the file `name`, not yet taken."""
        return KernelLock(self._path(name))

    def open_log(self, name: str, guard: Callable[[], None], unsaved: Path | None) -> Log:
        """Open the journal log in the file `name`; `guard` and `unsaved` are ignored."""
        del guard, unsaved
        return FileLog(self._path(name))

    def _path(self, name: str) -> Path:
        """Return the path of `name` in the storage's folder."""
        return self.root / name


def _get_modified_time(path: Path) -> datetime:
    """Return the time of a file's last change in UTC. Raises OSError."""
    return datetime.fromtimestamp(path.stat().st_mtime_ns / 1e9, UTC)


@dataclass(frozen=True, slots=True)
class ReadOnlyStorage:
    """Another storage, read-only: every method that would write raises BackendError."""

    storage: Storage

    def read(self, name: str) -> Blob | None:
        return self.storage.read(name)

    def write(self, name: str, data: bytes, replacing: BlobVersion | None = None) -> BlobVersion:
        """Raise BackendError: nothing is written."""
        del data, replacing
        self._raise_read_only(name)

    def copy(self, source: str, target: str) -> bool:
        """Raise BackendError for `target`: nothing is copied."""
        del source
        self._raise_read_only(target)

    def delete(self, *names: str) -> None:
        """Raise BackendError: nothing is deleted."""
        self._raise_read_only(", ".join(names))

    def list_entries(self, folder: str, after: str = "") -> list[BlobEntry]:
        return self.storage.list_entries(folder, after)

    def locate(self, name: str) -> str:
        return self.storage.locate(name)

    def get_name(self, where: str) -> str | None:
        return self.storage.get_name(where)

    def create_exclusion(self, name: str) -> Exclusion:
        """Create a lock that can describe its holder; `take` and `check` raise BackendError."""
        return _ReadOnlyExclusion(
            self.storage.create_exclusion(name), lambda: self._raise_read_only(name)
        )

    def open_log(self, name: str, guard: Callable[[], None], unsaved: Path | None) -> Log:
        """Open the log for reading: every change of the log raises BackendError.

        `guard` and `unsaved` are ignored, since nothing is written.
        """
        del guard, unsaved
        inner = self.storage.open_log(name, lambda: None, None)
        return _ReadOnlyLog(inner, lambda: self._raise_read_only(name))

    def _raise_read_only(self, name: str) -> NoReturn:
        """Raise BackendError, which names the location of `name` and the variable READS_ONLY."""
        raise BackendError(
            f"{self.storage.locate(name)} was not written: {READS_ONLY} is set",
            hint="This process may only read: a person has to run the command.",
        )


@dataclass(frozen=True, slots=True)
class _ReadOnlyExclusion:
    """A lock that others may hold and this process never takes.

    `refuse` raises BackendError; `take` and `check` call it.
    """

    exclusion: Exclusion
    refuse: Callable[[], NoReturn]

    @property
    def everywhere(self) -> bool:
        return self.exclusion.everywhere

    def take(self) -> LockAttempt:
        """Raise BackendError: a read-only process takes no lock."""
        self.refuse()

    def check(self) -> None:
        """Raise BackendError: this process never has the lock."""
        self.refuse()

    def release(self) -> None:
        """Do nothing: this process never holds the lock."""

    def describe_holder(self) -> str:
        return self.exclusion.describe_holder()


@dataclass(frozen=True, slots=True)
class _ReadOnlyLog:
    """The journal log that a run left, read-only.

    `refuse` raises BackendError; every method that would write calls it.
    """

    log: Log
    refuse: Callable[[], NoReturn]

    @property
    def where(self) -> str:
        return self.log.where

    @property
    def pace(self) -> WritePacing:
        return self.log.pace

    def read(self) -> bytes:
        return self.log.read()

    def append(self, data: bytes) -> None:
        """Raise BackendError: this process may only read."""
        del data
        self.refuse()

    def check(self) -> None:
        """Raise BackendError: a read-only run must not begin an operation."""
        self.refuse()

    def close(self) -> str:
        """Return the log's location, and leave the log as it is."""
        return self.log.where

    def remove(self) -> None:
        """Raise BackendError: no lines are removed."""
        self.refuse()

    def set_aside(self) -> str | None:
        """Raise BackendError: no lines are moved."""
        self.refuse()
