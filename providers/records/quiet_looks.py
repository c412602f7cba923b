"""The record of looks that have found an object quiet, for platforms that tell a moment alone.

Only `gpuform expire` makes such looks; a preview keeps nothing.
"""

from dataclasses import asdict, dataclass
from typing import Final, Self

from gpuform.providers.records.drains import digest
from gpuform.providers.records.intents import Intents
from gpuform.providers.records.storing import Records, read_as

_PREFIX: Final = "quiet-"


@dataclass(frozen=True)
class Quiet:
    """The object `id` was quiet in each look from `since` until `at` (Unix seconds).

    `of` says what was looked at, so that looks at something else are not counted with it.
    """

    id: str
    of: str
    since: float
    at: float


class QuietLooks:
    """The records of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def beside(cls, intents: Intents) -> Self:
        """Those of the stack that has these intents."""
        return cls(intents.records)

    def find(self, id_: str) -> Quiet | None:
        """The record of an object, if there is one."""
        return read_as(self._records, _name_of(id_), Quiet)

    def record(self, quiet: Quiet) -> None:
        """Keeps a record, in place of an earlier one of the same object."""
        self._records.write(_name_of(quiet.id), asdict(quiet))

    def forget(self, id_: str) -> None:
        """It was not quiet, or is gone; no record is no error."""
        self._records.delete(_name_of(id_))


def _name_of(id_: str) -> str:
    return f"{_PREFIX}{digest(id_)}"
