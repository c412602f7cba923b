"""The record of stops for idleness, kept before the request, so that nobody starts it again
unasked: not even after a run that was killed meanwhile."""

from dataclasses import asdict, dataclass
from typing import Final, Self

from gpuform.providers.records.drains import digest
from gpuform.providers.records.intents import Intents
from gpuform.providers.records.storing import Records, read_as

_PREFIX: Final = "idle-"


@dataclass(frozen=True)
class IdleStop:
    """One stop of the object `id`, asked for `at` (Unix seconds), and why in words."""

    id: str
    at: float
    because: str


class IdleStops:
    """The records of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def beside(cls, intents: Intents) -> Self:
        """Those of the stack that has these intents."""
        return cls(intents.records)

    def find(self, id_: str) -> IdleStop | None:
        """The record of an object, if there is one."""
        return read_as(self._records, _name_of(id_), IdleStop)

    def record(self, stop: IdleStop) -> None:
        """Keeps a record, in place of an earlier one of the same object."""
        self._records.write(_name_of(stop.id), asdict(stop))

    def forget(self, id_: str) -> None:
        """It runs again, or is gone; no record is no error."""
        self._records.delete(_name_of(id_))


def _name_of(id_: str) -> str:
    return f"{_PREFIX}{digest(id_)}"
