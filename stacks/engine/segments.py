"""A journal in a bucket: numbered objects, each with the lines of a moment."""

import contextlib
import gzip
import time
import uuid
from collections.abc import Callable

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.journal_log import JournalError, Pace
from gpuform.stacks.engine.storage.protocol import ABSENT, Storage
from gpuform.stacks.engine.unsaved import Unsaved


class SegmentLog:
    """A log under a name. Each segment is made with If-None-Match and tells whose run it is.

    What cannot be kept goes to `unsaved`, and `check` says so from then on.
    """

    pace = Pace(linger=0.03, share=99.0, idle=60.0, logs_suffice=True)

    def __init__(
        self,
        storage: Storage,
        name: str,
        guard: Callable[[], None],
        unsaved: Unsaved | None = None,
    ) -> None:
        self._storage, self._name = storage, name
        self._guard, self._unsaved = guard, unsaved
        self._run = uuid.uuid4().hex
        self._count = 0
        self._failure: EngineError | None = None

    @property
    def where(self) -> str:
        return self._storage.where(self._name)

    def read(self) -> bytes:
        """The first run's segments, as far as none is missing."""
        return b"".join(lines for _, lines in self.segments())

    def segments(self) -> list[tuple[str, bytes]]:
        """Run and lines of each segment. Raises JournalError for one that is none."""
        found: list[tuple[str, bytes]] = []
        for name in self._names():
            blob = self._storage.read(name)
            if name != self._segment(len(found)) or blob is None:
                break
            run, lines = self._unpacked(name, blob.data)
            if found and run != found[0][0]:
                break
            found.append((run, lines))
        return found

    def append(self, data: bytes) -> None:
        """Raises JournalError only when the lines can be kept nowhere."""
        if self._failure is None:
            try:
                self._put(data)
            except EngineError as error:
                self._failure = error
        if self._failure is not None:
            if self._unsaved is None:
                raise self._failure
            self._unsaved.append(self._run, self._count, data)
        self._count += 1

    def check(self) -> None:
        if self._failure is not None:
            raise EngineError(
                f"the state cannot be kept: {self._failure}",
                hint="\n".join(filter(None, [self._failure.hint, self.close()])),
            )
        self._guard()

    def close(self) -> str:
        if self._failure is None or self._unsaved is None:
            return (
                f"What this run did is in its journal {self.where}: the next command goes on from "
                "there."
            )
        return self._unsaved.advice

    def remove(self) -> None:
        self._storage.delete(*self._names())
        if self._unsaved is not None:
            self._unsaved.remove()

    def set_aside(self) -> str | None:
        names = self._names()
        if not names:
            return None
        kept = f"{self._name}.{time.time_ns()}"
        for name in names:
            self._storage.copy(name, f"{kept}/{name.rpartition('/')[2]}")
        self._storage.delete(*names)
        return self._storage.where(kept)

    def _put(self, data: bytes) -> None:
        name = self._segment(self._count)
        packed = gzip.compress(self._run.encode() + b"\n" + data, 6, mtime=0)
        self._guard()
        self._storage.write(name, packed, replacing=ABSENT)
        try:
            # Written while it was ours still: a successor reads it.
            self._guard()
        except EngineError:
            with contextlib.suppress(EngineError):
                self._storage.delete(name)
            raise

    def _unpacked(self, name: str, data: bytes) -> tuple[str, bytes]:
        try:
            run, _, lines = gzip.decompress(data).partition(b"\n")
        except (OSError, EOFError) as error:
            raise JournalError(
                f"{self._storage.where(name)} is no part of a journal: {error}",
                hint="Give up what it adds with `gpuform state repair --discard-journal`.",
            ) from error
        return run.decode(errors="replace"), lines

    def _segment(self, number: int) -> str:
        return f"{self._name}/{number:08d}"

    def _names(self) -> list[str]:
        return [entry.name for entry in self._storage.entries(self._name)]
