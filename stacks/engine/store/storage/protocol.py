"""Define what the engine needs from a storage of states, without paths or buckets.

Names are those of Pulumi's DIY layout, with slashes: `.pulumi/stacks/demo/dev.json`. `files` and
`objects` implement the protocols; `Backend`, locks and histories call them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.state import Log
from gpuform.stacks.engine.store.backend_files import BackendError


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
