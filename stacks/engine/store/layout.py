"""Name files in Pulumi's DIY layout, mark stacks that moved away, and store the history of a stack.

`Backend` calls this module. `engine.stack.moving` writes the markers, and `Backend` refuses the
stacks that have one. A marker lies beside the checkpoint, whose folder every command lists anyway:
looking for a marker costs no request. The Pulumi CLI reads only names with the suffixes of
checkpoints in that folder. The history has Pulumi's entries, and gpuform's logs beside them.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.state import format_timestamp
from gpuform.stacks.engine.store.storage import (
    BlobEntry,
    DamagedFile,
    Storage,
    compress,
    decompress,
)
from gpuform.stacks.engine.value_json import Json, dump, load

SUFFIXES = (".json", ".json.gz", ".json.zst")


def build_name(*parts: str) -> str:
    """Return the name of a folder or file in `.pulumi`."""
    return "/".join((".pulumi", *parts))


def build_own_name(project: str, stack: str, kind: str) -> str:
    """Return the name of one of gpuform's own files about a stack."""
    return build_name("gpuform", project, f"{stack}.{kind}")


def get_suffix(name: str, stack: str) -> str:
    """Return the part of a file's name after the stack's name: the format and compression."""
    return name.rpartition("/")[2].removeprefix(stack)


def create_timestamp(storage: Storage, stem: str) -> int:
    """Return a time in nanoseconds for a new name: now, or later than all names with this stem.

    A clock may have been set back; without this, a new entry would sort before an older one.
    """
    pattern = re.compile(rf"{re.escape(stem)}(\d+)(\.|$)")
    now = time.time_ns()
    later = storage.list_entries(stem.rpartition("/")[0], after=f"{stem}{now}")
    matches = (pattern.match(entry.name) for entry in later)
    return max([now, *(int(match[1]) + 1 for match in matches if match)])


MOVED, ARRIVING = "moved", "arriving"
"""The kinds of markers: the stack is at another place, or is being copied from one."""


class StackMoved(EngineError):
    """The stack is at another backend, or its move to this one is not complete."""

    help_page = "guides/state-for-a-team"


def build_marker_name(project: str, stack: str, kind: str) -> str:
    """Return the name of a stack's marker; `kind` is MOVED or ARRIVING."""
    return build_name("stacks", project, f"{stack}.{kind}")


def write_marker(storage: Storage, project: str, stack: str, kind: str, url: str) -> None:
    """Write a marker with the URL of the other backend. Raises BackendError."""
    document = {"version": 1, "url": url, "time": format_timestamp()}
    storage.write(build_marker_name(project, stack, kind), json.dumps(document).encode())


def read_marker(storage: Storage, project: str, stack: str, kind: str) -> str | None:
    """Return the URL in a marker, or None without one. Raises DamagedFile."""
    name = build_marker_name(project, stack, kind)
    blob = storage.read(name)
    if blob is None:
        return None
    try:
        return str(load(blob.data)["url"])
    except (ValueError, LookupError, TypeError) as error:
        raise DamagedFile(
            f"{storage.locate(name)} is not a valid marker of a moved stack",
            hint="Find the stack with `gpuform stack ls` at your backends, and remove the file.",
        ) from error


def reject_relocated(
    storage: Storage, entries: Iterable[BlobEntry], project: str, stack: str
) -> None:
    """Raise StackMoved if the stack has a marker among the entries of the folder of checkpoints."""
    names = {entry.name for entry in entries}
    # First: a stack that moves back to a former place has both markers there until it is complete.
    if build_marker_name(project, stack, ARRIVING) in names:
        url = read_marker(storage, project, stack, ARRIVING)
        if url is not None:
            raise StackMoved(
                f"stack '{stack}' is being moved to this backend from {url}, and the move is not "
                "complete",
                hint="Run `gpuform stack migrate` again in the former place, with the same URL. If "
                "the stack is at a third place by now, and belongs here, run it there.",
            )
    if build_marker_name(project, stack, MOVED) in names:
        url = read_marker(storage, project, stack, MOVED)
        if url is not None:
            raise build_moved_error(storage, project, stack, url)


def build_moved_error(storage: Storage, project: str, stack: str, url: str) -> StackMoved:
    """Build the error for a stack moved to the backend `url`."""
    pointer = storage.locate(build_marker_name(project, stack, MOVED))
    return StackMoved(
        f"stack '{stack}' moved to {url}",
        hint="Write this URL, with its query if it has one, into backend.url of Pulumi.yaml, or "
        f"set PULUMI_BACKEND_URL. To use the name for another stack here, remove {pointer}.",
    )


def is_marked(names: Iterable[str], project: str, stack: str) -> bool:
    """Return True if the names include a marker of the stack."""
    markers = {build_marker_name(project, stack, kind) for kind in (MOVED, ARRIVING)}
    return not markers.isdisjoint(names)


