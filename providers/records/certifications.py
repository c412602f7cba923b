"""Record the batch jobs that a certification has begun, before the first is sent, and the nodes
that failed one.

Certifications and clusters are resources of their own; each node is known by its machine, so that
nothing is held against the one that is there in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from gpuform.providers.records.intents import Intents
from gpuform.providers.records.node_operations import digest
from gpuform.providers.records.storing import Records, read_as

_BATCHES_PREFIX: Final = "batch-"


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
        return read_as(self._records, _batches_record_name(certification), Batches)

    def record(self, batches: Batches) -> None:
        """Keeps a run, in place of an earlier one."""
        self._records.write(_batches_record_name(batches.certification), asdict(batches))

    def forget(self, certification: str) -> None:
        """The run is removed; no record is no error."""
        self._records.delete(_batches_record_name(certification))


def _batches_record_name(certification: str) -> str:
    return f"{_BATCHES_PREFIX}{digest(certification)}"


_VERDICT_PREFIX: Final = "verdict-"


@dataclass(frozen=True)
class Verdict:
    """What one certification last said of a cluster.

    `failures` have the fields node, machine, category, because and at of nodes that are at fault
    by themselves.
    """

    cluster: str
    certification: str
    failures: Sequence[Mapping[str, Any]] = ()


class Verdicts:
    """The records of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def beside(cls, intents: Intents) -> Self:
        """Those of the stack that has these intents."""
        return cls(intents.records)

    def of(self, cluster: str) -> list[Verdict]:
        """What every certification of a cluster says, in a stable order."""
        mine = sorted(each for each in self._records.names() if each.startswith(_folder(cluster)))
        found = (read_as(self._records, name, Verdict) for name in mine)
        return [each for each in found if each is not None]

    def record(self, verdict: Verdict) -> None:
        """Keeps what a certification says, in place of what it said before."""
        name = _verdict_record_name(verdict.cluster, verdict.certification)
        if verdict.failures:
            fields = {
                "cluster": verdict.cluster,
                "certification": verdict.certification,
                "failures": [dict(each) for each in verdict.failures],
            }
            self._records.write(name, fields)
        else:
            self._records.delete(name)

    def forget(self, cluster: str, certification: str) -> None:
        """The certification is gone; no record is no error."""
        self._records.delete(_verdict_record_name(cluster, certification))


def _folder(cluster: str) -> str:
    return f"{_VERDICT_PREFIX}{digest(cluster)}-"


def _verdict_record_name(cluster: str, certification: str) -> str:
    return f"{_folder(cluster)}{digest(certification)}"
