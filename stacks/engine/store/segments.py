"""Store a run's journal in numbered objects of a bucket, and unwritable parts in a local file.

A create starts once a segment in the bucket names it as pending. A reader of the checkpoint alone,
like the Pulumi CLI, finds the pending operations of the first create of the run, and of at most
`WritePacing.max_idle_spacing` seconds before its end: a checkpoint for every group of creates would
send the complete state again and again. Until a person gives up the lock that an interrupted run
leaves (`pulumi cancel`), the Pulumi CLI does not continue from there; gpuform reads the journal
first. Each line of the local file is JSON: the run, the number of the segment in its journal, and
the segment's lines. `Objects.open_log` creates the log; `gpuform state recover` reads the file.
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

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.state import JournalError, WritePacing
from gpuform.stacks.engine.store.storage import ABSENT, Storage
from gpuform.stacks.engine.value_json import load


class UnsavedRun(EngineError):
    """A run ended whose state is still on this machine."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class UnsavedSegment:
    """One segment of a journal that the store may not have."""

    journal: str
    run: str
    number: int
    lines: bytes


@dataclass(frozen=True, slots=True)
class UnsavedFile:
    """The local file at `path` for the segments of the run whose journal is at `journal`."""

    path: Path
    journal: str

    @property
    def advice(self) -> str:
        """Return a message with the file's path and the command that stores the file's changes."""
        return (
            f"The later changes of this run are saved in {self.path}: when the store answers "
            "again, run `gpuform state recover`."
        )

    def append(self, run: str, number: int, lines: bytes) -> None:
        """Append a segment and sync the file to this machine's disk. Raises JournalError."""
        document = {"journal": self.journal, "run": run, "number": number, "lines": lines.decode()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # The lines are parts of the state: only this user may read them.
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(json.dumps(document).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise JournalError(
                "the changes of this run can be written neither to the store nor to "
                f"{self.path}: {error.strerror}",
                hint="Compare the state with the platform before the next run: `gpuform refresh`.",
            ) from error

    def remove(self) -> None:
        """Remove the local file; a missing file is no error."""
        self.path.unlink(missing_ok=True)

    def read_segments(self) -> list[UnsavedSegment]:
        """Read the segments; without a file there are none. Raises JournalError.

        An incomplete last line of a crashed run is skipped.
        """
        try:
            content = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise JournalError(f"{self.path} cannot be read: {error}") from error
        try:
            # The last part is empty, or a line cut off by a crash.
            return [_parse_part(line) for line in content.split("\n")[:-1]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise JournalError(
                f"{self.path} is damaged: {error}",
                hint="Compare the state with the platform and import the objects that exist. Then "
                "remove the file.",
            ) from error


def reject_unsaved_run(path: Path) -> None:
    """Raise UnsavedRun if there is an unsaved run at `path`."""
    if path.exists():
        raise UnsavedRun(
            f"the last run here could not write its state: its changes are in {path}",
            hint="Run `gpuform state recover` first.",
        )


def _parse_part(line: str) -> UnsavedSegment:
    """Parse a line of the local file into a segment of a journal."""
    document = load(line)
    return UnsavedSegment(
        document["journal"], document["run"], document["number"], document["lines"].encode()
    )


class SegmentLog:
    """A journal log in a bucket; each run writes to its own folder.

    So an owner that was stopped and wakes up neither changes nor removes the segments of its
    successor. Segments that the store refuses go to `unsaved`, and `check` raises from then on.
    """

    pace = WritePacing(
        group_commit_delay=0.03,
        # d seconds of writing and 99 d of pause: each checkpoint sends the complete state again
        checkpoint_spacing_factor=99.0,
        max_idle_spacing=60.0,
        logs_suffice=True,
    )

    def __init__(
        self,
        storage: Storage,
        name: str,
        guard: Callable[[], None],
        unsaved: UnsavedFile | None = None,
    ) -> None:
        self._storage, self._name = storage, name
        self._guard, self._unsaved = guard, unsaved
        self._run = uuid.uuid4().hex
        self._count = 0
        self._failure: EngineError | None = None

    @property
    def where(self) -> str:
        """Return the location of the log's folder in the bucket, for messages."""
        return self._storage.locate(self._name)

    def read(self) -> bytes:
        """Return the lines of all runs, of each run up to the first missing segment."""
        return b"".join(
            lines for run in sorted(self.list_runs()) for lines in self.read_segments(run)
        )

    def list_runs(self) -> set[str]:
        """Return the runs with segments in the bucket; usually one at most."""
        return {name.split("/")[-2] for name in self._list_names()}

    def read_segments(self, run: str) -> list[bytes]:
        """Return the lines of a run's segments up to the first missing one. Raises JournalError."""
        segments: list[bytes] = []
        while (
            blob := self._storage.read(self._build_segment_name(run, len(segments)))
        ) is not None:
            segments.append(self._decompress(run, len(segments), blob.data))
        return segments

    def append(self, data: bytes) -> None:
        """Append lines as the next segment, or to the local file if the store refuses them.

        After a first refusal all later lines go to the local file.

        Raises:
            JournalError: neither the store nor the local file takes the lines.
            EngineError: the store refuses the lines and there is no local file.
        """
        if self._failure is None:
            try:
                self._write_segment(data)
            except EngineError as error:
                # Later segments go to the local file too: readers stop at the first missing one.
                self._failure = error
        if self._failure is not None:
            if self._unsaved is None:
                raise self._failure
            self._unsaved.append(self._run, self._count, data)
        self._count += 1

    def check(self) -> None:
        """Raise EngineError if the store has refused a segment, or the lock is lost."""
        if self._failure is not None:
            raise EngineError(
                f"the state cannot be stored: {self._failure.message}",
                hint="\n".join(filter(None, [self._failure.hint, self.close()])),
            )
        self._guard()

    def close(self) -> str:
        """Return a line for the user on where the changes of this run are."""
        if self._failure is None or self._unsaved is None:
            return (
                f"The changes of this run are in its journal {self.where}: the next command "
                "continues from there."
            )
        return self._unsaved.advice

    def remove(self) -> None:
        """Remove the segments listed before the guard's check: later ones belong to a successor.

        Also removes the local file. Raises EngineError, with nothing removed, if the lock is lost.
        """
        names = self._list_names()
        self._guard()
        if self._unsaved is not None:
            self._unsaved.remove()
        self._storage.delete(*names)

    def set_aside(self) -> str | None:
        """Move the segments to another name and return its location, or None without segments.

        The local file stays.
        """
        names = self._list_names()
        if not names:
            return None
        backup_name = f"{self._name}.{time.time_ns()}"
        for name in names:
            self._storage.copy(name, f"{backup_name}{name.removeprefix(self._name)}")
        self._storage.delete(*names)
        return self._storage.locate(backup_name)

    def _write_segment(self, data: bytes) -> None:
        """Write the next segment while the lock is held; a segment written too late is removed.

        Raises:
            EngineError: the store refuses it, or the lock was lost.
        """
        name = self._build_segment_name(self._run, self._count)
        # mtime=0: equal lines give equal bytes, so that the storage recognizes a repeated request.
        packed = gzip.compress(data, 6, mtime=0)
        self._guard()
        self._storage.write(name, packed, replacing=ABSENT)
        try:
            # Only a lock that is still held now proves that the segment was written in time for a
            # successor to read it.
            self._guard()
        except EngineError:
            with contextlib.suppress(EngineError):
                self._storage.delete(name)
            raise

    def _decompress(self, run: str, number: int, data: bytes) -> bytes:
        """Return the segment's lines. Raises JournalError for a damaged one."""
        try:
            return gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            where = self._storage.locate(self._build_segment_name(run, number))
            raise JournalError(
                f"{where} is not a part of a journal: {error}",
                hint="Discard its changes with `gpuform state repair --discard-journal`.",
            ) from error

    def _build_segment_name(self, run: str, number: int) -> str:
        """Build the name of a run's segment, with the number in eight digits."""
        return f"{self._name}/{run}/{number:08d}"

    def _list_names(self) -> list[str]:
        """Return the names of all segments of all runs, sorted."""
        return [entry.name for entry in self._storage.list_entries(self._name)]
