"""Where the lines of a journal are: appended by a run, read by the next one after a crash."""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file


class JournalError(EngineError):
    """A journal that cannot be written, or that this gpuform cannot read."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class Pace:
    """How often what is kept.

    `linger` is how long a line waits for others to go with it, in seconds. After a checkpoint that
    took d seconds the next one waits `share` times d, and `idle` seconds when nobody waits for it,
    at most: the first ones come sooner. A create waits for a checkpoint that names it, or where
    `logs_suffice` for the journal alone, once there is a checkpoint of this run.
    """

    linger: float = 0.0
    share: float = 9.0
    idle: float = 1.0
    logs_suffice: bool = False


class Readable(Protocol):
    """Lines that are there."""

    @property
    def where(self) -> str: ...

    def read(self) -> bytes:
        """All of them, in their order; nothing when there are none."""


class Log(Readable, Protocol):
    """Lines of one run, and what another may have left."""

    @property
    def pace(self) -> Pace: ...

    def append(self, data: bytes) -> None:
        """Keeps more of this run's lines; the first ones take the place of what was left."""

    def check(self) -> None:
        """Raises EngineError when nothing more may be begun."""

    def close(self) -> str:
        """The run is over and its lines stay; tells where what is left is, and how it is used."""

    def remove(self) -> None:
        """Nothing of it is needed any more."""

    def set_aside(self) -> str | None:
        """Keeps what is there beside its place, which is returned."""


class FileLog:
    """A log in a file."""

    pace = Pace()

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO | None = None

    @property
    def where(self) -> str:
        return str(self.path)

    def read(self) -> bytes:
        try:
            return self.path.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise JournalError(
                f"the journal {self.path} cannot be read: {error.strerror}"
            ) from error

    def append(self, data: bytes) -> None:
        """Raises JournalError."""
        try:
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(self.path, data)
                self._file = self.path.open("ab")
            else:
                self._file.write(data)
                self._file.flush()
                os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(
                f"the journal {self.path} cannot be written: {error.strerror or error}",
                hint="Make room or fix the permissions, and run the command again: the last "
                "checkpoint is untouched.",
            ) from error

    def check(self) -> None:
        """A file stays ours; a write that fails tells it."""

    def close(self) -> str:
        if self._file is not None:
            self._file.close()
            self._file = None
        return ""

    def remove(self) -> None:
        self.close()
        self.path.unlink(missing_ok=True)

    def set_aside(self) -> str | None:
        if not self.path.exists():
            return None
        kept = self.path.with_name(f"{self.path.name}.{time.time_ns()}")
        self.path.replace(kept)
        return str(kept)
