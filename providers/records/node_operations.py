"""Record drains, repairs, idle stops, test jobs and failed nodes, for later runs.

A killed run can then be continued, and nothing is requested twice. A drain is stored before the
first node is cordoned, so that the next run, in any host, can continue or undo the drain: no node
stays cordoned. Each record is under its object's id, which every host reports. Only `gpuform
expire` records quiet periods; a preview stores nothing.

Certifications and clusters are separate resources; a node is known by its machine, so that a
failure does not count against the machine that replaced it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast

from gpuform.providers.records.intents import Intents
from gpuform.providers.records.storing import Records, compute_digest, read_record

Record = TypeVar("Record")


class OperationRecords(Generic[Record]):
    """The records of one kind of operation in one stack, one for each id, or each pair of ids.

    Subclasses name the dataclass of a record, the prefix of the records' names, and the fields
    with the ids; the first one is the id of the object or certification that has the record.
    """

    record_type: type[Record]
    prefix: ClassVar[str]
    id_fields: ClassVar[tuple[str, ...]] = ("id",)

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def from_intents(cls, intents: Intents) -> Self:
        """Return the stack's records of this kind, from the storage of `intents`."""
        return cls(intents.records)

    def find(self, *ids: str) -> Record | None:
        """Return the record stored under `ids`, or None.

        Raises:
            GpuformError: the record is damaged.
        """
        return read_record(self._records, self._build_name(ids), self.record_type)

    def list_for(self, id_: str) -> list[Record]:
        """Return the records whose first id is `id_`, in a stable order.

        Raises:
            GpuformError: a record is damaged.
        """
        records = (
            read_record(self._records, name, self.record_type)
            for name in sorted(self._list_names(id_))
        )
        return [record for record in records if record is not None]

    def record(self, record: Record) -> None:
        """Store a record, in place of an earlier record with equal ids."""
        fields = asdict(cast("Any", record))
        self._records.write(self._build_name([fields[name] for name in self.id_fields]), fields)

    def forget(self, *ids: str) -> None:
        """Delete the record under `ids`, if any; under the first id of two, all of its records."""
        is_complete = len(ids) == len(self.id_fields)
        self._records.delete(*([self._build_name(ids)] if is_complete else self._list_names(*ids)))

    def _list_names(self, id_: str) -> list[str]:
        """Return the names of the records with several ids whose first one is `id_`."""
        start = f"{self._build_name([id_])}-"
        return [name for name in self._records.names() if name.startswith(start)]

    def _build_name(self, ids: Iterable[str]) -> str:
        """Return the name of the record for the ids, or the common prefix for fewer ids."""
        return self.prefix + "-".join(map(compute_digest, ids))


DRAIN_PREFIX: Final = "drain-"
"""The prefix of the names of drain records."""


@dataclass(frozen=True)
class Drain:
    """One removal of nodes.

    Args:
        id: the id of the object.
        mark: the label on the cordoned nodes.
        chosen: the platform's names of the nodes to remove.
        cordoned: the scheduler's names of nodes that may have the `mark`.
        present: the platform's names of the nodes that existed at the choice.
        asked: the platform was asked to remove the nodes, or was about to be.
    """

    id: str
    mark: str
    chosen: tuple[str, ...]
    cordoned: tuple[str, ...]
    present: tuple[str, ...]
    asked: bool = False


class Drains(OperationRecords[Drain]):
    """The unfinished removals of nodes of one stack, by the id of the object.

    Before a record is deleted, the caller makes sure that no node of the record is left cordoned.
    """

    record_type = Drain
    prefix = DRAIN_PREFIX


@dataclass(frozen=True)
class Repair:
    """One repair of the `node` of the object `id`, requested `at` (Unix time in seconds).

    `repair` is the platform's id of the repair, and `instance` the platform's id of the machine.
    """

    id: str
    node: str
    repair: str
    instance: str
    mode: str
    at: float


class Repairs(OperationRecords[Repair]):
    """The last repair of each node of one stack, under way or ended in any way.

    Records are by the ids of the object and the names of its nodes.
    """

    record_type = Repair
    prefix = "repair-"
    id_fields = ("id", "node")


@dataclass(frozen=True)
class IdleStop:
    """One stop of the idle object `id`, requested `at` (Unix time in seconds), with the reason."""

    id: str
    at: float
    because: str


class IdleStops(OperationRecords[IdleStop]):
    """The stops of idle objects of one stack, until an object runs again or is gone."""

    record_type = IdleStop
    prefix = "idle-"


_ROUNDING: Final = 2.0
"""Tolerance in seconds between two observations: HTTP dates are whole seconds."""


@dataclass(frozen=True)
class QuietPeriod:
    """The object `id` was quiet in each observation from `since` until `at` (Unix time in seconds).

    Args:
        id: the id of the object.
        of: what was observed, so that observations of something else do not count.
        since: the first observation.
        at: the last observation.
        lasted: for how many seconds the object was quiet: less than from `since` to `at` if this
            machine's clock jumped.
        ahead: how many seconds that clock was ahead of the monitor's at the last observation; None
            if unknown.
    """

    id: str
    of: str
    since: float
    at: float
    lasted: float = 0.0
    ahead: float | None = None

    def continue_from(
        self, last: "QuietPeriod | None", ahead: float | None, gap: float
    ) -> "QuietPeriod":
        """Return this observation of an unused object, continuing the period of `last` if possible.

        A new period begins if `last` is None, about something else, too long ago, or in the future.

        Args:
            last: the observation before this one, if any.
            ahead: how many seconds this machine's clock is ahead of the monitor's now.
            gap: the longest time between two observations, in seconds, by either clock.
        """
        new_period = replace(self, ahead=ahead)
        if last is None or last.of != self.of:
            return new_period
        times = [self.at - last.at]
        if last.ahead is not None and ahead is not None:
            # Corrected by the monitor's clock: this machine's clock may have jumped meanwhile.
            times.append(times[0] - (ahead - last.ahead))
        # Time went backwards, or nobody has looked for too long: use in between is possible.
        if min(times) < -_ROUNDING or max(times) > gap:
            return new_period
        # The smaller one of the two times: a jump of the clock must not count as quiet time.
        return replace(new_period, since=last.since, lasted=last.lasted + max(min(times), 0.0))


class QuietPeriods(OperationRecords[QuietPeriod]):
    """The quiet periods of one stack, until an object is used or gone."""

    record_type = QuietPeriod
    prefix = "quiet-"


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


class BatchRecords(OperationRecords[BatchRecord]):
    """The last batch jobs of each certification of one stack."""

    record_type = BatchRecord
    prefix = "batch-"
    id_fields = ("certification",)


@dataclass(frozen=True)
class RecordedVerdict:
    """The last result of one certification about a cluster.

    `failures` has the fields node, machine, category, because and at of nodes that failed by their
    own fault.
    """

    cluster: str
    certification: str
    failures: Sequence[Mapping[str, Any]] = ()


class Verdicts(OperationRecords[RecordedVerdict]):
    """The verdicts of one stack, by the names of the cluster and of the certification.

    For SCP, the cluster is one common name for all nodes of the platform.
    """

    record_type = RecordedVerdict
    prefix = "verdict-"
    id_fields = ("cluster", "certification")

    def record(self, record: RecordedVerdict) -> None:
        """Store a certification's failed nodes; a verdict without failures deletes the earlier one.

        Readers look for failures only: no record means that there is none.
        """
        if record.failures:
            super().record(replace(record, failures=[dict(failure) for failure in record.failures]))
        else:
            self.forget(record.cluster, record.certification)
