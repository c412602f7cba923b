"""Open another project's stack of the backend, and read resources from their platforms.

`gpuform state move` and the commands that compare the state with the platforms call this module.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from gpuform.providers import values
from gpuform.providers.context import ProviderContext
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.executing import find_drift
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.secrets import SecretsManager, create_stored_crypter
from gpuform.stacks.engine.stack.stack import Stack
from gpuform.stacks.engine.state import (
    Manifest,
    ResourceState,
    Snapshot,
    edits,
    journal,
    load_checkpoint,
)
from gpuform.stacks.engine.store import Backend, add_backup_hint, build_full_name


@dataclass(slots=True)
class ForeignStack:
    """An open stack of another project, whose lock the caller holds."""

    backend: Backend
    project: str
    name: str
    crypter: SecretsManager
    snapshot: Snapshot

    @classmethod
    def open(
        cls, backend: Backend, project: str, name: str, passphrase: Callable[[], str]
    ) -> "ForeignStack":
        """Open a stack of another project; the caller holds its lock.

        Raises:
            WrongPassphrase: the passphrase does not fit.
            EngineError: the state does not exist or cannot be used, or a run or a change of the
                secrets provider was interrupted.
        """
        if backend.read_own(project, name, "secrets-change") is not None:
            raise EngineError(
                f"stack {build_full_name(project, name)}: a change of its secrets provider was "
                "interrupted",
                hint="To finish the change, run any command in that project, such as `gpuform "
                "preview`.",
            )
        with add_backup_hint(backend, project, name):
            data = backend.read(project, name)
            if data is None:
                raise EngineError(f"no stack {build_full_name(project, name)} in {backend.url}")
            checkpoint = load_checkpoint(data)
            if checkpoint.secrets_provider is None:
                raise EngineError(
                    f"stack {build_full_name(project, name)} has no secrets provider yet",
                    hint="Run `gpuform up` in its project first.",
                )
            crypter = create_stored_crypter(checkpoint.secrets_provider, passphrase)
            crypter.check()
            snapshot = Snapshot.from_json(checkpoint, crypter)
            edits.check(snapshot)
        recovered = journal.recover(backend.open_journal(project, name), data, snapshot, crypter)
        if recovered.changes or recovered.orphaned_journals:
            raise EngineError(
                f"the last run of stack {build_full_name(project, name)} was interrupted",
                hint="Run `gpuform up` or `gpuform refresh` in its project first.",
            )
        return cls(backend, project, name, crypter, snapshot)

    def save(self, snapshot: Snapshot) -> None:
        """Replace the state. Raises IntegrityError if the new state breaks the integrity rules."""
        snapshot = replace(snapshot, manifest=Manifest())
        edits.check(snapshot)
        self.backend.write(self.project, self.name, snapshot.to_json(self.crypter))
        self.snapshot = snapshot


PARALLEL_READS: Final = 32


@dataclass(frozen=True, slots=True)
class LiveResource:
    """A resource as its platform reports it; `outputs` are None if it is gone or cannot be read.

    `problem` says why it cannot be read. `has_drifted` is True if a refresh would change the entry,
    as far as somebody has asked for that.
    """

    outputs: PropertyMap | None
    problem: str = ""
    has_drifted: bool = False


def read_resources(
    stack: Stack,
    config: Mapping[str, str],
    entries: Sequence[ResourceState],
    *,
    finds_drift: bool = False,
) -> list[LiveResource]:
    """Read entries of the stack's state from the platforms, in the order of `entries`.

    A resource that cannot be read is in the result with its problem, a missing one without outputs;
    nothing is raised.

    Args:
        stack: the stack.
        config: the stack's configuration in plain text, by full keys.
        entries: the entries to read.
        finds_drift: compare each with its entry, as a refresh does.
    """
    # Reading must not see or change the stored intents: they belong to the runs that create.
    intents = Intents(EphemeralRecords())
    run = stack.run_context
    host = ProviderHost(
        stack.project.name,
        config,
        lambda urn, timeout: ProviderContext(urn, timeout=timeout, run=run, intents=intents),
        run,
    )
    host.plugins.configure_from_state(stack.snapshot.resources)

    def read_resource(entry: ResourceState) -> LiveResource:
        try:
            read = host.read(
                entry.urn, entry.id, entry.inputs, entry.outputs, provider=entry.provider
            )
        except EngineError as error:
            return LiveResource(None, error.message)
        if read is None:
            return LiveResource(None, has_drifted=True)
        observed, inputs = read
        if not finds_drift:
            return LiveResource(observed.outputs)
        outputs = values.mark_secret_outputs(
            observed.outputs, entry.inputs, entry.additional_secret_outputs
        )
        new = replace(entry, id=observed.id, outputs=outputs, inputs=inputs or entry.inputs)
        try:
            _, diff = find_drift(host, entry, new)
        except EngineError as error:
            return LiveResource(None, error.message)
        return LiveResource(observed.outputs, has_drifted=bool(diff.changes))

    with ThreadPoolExecutor(PARALLEL_READS, thread_name_prefix="reading") as pool:
        return list(pool.map(read_resource, entries))
