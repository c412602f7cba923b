"""The record of the batch jobs that a certification has begun, kept before the first is sent."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, Self

from gpuform.providers.records.drains import digest
from gpuform.providers.records.intents import Intents
from gpuform.providers.records.storing import Records, read_as

_PREFIX: Final = "batch-"


@dataclass(frozen=True)
class Batches:
    """One run of the jobs of a certification: `run` is its id, `purpose` what it is for.

    `nodes` are the nodes that are tested. `jobs` are the names of its jobs, whatever is declared by
    now. `sent_at` is when the last of them were sent, by the clock of the call.
    """

    certification: str
    run: str
    purpose: str
    nodes: Sequence[str]
    jobs: Sequence[str] = ()
    sent_at: float = 0.0


class BatchRecords:
    """The records of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def beside(cls, intents: Intents) -> Self:
        """Those of the stack that has these intents."""
        return cls(intents.records)

    def find(self, certification: str) -> Batches | None:
        """The last run of a certification, if there is one."""
        return read_as(self._records, _name_of(certification), Batches)

    def record(self, batches: Batches) -> None:
        """Keeps a run, in place of an earlier one."""
        self._records.write(_name_of(batches.certification), asdict(batches))

    def forget(self, certification: str) -> None:
        """The run is removed; no record is no error."""
        self._records.delete(_name_of(certification))


def _name_of(certification: str) -> str:
    return f"{_PREFIX}{digest(certification)}"
