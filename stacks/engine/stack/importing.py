"""Pulumi's deployment JSON, as `stack export` writes it, becomes a stack's state."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import StackSettings
from gpuform.stacks.engine.secrets import SecretsManager, WrongPassphrase, crypter_of, reader_of
from gpuform.stacks.engine.stack.stack import Workspace
from gpuform.stacks.engine.state import (
    Checkpoint,
    IntegrityError,
    JournalError,
    Manifest,
    Snapshot,
    StateError,
    checkpoint_of,
    integrity,
)
from gpuform.stacks.engine.store import DamagedFile, full_name
from gpuform.stacks.engine.values import value_json


@dataclass(frozen=True, slots=True)
class StackImport:
    """One import into a stack whose lock is held. `warn` is told what is done beside it."""

    workspace: Workspace
    stack: str
    passphrase: Callable[[], str]
    warn: Callable[[str], None]
    force: bool = False

    def run(self, text: bytes, where: str) -> int:
        """Replaces the state by a deployment; `where` it is from is told in errors.

        The number of its entries. Raises EngineError, with nothing changed, for what is no
        deployment of this stack or breaks the integrity rules; `force` makes warnings of the last
        two. Like the Pulumi CLI it drops pending operations.
        """
        self.workspace.finish_secrets_change(self.stack, exclusive=True)
        checkpoint = self._checkpoint(text, where)
        settings = StackSettings.load(self.workspace.project, self.stack)
        crypter = crypter_of(settings, checkpoint.secrets_provider, self.passphrase)
        snapshot = self._snapshot(checkpoint, crypter, where)
        self._refuse_faults(snapshot, where)
        for operation in snapshot.pending_operations:
            self.warn(f"warning: dropped: pending {operation.type} {operation.resource.urn}")
        snapshot = replace(
            snapshot,
            pending_operations=[],
            secrets_provider=crypter.provider,
            manifest=Manifest(),
        )
        crypter.check()
        self._write(snapshot.to_json(crypter))
        return len(snapshot.resources)

    def _checkpoint(self, text: bytes, where: str) -> Checkpoint:
        try:
            document: Any = value_json.load(text)
        except ValueError as error:
            raise EngineError(f"{where} is not JSON: {error}", hint=_WHAT) from error
        if not isinstance(document, dict) or not isinstance(document.get("deployment"), dict):
            raise EngineError(f"{where} is not a deployment", hint=_WHAT)
        whole = {key: document[key] for key in ("version", "features") if key in document}
        name = full_name(self.workspace.project.name, self.stack)
        whole["checkpoint"] = {"stack": name, "latest": document["deployment"]}
        try:
            return checkpoint_of(whole)
        except StateError as error:
            raise EngineError(f"{where}: {error.message}", hint=_WHAT) from error

    def _snapshot(self, checkpoint: Checkpoint, crypter: SecretsManager, where: str) -> Snapshot:
        reader = reader_of(checkpoint.secrets_provider, crypter, self.passphrase)
        try:
            return Snapshot.from_json(checkpoint, reader)
        except WrongPassphrase as error:
            if reader is crypter:
                raise
            raise EngineError(
                f"the secrets in {where} are encrypted under another passphrase than the stack's",
                hint="Export it where its passphrase is known, with --show-secrets.",
            ) from error
        except StateError as error:
            raise EngineError(f"{where}: {error.message}", hint=_WHAT) from error

    def _refuse_faults(self, snapshot: Snapshot, where: str) -> None:
        prefix = f"urn:pulumi:{self.stack}::{self.workspace.project.name}::"
        faults = [
            f"{entry.urn} is not of stack {self.stack} of {self.workspace.project.name}"
            for entry in snapshot.resources
            if not entry.urn.startswith(prefix)
        ]
        faults += integrity.verify(snapshot)
        if faults and not self.force:
            raise EngineError(
                f"{where} cannot be the state of stack {self.stack}:\n  " + "\n  ".join(faults),
                hint="Correct it, or take it as it is with --force.",
            )
        for fault in faults:
            self.warn(f"warning: {fault}")

    def _write(self, data: bytes) -> None:
        backend, project = self.workspace.backend, self.workspace.project.name
        try:
            # With this what a journal tells is in the state that becomes the .bak file.
            self.workspace.open(self.stack, self.passphrase, exclusive=True)
        except (StateError, IntegrityError, DamagedFile, JournalError) as error:
            kept = [backend.restore(project, self.stack, data)]
            kept.append(backend.journal(project, self.stack).set_aside())
            self.warn(
                f"warning: the state that was there could not be used: {error.message}\n"
                f"it is kept in: {', '.join(place for place in kept if place)}"
            )
        else:
            backend.write(project, self.stack, data)


_WHAT = "What is imported is what `gpuform stack export` or `pulumi stack export` wrote."
