"""Import Pulumi's deployment JSON into a stack, and recover a run whose store did not answer.

Of such a run, the store has the checkpoint and the first segments of the journal, this machine the
other segments. `gpuform stack import` and `gpuform state recover` call this module.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.project import StackSettings
from gpuform.stacks.engine.secrets import (
    SecretsManager,
    WrongPassphrase,
    get_stack_crypter,
    get_state_crypter,
)
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


@dataclass(frozen=True, slots=True)
class StackImport:
    """One import into a stack whose lock the caller holds. `warn` gets the warnings."""

    workspace: Workspace
    stack: str
    passphrase: Callable[[], str]
    warn: Callable[[str], None]
    force: bool = False

    def run(self, text: bytes, file_label: str) -> int:
        """Replace the state by a deployment; return the number of entries.

        The caller holds the stack's lock. Like the Pulumi CLI, the import drops pending operations.

        Args:
            text: the deployment as JSON.
            file_label: the name of the file in errors.

        Raises:
            EngineError: `text` is not a deployment, belongs to another stack or breaks the
                integrity rules; the state stays as it is. With `force` the last two are warnings.
        """
        self.workspace.finish_secrets_change(self.stack, exclusive=True)
        checkpoint = self._parse_deployment(text, file_label)
        settings = StackSettings.load(self.workspace.project, self.stack)
        crypter = get_stack_crypter(settings, checkpoint.secrets_provider, self.passphrase)
        snapshot = self._decode_snapshot(checkpoint, crypter, file_label)
        self._reject_violations(snapshot, file_label)
        for operation in snapshot.pending_operations:
            self.warn(
                f"warning: dropped a pending operation: {operation.type} {operation.resource.urn}"
            )
        snapshot = replace(
            snapshot,
            pending_operations=[],
            secrets_provider=crypter.provider,
            manifest=Manifest(),
        )
        crypter.check()
        self._write(snapshot.to_json(crypter))
        return len(snapshot.resources)

    def _parse_deployment(self, text: bytes, file_label: str) -> Checkpoint:
        """Parse the deployment into a checkpoint of this stack. Raises EngineError."""
        try:
            document: Any = value_json.load(text)
        except ValueError as error:
            raise EngineError(f"{file_label} is not JSON: {error}", hint=_FORMAT_HINT) from error
        if not isinstance(document, dict) or not isinstance(document.get("deployment"), dict):
            raise EngineError(f"{file_label} is not a Pulumi deployment", hint=_FORMAT_HINT)
        checkpoint_file = {key: document[key] for key in ("version", "features") if key in document}
        name = build_full_name(self.workspace.project.name, self.stack)
        checkpoint_file["checkpoint"] = {"stack": name, "latest": document["deployment"]}
        try:
            return parse_checkpoint(checkpoint_file)
        except StateError as error:
            raise EngineError(f"{file_label}: {error.message}", hint=_FORMAT_HINT) from error

    def _decode_snapshot(
        self, checkpoint: Checkpoint, crypter: SecretsManager, file_label: str
    ) -> Snapshot:
        """Decode the checkpoint's state with its own or the stack's key. Raises EngineError."""
        reader = get_state_crypter(checkpoint.secrets_provider, crypter, self.passphrase)
        try:
            return Snapshot.from_json(checkpoint, reader)
        except WrongPassphrase as error:
            if reader is crypter:
                raise
            raise EngineError(
                f"the secrets in {file_label} are encrypted with another passphrase than the "
                "stack's",
                hint="Export the state again with --show-secrets and the passphrase of its stack.",
            ) from error
        except StateError as error:
            raise EngineError(f"{file_label}: {error.message}", hint=_FORMAT_HINT) from error

    def _reject_violations(self, snapshot: Snapshot, file_label: str) -> None:
        """Raise EngineError for another stack's entries or broken rules, or with `force` warn."""
        prefix = f"urn:pulumi:{self.stack}::{self.workspace.project.name}::"
        faults = [
            f"{entry.urn} does not belong to stack {self.stack} of project "
            f"{self.workspace.project.name}"
            for entry in snapshot.resources
            if not entry.urn.startswith(prefix)
        ]
        faults += edits.verify(snapshot)
        if faults and not self.force:
            raise EngineError(
                f"{file_label} cannot be the state of stack {self.stack}:\n  "
                + "\n  ".join(faults),
                hint="Correct the file, or import it unchanged with --force.",
            )
        for fault in faults:
            self.warn(f"warning: {fault}")

    def _write(self, data: bytes) -> None:
        """Write the checkpoint; an unusable present state is kept beside it, with a warning.

        The journal of an interrupted run is applied to the present state first, which becomes the
        `.bak`
        file; the journal of an unusable state is set aside.
        """
        backend, project = self.workspace.backend, self.workspace.project.name
        try:
            # Opening applies the journal of an interrupted run, so that the .bak file of the next
            # write has its changes.
            self.workspace.open(self.stack, self.passphrase, exclusive=True)
        except (StateError, IntegrityError, DamagedFile, JournalError) as error:
            backup_locations = [backend.restore(project, self.stack, data)]
            backup_locations.append(backend.open_journal(project, self.stack).set_aside())
            self.warn(
                f"warning: the previous state could not be used: {error.message}\nits backup is "
                f"in: {', '.join(location for location in backup_locations if location)}"
            )
        else:
            backend.write(project, self.stack, data)


