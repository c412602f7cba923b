"""Record drains, repairs, stops for idleness and quiet looks before the request is sent, so that a
run that was killed is continued and nothing is asked for twice.

A drain is kept (see `records`) before the first node is cordoned, so that whoever comes next, in
whatever host, can go on or undo it: no node stays cordoned for ever. Each is under its object's id,
which every host tells.

Only `gpuform expire` makes quiet looks; a preview keeps nothing.
"""

import hashlib
from dataclasses import asdict, dataclass, replace
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
        return read_as(self._records, _drain_record_name(id_), Drain)

    def record(self, drain: Drain) -> None:
        """Keeps a record, in place of an earlier one of the same object."""
        self._records.write(_drain_record_name(drain.id), asdict(drain))

    def forget(self, id_: str) -> None:
        """Nothing is cordoned any more; no record is no error."""
        self._records.delete(_drain_record_name(id_))


def digest(id_: str) -> str:
    """An id as a part of a record's name or of a mark."""
    return hashlib.sha256(id_.encode()).hexdigest()[:24]


def _drain_record_name(id_: str) -> str:
    return f"{DRAIN_PREFIX}{digest(id_)}"


_REPAIR_PREFIX: Final = "repair-"


@dataclass(frozen=True)
class Repair:
    """One repair of the `node` of the object `id`, asked for `at` (Unix seconds).

    `repair` is the platform's id of it, and `instance` that of the machine.
    """

    id: str
    node: str
    repair: str
    instance: str
    mode: str
    at: float


class Repairs:
    """The records of one stack."""

    def __init__(self, records: Records) -> None:
        self._records = records

    @classmethod
    def beside(cls, intents: Intents) -> Self:
        """Those of the stack that has these intents."""
        return cls(intents.records)

    def find(self, id_: str, node: str) -> Repair | None:
        """The last repair of a node, if there is one."""
        return read_as(self._records, _repair_record_name(id_, node), Repair)

    def of_object(self, id_: str) -> list[Repair]:
        """Return the repairs of an object's nodes that have not ended, in a stable order."""
        names = sorted(name for name in self._records.names() if name.startswith(_folder(id_)))
        found = (read_as(self._records, name, Repair) for name in names)
        return [each for each in found if each is not None]

    def record(self, repair: Repair) -> None:
        """Keeps a record, in place of an earlier one of the same node."""
        self._records.write(_repair_record_name(repair.id, repair.node), asdict(repair))

    def forget(self, id_: str) -> None:
        """The object is gone; no record is no error."""
        mine = _folder(id_)
        self._records.delete(*(name for name in self._records.names() if name.startswith(mine)))


def _folder(id_: str) -> str:
    return f"{_REPAIR_PREFIX}{digest(id_)}-"


def _repair_record_name(id_: str, node: str) -> str:
    return f"{_folder(id_)}{digest(node)}"


_IDLE_STOP_PREFIX: Final = "idle-"


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
        return read_as(self._records, _idle_stop_record_name(id_), IdleStop)

    def record(self, stop: IdleStop) -> None:
        """Keeps a record, in place of an earlier one of the same object."""
        self._records.write(_idle_stop_record_name(stop.id), asdict(stop))

    def forget(self, id_: str) -> None:
        """It runs again, or is gone; no record is no error."""
        self._records.delete(_idle_stop_record_name(id_))


def _idle_stop_record_name(id_: str) -> str:
    return f"{_IDLE_STOP_PREFIX}{digest(id_)}"


_QUIET_LOOK_PREFIX: Final = "quiet-"
_ROUNDING: Final = 2.0
"""Seconds by which two looks may differ without a jump: HTTP tells the time in whole seconds."""


@dataclass(frozen=True)
class Quiet:
    """The object `id` was quiet in each look from `since` until `at` (Unix seconds).

    `of` says what was looked at, so that looks at something else are not counted with it.
    `lasted` is how long it was quiet, in seconds: less than from `since` to `at` where this
    machine's clock has jumped. `ahead` is how many seconds that clock was ahead of the monitor's at
    the last look, None if not known.
    """

    id: str
    of: str
    since: float
    at: float
    lasted: float = 0.0
    ahead: float | None = None

    def after(self, last: "Quiet | None", ahead: float | None, gap: float) -> "Quiet":
        """Return this look as the next one after `last`, if that is of the same and near enough.

        Args:
            last: the look before this one, if any.
            ahead: how many seconds this machine's clock is ahead of the monitor's now.
            gap: the longest time between two looks, in seconds, by either clock.
        """
        begun = replace(self, ahead=ahead)
        if last is None or last.of != self.of:
            return begun
        times = [self.at - last.at]
        if last.ahead is not None and ahead is not None:
            times.append(times[0] - (ahead - last.ahead))
        if min(times) < -_ROUNDING or max(times) > gap:
            return begun
        return replace(begun, since=last.since, lasted=last.lasted + max(min(times), 0.0))


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
        return read_as(self._records, _quiet_look_record_name(id_), Quiet)

    def record(self, quiet: Quiet) -> None:
        """Keeps a record, in place of an earlier one of the same object."""
        self._records.write(_quiet_look_record_name(quiet.id), asdict(quiet))

    def forget(self, id_: str) -> None:
        """It was not quiet, or is gone; no record is no error."""
        self._records.delete(_quiet_look_record_name(id_))


def _quiet_look_record_name(id_: str) -> str:
    return f"{_QUIET_LOOK_PREFIX}{digest(id_)}"
