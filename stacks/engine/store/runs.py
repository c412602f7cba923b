"""Keep what was done to one stack: Pulumi's history, and what gpuform keeps beside its entries."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.engine.store import backend_files
from gpuform.stacks.engine.store.backend_files import DamagedFile
from gpuform.stacks.engine.store.layout import SUFFIXES, folder, later_than, suffix
from gpuform.stacks.engine.store.storage.protocol import Storage
from gpuform.stacks.engine.values import Json, dump, load

IN_PROGRESS: Final = "in-progress"
"""The result of an operation that has not ended, or that could not tell how it ended."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What one operation did. Times are Unix seconds.

    `result` is succeeded, failed or in-progress; `config` is the stack file's, with its
    ciphertexts; `environment` says who did it and from where (`origin`).
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
        """The text of the file."""
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
        """The entry in a file's text; ValueError when it is none."""
        document = load(text)
        if not isinstance(document, dict) or "kind" not in document:
            raise ValueError("it is no entry of a history")
        return cls(
            kind=str(document["kind"]),
            result=str(document.get("result") or ""),
            start_time=_whole(document.get("startTime")),
            end_time=_whole(document.get("endTime")),
            resource_changes={k: _whole(n) for k, n in _table(document, "resourceChanges").items()},
            config=_table(document, "config"),
            environment={k: str(text) for k, text in _table(document, "environment").items()},
            message=str(document.get("message") or ""),
            version=_whole(document.get("version")),
        )


def _table(document: Mapping[str, Any], key: str) -> dict[str, Any]:
    found = document.get(key) or {}
    if not isinstance(found, dict):
        raise ValueError(f"its {key} is not an object")  # noqa: TRY004 - bad data, not a bad call
    return found


def _whole(value: Any) -> int:
    if not isinstance(value, int | float | None):
        raise ValueError(f"{value!r} is not a number")  # noqa: TRY004 - as above
    return int(value or 0)


@dataclass(frozen=True, slots=True)
class Runs:
    """The history of a stack; `checkpoint` tells the name of its checkpoint, if there is one."""

    storage: Storage
    project: str
    stack: str
    checkpoint: Callable[[], str | None]

    @property
    def names(self) -> list[str]:
        """The names of the entries, the oldest first."""
        place = self._named("")
        there = (each.name.removeprefix(place) for each in self.storage.entries(place[:-1]))
        names = (name.partition(".history.") for name in there)
        return sorted(name for name, _, ending in names if f".{ending}" in SUFFIXES)

    def latest(self, skip: int = 0, limit: int | None = None) -> list[HistoryEntry]:
        """What was done, the latest first: all of it, or `limit` after `skip`.

        DamagedFile names an entry that cannot be read.
        """
        names = self.names[::-1]
        stop = None if limit is None else skip + limit
        return [self.entry(name) for name in names[skip:stop]]

    def entry(self, name: str) -> HistoryEntry:
        """The entry with this name. DamagedFile names what is none."""
        where, data = self._read(name, "history")
        try:
            return HistoryEntry.from_json(data or b"")
        except ValueError as error:
            raise DamagedFile(
                f"{where} is damaged: {error}",
                hint="Remove it: it only tells what was done, nothing depends on it.",
            ) from error

    def log(self, name: str) -> bytes | None:
        """What gpuform kept beside an entry (`add`)."""
        return self._read(name, "log")[1]

    def begin(self, entry: HistoryEntry) -> str:
        """Records that an operation begins; the name under which `add` says how it ended."""
        name = self._new()
        self.storage.write(self._named(f"{name}.history.json"), entry.to_json())
        return name

    def add(self, entry: HistoryEntry, name: str | None = None, log: bytes | None = None) -> None:
        """Records an operation with a copy of the checkpoint that it left.

        `name` is that of its beginning, if it was recorded; `log` is kept in a file of gpuform's
        own beside it, which Pulumi leaves alone, moves and removes with the rest.
        """
        stem = self._named(name or self._new())
        if log is not None:
            path = f"{stem}.log.json.gz"
            self.storage.write(path, backend_files.compress(log, path))
        self.storage.write(f"{stem}.history.json", entry.to_json())
        checkpoint = self.checkpoint()
        if checkpoint is not None:
            ending = suffix(checkpoint, self.stack)
            self.storage.copy(checkpoint, f"{stem}.checkpoint{ending}")

    def _named(self, name: str) -> str:
        return folder("history", self.project, self.stack, name)

    def _new(self) -> str:
        return f"{self.stack}-{later_than(self.storage, self._named(f'{self.stack}-'))}"

    def _read(self, name: str, kind: str) -> tuple[str, bytes | None]:
        """Where the file of that kind is that belongs to an entry, and its content."""
        stem = self._named(f"{name}.{kind}")
        for ending in SUFFIXES:
            found = self.storage.read(stem + ending)
            if found is not None:
                where = self.storage.where(stem + ending)
                return where, backend_files.decompress(found.data, where)
        return self.storage.where(f"{stem}.json"), None
