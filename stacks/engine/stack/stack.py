"""Find, create, open and remove a project's stacks, and prepare the target of a deployment.

Operations and commands find a `Workspace` and open its stacks; states come from `Backend`.
"""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from gpuform.providers.context import RunContext
from gpuform.providers.records import Intents
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.deployment import DEFAULT_PARALLEL, DeploymentTarget, Outcome
from gpuform.stacks.engine.executing import PlannedOutputs, StackReferences
from gpuform.stacks.engine.language_host import Program
from gpuform.stacks.engine.project import Project, StackSettings, find_project
from gpuform.stacks.engine.records import OtherStackObjects, open_intents
from gpuform.stacks.engine.secrets import (
    SecretsManager,
    create_first_crypter,
    get_stack_crypter,
    get_state_crypter,
)
from gpuform.stacks.engine.stack.secrets_change import SecretsChange
from gpuform.stacks.engine.stack.workspace import (
    Origin,
    StackNotFound,
    check_selectable,
    find_selected_stack,
    get_short_name,
    select_stack,
    unselect_stack,
)
from gpuform.stacks.engine.state import (
    Checkpoint,
    Journal,
    Manifest,
    OrphanedJournal,
    RecoveredState,
    Snapshot,
    edits,
    journal,
    load_checkpoint,
    reject_unknown_newer_fields,
)
from gpuform.stacks.engine.store import (
    IN_PROGRESS,
    SEALED,
    Backend,
    HistoryEntry,
    LockTimeout,
    OtherStacks,
    StackLock,
    add_backup_hint,
    build_full_name,
    get_backend_url,
    reject_unsaved_run,
)
from gpuform.stacks.engine.urn import is_provider


def get_unsaved_path(project: Project, stack: str) -> Path:
    """Return the local file for journal lines refused by the backend."""
    return project.directory / ".gpuform" / "unsaved" / f"{stack}.jsonl"


class StackNotEmpty(EngineError):
    """A stack that still has resources must not be removed."""

    help_page = "concepts/stack"


