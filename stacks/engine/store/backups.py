"""Read present and earlier states of stacks without a passphrase: secrets stay encrypted.

The `state` and `stack` commands call this module, and so does the loading of a state that turns out
to be damaged. Imports ask for the stacks that own objects.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.state import (
    IntegrityError,
    JournalError,
    OrphanedJournal,
    ReadableLog,
    ResourceState,
    Snapshot,
    StateError,
    UnknownFormat,
    edits,
    journal,
    load_checkpoint,
)
from gpuform.stacks.engine.store.backend import Backend
from gpuform.stacks.engine.store.storage import BlobEntry, DamagedFile
from gpuform.stacks.engine.urn import is_provider


class SealedCrypter:
    """A crypter that passes ciphertexts through: a decrypted secret has its ciphertext as value."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        """Return the secret's ciphertext. Raises EngineError for a secret without one."""
        del plaintext
        if previous is None:
            raise EngineError(
                "the state contains a secret in plain text, and encrypting it requires the "
                "stack's passphrase",
                hint="Import the state with `gpuform stack import`, which encrypts it.",
            )
        return previous

    def decrypt(self, ciphertext: str) -> str:
        """Return the ciphertext as JSON text, the form of a plaintext."""
        return value_json.dump(ciphertext).decode()


SEALED = SealedCrypter()


@dataclass(frozen=True, slots=True)
class SealedState:
    """The stored state of a stack; `snapshot` includes the changes of an interrupted run's journal.

    `data` is the checkpoint file; `recovered` counts the changes from the journal, and
    `orphaned_journals` do not belong to the checkpoint. With a `fault` the journal cannot be read,
    and the snapshot is the checkpoint's.
    """

    data: bytes
    snapshot: Snapshot
    recovered: int = 0
    orphaned_journals: tuple[OrphanedJournal, ...] = ()
    fault: JournalError | None = None

    def describe_uncertainty(self, where: str) -> str:
        """Describe objects of journals which may be missing in the snapshot, or return ""."""
        if self.fault is not None:
            return f"the last checkpoint is shown: {self.fault}"
        return describe_orphaned_journals(where, self.snapshot, self.orphaned_journals)


def read_sealed(
    backend: Backend, project: str, stack: str, log: ReadableLog | None = None
) -> SealedState:
    """Read the state of a stack, secrets encrypted, without checking the integrity rules.

    The changes of an interrupted run's journal are applied, from `log` instead of the stack's own
    if given; a journal that cannot be read is the result's `fault`, and its state that of the
    checkpoint.

    Raises:
        BackendError: the checkpoint cannot be read.
        StateError: the checkpoint is not Pulumi's format.
        EngineError: the stack does not exist.
    """
    sealed = _find_sealed(backend, project, stack, log)
    if sealed is None:
        raise EngineError(f"no stack named '{stack}' in {backend.url}")
    return sealed


def _find_sealed(
    backend: Backend, project: str, stack: str, log: ReadableLog | None = None
) -> SealedState | None:
    """Read the state of a stack like `read_sealed`; return None for a missing stack."""
    data = backend.read(project, stack)
    if data is None:
        return None
    checkpoint = load_checkpoint(data)
    snapshot = Snapshot.from_json(checkpoint, SEALED)
    try:
        log = backend.open_journal(project, stack) if log is None else log
        recovered_state = journal.recover(log, data, snapshot, SEALED)
    except JournalError as error:
        return SealedState(data, snapshot, fault=error)
    return SealedState(
        data, recovered_state.snapshot, recovered_state.changes, recovered_state.orphaned_journals
    )


def describe_orphaned_journals(
    where: str, snapshot: Snapshot, orphaned_journals: Iterable[OrphanedJournal]
) -> str:
    """Describe the created objects of orphaned journals missing in the state, or return "".

    Unfinished creates are not described.
    """
    lost_objects = _list_lost_objects(snapshot, orphaned_journals)
    if not lost_objects:
        return ""
    names = "".join(f"\n  {entry.urn} (id {entry.id})" for entry in lost_objects)
    return (
        "a run was interrupted, and another program has written the state since. The journal "
        f"{where} of that run records objects that the state does not have:{names}\n  The next "
        "`gpuform up`, `gpuform refresh` or `gpuform destroy` looks for them."
    )


def _list_lost_objects(
    snapshot: Snapshot, orphaned_journals: Iterable[OrphanedJournal]
) -> list[ResourceState]:
    """Return the created objects of the journals whose ids are missing in the snapshot."""
    return [entry for orphan in orphaned_journals for entry in orphan.find_lost_objects(snapshot)]


_STAMP = re.compile(r"\.(\d{15,19})(\.|$)")


@dataclass(frozen=True, slots=True)
class Backup:
    """An earlier state and its location; `fault` says in a few words why it cannot be used."""

    where: str
    time: datetime
    resources: int = 0
    fault: str = ""

    def describe(self) -> str:
        """Format location, time and number of resources as one line.

        The line of an unusable backup has the fault in place of the number.
        """
        summary = self.fault or f"{self.resources} resource{'s' * (self.resources != 1)}"
        return f"{self.where}  {self.time:%Y-%m-%d %H:%M:%S}Z  {summary}"


def find_backups(backend: Backend, project: str, stack: str) -> list[Backup]:
    """List the earlier states of a stack, the latest first."""
    backups = [_examine_backup(backend, entry) for entry in backend.list_backups(project, stack)]
    return sorted(backups, key=lambda backup: (backup.time, backup.where), reverse=True)


def find_last_good_backup(backend: Backend, project: str, stack: str) -> Backup | None:
    """Return the latest usable earlier state, or None."""
    return next((b for b in find_backups(backend, project, stack) if not b.fault), None)


