"""Define what the engine needs from a storage of states, with its errors and compression.

A storage knows neither paths nor buckets. `Backend` and `RunHistory` call it; `local_files` and
`buckets` have the storages.
"""

import gzip
import importlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.state import Log

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
    """Build the error of a compressed file that is incomplete."""
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
        """Try once to take the lock, without waiting."""

    def check(self) -> None:
        """Raise EngineError if another process may have the lock by now."""

    def release(self) -> None:
        """Release the lock if held."""

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
        """Delete the existing ones of `names`."""

    def list_entries(self, folder: str, after: str = "") -> list[BlobEntry]:
        """List everything below `folder` with a name after `after`, sorted by name."""

    def locate(self, name: str) -> str:
        """Return the location of `name` for messages."""

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
