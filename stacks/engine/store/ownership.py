"""Which stack of a backend has which object: what one has, no other may take.

Read without any passphrase: of a secret nothing is known here but that it is one.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import LockAttempt
from gpuform.stacks.engine.state import (
    JournalError,
    ResourceState,
    Snapshot,
    journal,
    load_checkpoint,
)
from gpuform.stacks.engine.store.backend import Backend
from gpuform.stacks.engine.urn import is_provider

ATTEMPTS = 3


class UnreadableStack(EngineError):
    """It is not known what a stack has."""

    help_page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class Owners:
    """The objects of a backend's stacks, those of interrupted runs among them.

    `resources` are the entries that stand for an object, each with the full name of its stack;
    `unreadable` says why nothing is known of a stack.
    """

    resources: list[tuple[str, ResourceState]] = field(default_factory=list)
    unreadable: list[UnreadableStack] = field(default_factory=list)


class OtherStacks:
    """The stacks of a backend beside one of them, whose run may import what they do not have."""

    def __init__(self, backend: Backend, stack: str) -> None:
        self._backend = backend
        self._stack = stack
        self._lock = backend.import_lock

    def owners(self, *, claim: bool) -> Owners:
        """What they have. With `claim` none of them imports anything before `release`.

        Raises EngineError where one of them does so at the moment.
        """
        if claim and self._lock.take() is LockAttempt.HELD:
            raise EngineError(
                f"another command is importing into a stack of {self._backend.url}",
                hint="run it again when that has ended",
            )
        return owners(self._backend, self._stack)

    def release(self) -> None:
        """What was claimed is in the state."""
        self._lock.release()


def owners(backend: Backend, besides: str = "") -> Owners:
    """Those of all stacks, or of all `besides` the one of this full name."""
    found = Owners()
    for stack in backend.stacks():
        if stack == besides:
            continue
        try:
            entries = _whole(backend, *stack.split("/")[1:])
        except EngineError as error:
            found.unreadable.append(
                UnreadableStack(
                    f"it is not known what stack {stack} has: {error.message}", error.hint
                )
            )
        else:
            found.resources.extend((stack, entry) for entry in entries)
    return found


def _whole(backend: Backend, project: str, name: str) -> list[ResourceState]:
    """A run may write between a look at the state and one at its journal: then once more."""
    for _ in range(ATTEMPTS - 1):
        with suppress(JournalError):
            return list(_entries(backend, project, name))
    return list(_entries(backend, project, name))


def _entries(backend: Backend, project: str, name: str) -> Iterator[ResourceState]:
    data = backend.read(project, name)
    if data is None:
        return  # it was removed meanwhile
    snapshot = Snapshot.from_json(load_checkpoint(data), _Blind())
    recovered = journal.recover(backend.journal(project, name), data, snapshot, _Blind())
    lost = [entry for each in recovered.overtaken for entry in each.lost(snapshot)]
    for entry in (*recovered.snapshot.resources, *lost):
        # A replaced object that is gone already has its entry until the new one is there.
        is_object = entry.custom and entry.id and not is_provider(entry.type)
        if is_object and not entry.external and not entry.pending_replacement:
            yield entry


class _Blind:
    """Reads secrets as nothing at all."""

    def encrypt(self, plaintext: str, previous: str | None = None) -> str:
        raise AssertionError(f"nothing is written ({len(plaintext)}, {previous})")

    def decrypt(self, ciphertext: str) -> str:  # noqa: ARG002 - as a Crypter has it
        return "null"
