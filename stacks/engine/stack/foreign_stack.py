"""A stack of another project in the same backend: its state, without its settings."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.secrets import SecretsManager, crypter_for
from gpuform.stacks.engine.state import Manifest, Snapshot, integrity, journal, load_checkpoint
from gpuform.stacks.engine.store import Backend, full_name, name_the_last_good


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
                f"a change of the secrets provider of {full_name(project, name)} was interrupted",
                hint="Any command in its own project finishes it, such as `gpuform preview`.",
            )
        with name_the_last_good(backend, project, name):
            data = backend.read(project, name)
            if data is None:
                raise EngineError(f"no stack {full_name(project, name)} in {backend.url}")
            checkpoint = load_checkpoint(data)
            if checkpoint.secrets_provider is None:
                raise EngineError(
                    f"stack {full_name(project, name)} has no secrets provider yet",
                    hint="Run `gpuform up` in its project first.",
                )
            crypter = crypter_for(checkpoint.secrets_provider, passphrase)
            crypter.check()
            snapshot = Snapshot.from_json(checkpoint, crypter)
            integrity.check(snapshot)
        found = journal.recover(backend.journal(project, name), data, snapshot, crypter)
        if found.changes or found.overtaken:
            raise EngineError(
                f"the last run of stack {full_name(project, name)} was interrupted",
                hint="Run `gpuform up` or `gpuform refresh` in its project first.",
            )
        return cls(backend, project, name, crypter, snapshot)

    def save(self, snapshot: Snapshot) -> None:
        """Replaces the state once it keeps the integrity rules."""
        snapshot = replace(snapshot, manifest=Manifest())
        integrity.check(snapshot)
        self.backend.write(self.project, self.name, snapshot.to_json(self.crypter))
        self.snapshot = snapshot
