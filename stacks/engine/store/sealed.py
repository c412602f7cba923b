"""A stack's state read without its passphrase: secrets stay sealed, and can be written again."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import JournalError, Overtaken, Snapshot, journal, load_checkpoint
from gpuform.stacks.engine.store.backend import Backend
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
    overtaken: tuple[Overtaken, ...] = ()
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
    return SealedState(data, found.snapshot, found.changes, found.overtaken)


def doubt(where: str, snapshot: Snapshot, overtaken: Iterable[Overtaken]) -> str:
    """What overtaken journals at a place tell of objects that a state does not know; or nothing."""
    lost = [entry for each in overtaken for entry in each.lost(snapshot)]
    if not lost:
        return ""
    names = "".join(f"\n  {entry.urn} (id {entry.id})" for entry in lost)
    return (
        "another program has written the state since a run was interrupted, whose journal "
        f"{where} tells of objects that the state does not know:{names}\n  The next `gpuform up`, "
        "`gpuform refresh` or `gpuform destroy` looks for them."
    )
