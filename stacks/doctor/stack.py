"""A stack: its settings, its passphrase, its state, its locks and what was left undone."""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from gpuform.providers.intents import Intents
from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.engine import integrity
from gpuform.stacks.engine.backend import Backend
from gpuform.stacks.engine.backups import last_good, naming_the_last_good
from gpuform.stacks.engine.passphrase_change import PassphraseChange
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.sealed import SealedState, read_sealed
from gpuform.stacks.engine.secrets import (
    PASSPHRASE_PROVIDER,
    PassphraseCrypter,
    crypter_for,
    find_passphrase,
)
from gpuform.stacks.engine.stack_settings import StackSettings
from gpuform.stacks.engine.state import SecretsProvider, load_checkpoint
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of
from gpuform.stacks.review.names import counted

_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class Subject:
    """The stack that is looked at."""

    project: Project
    backend: Backend
    name: str
    environ: Mapping[str, str]

    @property
    def area(self) -> str:
        """Of its findings."""
        return f"stack {self.name}"


def settings(subject: Subject) -> StackSettings:
    """What the stack's file says. Raises EngineError, with the place."""
    return StackSettings.load(subject.project, subject.name)


def crypter(subject: Subject, found: StackSettings) -> PassphraseCrypter:
    """What opens the stack's secrets, checked. Raises EngineError with the way out.

    Nothing is written, not even a salt that the stack's file lacks.
    """
    provider = SecretsProvider(found.secrets_provider or PASSPHRASE_PROVIDER)
    if found.encryption_salt:
        provider = SecretsProvider(provider.type, {"salt": found.encryption_salt})
    elif provider.type == PASSPHRASE_PROVIDER:
        data = subject.backend.read(subject.project.name, subject.name)
        stored = load_checkpoint(data).secrets_provider if data else None
        provider = stored or provider
    made = crypter_for(
        provider, lambda: find_passphrase(subject.environ, subject.project.directory, None)
    )
    made.check()
    return made


def configuration(subject: Subject, values: Collection[str], secret: int) -> Iterator[Finding]:
    """What was opened by the right passphrase."""
    told = f"{counted(len(values), 'configuration value')}, {secret} of them secret"
    yield Finding(subject.area, Level.OK, f"the passphrase is right; {told}")


def state(subject: Subject) -> SealedState:
    """What is on disk. Raises EngineError, which says what brings the last good state back."""
    backend, project = subject.backend, subject.project.name
    with naming_the_last_good(backend, project, subject.name):
        found = read_sealed(backend, project, subject.name)
        integrity.check(found.snapshot)
    return found


def health(subject: Subject, found: SealedState) -> Iterator[Finding]:
    """What a sound state says of runs that did not end well."""
    entries = [
        each
        for each in found.snapshot.resources
        if each.type != STACK_TYPE and not is_provider(each.type)
    ]
    yield Finding(
        subject.area, Level.OK, f"the state is sound: {counted(len(entries), 'resource')}"
    )
    if found.recovered:
        yield _warning(
            subject,
            f"a run was interrupted: {found.recovered} changes of it are in its journal",
            "the next `gpuform up` takes them over",
        )
    pending = [f"{o.type} {name_of(o.resource.urn)}" for o in found.snapshot.pending_operations]
    if pending:
        yield _warning(
            subject,
            f"operations were cut off, and what they made may exist: {', '.join(pending)}",
            "gpuform up, which looks for it; or `gpuform refresh`",
        )
    unready = [name_of(each.urn) for each in entries if each.init_errors and not each.delete]
    if unready:
        yield _warning(
            subject, f"not ready yet: {', '.join(unready)}", "gpuform up goes on waiting for them"
        )
    doomed = [name_of(each.urn) for each in entries if each.delete]
    if doomed:
        yield _warning(
            subject,
            f"old objects wait for their deletion: {', '.join(doomed)}",
            "gpuform up deletes them",
        )
    if last_good(subject.backend, subject.project.name, subject.name) is None and entries:
        yield Finding(subject.area, Level.NOTE, "there is no earlier state to go back to yet")


def locks(subject: Subject) -> Iterator[Finding]:
    """Who works on the stack, or left a lock on it."""
    holders = subject.backend.lock(subject.project.name, subject.name).holders()
    for holder in holders:
        ended = holder.has_ended or bool(holder.fault)
        yield Finding(
            subject.area,
            Level.WARNING if ended else Level.NOTE,
            f"locked: {holder.describe()}",
            f"gpuform cancel {subject.name}, once you know that it has ended",
        )
    if not holders:
        yield Finding(subject.area, Level.OK, "it is not locked")


def undone(subject: Subject) -> Iterator[Finding]:
    """What interrupted commands left."""
    if PassphraseChange(subject.backend, subject.project, subject.name).is_pending:
        yield _warning(
            subject,
            "a change of the passphrase was interrupted",
            "the next command that opens the stack finishes it",
        )
    intents = Intents(subject.project.directory / ".gpuform" / "intents").all()
    for intent in intents:
        age = max(0.0, time.time() - intent.started_at)
        when = f"{age / _DAY:.0f} days ago" if age > _DAY else "lately"
        yield _warning(
            subject,
            f"a create was begun {when}, and its outcome is not known: {intent.kind} "
            f"{intent.name!r} on {intent.platform}",
            "gpuform up looks for the object and takes it over",
        )


def used_platforms(found: SealedState) -> Iterator[str]:
    """The platforms that the state has resources of."""
    for entry in found.snapshot.resources:
        _, _, rest = entry.type.rpartition("gpuform.")
        if ":" in rest and rest != entry.type:
            yield rest.partition(":")[0]


def _warning(subject: Subject, text: str, remedy: str) -> Finding:
    return Finding(subject.area, Level.WARNING, text, remedy)