_FORMAT_HINT = "Import a file written by `gpuform stack export` or `pulumi stack export`."


@dataclass(frozen=True, slots=True)
class _JoinedLog:
    """The journal lines of the store and of the local file, as one log."""

    where: str
    lines: bytes

    def read(self) -> bytes:
        return self.lines


def recover(backend: Backend, project: str, stack: str, path: Path) -> int:
    """Apply the journal of a run, from the store and from the file at `path`, to the checkpoint.

    The caller holds the stack's lock.

    Returns:
        The number of applied changes; 0 if the state has all of them already.

    Raises:
        EngineError: the file belongs to another backend; or another run has written the state
            since,
            and the state lacks objects of the journal. The journal and the file stay as they are.
    """
    log = backend.open_journal(project, stack)
    unsaved = UnsavedFile(path, log.where)
    unsaved_segments = unsaved.read_segments()
    if unsaved_segments and unsaved_segments[0].journal != log.where:
        raise EngineError(
            f"{path} belongs to the journal {unsaved_segments[0].journal}, but the journal here "
            f"is {log.where}",
            hint="Set PULUMI_BACKEND_URL to the backend of that run.",
        )
    joined_log = (
        _join_journal(log, unsaved_segments, path)
        if unsaved_segments and isinstance(log, SegmentLog)
        else None
    )
    recovered = _apply_journal(backend, project, stack, log if joined_log is None else joined_log)
    if joined_log is None or recovered.orphaned_journals:
        _reject_lost_objects(backend, project, stack, unsaved_segments, path)
    # The next run recovers the objects of orphaned journals.
    if not recovered.orphaned_journals:
        log.remove()
    unsaved.remove()
    return recovered.changes


def _join_journal(
    log: SegmentLog, unsaved_segments: list[UnsavedSegment], path: Path
) -> _JoinedLog | None:
    """Return the run's complete journal, from the store and the local file at `path`.

    Returns None if another run has written segments since, or if the store lacks earlier segments.
    """
    run, first = unsaved_segments[0].run, unsaved_segments[0].number
    stored_segments = log.read_segments(run)
    if len(stored_segments) < first or log.list_runs() - {run}:
        return None
    # A segment whose answer was lost may be both in the store and in the local file.
    return _JoinedLog(
        str(path), b"".join([*stored_segments[:first], *(part.lines for part in unsaved_segments)])
    )


def _reject_lost_objects(
    backend: Backend, project: str, stack: str, unsaved_segments: list[UnsavedSegment], path: Path
) -> None:
    """Raise JournalError if the stored state lacks an object that the unsaved segments record.

    `path` is the local file of the segments, which the message names.
    """
    records = journal.parse_records(str(path), b"".join(part.lines for part in unsaved_segments))
    snapshot = read_sealed(backend, project, stack).snapshot
    try:
        journal.reject_lost_ids(str(path), snapshot, records)
    except JournalError as error:
        error.hint = (
            "Compare the state with the platform and import the objects that exist. Then "
            "remove the file."
        )
        raise


def _apply_journal(backend: Backend, project: str, stack: str, log: ReadableLog) -> RecoveredState:
    """Write the journal's changes into the checkpoint, and return what was recovered.

    Raises EngineError without such a stack, or if the result breaks an integrity rule.
    """
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
