"""A stack's state read without its passphrase: secrets stay sealed, and can be written again."""

from dataclasses import dataclass

from gpuform.stacks.engine import journal, value_json
from gpuform.stacks.engine.backend import Backend
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import Snapshot, load_checkpoint


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

    `data` is the checkpoint's text; `recovered` counts the changes of the journal.
    """

    data: bytes
    snapshot: Snapshot
    recovered: int = 0


def read_sealed(backend: Backend, project: str, stack: str) -> SealedState:
    """The state of a stack, whether or not it keeps the integrity rules.

    Raises BackendError, StateError and JournalError for what cannot be read.
    """
    data = backend.read(project, stack)
    if data is None:
        raise EngineError(f"no stack named '{stack}' in {backend.url}")
    checkpoint = load_checkpoint(data)
    snapshot = Snapshot.from_json(checkpoint, SEALED)
    recovered = journal.recover(backend.journal(project, stack), data, snapshot, SEALED)
    if recovered is None:
        return SealedState(data, snapshot)
    return SealedState(data, recovered.snapshot, recovered.changes)
