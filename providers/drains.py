"""The record of removals that are under way: which nodes are cordoned, and what was asked.

It is durable before the first node is cordoned, so that whoever comes next, in whatever host, can
go on or undo it: no node stays cordoned for ever. Files are in `drains/` beside the intents, each
under its object's id, which every host tells.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from gpuform.providers import durable
from gpuform.providers.intents import Intents


@dataclass(frozen=True)
class Drain:
    """One removal. `id` is the object's; `chosen` and `present` are the platform's names of nodes.

    `cordoned` are the scheduler's names of those that may bear our `mark`; `present` were there
    when they were chosen. `asked`: the platform was told to remove them, or was about to be.
    """

    id: str
    mark: str
    chosen: tuple[str, ...]
    cordoned: tuple[str, ...]
    present: tuple[str, ...]
    asked: bool = False


class Drains:
    """The records of one project."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @classmethod
    def beside(cls, intents: Intents) -> Self:
        """Those of the project that has these intents."""
        return cls(intents.directory / "drains")

    def find(self, id_: str) -> Drain | None:
        """The record of an object, if there is one."""
        try:
            fields = json.loads(self._path(id_).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        lists = {key: tuple(value) for key, value in fields.items() if isinstance(value, list)}
        return Drain(**fields | lists)

    def record(self, drain: Drain) -> None:
        """Writes a record durably, in place of an earlier one of the same object."""
        durable.write(self._path(drain.id), asdict(drain))

    def forget(self, id_: str) -> None:
        """Nothing is cordoned any more; no record is no error."""
        self._path(id_).unlink(missing_ok=True)

    def _path(self, id_: str) -> Path:
        return self._directory / f"{digest(id_)}.json"


def digest(id_: str) -> str:
    """An id as a part of a file's name or of a mark."""
    return hashlib.sha256(id_.encode()).hexdigest()[:24]
