"""Open another project's stack, import deployments, recover unsaved runs, and read resources.

`gpuform state move`, `gpuform stack import` and `gpuform state recover` call this module, and so do
the commands that compare the state with the platforms. Of a run whose store did not answer, the
store has the checkpoint and the first segments of the journal, this machine the other segments.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from gpuform.providers import values
from gpuform.providers.context import ProviderContext
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.executing import find_drift
from gpuform.stacks.engine.project import StackSettings
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.secrets import (
    SecretsManager,
    WrongPassphrase,
    create_stored_crypter,
    get_stack_crypter,
    get_state_crypter,
)
from gpuform.stacks.engine.stack.stack import Stack, Workspace
from gpuform.stacks.engine.state import (
    Checkpoint,
    IntegrityError,
    JournalError,
    Manifest,
    ReadableLog,
    ResourceState,
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
    SealedState,
    SegmentLog,
    UnsavedFile,
    UnsavedSegment,
    add_backup_hint,
    build_full_name,
    read_sealed,
)


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
        """Open a stack of another project; the caller holds the stack's lock.

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
        """Decode the checkpoint's state with the checkpoint's or the stack's key.

        Raises EngineError.
        """
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
        """Write the checkpoint; an unusable present state becomes a backup, with a warning.

        The journal of an interrupted run is applied to the present state first, which becomes the
        `.bak` file; the journal of an unusable state is set aside.
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
    sealed = _apply_journal(backend, project, stack, log if joined_log is None else joined_log)
    if joined_log is None or sealed.orphaned_journals:
        _reject_lost_objects(backend, project, stack, unsaved_segments, path)
    # The next run recovers the objects of orphaned journals.
    if not sealed.orphaned_journals:
        log.remove()
    unsaved.remove()
    return sealed.recovered


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
    """Raise JournalError if the stored state lacks an object recorded in the unsaved segments.

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


def _apply_journal(backend: Backend, project: str, stack: str, log: ReadableLog) -> SealedState:
    """Write the journal's changes into the checkpoint, and return the resulting state.

    Raises EngineError without such a stack, or if the result breaks an integrity rule.
    """
    sealed = read_sealed(backend, project, stack, log)
    if sealed.fault is not None:
        raise sealed.fault
    if sealed.recovered:
        recovered = replace(sealed.snapshot, manifest=Manifest())
        edits.check(recovered)
        backend.write(project, stack, recovered.to_json(SEALED))
    return sealed