@dataclass(slots=True)
class Stack:
    """An open stack: its settings, its secrets and its last state.

    `passphrase` is asked for the secrets of other stacks that its program reads. `digest` is the
    digest of the stored checkpoint; `recovered` counts the changes that an interrupted run's
    journal added to the checkpoint. `orphaned_journals` do not belong to the checkpoint: they stay
    stored until their objects are recovered. `planned_outputs` predicts the outputs of other stacks
    in a multi-stack plan. `run_context` is what the present operation was asked.
    """

    project: Project
    backend: Backend
    name: str
    settings: StackSettings
    crypter: SecretsManager
    snapshot: Snapshot
    passphrase: Callable[[], str]
    digest: str
    run_context: RunContext
    recovered: int = 0
    orphaned_journals: tuple[OrphanedJournal, ...] = ()
    planned_outputs: PlannedOutputs | None = None
    _intents: Intents | None = None

    def build_target(
        self, parallel: int = DEFAULT_PARALLEL, run_context: RunContext | None = None
    ) -> DeploymentTarget:
        """Build the target of a deployment, with another run context than the stack's if given.

        Raises WrongPassphrase, or EngineError for an incomplete or invalid configuration, before
        anything is changed.
        """
        self.crypter.check()
        config, secret_keys = self.settings.build_program_config(self.crypter)
        return DeploymentTarget(
            program=Program(
                project=self.project.name,
                stack=self.name,
                directory=self.project.program,
                root=self.project.directory,
                config=config,
                secret_keys=secret_keys,
                parallel=parallel,
                run_context=run_context or self.run_context,
            ),
            snapshot=self.snapshot,
            crypter=self.crypter,
            intents=self.get_intents(),
            check_lock=self.check_lock,
            belongs_to_other_stack=OtherStackObjects(
                self.backend, self.project.name, self.name
            ).has,
            provider_config=self.settings.build_provider_inputs(self.crypter),
            write=lambda data: self.backend.write(self.project.name, self.name, data),
            stack_references=self.references,
            journal=Journal(
                self.backend.open_journal(
                    self.project.name, self.name, get_unsaved_path(self.project, self.name)
                ),
                self.digest,
            ),
            others=OtherStacks(self.backend, self.full_name),
        )

    @property
    def references(self) -> StackReferences:
        """The reader of other stacks for the stack references of the program."""
        references = StackReferences(self.project.name, self._load_checkpoint, self.passphrase)
        return (
            references
            if self.planned_outputs is None
            else replace(references, planned_outputs=self.planned_outputs)
        )

    def _load_checkpoint(self, project: str, stack: str) -> Checkpoint | None:
        """Return the checkpoint of a stack in this backend, or None without one."""
        data = self.backend.read(project, stack)
        return None if data is None else load_checkpoint(data)

    def get_intents(self) -> Intents:
        """Return the intents (records of creates) of this run and of earlier runs."""
        if self._intents is None:
            self._intents = open_intents(self.backend, self.project.name, self.name)
        return self._intents

    def set_journal_aside(self) -> str | None:
        """Move a recovered journal to a backup and return the backup's location, or None.

        Afterwards `reject_orphaned_journals` raises nothing any more.
        """
        self.orphaned_journals = ()
        return self.backend.open_journal(self.project.name, self.name).set_aside()

    def reject_orphaned_journals(self) -> None:
        """Raise EngineError if the journal of an interrupted run still waits to be recovered."""
        if self.orphaned_journals:
            where = self.backend.open_journal(self.project.name, self.name).where
            raise EngineError(
                f"a run was interrupted and left the journal {where}, and another program "
                "has written the state since",
                hint="`gpuform refresh` first recovers what that run created.",
            )

    @property
    def full_name(self) -> str:
        """The name in other projects: `organization/<project>/<stack>`."""
        return build_full_name(self.project.name, self.name)

    def check_lock(self) -> None:
        """Raise EngineError if this process held a lock of the stack and may have lost the lock."""
        self.backend.check_lock(self.project.name, self.name)

    def create_lock(self) -> StackLock:
        """Create the stack's lock, not yet taken; operations with changes take the lock."""
        return self.backend.create_lock(self.project.name, self.name)

    def save(self, snapshot: Snapshot) -> None:
        """Replace the state, under the stack's lock, if the new one keeps the integrity rules."""
        snapshot = replace(snapshot, manifest=Manifest(), secrets_provider=self.crypter.provider)
        edits.check(snapshot)
        self.backend.write(self.project.name, self.name, snapshot.to_json(self.crypter))
        self.snapshot = snapshot

    def begin(self, kind: str, origin: Origin) -> "StackRun":
        """Record the beginning of an operation in the history.

        `kind` is update, refresh or destroy. `finish` takes the returned run.
        """
        now = int(time.time())
        entry = HistoryEntry(
            kind=kind,
            result=IN_PROGRESS,
            start_time=now,
            end_time=now,
            config=self.settings.config,
            environment=origin.environment,
            message=origin.message,
        )
        return StackRun(entry, self.backend.open_history(self.project.name, self.name).begin(entry))

    def finish(self, run: "StackRun", outcome: Outcome, log: bytes | None = None) -> None:
        """Write a backup, and record the end of the operation in the history, with the `log`."""
        # As the CLI: a copy of the checkpoint at the end of every operation.
        self.backend.create_backup(self.project.name, self.name)
        entry = replace(
            run.entry,
            result="succeeded" if outcome.succeeded else "failed",
            end_time=int(time.time()),
            resource_changes=outcome.changes,
        )
        self.backend.open_history(self.project.name, self.name).add(entry, run.name, log)


