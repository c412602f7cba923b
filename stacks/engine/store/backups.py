"""Keep the earlier states of a stack; without its passphrase, secrets stay sealed."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import (
    IntegrityError,
    JournalError,
    OrphanedJournal,
    Snapshot,
    StateError,
    UnknownFormat,
    edits,
    journal,
    load_checkpoint,
)
from gpuform.stacks.engine.store.backend import Backend
from gpuform.stacks.engine.store.backend_files import DamagedFile
from gpuform.stacks.engine.store.storage.protocol import Entry
from gpuform.stacks.engine.values import value_json


class SealedCrypter:
    """Hands ciphertexts through: a secret that it decrypts has its ciphertext for a value."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        """The ciphertext that the secret had. EngineError for one that never had any."""
        del plaintext
        if previous is None:
            raise EngineError(
                "the state holds a secret in the clear, which cannot be encrypted without the "
                "stack's passphrase",
                hint="Bring it in with `gpuform stack import`, which encrypts it.",
            )
        return previous

    def decrypt(self, ciphertext: str) -> str:
        """The ciphertext, as the JSON text that a plaintext is."""
        return value_json.dump(ciphertext).decode()


SEALED = SealedCrypter()


@dataclass(frozen=True, slots=True)
class SealedState:
    """What is on disk of a stack; `snapshot` has what an interrupted run's journal adds.

    `data` is the checkpoint's text; `recovered` counts the changes of the journal, and `overtaken`
    are the journals that do not belong to it. With a `fault` the journal cannot be read, and the
    snapshot is the checkpoint's.
    """

    data: bytes
    snapshot: Snapshot
    recovered: int = 0
    overtaken: tuple[OrphanedJournal, ...] = ()
    fault: JournalError | None = None

    def doubt(self, where: str) -> str:
        """What the journal at a place tells, or may tell, beside the snapshot; or nothing."""
        if self.fault is not None:
            return f"what is shown is the last checkpoint: {self.fault}"
        return doubt(where, self.snapshot, self.overtaken)


def read_sealed(backend: Backend, project: str, stack: str) -> SealedState:
    """The state of a stack, whether or not it keeps the integrity rules.

    Raises BackendError and StateError for a checkpoint that cannot be read.
    """
    data = backend.read(project, stack)
    if data is None:
        raise EngineError(f"no stack named '{stack}' in {backend.url}")
    checkpoint = load_checkpoint(data)
    snapshot = Snapshot.from_json(checkpoint, SEALED)
    try:
        found = journal.recover(backend.journal(project, stack), data, snapshot, SEALED)
    except JournalError as error:
        return SealedState(data, snapshot, fault=error)
    return SealedState(data, found.snapshot, found.changes, found.orphaned_journals)


def doubt(where: str, snapshot: Snapshot, overtaken: Iterable[OrphanedJournal]) -> str:
    """What overtaken journals at a place tell of objects that a state does not know; or nothing."""
    lost = [entry for each in overtaken for entry in each.find_lost_objects(snapshot)]
    if not lost:
        return ""
    names = "".join(f"\n  {entry.urn} (id {entry.id})" for entry in lost)
    return (
        "another program has written the state since a run was interrupted, whose journal "
        f"{where} tells of objects that the state does not know:{names}\n  The next `gpuform up`, "
        "`gpuform refresh` or `gpuform destroy` looks for them."
    )


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
    edits.check(snapshot)
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
