"""Read another project's stack of the backend, and resources as their platforms show them."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.secrets import SecretsManager, crypter_for
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
from gpuform.stacks.engine.values import PropertyMap


@dataclass(slots=True)
class ForeignStack:
    """An open stack of another project, whose lock is held."""

    backend: Backend
    project: str
    name: str
    crypter: SecretsManager
    snapshot: Snapshot

    @classmethod
    def open(
        cls, backend: Backend, project: str, name: str, passphrase: Callable[[], str]
    ) -> "ForeignStack":
        """Reads its state. Raises EngineError when there is none that can be used."""
        if backend.read_own(project, name, "secrets-change") is not None:
            raise EngineError(
                f"a change of the secrets provider of {build_full_name(project, name)} was "
                "interrupted",
                hint="Any command in its own project finishes it, such as `gpuform preview`.",
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
            crypter = crypter_for(checkpoint.secrets_provider, passphrase)
            crypter.check()
            snapshot = Snapshot.from_json(checkpoint, crypter)
            edits.check(snapshot)
        found = journal.recover(backend.journal(project, name), data, snapshot, crypter)
        if found.changes or found.orphaned_journals:
            raise EngineError(
                f"the last run of stack {build_full_name(project, name)} was interrupted",
                hint="Run `gpuform up` or `gpuform refresh` in its project first.",
            )
        return cls(backend, project, name, crypter, snapshot)

    def save(self, snapshot: Snapshot) -> None:
        """Replaces the state once it keeps the integrity rules."""
        snapshot = replace(snapshot, manifest=Manifest())
        edits.check(snapshot)
        self.backend.write(self.project, self.name, snapshot.to_json(self.crypter))
        self.snapshot = snapshot


READERS: Final = 32


@dataclass(frozen=True, slots=True)
class LiveResource:
    """What was read of a resource; `outputs` are None when it could not be read, or is gone.

    `problem` says why it could not be read.
    """

    outputs: PropertyMap | None
    problem: str = ""


def read_resources(
    stack: Stack, config: Mapping[str, str], entries: Sequence[ResourceState]
) -> list[LiveResource]:
    """Reads entries of the stack's state, in their order.

    `config` is the stack's in plain text, by full keys.
    """
    # The record of creates under way belongs to the runs that make them.
    intents = Intents(EphemeralRecords())
    host = ProviderHost(
        stack.project.name,
        config,
        lambda urn, timeout: ProviderContext(urn=urn, timeout=timeout, intents=intents),
    )
    host.plugins.know(stack.snapshot.resources)

    def one(entry: ResourceState) -> LiveResource:
        try:
            read = host.read(
                entry.urn, entry.id, entry.inputs, entry.outputs, provider=entry.provider
            )
        except EngineError as error:
            return LiveResource(None, error.message)
        return LiveResource(read[0].outputs if read else None)

    with ThreadPoolExecutor(READERS, thread_name_prefix="reading") as pool:
        return list(pool.map(one, entries))
