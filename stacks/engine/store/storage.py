"""Define what the engine needs from a storage of states, and store states in a local folder.

A storage knows only names and bytes. `Backend` and `RunHistory` call it, `open_storage` creates it:
`Files` here for a folder, `Objects` of `buckets` for a bucket, and around either one a
`ReadOnlyStorage`.
"""

import gzip
import importlib
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol

from gpuform.providers.context import READS_ONLY
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import KernelLock, LockAttempt, replace_file
from gpuform.stacks.engine.state import FileLog, Log, WritePacing

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


MAKE_ROOM = "Free some disk space or fix the permissions, and run the command again."
"""The hint for files that cannot be written."""


class BackendError(EngineError):
    """The storage of the stacks cannot be used."""

    help_page = "guides/state-for-a-team"


class DamagedFile(BackendError):
    """A file of the backend whose content is not valid."""


def decompress(data: bytes, where: str) -> bytes:
    """Decompress a file's content by the compression shown in the first bytes.

    Args:
        data: the content as stored; returned unchanged if it is not compressed.
        where: the file's location for errors.

    Raises:
        DamagedFile: the file is cut off or damaged.
        BackendError: this Python lacks the compression (zstd before 3.14).
    """
    if data.startswith(_GZIP):
        try:
            return gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise _build_damaged_error(where) from error
    if data.startswith(_ZSTD):
        zstd = _import_zstd(where)
        try:
            return bytes(zstd.decompress(data))
        except zstd.ZstdError as error:
            raise _build_damaged_error(where) from error
    return data


def _build_damaged_error(where: str) -> DamagedFile:
    """Build the error for an incomplete compressed file."""
    return DamagedFile(
        f"{where} is not a complete compressed file",
        hint="Restore it from the .bak file beside it or from .pulumi/backups.",
    )


def compress(data: bytes, name: str) -> bytes:
    """Compress the content by the ending of `name`: .zst, .gz, or none.

    Raises BackendError for .zst if this Python has no zstd (before 3.14).
    """
    if name.endswith(".zst"):
        return bytes(_import_zstd(name).compress(data))
    return gzip.compress(data) if name.endswith(".gz") else data


def _import_zstd(where: str) -> Any:
    """Import the standard library's zstd module, which exists from Python 3.14 on."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        raise BackendError(
            f"{where} is compressed with zstd, which this Python cannot read",
            hint="Run gpuform with Python 3.14 or newer, or let the Pulumi CLI write the state "
            "with PULUMI_DIY_BACKEND_ZSTD unset.",
        ) from None


class ChangedMeanwhile(BackendError):
    """Another process has written the file that was to be replaced."""


class Unwritable(BackendError):
    """A file that cannot be written; its earlier content is certainly untouched."""


class StorageFailed(BackendError):
    """The storage refuses a request, does not answer, or does not exist."""


class BlobVersion(NamedTuple):
    """The version for a conditional write: an ETag, for Google Cloud Storage also a generation."""

    e_tag: str | None = None
    generation: str | None = None


ABSENT = BlobVersion()
"""The version of a name that does not exist."""


@dataclass(frozen=True, slots=True)
class Blob:
    """The content of a name; `modified` is by the storage's own clock."""

    data: bytes
    version: BlobVersion
    modified: datetime


@dataclass(frozen=True, slots=True)
class BlobEntry:
    """A name in a storage, and when its content was written."""

    name: str
    modified: datetime


class Exclusion(Protocol):
    """A lock that lets one gpuform process at a time work on a stack.

    `everywhere` is True if the lock excludes processes of other machines too.
    """

    @property
    def everywhere(self) -> bool:
        """Return True if the lock excludes processes of other machines too."""

    def take(self) -> LockAttempt:
        """Try once to take the lock on the backend, without waiting."""

    def check(self) -> None:
        """Raise EngineError if another process may have the lock by now."""

    def release(self) -> None:
        """Release the lock on the backend's object, if held."""

    def describe_holder(self) -> str:
        """Describe the holder of the lock for messages."""


class Storage(Protocol):
    """A folder of files or a bucket of objects. Every method raises BackendError."""

    def read(self, name: str) -> Blob | None:
        """Return the content of `name`, or None for an unknown name."""

    def write(self, name: str, data: bytes, replacing: BlobVersion | None = None) -> BlobVersion:
        """Write `name` atomically; on return the content is stored.

        Args:
            name: the file's name.
            data: the complete content.
            replacing: replace only this version (ABSENT: create), else raise ChangedMeanwhile.
                Files ignore the version: their lock is the kernel's, and nobody takes it over.
        """

    def copy(self, source: str, target: str) -> bool:
        """Copy `source` to `target`; return False if `source` does not exist."""

    def delete(self, *names: str) -> None:
        """Delete the files called `names` from the backend; missing files are no error."""

    def list_entries(self, folder: str, after: str = "") -> list[BlobEntry]:
        """List everything below `folder` with a name after `after`, sorted by name."""

    def locate(self, name: str) -> str:
        """Return the location of the backend's file `name`, for messages."""

    def get_name(self, where: str) -> str | None:
        """Return the name at the location `where`, or None for a location outside."""

    def create_exclusion(self, name: str) -> Exclusion:
        """Create the lock with this name, not yet taken."""

    def open_log(self, name: str, guard: Callable[[], None], unsaved: Path | None) -> Log:
        """Open the log with this name.

        Args:
            name: the log's name.
            guard: raises EngineError when this process must not write to the log any more.
            unsaved: a local file for lines that cannot be stored.
        """


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
        """Return the path of the backend's file `name`, for messages."""
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
        """Raise BackendError: a read-only backend writes nothing."""
        del data, replacing
        self._raise_read_only(name)

    def copy(self, source: str, target: str) -> bool:
        """Raise BackendError for `target`: nothing is copied."""
        del source
        self._raise_read_only(target)

    def delete(self, *names: str) -> None:
        """Raise BackendError: a read-only backend deletes nothing."""
        self._raise_read_only(", ".join(names))

    def list_entries(self, folder: str, after: str = "") -> list[BlobEntry]:
        return self.storage.list_entries(folder, after)

    def locate(self, name: str) -> str:
        return self.storage.locate(name)

    def get_name(self, where: str) -> str | None:
        return self.storage.get_name(where)

    def create_exclusion(self, name: str) -> Exclusion:
        """Create a lock with `describe_holder` alone; `take` and `check` raise BackendError."""
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
        """Return the log's location, and leave the log unchanged."""
        return self.log.where

    def remove(self) -> None:
        """Raise BackendError: a read-only journal keeps its lines."""
        self.refuse()

    def set_aside(self) -> str | None:
        """Raise BackendError: a read-only journal moves no lines."""
        self.refuse()
