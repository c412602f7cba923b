"""Examine a stack: settings, secrets, state, locks, and the remains of interrupted runs.

`examining` calls each check; a check that raises an error does not stop the others.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuform.providers.environment import read_environment
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
from gpuform.stacks.engine.state import ResourceState, SecretsProvider, edits, load_checkpoint
from gpuform.stacks.engine.store import (
    Backend,
    Files,
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
    """The stack to examine."""

    project: Project
    backend: Backend
    name: str
    environ: Mapping[str, str]

    @property
    def area(self) -> str:
        """Return the area of the stack's findings."""
        return f"stack {self.name}"


def load_settings(stack: ExaminedStack) -> StackSettings:
    """Return the settings of the stack's file.

    Raises:
        EngineError: the file is not valid.
    """
    return StackSettings.load(stack.project, stack.name)


def open_secrets(stack: ExaminedStack, settings: StackSettings) -> SecretsManager:
    """Return the checked secrets manager of the stack, from the settings or the state.

    Nothing is written, not even a salt that the settings lack.

    Raises:
        EngineError: the passphrase or the key is missing or wrong.
    """
    # The state may name its secrets provider where the settings name none.
    data = stack.backend.read(stack.project.name, stack.name)
    stored_provider = load_checkpoint(data).secrets_provider if data else None

    def read_passphrase() -> str:
        return find_passphrase(stack.environ, stack.project.directory, None)

    secrets_manager = find_settings_crypter(settings, stored_provider, read_passphrase)
    secrets_manager = secrets_manager or create_stored_crypter(
        stored_provider or SecretsProvider(PASSPHRASE_PROVIDER), read_passphrase
    )
    secrets_manager.check()
    return secrets_manager


def report_configuration(
    stack: ExaminedStack,
    secrets_manager: SecretsManager,
    values: Collection[str],
    secret_count: int,
) -> Iterator[Finding]:
    """Yield an OK finding about decrypted secrets, with the numbers of values."""
    counts = f"{counted(len(values), 'configuration value')}, {secret_count} of them secret"
    by_passphrase = secrets_manager.provider.type == PASSPHRASE_PROVIDER
    verdict = (
        "the passphrase is correct" if by_passphrase else "the secrets provider opens the stack"
    )
    yield Finding(stack.area, Level.OK, f"{verdict}; {counts}")


def find_plaintext_secrets(stack: ExaminedStack, settings: StackSettings) -> Iterator[Finding]:
    """Yield a warning for each plain-text secret in the stack's file."""
    for finding in ConfigKeys.from_project(stack.project).find_plaintext_secrets(settings):
        yield _build_warning(stack, finding.text, finding.remedy)


def find_local_state(stack: ExaminedStack) -> Iterator[Finding]:
    """Yield a warning if the state of a stack of real platforms lies in a folder.

    Raises GpuformError for a damaged record.
    """
    records = open_intents(stack.backend, stack.project.name, stack.name).records
    environment = read_environment(records)
    if environment is None or environment.emulated or not isinstance(stack.backend.storage, Files):
        return
    yield _build_warning(
        stack,
        "the state lies in a folder: if this disk is lost, nobody knows what the stack created",
        "move it to a bucket: gpuform stack migrate URL",
    )


def read_state(stack: ExaminedStack) -> SealedState:
    """Return the stack's state from the backend, after an integrity check.

    Raises:
        EngineError: the state is damaged; the hint names the last good backup.
    """
    backend, project = stack.backend, stack.project.name
    with add_backup_hint(backend, project, stack.name):
        sealed_state = read_sealed(backend, project, stack.name)
        if sealed_state.fault is not None:
            raise sealed_state.fault
        # A readable state may still be inconsistent, after an edit by hand.
        edits.check(sealed_state.snapshot)
    return sealed_state


