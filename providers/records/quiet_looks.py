"""The record of looks that have found an object quiet, for platforms that tell a moment alone.

Only `gpuform expire` makes such looks; a preview keeps nothing.
"""

from dataclasses import asdict, dataclass, replace
from typing import Final, Self

from gpuform.providers.records.drains import digest
from gpuform.providers.records.intents import Intents
from gpuform.providers.records.storing import Records, read_as

_PREFIX: Final = "quiet-"
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
        return read_as(self._records, _name_of(id_), Quiet)

    def record(self, quiet: Quiet) -> None:
        """Keeps a record, in place of an earlier one of the same object."""
        self._records.write(_name_of(quiet.id), asdict(quiet))

    def forget(self, id_: str) -> None:
        """It was not quiet, or is gone; no record is no error."""
        self._records.delete(_name_of(id_))


def _name_of(id_: str) -> str:
    return f"{_PREFIX}{digest(id_)}"
