"""Store the history of a stack: Pulumi's entries, and gpuform's logs beside them.

Operations call `begin` and `add`; `gpuform stack history` reads. Files go through a `Storage`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.engine.store import storage as backend_files
from gpuform.stacks.engine.store.layout import SUFFIXES, build_name, create_timestamp, get_suffix
from gpuform.stacks.engine.store.storage import DamagedFile, Storage
from gpuform.stacks.engine.value_json import Json, dump, load

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
        """Encode the history file."""
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
            self.storage.write(path, backend_files.compress(log, path))
        self.storage.write(f"{stem}.history.json", entry.to_json())
        checkpoint = self.checkpoint()
        if checkpoint is not None:
            ending = get_suffix(checkpoint, self.stack)
            self.storage.copy(checkpoint, f"{stem}.checkpoint{ending}")

    def _build_name(self, name: str) -> str:
        """Return the storage name of a file in the stack's history folder."""
        return build_name("history", self.project, self.stack, name)

    def _create_entry_name(self) -> str:
        """Create the unused name of a new entry: the stack's name and a timestamp."""
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
                return where, backend_files.decompress(blob.data, where)
        return self.storage.locate(f"{stem}.json"), None
