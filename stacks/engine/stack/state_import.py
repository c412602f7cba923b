"""Import Pulumi's deployment JSON into a stack, and recover the changes of a run whose store did
not answer.

The store has the checkpoint and the first segments of the run's journal, this machine the others.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
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
    ReadableLog,
    RecoveredState,
    Snapshot,
    StateError,
    edits,
    journal,
    load_checkpoint,
    parse_checkpoint,
)
from gpuform.stacks.engine.store import (
    SEALED,
    Backend,
    DamagedFile,
    SegmentLog,
    UnsavedFile,
    UnsavedSegment,
    build_full_name,
    read_sealed,
)
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
        name = build_full_name(self.workspace.project.name, self.stack)
        whole["checkpoint"] = {"stack": name, "latest": document["deployment"]}
        try:
            return parse_checkpoint(whole)
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
        faults += edits.verify(snapshot)
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


@dataclass(frozen=True, slots=True)
class _Joined:
    """The lines of both places, as one log."""

    where: str
    lines: bytes

    def read(self) -> bytes:
        return self.lines


def recover(backend: Backend, project: str, stack: str, path: Path) -> int:
    """Puts what a run left, in the store and in the file at `path`, into the checkpoint.

    The stack's lock is held. The number of changes; zero when the state has them all. Raises
    EngineError, and then both places stay as they are, where another run has gone on without them
    and the state does not know the objects that they tell of.
    """
    log = backend.journal(project, stack)
    unsaved = UnsavedFile(path, log.where)
    found = unsaved.read_segments()
    if found and found[0].journal != log.where:
        raise EngineError(
            f"{path} belongs to the journal {found[0].journal}, and this is {log.where}",
            hint="Set PULUMI_BACKEND_URL to the backend that the run had.",
        )
    whole = _joined(log, found, path) if found and isinstance(log, SegmentLog) else None
    done = _replay(backend, project, stack, log if whole is None else whole)
    if whole is None or done.orphaned_journals:
        _refuse_lost(backend, project, stack, found, path)
    if not done.orphaned_journals:  # else the next run settles what it tells
        log.remove()
    unsaved.remove()
    return done.changes


def _joined(log: SegmentLog, found: list[UnsavedSegment], path: Path) -> _Joined | None:
    """The run's journal from its beginning; None when another run has gone on without `found`."""
    run, first = found[0].run, found[0].number
    stored = log.read_segments(run)
    if len(stored) < first or log.list_runs() - {run}:
        return None
    # A segment may be in both places: its answer was lost.
    return _Joined(str(path), b"".join([*stored[:first], *(part.lines for part in found)]))


def _refuse_lost(
    backend: Backend, project: str, stack: str, found: list[UnsavedSegment], path: Path
) -> None:
    records = journal.parse_records(str(path), b"".join(part.lines for part in found))
    snapshot = read_sealed(backend, project, stack).snapshot
    try:
        journal.reject_lost_ids(str(path), snapshot, records)
    except JournalError as error:
        error.hint = "Compare with the platform: what exists can be imported. Then remove the file."
        raise


def _replay(backend: Backend, project: str, stack: str, log: ReadableLog) -> RecoveredState:
    data = backend.read(project, stack)
    if data is None:
        raise EngineError(f"no stack named '{stack}' in {backend.url}")
    snapshot = Snapshot.from_json(load_checkpoint(data), SEALED)
    done = journal.recover(log, data, snapshot, SEALED)
    if done.changes:
        recovered = replace(done.snapshot, manifest=Manifest())
        edits.check(recovered)
        backend.write(project, stack, recovered.to_json(SEALED))
    return done
