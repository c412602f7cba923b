"""A stack: its settings, its passphrase, its state, its locks and what was left undone."""

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from gpuform.providers.records import Intent
from gpuform.stacks.config_keys import ConfigKeys
from gpuform.stacks.doctor.findings import Finding, Level
from gpuform.stacks.engine.project import Project, StackSettings
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.secrets import (
    PASSPHRASE_PROVIDER,
    SecretsManager,
    create_stored_crypter,
    find_passphrase,
    find_settings_crypter,
)
from gpuform.stacks.engine.stack import SecretsChange
from gpuform.stacks.engine.state import SecretsProvider, edits, load_checkpoint
from gpuform.stacks.engine.store import (
    Backend,
    SealedState,
    add_backup_hint,
    find_last_good_backup,
    read_sealed,
)
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of
from gpuform.stacks.review.value_text import counted

_DAY = 86400.0


@dataclass(frozen=True, slots=True)
class ExaminedStack:
    """The stack that is looked at."""

    project: Project
    backend: Backend
    name: str
    environ: Mapping[str, str]

    @property
    def area(self) -> str:
        """Of its findings."""
        return f"stack {self.name}"


def settings(subject: ExaminedStack) -> StackSettings:
    """What the stack's file says. Raises EngineError, with the place."""
    return StackSettings.load(subject.project, subject.name)


def crypter(subject: ExaminedStack, found: StackSettings) -> SecretsManager:
    """What opens the stack's secrets, checked. Raises EngineError with the way out.

    Nothing is written, not even a salt that the stack's file lacks.
    """
    data = subject.backend.read(subject.project.name, subject.name)
    stored = load_checkpoint(data).secrets_provider if data else None

    def passphrase() -> str:
        return find_passphrase(subject.environ, subject.project.directory, None)

    made = find_settings_crypter(found, stored, passphrase)
    made = made or create_stored_crypter(stored or SecretsProvider(PASSPHRASE_PROVIDER), passphrase)
    made.check()
    return made


def configuration(
    subject: ExaminedStack, opened: SecretsManager, values: Collection[str], secret: int
) -> Iterator[Finding]:
    """What was opened by the right key."""
    told = f"{counted(len(values), 'configuration value')}, {secret} of them secret"
    by_passphrase = opened.provider.type == PASSPHRASE_PROVIDER
    right = "the passphrase is right" if by_passphrase else "the secrets provider opens the stack"
    yield Finding(subject.area, Level.OK, f"{right}; {told}")


def in_the_clear(subject: ExaminedStack, found: StackSettings) -> Iterator[Finding]:
    """The secrets that everybody can read who sees the stack's file."""
    for each in ConfigKeys.of(subject.project).in_the_clear(found):
        yield _warning(subject, each.text, each.remedy)


def state(subject: ExaminedStack) -> SealedState:
    """What is on disk. Raises EngineError, which says what brings the last good state back."""
    backend, project = subject.backend, subject.project.name
    with add_backup_hint(backend, project, subject.name):
        found = read_sealed(backend, project, subject.name)
        if found.fault is not None:
            raise found.fault
        edits.check(found.snapshot)
    return found


def health(subject: ExaminedStack, found: SealedState) -> Iterator[Finding]:
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
            f"a run was interrupted; its journal has {counted(found.recovered, 'change')} of it",
            "the next `gpuform up` takes over what the journal has",
        )
    if found.orphaned_journals:
        where = subject.backend.open_journal(subject.project.name, subject.name).where
        yield _warning(
            subject,
            found.describe_uncertainty(where)
            or f"another program has written the state since a run was interrupted: {where} is its "
            "journal",
            "gpuform refresh settles what that run has made, and sets the journal aside",
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
    if (
        find_last_good_backup(subject.backend, subject.project.name, subject.name) is None
        and entries
    ):
        yield Finding(subject.area, Level.NOTE, "there is no earlier state to go back to yet")


def locks(subject: ExaminedStack) -> Iterator[Finding]:
    """Who works on the stack, or left a lock on it."""
    holders = subject.backend.create_lock(subject.project.name, subject.name).list_holders()
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


def undone(subject: ExaminedStack) -> Iterator[Finding]:
    """What interrupted commands left."""
    if SecretsChange(subject.backend, subject.project, subject.name).is_pending:
        yield _warning(
            subject,
            "a change of the secrets provider was interrupted",
            "the next command that opens the stack finishes it",
        )
    for intent in _unsettled(subject):
        age = max(0.0, time.time() - intent.started_at)
        when = f"{age / _DAY:.0f} days ago" if age > _DAY else "lately"
        yield _warning(
            subject,
            f"a create was begun {when}, and its outcome is not known: {intent.kind} "
            f"{intent.name!r} on {intent.platform}"
            + (f", which has made {', '.join(intent.made)}" if intent.made else ""),
            "gpuform up, refresh or destroy looks for the object and takes it over, and so does "
            "`pulumi up`; `pulumi destroy` may leave it on the platform",
        )


def _unsettled(subject: ExaminedStack) -> Iterator[Intent]:
    """The creates whose object the state does not have."""
    backend, project = subject.backend, subject.project.name
    intents = open_intents(backend, project, subject.name).list_all()
    if intents:
        known = {each.id for each in read_sealed(backend, project, subject.name).snapshot.resources}
        yield from (each for each in intents if each.id not in known)


def used_platforms(found: SealedState) -> Iterator[str]:
    """The platforms that the state has resources of."""
    for entry in found.snapshot.resources:
        _, _, rest = entry.type.rpartition("gpuform.")
        if ":" in rest and rest != entry.type:
            yield rest.partition(":")[0]


def _warning(subject: ExaminedStack, text: str, remedy: str) -> Finding:
    return Finding(subject.area, Level.WARNING, text, remedy)
