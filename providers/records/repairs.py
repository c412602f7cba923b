"""The record of repairs that were asked for by name, kept before the request: a run that was killed
meanwhile asks for no second one when it is run again."""

from dataclasses import asdict, dataclass
from typing import Final, Self

from gpuform.providers.records.drains import digest
from gpuform.providers.records.intents import Intents
from gpuform.providers.records.storing import Records, read_as

_PREFIX: Final = "repair-"


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
        return read_as(self._records, _name_of(id_, node), Repair)

    def of_object(self, id_: str) -> list[Repair]:
        """Return the repairs of an object's nodes that have not ended, in a stable order."""
        names = sorted(name for name in self._records.names() if name.startswith(_folder(id_)))
        found = (read_as(self._records, name, Repair) for name in names)
        return [each for each in found if each is not None]

    def record(self, repair: Repair) -> None:
        """Keeps a record, in place of an earlier one of the same node."""
        self._records.write(_name_of(repair.id, repair.node), asdict(repair))

    def forget(self, id_: str) -> None:
        """The object is gone; no record is no error."""
        mine = _folder(id_)
        self._records.delete(*(name for name in self._records.names() if name.startswith(mine)))


def _folder(id_: str) -> str:
    return f"{_PREFIX}{digest(id_)}-"


def _name_of(id_: str, node: str) -> str:
    return f"{_folder(id_)}{digest(node)}"
