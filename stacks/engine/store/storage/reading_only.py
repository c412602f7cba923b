"""A storage that nothing is written to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from gpuform.providers.context import READS_ONLY
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.state import Log, Pace
from gpuform.stacks.engine.store.backend_files import BackendError
from gpuform.stacks.engine.store.storage.protocol import (
    Blob,
    Entry,
    Exclusion,
    Storage,
    Version,
)


@dataclass(frozen=True, slots=True)
class ReadingOnly:
    """Another storage as one that can only be read."""

    storage: Storage

    def read(self, name: str) -> Blob | None:
        return self.storage.read(name)

    def write(self, name: str, data: bytes, replacing: Version | None = None) -> Version:
        del data, replacing
        self._refuse(name)

    def copy(self, source: str, target: str) -> bool:
        del source
        self._refuse(target)

    def delete(self, *names: str) -> None:
        self._refuse(", ".join(names))

    def entries(self, folder: str, after: str = "") -> list[Entry]:
        return self.storage.entries(folder, after)

    def where(self, name: str) -> str:
        return self.storage.where(name)

    def name_of(self, where: str) -> str | None:
        return self.storage.name_of(where)

    def exclusion(self, name: str) -> Exclusion:
        return _Unlockable(self.storage.exclusion(name), lambda: self._refuse(name))

    def log(self, name: str, guard: Callable[[], None], unsaved: Path | None) -> Log:
        del guard, unsaved
        inner = self.storage.log(name, lambda: None, None)
        return _ReadLog(inner, lambda: self._refuse(name))

    def _refuse(self, name: str) -> NoReturn:
        raise BackendError(
            f"{self.storage.where(name)} is not written: {READS_ONLY} is set",
            hint="This process may only read. A person does what is to be done.",
        )


@dataclass(frozen=True, slots=True)
class _Unlockable:
    """A lock that others may have, and that is not taken."""

    exclusion: Exclusion
    refuse: Callable[[], NoReturn]

    @property
    def everywhere(self) -> bool:
        return self.exclusion.everywhere

    def take(self) -> LockAttempt:
        self.refuse()

    def check(self) -> None:
        self.refuse()

    def release(self) -> None:
        """It is not held."""

    def holder(self) -> str:
        return self.exclusion.holder()


@dataclass(frozen=True, slots=True)
class _ReadLog:
    """What a run has left, and nothing more."""

    log: Log
    refuse: Callable[[], NoReturn]

    @property
    def where(self) -> str:
        return self.log.where

    @property
    def pace(self) -> Pace:
        return self.log.pace

    def read(self) -> bytes:
        return self.log.read()

    def append(self, data: bytes) -> None:
        del data
        self.refuse()

    def check(self) -> None:
        self.refuse()

    def close(self) -> str:
        return self.log.where

    def remove(self) -> None:
        self.refuse()

    def set_aside(self) -> str | None:
        self.refuse()
