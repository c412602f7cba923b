"""Record drains, repairs, idle stops, test jobs and failed nodes, for later runs.

A killed run can then be continued, and nothing is requested twice. A drain is stored before the
first node is cordoned, so that the next run, in any host, can continue or undo the drain: no node
stays cordoned. Each record is under its object's id, which every host reports. Only `gpuform
expire` records quiet periods; a preview stores nothing.

Certifications and clusters are separate resources; a node is known by its machine, so that a
failure does not count against the machine that replaced it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Self

from gpuform.providers.records.intents import Intents
from gpuform.providers.records.storing import Records, read_record

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


class Drains:
    """The records of the drains of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def from_intents(cls, intents: Intents) -> Self:
        """Return the stack's records of node removals, from the storage of `intents`."""
        return cls(intents.records)

    def find(self, id_: str) -> Drain | None:
        """Return the unfinished removal of an object's nodes, or None.

        Raises:
            GpuformError: the record is damaged.
        """
        return read_record(self._records, _build_drain_record_name(id_), Drain)

    def record(self, drain: Drain) -> None:
        """Store a removal of nodes, in place of an earlier one of the object."""
        self._records.write(_build_drain_record_name(drain.id), asdict(drain))

    def forget(self, id_: str) -> None:
        """Delete the record of an object's removal of nodes, if there is one.

        The caller makes sure that no node of the record is left cordoned.
        """
        self._records.delete(_build_drain_record_name(id_))


def compute_digest(id_: str) -> str:
    """Return the first 24 hexadecimal digits of an id's SHA-256 digest, for names and labels."""
    # Ids may have any characters, which names of files and labels may not.
    return hashlib.sha256(id_.encode()).hexdigest()[:24]


def _build_drain_record_name(id_: str) -> str:
    """Return the name of the record of an object's removal of nodes."""
    return f"{DRAIN_PREFIX}{compute_digest(id_)}"


_REPAIR_PREFIX: Final = "repair-"


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


class Repairs:
    """The records of the repairs of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def from_intents(cls, intents: Intents) -> Self:
        """Return the stack's records of node repairs, from the storage of `intents`."""
        return cls(intents.records)

    def find(self, id_: str, node: str) -> Repair | None:
        """Return the record of the last repair of an object's node, or None.

        The repair may be under way, or have ended in any way.

        Raises:
            GpuformError: the record is damaged.
        """
        return read_record(self._records, _build_repair_record_name(id_, node), Repair)

    def list_for_object(self, id_: str) -> list[Repair]:
        """Return the last recorded repair of each node of an object, in a stable order.

        Raises:
            GpuformError: a record is damaged.
        """
        names = sorted(
            name for name in self._records.names() if name.startswith(_build_repair_prefix(id_))
        )
        repairs = (read_record(self._records, name, Repair) for name in names)
        return [repair for repair in repairs if repair is not None]

    def record(self, repair: Repair) -> None:
        """Store a repair, in place of an earlier repair of the node."""
        self._records.write(_build_repair_record_name(repair.id, repair.node), asdict(repair))

    def forget(self, id_: str) -> None:
        """Delete the records of all repairs in an object that is gone."""
        prefix = _build_repair_prefix(id_)
        self._records.delete(*(name for name in self._records.names() if name.startswith(prefix)))


def _build_repair_prefix(id_: str) -> str:
    """Return the beginning of the names of all repair records of an object."""
    # The object comes first, so that all repairs in an object have one prefix.
    return f"{_REPAIR_PREFIX}{compute_digest(id_)}-"


def _build_repair_record_name(id_: str, node: str) -> str:
    """Return the name of the record of a node's repair."""
    return f"{_build_repair_prefix(id_)}{compute_digest(node)}"


_IDLE_STOP_PREFIX: Final = "idle-"


@dataclass(frozen=True)
class IdleStop:
    """One stop of the idle object `id`, requested `at` (Unix time in seconds), with the reason."""

    id: str
    at: float
    because: str


class IdleStops:
    """The records of the idle stops of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def from_intents(cls, intents: Intents) -> Self:
        """Return the stack's records of idle stops, from the storage of `intents`."""
        return cls(intents.records)

    def find(self, id_: str) -> IdleStop | None:
        """Return the record of the object's stop for idleness, or None.

        Raises:
            GpuformError: the record is damaged.
        """
        return read_record(self._records, _build_idle_stop_record_name(id_), IdleStop)

    def record(self, stop: IdleStop) -> None:
        """Store an idle stop, in place of an earlier one of the object."""
        self._records.write(_build_idle_stop_record_name(stop.id), asdict(stop))

    def forget(self, id_: str) -> None:
        """Delete the record of an object that runs again or is gone, if there is one."""
        self._records.delete(_build_idle_stop_record_name(id_))


def _build_idle_stop_record_name(id_: str) -> str:
    """Return the name of the record of an object's stop for idleness."""
    return f"{_IDLE_STOP_PREFIX}{compute_digest(id_)}"


_QUIET_LOOK_PREFIX: Final = "quiet-"
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


class QuietPeriods:
    """The records of the quiet periods of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def from_intents(cls, intents: Intents) -> Self:
        """Return the stack's records of quiet periods, from the storage of `intents`."""
        return cls(intents.records)

    def find(self, id_: str) -> QuietPeriod | None:
        """Return the recorded quiet period of an object, or None.

        Raises:
            GpuformError: the record is damaged.
        """
        return read_record(self._records, _build_quiet_period_record_name(id_), QuietPeriod)

    def record(self, quiet: QuietPeriod) -> None:
        """Store a quiet period, in place of an earlier one of the object."""
        self._records.write(_build_quiet_period_record_name(quiet.id), asdict(quiet))

    def forget(self, id_: str) -> None:
        """Delete the record of an object that is not quiet or is gone, if there is one."""
        self._records.delete(_build_quiet_period_record_name(id_))


def _build_quiet_period_record_name(id_: str) -> str:
    """Return the name of the record of an object's quiet period."""
    return f"{_QUIET_LOOK_PREFIX}{compute_digest(id_)}"


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
            if record_name.startswith(_build_verdict_prefix(cluster))
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


def _build_verdict_prefix(cluster: str) -> str:
    """Return the beginning of the names of all verdict records of a cluster."""
    # The cluster comes first, so that all verdicts of a cluster have one prefix.
    return f"{_VERDICT_PREFIX}{compute_digest(cluster)}-"


def _build_verdict_record_name(cluster: str, certification: str) -> str:
    """Return the name of the record of a certification's verdict about a cluster."""
    return f"{_build_verdict_prefix(cluster)}{compute_digest(certification)}"
