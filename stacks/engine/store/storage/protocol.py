"""What the engine asks of the place where state is kept; it knows neither paths nor buckets.

Names are those of Pulumi's DIY layout, with slashes: `.pulumi/stacks/demo/dev.json`.
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
    """Somebody else has written what was to be replaced."""


class Unwritable(BackendError):
    """Something cannot be written, and what was there before is untouched for sure."""


class StorageFailed(BackendError):
    """The storage did not do what it was asked: it refuses, does not answer, or is gone."""


class Version(NamedTuple):
    """What a conditional write names: an ETag, or for Google Cloud Storage a generation too."""

    e_tag: str | None = None
    generation: str | None = None


ABSENT = Version()
"""Nothing is there."""


@dataclass(frozen=True, slots=True)
class Blob:
    """What is under a name; `modified` is by the storage's own clock."""

    data: bytes
    version: Version
    modified: datetime


@dataclass(frozen=True, slots=True)
class Entry:
    """A name that something is under, and when that was written."""

    name: str
    modified: datetime


class Exclusion(Protocol):
    """What lets one gpuform process at a time work on a stack.

    `everywhere` tells whether it excludes those of other machines, too.
    """

    @property
    def everywhere(self) -> bool: ...

    def take(self) -> LockAttempt:
        """Tries once, without waiting."""

    def check(self) -> None:
        """Raises EngineError when it may be another's by now."""

    def release(self) -> None:
        """Gives it back; without effect when it is not held."""

    def holder(self) -> str:
        """Who has it, for people."""


class Storage(Protocol):
    """A folder of files or a bucket of objects. Everything raises BackendError."""

    def read(self, name: str) -> Blob | None:
        """What is under the name, or None."""

    def write(self, name: str, data: bytes, replacing: Version | None = None) -> Version:
        """Puts the whole under the name in one step; on return it is kept.

        With `replacing` only in the place of that version (ABSENT: of nothing), else Changed.
        Files cannot tell and need not: their lock is the kernel's, and nobody takes it over.
        """

    def copy(self, source: str, target: str) -> bool:
        """Has `target` hold the same; False when there is nothing to copy."""

    def delete(self, *names: str) -> None:
        """Removes what is there of these."""

    def entries(self, folder: str, after: str = "") -> list[Entry]:
        """Everything in a folder and in those in it, behind `after`, sorted by name."""

    def where(self, name: str) -> str:
        """The name as people find it."""

    def name_of(self, where: str) -> str | None:
        """The name of what `where` tells, or None when that is not in here."""

    def exclusion(self, name: str) -> Exclusion:
        """The lock with that name, not yet taken."""

    def log(self, name: str, guard: Callable[[], None], unsaved: Path | None) -> Log:
        """The log with that name. `guard` raises EngineError when it is no longer ours to write.

        `unsaved` is a file for what cannot be kept.
        """
