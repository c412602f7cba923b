"""The record of removals that are under way: which nodes are cordoned, and what was asked.

It is kept (see `records`) before the first node is cordoned, so that whoever comes next, in
whatever host, can go on or undo it: no node stays cordoned for ever. Each is under its object's id,
which every host tells.
"""

import hashlib
from dataclasses import asdict, dataclass
from typing import Final, Self

from gpuform.providers.records.intents import Intents
from gpuform.providers.records.storing import Records, read_as

DRAIN_PREFIX: Final = "drain-"
"""How the names of these records begin."""


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
    """The records of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def beside(cls, intents: Intents) -> Self:
        """Those of the stack that has these intents."""
        return cls(intents.records)

    def find(self, id_: str) -> Drain | None:
        """The record of an object, if there is one."""
        return read_as(self._records, _name_of(id_), Drain)

    def record(self, drain: Drain) -> None:
        """Keeps a record, in place of an earlier one of the same object."""
        self._records.write(_name_of(drain.id), asdict(drain))

    def forget(self, id_: str) -> None:
        """Nothing is cordoned any more; no record is no error."""
        self._records.delete(_name_of(id_))


def digest(id_: str) -> str:
    """An id as a part of a record's name or of a mark."""
    return hashlib.sha256(id_.encode()).hexdigest()[:24]


def _name_of(id_: str) -> str:
    return f"{DRAIN_PREFIX}{digest(id_)}"
