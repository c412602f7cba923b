"""Keep a run's journal in numbered objects of a bucket, and in the project's folder what could not
be kept there.

A create starts once a segment in the bucket names it as pending. Who reads the checkpoint alone, as
the Pulumi CLI does, finds there what was pending when the first create of the run began, and at
most `Pace.idle` seconds before its end: a checkpoint for every group of creates would send the
whole state again and again. Until a person gives up the lock that an interrupted run leaves
(`pulumi cancel`), the Pulumi CLI does not go on from there; gpuform reads the journal first.

Each line is JSON: the run, the number of the segment of its journal, and that segment's lines.
"""

import contextlib
import gzip
import json
import os
import time
import uuid
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import JournalError, WritePacing
from gpuform.stacks.engine.store.storage.protocol import ABSENT, Storage
from gpuform.stacks.engine.values import load


class UnsavedRun(EngineError):
    """A run ended whose state is still on this machine."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class Part:
    """One segment of a journal that the store does not have, or may have."""

    journal: str
    run: str
    number: int
    lines: bytes


@dataclass(frozen=True, slots=True)
class Unsaved:
    """The file at `path`, of the run whose journal is at `journal`."""

    path: Path
    journal: str

    @property
    def advice(self) -> str:
        return (
            f"What this run did since then is kept in {self.path}: when the store answers again, "
            "`gpuform state recover` brings it back."
        )

    def append(self, run: str, number: int, lines: bytes) -> None:
        """Keeps a part on this machine's disk. Raises JournalError."""
        document = {"journal": self.journal, "run": run, "number": number, "lines": lines.decode()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(json.dumps(document).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise JournalError(
                f"neither the store nor {self.path} takes what this run did: {error.strerror}",
                hint="Compare the state with the platform before the next run: `gpuform refresh`.",
            ) from error

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def parts(self) -> list[Part]:
        """What is kept; a line that a crash has cut off nobody relied on. Raises JournalError."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise JournalError(f"{self.path} cannot be read: {error}") from error
        try:
            return [_part(line) for line in text.split("\n")[:-1]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise JournalError(
                f"{self.path} is damaged: {error}",
                hint="Compare the state with the platform: what exists can be imported. Then "
                "remove the file.",
            ) from error


def refuse_unsaved(path: Path) -> None:
    """Raises UnsavedRun when there is something at a path for it."""
    if path.exists():
        raise UnsavedRun(
            f"the last run here could not keep its state: what it did is in {path}",
            hint="Bring it back first: `gpuform state recover`.",
        )


def _part(line: str) -> Part:
    document = load(line)
    return Part(
        document["journal"], document["run"], document["number"], document["lines"].encode()
    )


class SegmentLog:
    """A log under a name. A run writes to a folder of its own, so that an owner who was stopped
    and wakes up neither changes nor removes what its successor has written.

    What cannot be kept goes to `unsaved`, and `check` says so from then on.
    """

    pace = WritePacing(
        group_commit_delay=0.03,
        checkpoint_spacing_factor=99.0,
        max_idle_spacing=60.0,
        logs_suffice=True,
    )

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
        """The runs one after the other, each as far as no segment is missing."""
        return b"".join(lines for run in sorted(self.runs()) for lines in self.segments(run))

    def runs(self) -> set[str]:
        """Those that left something; usually one at most."""
        return {name.split("/")[-2] for name in self._names()}

    def segments(self, run: str) -> list[bytes]:
        """The lines of each segment of a run, as far as none is missing. Raises JournalError."""
        found: list[bytes] = []
        while (blob := self._storage.read(self._segment(run, len(found)))) is not None:
            found.append(self._unpacked(run, len(found), blob.data))
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
                f"the state cannot be kept: {self._failure.message}",
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
        """Of what was there while it was ours for sure; a successor's comes later."""
        names = self._names()
        self._guard()
        if self._unsaved is not None:
            self._unsaved.remove()
        self._storage.delete(*names)

    def set_aside(self) -> str | None:
        names = self._names()
        if not names:
            return None
        kept = f"{self._name}.{time.time_ns()}"
        for name in names:
            self._storage.copy(name, f"{kept}{name.removeprefix(self._name)}")
        self._storage.delete(*names)
        return self._storage.where(kept)

    def _put(self, data: bytes) -> None:
        name = self._segment(self._run, self._count)
        packed = gzip.compress(data, 6, mtime=0)
        self._guard()
        self._storage.write(name, packed, replacing=ABSENT)
        try:
            # Written while it was ours still: a successor reads it.
            self._guard()
        except EngineError:
            with contextlib.suppress(EngineError):
                self._storage.delete(name)
            raise

    def _unpacked(self, run: str, number: int, data: bytes) -> bytes:
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            where = self._storage.where(self._segment(run, number))
            raise JournalError(
                f"{where} is no part of a journal: {error}",
                hint="Give up what it adds with `gpuform state repair --discard-journal`.",
            ) from error

    def _segment(self, run: str, number: int) -> str:
        return f"{self._name}/{run}/{number:08d}"

    def _names(self) -> list[str]:
        return [entry.name for entry in self._storage.entries(self._name)]