@dataclass(frozen=True, slots=True)
class StackRun:
    """An operation that has begun: its history entry and the entry's name."""

    entry: HistoryEntry
    name: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """A project's folder and the backend of its stacks."""

    project: Project
    backend: Backend
    environ: Mapping[str, str]

    @classmethod
    def find(
        cls, directory: Path, environ: Mapping[str, str], *, runs_program: bool = True
    ) -> "Workspace":
        """Find the project of a folder or of a folder above, and open the project's backend.

        Args:
            directory: where the search begins.
            environ: the environment variables.
            runs_program: the caller runs the project's program.

        Raises:
            OtherRuntime: the program is not Python's, and the caller `runs_program`.
            EngineError: there is no usable Pulumi.yaml, or the backend cannot be opened.
        """
        project = find_project(directory, any_runtime=not runs_program)
        return cls(project, Backend.open(get_backend_url(environ, project), environ), environ)

    def list_stacks(self) -> list[str]:
        """List the names of the project's stacks."""
        return [name.rsplit("/", 1)[-1] for name in self.backend.list_stacks(self.project.name)]

    def find_selected(self) -> str | None:
        """Return the selected stack, which may no longer exist, or None.

        Raises:
            EngineError: the selection cannot be read, or is a stack of another project.
        """
        return find_selected_stack(self.project, self.environ)

    def resolve(self, name: str | None) -> str:
        """Return the short name of the named stack, else of the selected one.

        Raises:
            StackNotFound: the stack does not exist, or none is selected.
            StackMoved: the stack is at another backend.
        """
        name = get_short_name(self.project, name) if name else self.find_selected()
        stacks = self.list_stacks()
        known_stacks = f"stacks of this project: {', '.join(stacks)}" if stacks else ""
        if name is None:
            choose = "select one with --stack NAME or `gpuform stack select NAME`"
            hint = (
                f"{known_stacks}; {choose}" if stacks else ("create one: `gpuform stack init NAME`")
            )
            raise StackNotFound("no stack is selected", hint=hint)
        if name not in stacks:
            self.backend.reject_relocated(self.project.name, name)
            make = f"create it: `gpuform stack init {name}`"
            raise StackNotFound(
                f"no stack named '{name}' in {self.backend.url}",
                hint=f"{known_stacks}; or {make}" if stacks else make,
            )
        return name

    def select(self, name: str) -> None:
        """Select a stack for later commands. Raises StackNotFound."""
        select_stack(self.project, self.resolve(name), self.environ)

    def clear_selection(self) -> None:
        """Select no stack for later commands."""
        select_stack(self.project, None, self.environ)

    def create_stack(self, name: str, passphrase: Callable[[], str], provider: str = "") -> None:
        """Create an empty stack and select it.

        `provider` is "passphrase" or the URL of a key. An empty `provider` means the secrets
        provider in the stack's settings file, and a passphrase if the file names none.

        Raises:
            EngineError: the stack exists.
            SecretsError: the provider does not work, or the settings contain secrets of another
                provider.
        """
        check_selectable(self.project, self.environ)
        if self.backend.exists(self.project.name, name):
            raise EngineError(
                f"a stack named '{name}' exists already",
                hint=f"select it: `gpuform stack select {name}`",
            )
        settings = StackSettings.load(self.project, name)
        crypter = create_first_crypter(settings, provider, passphrase)
        # A wrong passphrase or an unreachable key has to fail before the stack exists.
        crypter.check()
        settings.set_secrets_provider(crypter.provider)
        snapshot = Snapshot(
            build_full_name(self.project.name, name), secrets_provider=crypter.provider
        )
        # For both engines a stack exists once it has a checkpoint.
        self.backend.write(self.project.name, name, snapshot.to_json(crypter))
        settings.save()
        select_stack(self.project, name, self.environ)

    def remove(
        self,
        name: str,
        *,
        force: bool,
        timeout: LockTimeout | None = None,
        recover: Callable[[StackLock], None] = lambda _lock: None,
    ) -> None:
        """Remove a stack with settings, history, records and selection, under the stack's lock.

        Without `force`, `recover` is called first, under the stack's lock, and recovers the objects
        of interrupted runs into the state. Providers and components do not count as resources.

        Raises:
            StackNotEmpty: the stack has resources, and `force` is False.
            EngineError: the state cannot be read, even with `force`.
        """
        name = self.resolve(name)
        check_selectable(self.project, self.environ)
        with self.backend.create_lock(self.project.name, name, timeout) as lock:
            if not force:
                recover(lock)
            with add_backup_hint(self.backend, self.project.name, name):
                # Secrets stay encrypted: counting resources needs no passphrase.
                resources = Snapshot.from_json(self._read_checkpoint(name), SEALED).resources
            count = sum(1 for entry in resources if entry.custom and not is_provider(entry.type))
            if count and not force:
                raise StackNotEmpty(
                    f"stack '{name}' still has {count} resources",
                    hint="destroy them first with `gpuform destroy`; --force removes the stack "
                    "only: its resources keep running and cost money",
                )
            self.backend.remove(self.project.name, name)
        self.project.get_settings_path(name).unlink(missing_ok=True)
        get_unsaved_path(self.project, name).unlink(missing_ok=True)
        unselect_stack(self.project, name, self.environ)

    def open(
        self,
        name: str | None,
        passphrase: Callable[[], str],
        *,
        exclusive: bool = False,
        with_journal: bool = True,
    ) -> Stack:
        """Open a stack with settings and last state, and verify the state.

        An interrupted change of the secrets provider is finished first. A settings file without the
        stack's key gets the key from the state.

        Args:
            name: the stack; None is the selected one.
            passphrase: called at once for a passphrase provider; a wrong passphrase raises only
                when there is a secret to read or a run to begin.
            exclusive: the caller holds the stack's lock: an interrupted run's journal is written
                into the checkpoint.
            with_journal: apply the journal. Without it, a stack with an unreadable journal can be
                shown.

        Raises:
            StackNotFound: there is no such stack, or none is selected.
            EngineError: the state is damaged, or a run's last changes are only on this machine.
        """
        name = self.resolve(name)
        # The last run may have left journal lines on this machine that the store does not have.
        reject_unsaved_run(get_unsaved_path(self.project, name))
        self.finish_secrets_change(name, exclusive=exclusive)
        settings = StackSettings.load(self.project, name)
        with add_backup_hint(self.backend, self.project.name, name):
            data = self._read_checkpoint(name)
            checkpoint = load_checkpoint(data)
            if exclusive:
                # Only a command that writes the state could lose the fields.
                reject_unknown_newer_fields(checkpoint)
            crypter = get_stack_crypter(settings, checkpoint.secrets_provider, passphrase)
            reader = get_state_crypter(checkpoint.secrets_provider, crypter, passphrase)
            snapshot = Snapshot.from_json(checkpoint, reader)
            edits.check(snapshot)
        recovered = RecoveredState(snapshot)
        if with_journal:
            log = self.backend.open_journal(self.project.name, name)
            recovered = journal.recover(log, data, snapshot, reader)
        recovered.snapshot.secrets_provider = crypter.provider
        if recovered.changes:
            edits.check(recovered.snapshot)
        if exclusive:
            data = self._store_recovered(name, recovered, crypter) or data
        return Stack(
            self.project,
            self.backend,
            name,
            settings,
            crypter,
            recovered.snapshot,
            passphrase,
            journal.compute_digest(data),
            RunContext(self.environ),
            recovered.changes,
            recovered.orphaned_journals,
        )

    def _store_recovered(
        self, name: str, recovered: RecoveredState, crypter: SecretsManager
    ) -> bytes | None:
        """Write a state with the changes of the journal, remove the journal, and return the state.

        Returns None without changes.
        """
        data = None
        if recovered.changes:
            data = recovered.snapshot.to_json(crypter)
            self.backend.write(self.project.name, name, data)
        if not recovered.orphaned_journals:
            # After the write: a crash before only applies the journal once more. Orphaned journals
            # stay until their objects are recovered.
            self.backend.open_journal(self.project.name, name).remove()
        return data

    def finish_secrets_change(self, name: str, *, exclusive: bool) -> None:
        """Finish an interrupted change of the secrets provider, if there was one.

        Takes the stack's lock unless the caller holds it (`exclusive`).
        """
        change = SecretsChange(self.backend, self.project, name)
        if change.is_pending:
            with nullcontext() if exclusive else self.backend.create_lock(self.project.name, name):
                change.finish()

    def _read_checkpoint(self, name: str) -> bytes:
        """Read the content of the stack's checkpoint. Raises StackNotFound."""
        data = self.backend.read(self.project.name, name)
        if data is None:
            raise StackNotFound(f"no stack named '{name}' in {self.backend.url}")
        return data
