"""Store small records durably, for whatever later run needs them.

Records are stored with the state, so that the next run finds them on any machine, and before the
request that they describe is sent. `FolderRecords` is for hosts that cannot reach the state.
"""

import hashlib
import json
import os
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpuform.schemas.errors import EngineError

Fields = Mapping[str, Any]
Record = TypeVar("Record")
StoredObjects = Collection[tuple[str, str]]
"""The URNs and the ids of the objects in a state, without those that are deleted."""


class Records(Protocol):
    """JSON records by name, such as `intent-3f`; safe for many threads.

    `place` is their location, for messages, and the same for all processes that share them.
    """

    @property
    def place(self) -> str:
        """The location of the records, for messages."""
        ...

    def names(self) -> list[str]:
        """Return the names of all stored records, in no order."""

    def read(self, name: str) -> Fields | None:
        """Return one record, or None if there is none. Raises EngineError for a damaged record."""

    def write(self, name: str, fields: Fields) -> None:
        """Store a record durably, in place of an earlier one of the name."""

    def delete(self, *names: str) -> None:
        """Delete the records named `names`, if they exist."""

    def add(self, name: str, fields: Fields) -> None:
        """Store a new record, even if another process has the stack's lock by now.

        The caller makes sure that no record of this name exists, which is not checked, so that
        records of the other process stay as they are.
        """

    def list_stored_objects(self) -> StoredObjects | None:
        """Return URN and id of each object in the state now; None if the state is out of reach."""

    def list_stored_parts(self) -> StoredObjects:
        """Return the URN of each object with parts, such as nodes, and the id of each part."""


def parse_record(data: bytes, where: str) -> Fields:
    """Return the fields in a record's JSON text; `where` is the record's place, for messages.

    Raises EngineError for a damaged one.
    """
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise build_damaged_error(where)
    return fields


def build_record(fields: Fields, kind: type[Record], where: str) -> Record:
    """Return a record's fields as an object of the dataclass `kind`; lists become tuples.

    Raises EngineError for missing or other fields; the types of values are not checked. `where` is
    the record's place, for messages.
    """
    try:
        # JSON has no tuples, and the dataclasses have no lists.
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        return kind(**{**fields, **lists})
    except TypeError:
        raise build_damaged_error(where) from None


def read_record(records: Records, name: str, kind: type[Record]) -> Record | None:
    """Return the record of a name as an object of the dataclass `kind`, or None without one.

    Raises EngineError for a damaged record.
    """
    fields = records.read(name)
    return None if fields is None else build_record(fields, kind, f"{records.place}/{name}")


def build_damaged_error(where: str) -> EngineError:
    """Return the error for a record that is not JSON of the expected form; `where` is its place."""
    return EngineError(
        f"the record {where} is damaged; an earlier run wrote the record",
        hint="compare with the platform (`gpuform orphans`), then remove the record",
    )


def compute_digest(id_: str) -> str:
    """Return the first 24 hexadecimal digits of an id's SHA-256 digest, for names and labels."""
    # Ids may have any characters, which names of files and labels may not.
    return hashlib.sha256(id_.encode()).hexdigest()[:24]


class FolderRecords:
    """Records as files in a folder of this machine, which need not exist yet."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> str:
        """The path of the folder with the records."""
        return str(self._folder)

    def names(self) -> list[str]:
        """Return the names of all records in the folder."""
        try:
            # A crash may leave temporary files in the folder.
            return [path.stem for path in self._folder.iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            return []

    def read(self, name: str) -> Fields | None:
        """Return the fields of one record's file, or None without the file.

        Raises EngineError for a damaged file.
        """
        path = self._get_path(name)
        with suppress(FileNotFoundError):
            return parse_record(path.read_bytes(), str(path))
        return None

    def write(self, name: str, fields: Fields) -> None:
        """Write a record's file through to the disk, in place of an earlier one.

        Creates the folder if missing.
        """
        path = self._get_path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A crash leaves the old record or the new one, never a part.
        temporary = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
        with temporary.open("w", encoding="utf-8") as file:
            json.dump(fields, file, indent=1)
            file.flush()
            # The request follows at once: its record has to survive a power failure.
            os.fsync(file.fileno())
        temporary.replace(path)
        # The new name survives a power failure only after its folder is written, too.
        _sync_directory(path.parent)

    def add(self, name: str, fields: Fields) -> None:
        """Write the file of a new record, as `write` does."""
        self.write(name, fields)

    def delete(self, *names: str) -> None:
        """Delete the files of the records named `names`, if they exist."""
        for name in names:
            self._get_path(name).unlink(missing_ok=True)

    def list_stored_objects(self) -> StoredObjects | None:
        """Return None: records in a folder know nothing of the stack's state."""
        return None

    def list_stored_parts(self) -> StoredObjects:
        """Return nothing: records in a folder know nothing of the stack's state."""
        return ()

    def _get_path(self, name: str) -> Path:
        """Return the path of a record's JSON file."""
        return self._folder / f"{name}.json"


class EphemeralRecords:
    """Records for a process that changes nothing: writes stay in this process."""

    place = "nowhere"

    def __init__(self, base: Records | None = None) -> None:
        self._base = base
        self._own: dict[str, Fields | None] = {}

    def names(self) -> list[str]:
        """Return the names of the base's records and of this process's."""
        all_names = set(self._base.names() if self._base else ()) | self._own.keys()
        return [name for name in all_names if self._own.get(name, {}) is not None]

    def read(self, name: str) -> Fields | None:
        """Return the fields of a record written by this process, else of the base's record.

        None without such a record, and for a record that this process has deleted.
        """
        if name in self._own or self._base is None:
            return self._own.get(name)
        return self._base.read(name)

    def write(self, name: str, fields: Fields) -> None:
        """Keep a record in this process only; the base is not changed."""
        self._own[name] = dict(fields)

    def add(self, name: str, fields: Fields) -> None:
        """Keep a new record in this process only; the base is not changed."""
        self.write(name, fields)

    def delete(self, *names: str) -> None:
        """Hide records from this process's reads; the base keeps its records."""
        # None hides the base's record of this name.
        self._own.update(dict.fromkeys(names))

    def list_stored_objects(self) -> StoredObjects | None:
        """Return URN and id of each object in the base's state; None without a base or state."""
        return self._base.list_stored_objects() if self._base else None

    def list_stored_parts(self) -> StoredObjects:
        """Return URN and part id of each part in the base's state; nothing without a base."""
        return self._base.list_stored_parts() if self._base else ()


def _sync_directory(directory: Path) -> None:
    """Write a directory's entries through to the disk; do nothing on Windows."""
    if os.name == "nt":
        return  # Windows cannot open a directory, and needs no such call
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
