"""The record of nodes that have failed a certification, kept for the repair of their cluster.

Certifications and clusters are resources of their own; each node is known by its machine, so that
nothing is held against the one that is there in its place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from gpuform.providers.records.drains import digest
from gpuform.providers.records.intents import Intents
from gpuform.providers.records.storing import Records, read_as

_PREFIX: Final = "verdict-"


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
        name = _name_of(verdict.cluster, verdict.certification)
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
        self._records.delete(_name_of(cluster, certification))


def _folder(cluster: str) -> str:
    return f"{_PREFIX}{digest(cluster)}-"


def _name_of(cluster: str, certification: str) -> str:
    return f"{_folder(cluster)}{digest(certification)}"