def check_state(stack: ExaminedStack, sealed_state: SealedState) -> Iterator[Finding]:
    """Yield the number of resources, and the traces of interrupted and failed runs."""
    resources = [
        resource
        for resource in sealed_state.snapshot.resources
        if resource.type != STACK_TYPE and not is_provider(resource.type)
    ]
    yield Finding(
        stack.area, Level.OK, f"the state is valid: {counted(len(resources), 'resource')}"
    )
    if sealed_state.recovered:
        yield _build_warning(
            stack,
            f"a run was interrupted; its journal has {counted(sealed_state.recovered, 'change')}",
            "the next `gpuform up` adds the changes of the journal to the state",
        )
    if sealed_state.orphaned_journals:
        journal_path = stack.backend.open_journal(stack.project.name, stack.name).where
        yield _build_warning(
            stack,
            sealed_state.describe_uncertainty(journal_path)
            or "another program has written the state since a run was interrupted: "
            f"{journal_path} is that run's journal",
            "`gpuform refresh` resolves the creates of that run, and sets the journal aside",
        )
    pending_operations = [
        f"{operation.type} {name_of(operation.resource.urn)}"
        for operation in sealed_state.snapshot.pending_operations
    ]
    if pending_operations:
        yield _build_warning(
            stack,
            "operations were interrupted, and their objects may exist: "
            f"{', '.join(pending_operations)}",
            "run `gpuform up`, which looks for the objects, or `gpuform refresh`",
        )
    yield from _find_pending_resources(stack, resources)
    if find_last_good_backup(stack.backend, stack.project.name, stack.name) is None and resources:
        yield Finding(stack.area, Level.NOTE, "there is no backup of an earlier state yet")


def _find_pending_resources(
    stack: ExaminedStack, resources: Sequence[ResourceState]
) -> Iterator[Finding]:
    """Yield warnings for unready resources, and for old objects to delete."""
    unready_names = [
        name_of(resource.urn)
        for resource in resources
        if resource.init_errors and not resource.delete
    ]
    if unready_names:
        yield _build_warning(
            stack,
            f"not ready yet: {', '.join(unready_names)}",
            "`gpuform up` continues to wait for them",
        )
    deleted_names = [name_of(resource.urn) for resource in resources if resource.delete]
    if deleted_names:
        yield _build_warning(
            stack,
            f"old objects are not deleted yet: {', '.join(deleted_names)}",
            "`gpuform up` deletes them",
        )


def find_locks(stack: ExaminedStack) -> Iterator[Finding]:
    """Yield the locks of the stack, or an OK finding without locks.

    A lock whose process has ended, or whose file is damaged, is a warning; another lock is a note.
    """
    holders = stack.backend.create_lock(stack.project.name, stack.name).list_holders()
    for holder in holders:
        # A process on another machine cannot be checked: its lock is only a note.
        is_abandoned = holder.has_ended or bool(holder.fault)
        yield Finding(
            stack.area,
            Level.WARNING if is_abandoned else Level.NOTE,
            f"locked: {holder.describe()}",
            f"gpuform cancel {stack.name}, once you are sure that it has ended",
        )
    if not holders:
        yield Finding(stack.area, Level.OK, "the stack is not locked")


def find_unfinished_work(stack: ExaminedStack) -> Iterator[Finding]:
    """Yield the remains of interrupted commands: a change of secrets, and creates."""
    if SecretsChange(stack.backend, stack.project, stack.name).is_pending:
        yield _build_warning(
            stack,
            "a change of the secrets provider was interrupted",
            "the next command that opens the stack finishes it",
        )
    for intent in _list_unresolved_intents(stack):
        age_s = max(0.0, time.time() - intent.started_at)
        age_text = f"{age_s / _DAY:.0f} days ago" if age_s > _DAY else "recently"
        yield _build_warning(
            stack,
            f"a create was started {age_text}, and its outcome is unknown: {intent.kind} "
            f"{intent.name!r} on {intent.platform}"
            + (f", which created {', '.join(intent.made)}" if intent.made else ""),
            "`gpuform up`, refresh or destroy finds the object and adopts it, and so does "
            "`pulumi up`; `pulumi destroy` may leave it on the platform",
        )


def _list_unresolved_intents(stack: ExaminedStack) -> Iterator[Intent]:
    """Yield the intents of creates without an object in the state."""
    backend, project = stack.backend, stack.project.name
    intents = open_intents(backend, project, stack.name).list_all()
    if intents:
        known_ids = {
            resource.id for resource in read_sealed(backend, project, stack.name).snapshot.resources
        }
        yield from (intent for intent in intents if intent.id not in known_ids)


def list_used_platforms(sealed_state: SealedState) -> Iterator[str]:
    """Yield the platform of each resource of gpuform in the state, with duplicates."""
    for resource in sealed_state.snapshot.resources:
        # Types of other providers have no `gpuform.` in their token.
        _, _, platform_and_kind = resource.type.rpartition("gpuform.")
        if ":" in platform_and_kind and platform_and_kind != resource.type:
            yield platform_and_kind.partition(":")[0]


def _build_warning(stack: ExaminedStack, text: str, remedy: str) -> Finding:
    """Build a finding that warns of the examined stack."""
    return Finding(stack.area, Level.WARNING, text, remedy)
