"""Record the test jobs of certifications before they are sent, and the nodes that failed.

Certifications and clusters are separate resources; a node is known by its machine, so that a
failure does not count against the machine that replaced it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from gpuform.providers.records.intents import Intents
from gpuform.providers.records.node_operations import compute_digest
from gpuform.providers.records.storing import Records, read_record

_BATCHES_PREFIX: Final = "batch-"


@dataclass(frozen=True)
class BatchRecord:
    """One run of the jobs of a certification.

    Args:
        certification: the name of the certification.
        run: the id of the run.
        purpose: what the run is for.
        nodes: the nodes under test.
        jobs: the names of the jobs, whatever is declared by now.
        sent_at: when the last job was sent, by the clock of the context.
    """

    certification: str
    run: str
    purpose: str
    nodes: Sequence[str]
    jobs: Sequence[str] = ()
    sent_at: float = 0.0


class BatchRecords:
    """The records of the batch runs of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def from_intents(cls, intents: Intents) -> Self:
        """Return the stack's records of batch jobs, from the storage of `intents`."""
        return cls(intents.records)

    def find(self, certification: str) -> BatchRecord | None:
        """Return the record of a certification's last batch jobs, or None.

        Raises:
            GpuformError: the record is damaged.
        """
        return read_record(self._records, _build_batches_record_name(certification), BatchRecord)

    def record(self, batches: BatchRecord) -> None:
        """Store the record of a certification's batch jobs, in place of an earlier one."""
        self._records.write(_build_batches_record_name(batches.certification), asdict(batches))

    def forget(self, certification: str) -> None:
        """Delete the record of a certification's batch jobs, if there is one."""
        self._records.delete(_build_batches_record_name(certification))


def _build_batches_record_name(certification: str) -> str:
    """Return the name of the record of a certification's batch jobs."""
    return f"{_BATCHES_PREFIX}{compute_digest(certification)}"


_VERDICT_PREFIX: Final = "verdict-"


@dataclass(frozen=True)
class RecordedVerdict:
    """The last result of one certification about a cluster.

    `failures` has the fields node, machine, category, because and at of nodes that failed by their
    own fault.
    """

    cluster: str
    certification: str
    failures: Sequence[Mapping[str, Any]] = ()


class Verdicts:
    """The records of the verdicts of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def from_intents(cls, intents: Intents) -> Self:
        """Return the stack's records of verdicts, from the storage of `intents`."""
        return cls(intents.records)

    def list_for_cluster(self, cluster: str) -> list[RecordedVerdict]:
        """Return the recorded verdicts of every certification of a cluster, in a stable order.

        Certifications without failures have no verdict. For SCP, `cluster` is one common name for
        all nodes of the platform.

        Raises:
            GpuformError: a record is damaged.
        """
        record_names = sorted(
            record_name
            for record_name in self._records.names()
            if record_name.startswith(_build_name_prefix(cluster))
        )
        verdicts = (read_record(self._records, name, RecordedVerdict) for name in record_names)
        return [verdict for verdict in verdicts if verdict is not None]

    def record(self, verdict: RecordedVerdict) -> None:
        """Store a certification's failed nodes, in place of its earlier verdict.

        A verdict without failures deletes the earlier one.
        """
        name = _build_verdict_record_name(verdict.cluster, verdict.certification)
        # Readers look for failures only: no record means that there is none.
        if verdict.failures:
            fields = {
                "cluster": verdict.cluster,
                "certification": verdict.certification,
                "failures": [dict(failure) for failure in verdict.failures],
            }
            self._records.write(name, fields)
        else:
            self._records.delete(name)

    def forget(self, cluster: str, certification: str) -> None:
        """Delete the verdict of a certification that is gone, if there is one."""
        self._records.delete(_build_verdict_record_name(cluster, certification))


def _build_name_prefix(cluster: str) -> str:
    """Return the beginning of the names of all verdict records of a cluster."""
    # The cluster comes first, so that all verdicts of a cluster have one prefix.
    return f"{_VERDICT_PREFIX}{compute_digest(cluster)}-"


def _build_verdict_record_name(cluster: str, certification: str) -> str:
    """Return the name of the record of a certification's verdict about a cluster."""
    return f"{_build_name_prefix(cluster)}{compute_digest(certification)}"
