"""Small records that a later run needs, whatever becomes of this one: intents and drains.

They lie with the state, so that the next run finds them on any machine, and are kept before the
request goes out that they tell of. `FolderRecords` is for hosts that cannot reach the state.
"""

import json
import os
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpuform.providers.errors import GpuformError

Fields = Mapping[str, Any]
Record = TypeVar("Record")
Stored = Collection[tuple[str, str]]
"""The URNs and the ids of what a state has, but for what is deleted already."""


class Records(Protocol):
    """JSON records by name, such as `intent-3f`; safe for many threads.

    `place` is where they are, for people, and the same for all who share them.
    """

    @property
    def place(self) -> str: ...

    def names(self) -> list[str]:
        """The records that there are now, in no order."""

    def read(self, name: str) -> Fields | None:
        """One record; None when there is none. Raises GpuformError for one that is damaged."""

    def write(self, name: str, fields: Fields) -> None:
        """Puts it in the place of an earlier one. On return it is kept."""

    def delete(self, *names: str) -> None:
        """Removes those of them that there are."""

    def add(self, name: str, fields: Fields) -> None:
        """Keep a new record, also when the stack's lock is another's by now.

        What that other one has kept is not touched: no record of this name may exist.
        """

    def stored(self) -> Stored | None:
        """What the state beside them has now; None where that cannot be told."""


def parsed(data: bytes, where: str) -> Fields:
    """A record's text. Raises GpuformError when it is not one."""
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise damaged(where)
    return fields


def typed(fields: Fields, kind: type[Record], where: str) -> Record:
    """A record as what it tells of. Raises GpuformError when it is something else."""
    try:
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        return kind(**{**fields, **lists})
    except TypeError:
        raise damaged(where) from None


def read_as(records: Records, name: str, kind: type[Record]) -> Record | None:
    """One record as what it tells of; None when there is none. Raises GpuformError."""
    fields = records.read(name)
    return None if fields is None else typed(fields, kind, f"{records.place}/{name}")


def damaged(where: str) -> GpuformError:
    """The error of a record that nobody can read."""
    return GpuformError(
        f"the record {where} is damaged: it told what an earlier run began",
        hint="compare with the platform (`gpuform orphans`), then remove it",
    )


class FolderRecords:
    """Records as files in a folder of this machine, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> str:
        return str(self._folder)

    def names(self) -> list[str]:
        """The records that there are now."""
        try:
            return [path.stem for path in self._folder.iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> Fields | None:
        """One record."""
        path = self._path(name)
        with suppress(FileNotFoundError):
            return parsed(path.read_bytes(), str(path))
        return None

    def write(self, name: str, fields: Fields) -> None:
        """Puts a file in the place of an earlier one, durably; makes the folder."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(fields, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _sync(path.parent)

    def add(self, name: str, fields: Fields) -> None:
        """Keep a new file."""
        self.write(name, fields)

    def delete(self, *names: str) -> None:
        """Removes the files."""
        for name in names:
            self._path(name).unlink(missing_ok=True)

    def stored(self) -> Stored | None:
        """The state is elsewhere."""
        return None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


class Unkept:
    """Records for who only looks: what is written over those that there are is for this process."""

    place = "nowhere"

    def __init__(self, under: Records | None = None) -> None:
        self._under = under
        self._own: dict[str, Fields | None] = {}

    def names(self) -> list[str]:
        """Those that there are, with those of this process."""
        there = set(self._under.names() if self._under else ()) | self._own.keys()
        return [name for name in there if self._own.get(name, {}) is not None]

    def read(self, name: str) -> Fields | None:
        """One of them."""
        if name in self._own or self._under is None:
            return self._own.get(name)
        return self._under.read(name)

    def write(self, name: str, fields: Fields) -> None:
        """Keeps it while the process lives."""
        self._own[name] = dict(fields)

    def add(self, name: str, fields: Fields) -> None:
        """Keep the record while the process lives."""
        self.write(name, fields)

    def delete(self, *names: str) -> None:
        """Hides them while the process lives."""
        self._own.update(dict.fromkeys(names))

    def stored(self) -> Stored | None:
        """As of the records that they are over."""
        return self._under.stored() if self._under else None


def _sync(directory: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot open a directory, and needs no such call
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