def load_backup(backend: Backend, where: str) -> Snapshot:
    """Load an earlier state with encrypted secrets. Raises EngineError if it cannot be used."""
    snapshot = Snapshot.from_json(backend.read_backup(where), SEALED)
    edits.check(snapshot)
    return snapshot


@contextmanager
def add_backup_hint(backend: Backend, project: str, stack: str) -> Iterator[None]:
    """Add the state's location and the way to restore a backup to errors about a damaged state.

    The hint of such an error is replaced. A state of a newer format is not damaged: its error stays
    as it is.
    """
    try:
        yield
    # Nothing is damaged: a newer engine wrote the file.
    except UnknownFormat:
        raise
    except (StateError, IntegrityError, DamagedFile) as error:
        where = backend.locate_checkpoint(project, stack)
        if where not in error.message:
            error.message = f"{where}: {error.message}"
        error.hint = "\n".join(
            filter(None, [_get_repair_hint(error), _get_backup_hint(backend, project, stack)])
        )
        raise


def _get_repair_hint(error: EngineError) -> str:
    """Return the hint to run `state repair` for broken rules; empty for other errors."""
    is_repairable = isinstance(error, IntegrityError)
    return (
        "Run `gpuform state repair`, which shows the repairs and asks before it writes them."
        if is_repairable
        else ""
    )


def _get_backup_hint(backend: Backend, project: str, stack: str) -> str:
    """Return the command to restore the last good backup, or a message if there is none."""
    last_good_backup = find_last_good_backup(backend, project, stack)
    if last_good_backup is None:
        return "No usable earlier state found in a .bak file or in .pulumi/backups."
    return (
        f"Nothing was changed. The last good state: {last_good_backup.describe()}\nRestore it: "
        f"gpuform state repair --stack {stack} --from-backup {last_good_backup.where}"
    )


def _examine_backup(backend: Backend, entry: BlobEntry) -> Backup:
    """Return the earlier state with the time, and with a fault if unusable."""
    stamp = _STAMP.search(entry.name.rpartition("/")[2])
    time = datetime.fromtimestamp(int(stamp[1]) / 1e9, UTC) if stamp else entry.modified
    where = backend.storage.locate(entry.name)
    try:
        return Backup(where, time, len(load_backup(backend, where).resources))
    except IntegrityError as error:
        return Backup(where, time, fault=f"breaks rules: {error.violations[0]}")
    except EngineError as error:
        return Backup(where, time, fault=error.message)


_READS: Final = 3
"""How often a state is read whose journal does not fit: a run may be writing both."""


class UnreadableStack(EngineError):
    """A stack whose resources are unknown because its state cannot be read."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class Owners:
    """The objects of a backend's stacks, with the ones of interrupted runs.

    `resources` are the entries of objects, each with the full name of its stack; `unreadable` has
    an error for each stack that cannot be read.
    """

    resources: list[tuple[str, ResourceState]] = field(default_factory=list)
    unreadable: list[UnreadableStack] = field(default_factory=list)


class OtherStacks:
    """The stacks of a backend except for one, whose run imports unowned objects."""

    def __init__(self, backend: Backend, stack: str) -> None:
        self._backend = backend
        self._stack = stack
        self._lock = backend.import_lock

    def find_owners(self, *, claim: bool) -> Owners:
        """Return the objects owned by the other stacks of the backend.

        With `claim`, also take the lock for imports: no other stack imports until `release`. Where
        the system has no locks, nothing is locked.

        Raises:
            EngineError: another stack is importing now; only with `claim`.
        """
        # Two runs that import at the same time could import one object twice.
        if claim and self._lock.take() is LockAttempt.HELD:
            raise EngineError(
                f"another command is importing into a stack of {self._backend.url}",
                hint="run the command again when the import has ended",
            )
        return find_owners(self._backend, self._stack)

    def release(self) -> None:
        """Allow other stacks to import again: the claimed objects are in the state."""
        self._lock.release()


def find_owners(backend: Backend, excluded_stack: str = "") -> Owners:
    """Return the objects of all stacks, each with its owner; without those of `excluded_stack`.

    `excluded_stack` is a full name. External objects are left out, and secrets stay encrypted. A
    stack that cannot be read is in the result's `unreadable`.
    """
    known_owners = Owners()
    for stack in backend.list_stacks():
        if stack == excluded_stack:
            continue
        try:
            entries = _list_objects(backend, *stack.split("/")[1:])
        except EngineError as error:
            known_owners.unreadable.append(
                UnreadableStack(
                    f"the resources of stack {stack} are unknown: {error.message}", error.hint
                )
            )
        else:
            known_owners.resources.extend((stack, entry) for entry in entries)
    return known_owners


def _list_objects(backend: Backend, project: str, stack: str) -> list[ResourceState]:
    """Return the entries of a stack's objects, including objects in journals of interrupted runs.

    External objects are left out; a stack that does not exist has none. Raises EngineError if state
    or journal cannot be read.
    """
    sealed = _find_sealed(backend, project, stack)
    for _ in range(_READS - 1):
        # A run may have written between the reads of the state and of the journal.
        if sealed is not None and sealed.fault is not None:
            sealed = _find_sealed(backend, project, stack)
    if sealed is None:
        return []  # the stack was removed after the listing
    if sealed.fault is not None:
        raise sealed.fault
    lost_objects = _list_lost_objects(sealed.snapshot, sealed.orphaned_journals)
    return [
        entry
        for entry in (*sealed.snapshot.resources, *lost_objects)
        if entry.custom and entry.id and not is_provider(entry.type)
        # A pending replacement keeps the entry of the old object, which is deleted already.
        if not entry.external and not entry.pending_replacement
    ]
