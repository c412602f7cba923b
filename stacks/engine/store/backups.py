"""The earlier states of a stack, and which of them is the last good one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import (
    IntegrityError,
    Snapshot,
    StateError,
    UnknownFormat,
    integrity,
)
from gpuform.stacks.engine.store.backend import Backend
from gpuform.stacks.engine.store.backend_files import DamagedFile
from gpuform.stacks.engine.store.sealed import SEALED
from gpuform.stacks.engine.store.storage.protocol import Entry

_STAMP = re.compile(r"\.(\d{15,19})(\.|$)")


@dataclass(frozen=True, slots=True)
class Backup:
    """An earlier state and where it is. `fault` says in a few words why it cannot be used."""

    where: str
    time: datetime
    resources: int = 0
    fault: str = ""

    def describe(self) -> str:
        """One line: where, of when, and how large."""
        what = self.fault or f"{self.resources} resource{'s' * (self.resources != 1)}"
        return f"{self.where}  {self.time:%Y-%m-%d %H:%M:%S}Z  {what}"


def find_backups(backend: Backend, project: str, stack: str) -> list[Backup]:
    """The earlier states that are kept of a stack, the latest first."""
    found = [_examined(backend, entry) for entry in backend.backups(project, stack)]
    return sorted(found, key=lambda backup: (backup.time, backup.where), reverse=True)


def last_good(backend: Backend, project: str, stack: str) -> Backup | None:
    """The latest of the earlier states that can be used."""
    return next((b for b in find_backups(backend, project, stack) if not b.fault), None)


def load_backup(backend: Backend, where: str) -> Snapshot:
    """An earlier state, its secrets sealed. Raises EngineError when it cannot be used."""
    snapshot = Snapshot.from_json(backend.read_backup(where), SEALED)
    integrity.check(snapshot)
    return snapshot


@contextmanager
def name_the_last_good(backend: Backend, project: str, stack: str) -> Iterator[None]:
    """Around the reading of a state: when it is damaged, it is named, and what brings one back."""
    try:
        yield
    except UnknownFormat:
        raise
    except (StateError, IntegrityError, DamagedFile) as error:
        where = backend.where(project, stack)
        if where not in error.message:
            error.message = f"{where}: {error.message}"
        error.hint = "\n".join(filter(None, [_repairable(error), _advice(backend, project, stack)]))
        raise


def _repairable(error: EngineError) -> str:
    fits = isinstance(error, IntegrityError)
    return "`gpuform state repair` shows what can be put right, and does it." if fits else ""


def _advice(backend: Backend, project: str, stack: str) -> str:
    good = last_good(backend, project, stack)
    if good is None:
        return "There is no earlier state in a .bak file or in .pulumi/backups that can be used."
    return (
        f"Nothing was changed. The last good state: {good.describe()}\n"
        f"It is brought back by: gpuform state repair --stack {stack} --from-backup {good.where}"
    )


def _examined(backend: Backend, entry: Entry) -> Backup:
    stamp = _STAMP.search(entry.name.rpartition("/")[2])
    time = datetime.fromtimestamp(int(stamp[1]) / 1e9, UTC) if stamp else entry.modified
    where = backend.storage.where(entry.name)
    try:
        return Backup(where, time, len(load_backup(backend, where).resources))
    except IntegrityError as error:
        return Backup(where, time, fault=f"breaks rules: {error.violations[0]}")
    except EngineError as error:
        return Backup(where, time, fault=error.message)