IN_PROGRESS: Final = "in-progress"
"""The result of an operation that has not ended, or whose end was not recorded."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """The record of one operation. Times are Unix seconds.

    `result` is succeeded, failed or in-progress; `config` is the stack file's, with its
    ciphertexts; `environment` says who ran the operation and from where (`origin`).
    """

    kind: str
    result: str
    start_time: int
    end_time: int
    resource_changes: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, Json] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: {"exec.kind": "cli"})
    message: str = ""
    version: int = 0

    def to_json(self) -> bytes:
        """Encode the history file as JSON in Pulumi's form."""
        return dump(
            {
                "kind": self.kind,
                "startTime": self.start_time,
                "message": self.message,
                "environment": dict(self.environment),
                "config": dict(self.config),
                "version": self.version,
                "result": self.result,
                "endTime": self.end_time,
                "resourceChanges": dict(self.resource_changes),
            }
        )

    @classmethod
    def from_json(cls, text: bytes) -> "HistoryEntry":
        """Decode a history file. Raises ValueError if it is not one."""
        document = load(text)
        if not isinstance(document, dict) or "kind" not in document:
            raise ValueError("it is not a valid history entry")
        return cls(
            kind=str(document["kind"]),
            result=str(document.get("result") or ""),
            start_time=_to_int(document.get("startTime")),
            end_time=_to_int(document.get("endTime")),
            resource_changes={
                k: _to_int(n) for k, n in _get_table(document, "resourceChanges").items()
            },
            config=_get_table(document, "config"),
            environment={
                k: str(history_json)
                for k, history_json in _get_table(document, "environment").items()
            },
            message=str(document.get("message") or ""),
            version=_to_int(document.get("version")),
        )


def _get_table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the object at `key`; empty for a missing one. Raises ValueError for another type."""
    table = document.get(key) or {}
    if not isinstance(table, dict):
        raise ValueError(f"its {key} is not an object")  # noqa: TRY004 - bad data, not a bad call
    return table


def _to_int(value: Any) -> int:
    """Return a number as an integer, 0 for None. Raises ValueError for another type."""
    if not isinstance(value, int | float | None):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - as above
    return int(value or 0)


@dataclass(frozen=True, slots=True)
class RunHistory:
    """The history of a stack; `checkpoint` returns the name of the stack's checkpoint, or None."""

    storage: Storage
    project: str
    stack: str
    checkpoint: Callable[[], str | None]

    @property
    def names(self) -> list[str]:
        """The names of the entries, the oldest first."""
        prefix = self._build_name("")
        file_names = (
            file.name.removeprefix(prefix) for file in self.storage.list_entries(prefix[:-1])
        )
        names = (name.partition(".history.") for name in file_names)
        # Names end in nanoseconds since 1970, so that their order is the order of time.
        return sorted(name for name, _, ending in names if f".{ending}" in SUFFIXES)

    def list_latest(self, skip: int = 0, limit: int | None = None) -> list[HistoryEntry]:
        """Return the entries, the latest first: all of them, or `limit` after skipping `skip`.

        Raises:
            DamagedFile: an entry cannot be read.
        """
        names = self.names[::-1]
        stop = None if limit is None else skip + limit
        return [self.read_entry(name) for name in names[skip:stop]]

    def read_entry(self, name: str) -> HistoryEntry:
        """Return the entry with this name.

        Raises DamagedFile if it is missing or cannot be read.
        """
        where, data = self._read_file(name, "history")
        try:
            return HistoryEntry.from_json(data or b"")
        except ValueError as error:
            raise DamagedFile(
                f"{where} is damaged: {error}",
                hint="Remove the file: it only records what a run did, and nothing depends on it.",
            ) from error

    def read_log(self, name: str) -> bytes | None:
        """Return gpuform's log beside an entry, as given to `add`, or None."""
        return self._read_file(name, "log")[1]

    def read_state(self, name: str) -> bytes | None:
        """Return the copy of the checkpoint at the end of an operation, or None without one.

        Raises DamagedFile if it cannot be unpacked.
        """
        return self._read_file(name, "checkpoint")[1]

    def begin(self, entry: HistoryEntry) -> str:
        """Record the beginning of an operation; return the entry's name for `add`."""
        name = self._create_entry_name()
        self.storage.write(self._build_name(f"{name}.history.json"), entry.to_json())
        return name

    def add(self, entry: HistoryEntry, name: str | None = None, log: bytes | None = None) -> None:
        """Record the end of an operation, with a copy of the final checkpoint if there is one.

        Args:
            entry: the record.
            name: the name that `begin` returned, if the beginning was recorded.
            log: stored in a file of gpuform's own, which Pulumi ignores, moves and removes with the
                rest.
        """
        stem = self._build_name(name or self._create_entry_name())
        if log is not None:
            path = f"{stem}.log.json.gz"
            self.storage.write(path, compress(log, path))
        self.storage.write(f"{stem}.history.json", entry.to_json())
        checkpoint = self.checkpoint()
        if checkpoint is not None:
            ending = get_suffix(checkpoint, self.stack)
            self.storage.copy(checkpoint, f"{stem}.checkpoint{ending}")

    def _build_name(self, name: str) -> str:
        """Return the storage name of a file in the stack's history folder."""
        return build_name("history", self.project, self.stack, name)

    def _create_entry_name(self) -> str:
        """Create an unused name for a history entry, from the stack's name and the time."""
        return f"{self.stack}-{create_timestamp(self.storage, self._build_name(f'{self.stack}-'))}"

    def _read_file(self, name: str, kind: str) -> tuple[str, bytes | None]:
        """Return the location and the unpacked content of an entry's file.

        The content is None if the file does not exist. `name` is the name of the entry, `kind` the
        part of the file's name behind it.
        """
        stem = self._build_name(f"{name}.{kind}")
        for ending in SUFFIXES:
            blob = self.storage.read(stem + ending)
            if blob is not None:
                where = self.storage.locate(stem + ending)
                return where, decompress(blob.data, where)
        return self.storage.locate(f"{stem}.json"), None
