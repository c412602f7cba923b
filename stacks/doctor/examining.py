"""Run all checks of `gpuform doctor`, from the machine over the stack to the platforms.

Each check runs in an `Examination`, so that no failed check ends the others. The checks of the
stack are here: settings, secrets, state, locks, and the remains of interrupted runs.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuform.providers.environment import read_environment
from gpuform.providers.operations import Settings
from gpuform.providers.records import Intent
from gpuform.schemas.errors import EngineError
from gpuform.stacks.config_keys import ConfigKeys
from gpuform.stacks.doctor.findings import Examination, Finding, Level, build_failure
from gpuform.stacks.doctor.machine_and_platforms import (
    PLATFORMS,
    examine_environment,
    examine_platforms,
)
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.project import (
    NoProject,
    OtherRuntime,
    Project,
    StackSettings,
    find_project,
    find_topology_file,
    get_folder_and_entry,
)
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.secrets import (
    PASSPHRASE_PROVIDER,
    SecretsManager,
    create_stored_crypter,
    find_passphrase,
    find_settings_crypter,
)
from gpuform.stacks.engine.stack import SecretsChange, find_selected_stack, get_short_name
from gpuform.stacks.engine.state import ResourceState, SecretsProvider, edits, load_checkpoint
from gpuform.stacks.engine.store import (
    Backend,
    Files,
    SealedState,
    add_backup_hint,
    find_last_good_backup,
    get_backend_url,
    read_sealed,
    strip_credentials,
)
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, name_of
from gpuform.stacks.review.value_text import counted
from gpuform.stacks.topology.planning import plan, read_plan_context

BACKEND = "backend"
_MIN_FREE_BYTES = 100 * 2**20


def examine(
    directory: Path,
    environ: Mapping[str, str],
    stack: str | None,
    find_interpreter: Callable[[Project], Path | None],
) -> list[Finding]:
    """Return the findings about all requirements of a run in a folder.

    Nothing is changed, and no error is raised. `stack` is the stack to examine, by default the
    selected one; `find_interpreter` returns a project's own Python, or None for this one.
    """
    examination = Examination()
    used_platforms: set[str] = set()
    examination.add_findings("environment", lambda: examine_environment(environ))
    project = examination.get_or_report("project", lambda: _find_project(examination, directory))
    if project is not None and not examination.has_foreign_program:
        examination.add_findings(
            "project", lambda: examine_program(project, find_interpreter, used_platforms)
        )
    # A stack and its backend can be examined without a program, as of another language.
    backend = examination.get_or_report(
        BACKEND, lambda: Backend.open(get_backend_url(environ, project), environ)
    )
    if backend is not None:
        examination.add_findings(BACKEND, lambda: _check_backend(backend))
    config: Mapping[str, str] = {}
    if project is not None and backend is not None:
        config = _examine_stack(examination, project, backend, stack, environ, used_platforms)
    examination.add_findings(PLATFORMS, lambda: examine_platforms(config, environ, used_platforms))
    # Credentials in the environment or the configuration must not appear in an error's text.
    examination.secrets += Settings(config=config.get, environ=environ).list_secrets()
    return examination.list_redacted()


def _find_project(examination: Examination, directory: Path) -> Project | None:
    """Return the project, also one in another language, or None outside of a project.

    Adds a warning outside of a project, and for another language a note: only the state can be
    examined then.
    """
    try:
        return find_project(directory)
    except OtherRuntime as error:  # what works from the state alone can be used
        examination.findings.append(build_failure("project", error, Level.NOTE))
        examination.has_foreign_program = True
        return find_project(directory, any_runtime=True)
    except NoProject as error:  # credentials and the backend can be looked at without one
        examination.findings.append(build_failure("project", error, Level.WARNING))
        return None


def _check_backend(backend: Backend) -> Iterator[Finding]:
    """Yield whether the backend is writable, has space, and keeps backups.

    Raises:
        EngineError: the backend cannot be read or written.
    """
    backend.check_writable()
    # A finding must not show a password in the URL.
    url = strip_credentials(backend.url)
    yield Finding(BACKEND, Level.OK, f"{url} is readable and writable")
    free_bytes = backend.free_space()
    # Buckets have no limit: then the value is None.
    if free_bytes is not None and free_bytes < _MIN_FREE_BYTES:
        yield Finding(
            BACKEND,
            Level.WARNING,
            f"{url} has {free_bytes // 2**20} MiB free: a run fails if it cannot write its state",
            "free some space",
        )
    if not backend.keeps_backups:
        yield Finding(
            BACKEND,
            Level.NOTE,
            "backups of earlier states are turned off: only the .bak file exists",
        )


def _examine_stack(
    examination: Examination,
    project: Project,
    backend: Backend,
    requested_name: str | None,
    environ: Mapping[str, str],
    used_platforms: set[str],
) -> Mapping[str, str]:
    """Examine the stack, and return the configuration, empty if unreadable.

    The platforms of the state are added to `used_platforms`, secret values to the examination.
    """
    stack_name = examination.get_or_report(
        "stack", lambda: _choose_stack(project, requested_name, environ)
    )
    full_names = examination.get_or_report("stack", lambda: backend.list_stacks(project.name)) or []
    names = [full_name.rsplit("/", 1)[-1] for full_name in full_names]
    if not stack_name or stack_name not in names:
        examination.findings.append(_build_no_stack_finding(stack_name, names))
        return {}
    stack = ExaminedStack(project, backend, stack_name, environ)
    area = stack.area
    examination.add_findings(area, stack.find_locks)
    examination.add_findings(area, stack.find_unfinished_work)
    examination.add_findings(area, stack.find_local_state)
    state = examination.get_or_report(area, stack.read_state)
    if state is not None:
        examination.add_findings(area, lambda: stack.check_state(state))
        # Credentials of a platform that only the state names are needed for a destroy.
        used_platforms.update(list_used_platforms(state))
    settings = examination.get_or_report(area, lambda: StackSettings.load(project, stack_name))
    if settings is None:
        return {}
    examination.add_findings(area, lambda: stack.find_plaintext_secrets(settings))
    crypter = examination.get_or_report(area, lambda: stack.open_secrets(settings))
    if crypter is None:
        return {}
    program_config = examination.get_or_report(area, lambda: settings.build_program_config(crypter))
    if program_config is None:
        return {}
    values, secret_keys = program_config
    # Findings so far and later ones may repeat secret values: they are masked at the end.
    examination.secrets += (values[key] for key in secret_keys)
    examination.add_findings(
        area, lambda: stack.report_configuration(crypter, values, len(secret_keys))
    )
    return values


def _choose_stack(
    project: Project, requested_name: str | None, environ: Mapping[str, str]
) -> str | None:
    """Return the short name of the requested or selected stack, or None."""
    if requested_name:
        return get_short_name(project, requested_name)
    return find_selected_stack(project, environ)


def _build_no_stack_finding(stack_name: str | None, names: list[str]) -> Finding:
    """Return the finding for an unselected or unknown stack; `names` are the existing ones."""
    known_stacks = f"stacks of this project: {', '.join(names)}" if names else ""
    if stack_name is None:
        remedy = "select one with --stack NAME or `gpuform stack select NAME`"
        create_hint = "create one: `gpuform stack init NAME`"
        return Finding(
            "stack",
            Level.WARNING,
            "no stack is selected",
            f"{known_stacks}; {remedy}" if known_stacks else create_hint,
        )
    create_hint = f"create it: `gpuform stack init {stack_name}`"
    message = f"stack {stack_name!r} does not exist"
    return Finding(
        "stack",
        Level.PROBLEM,
        message,
        f"{known_stacks}; or {create_hint}" if known_stacks else create_hint,
    )


def examine_program(
    project: Project, find_interpreter: Callable[[Project], Path | None], used_platforms: set[str]
) -> Iterator[Finding]:
    """Yield the program or topology of a run, and the Python for the run.

    The platforms of a topology are added to `used_platforms`.

    Raises:
        EngineError: the project has neither a program nor a topology.
    """
    folder, entry = get_folder_and_entry(project.program)
    file = folder / ("__main__.py" if entry == "." else entry)
    topology = find_topology_file(folder)
    if not file.is_file() and topology is None:
        raise EngineError(
            f"no program: {file} does not exist",
            hint="create it or a topology.yaml, or set `main` in Pulumi.yaml to the program's "
            "folder or file",
        )
    program_path = file if file.is_file() else topology
    yield Finding("project", Level.OK, f"project {project.name} runs {program_path}")
    if topology is not None:
        yield _check_topology(topology, used_platforms)
    project_python = find_interpreter(project)
    if project_python is not None:
        yield Finding(
            "project",
            Level.NOTE,
            f"`up` and similar commands run in {project_python}: the versions above are those of "
            "this Python",
        )


def _check_topology(file: Path, used_platforms: set[str]) -> Finding:
    """Return whether the topology is valid, and add all platforms to `used_platforms`."""
    problems = Diagnostics()
    topology_plan = plan(file, read_plan_context(file, None), problems)
    used_platforms.update(topology_plan.topology.list_platforms())
    if problems:
        return Finding(
            "project",
            Level.PROBLEM,
            f"{file} has {counted(len(list(problems)), 'problem')}",
            "gpuform validate",
        )
    return Finding("project", Level.OK, f"{file.name} is valid")


_DAY = 86400.0


def list_used_platforms(sealed_state: SealedState) -> Iterator[str]:
    """Yield the platform of each resource of gpuform in the state, with duplicates."""
    for resource in sealed_state.snapshot.resources:
        # Types of other providers have no `gpuform.` in their token.
        _, _, platform_and_kind = resource.type.rpartition("gpuform.")
        if ":" in platform_and_kind and platform_and_kind != resource.type:
            yield platform_and_kind.partition(":")[0]


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

    def build_warning(self, message: str, remedy: str) -> Finding:
        return Finding(self.area, Level.WARNING, message, remedy)

    def find_locks(self) -> Iterator[Finding]:
        """Yield the locks of the stack, or an OK finding without locks.

        A lock whose process has ended, or whose file is damaged, is a warning, another one a note.
        """
        holders = self.backend.create_lock(self.project.name, self.name).list_holders()
        for holder in holders:
            # A process on another machine cannot be checked: its lock is only a note.
            is_abandoned = holder.has_ended or bool(holder.fault)
            yield Finding(
                self.area,
                Level.WARNING if is_abandoned else Level.NOTE,
                f"locked: {holder.describe()}",
                f"gpuform cancel {self.name}, once you are sure that it has ended",
            )
        if not holders:
            yield Finding(self.area, Level.OK, "the stack is not locked")

    def find_unfinished_work(self) -> Iterator[Finding]:
        """Yield the remains of interrupted commands: a change of secrets, and creates."""
        if SecretsChange(self.backend, self.project, self.name).is_pending:
            yield self.build_warning(
                "a change of the secrets provider was interrupted",
                "the next command that opens the stack finishes it",
            )
        for intent in self._list_unresolved_intents():
            age_s = max(0.0, time.time() - intent.started_at)
            age_text = f"{age_s / _DAY:.0f} days ago" if age_s > _DAY else "recently"
            yield self.build_warning(
                f"a create was started {age_text}, and its outcome is unknown: {intent.kind} "
                f"{intent.name!r} on {intent.platform}"
                + (f", which created {', '.join(intent.made)}" if intent.made else ""),
                "`gpuform up`, refresh or destroy finds the object and adopts it, and so does "
                "`pulumi up`; `pulumi destroy` may leave it on the platform",
            )

    def _list_unresolved_intents(self) -> Iterator[Intent]:
        """Yield the intents of creates without an object in the state, but no refused create."""
        backend, project = self.backend, self.project.name
        intents = open_intents(backend, project, self.name).list_all()
        if intents:
            known_ids = {
                resource.id
                for resource in read_sealed(backend, project, self.name).snapshot.resources
            }
            yield from (
                intent for intent in intents if not intent.is_refused and intent.id not in known_ids
            )

    def find_local_state(self) -> Iterator[Finding]:
        """Yield a warning if the state of a stack of real platforms lies in a folder.

        Raises GpuformError for a damaged record.
        """
        records = open_intents(self.backend, self.project.name, self.name).records
        environment = read_environment(records)
        is_real = environment is not None and not environment.emulated
        if not is_real or not isinstance(self.backend.storage, Files):
            return
        yield self.build_warning(
            "the state lies in a folder: if this disk is lost, nobody knows what the stack created",
            "move it to a bucket: gpuform stack migrate URL",
        )

    def read_state(self) -> SealedState:
        """Return the stack's state from the backend, after an integrity check.

        Raises:
            EngineError: the state is damaged; the hint names the last good backup.
        """
        backend, project = self.backend, self.project.name
        with add_backup_hint(backend, project, self.name):
            sealed_state = read_sealed(backend, project, self.name)
            if sealed_state.fault is not None:
                raise sealed_state.fault
            # A readable state may still be inconsistent, after an edit by hand.
            edits.check(sealed_state.snapshot)
        return sealed_state

    def check_state(self, sealed_state: SealedState) -> Iterator[Finding]:
        """Yield the number of resources, and the traces of interrupted and failed runs."""
        resources = [
            resource
            for resource in sealed_state.snapshot.resources
            if resource.type != STACK_TYPE and not is_provider(resource.type)
        ]
        yield Finding(
            self.area, Level.OK, f"the state is valid: {counted(len(resources), 'resource')}"
        )
        if sealed_state.recovered:
            changes = counted(sealed_state.recovered, "change")
            yield self.build_warning(
                f"a run was interrupted; its journal has {changes}",
                "the next `gpuform up` adds the changes of the journal to the state",
            )
        if sealed_state.orphaned_journals:
            journal_path = self.backend.open_journal(self.project.name, self.name).where
            yield self.build_warning(
                sealed_state.describe_uncertainty(journal_path)
                or "another program has written the state since a run was interrupted: "
                f"{journal_path} is that run's journal",
                "`gpuform refresh` resolves the creates of that run, and sets the journal aside",
            )
        intents = open_intents(self.backend, self.project.name, self.name)
        pending_operations = [
            f"{operation.type} {name_of(operation.resource.urn)}"
            for operation in sealed_state.snapshot.pending_operations
            if not intents.was_refused(operation.resource.urn)
        ]
        if pending_operations:
            yield self.build_warning(
                "operations were interrupted, and their objects may exist: "
                f"{', '.join(pending_operations)}",
                "run `gpuform up`, which looks for the objects, or `gpuform refresh`",
            )
        yield from self._find_pending_resources(resources)
        if find_last_good_backup(self.backend, self.project.name, self.name) is None and resources:
            yield Finding(self.area, Level.NOTE, "there is no backup of an earlier state yet")

    def _find_pending_resources(self, resources: Sequence[ResourceState]) -> Iterator[Finding]:
        """Yield warnings for unready resources, and for old objects to delete."""
        unready_names = [
            name_of(resource.urn)
            for resource in resources
            if resource.init_errors and not resource.delete
        ]
        if unready_names:
            yield self.build_warning(
                f"not ready yet: {', '.join(unready_names)}",
                "`gpuform up` continues to wait for them",
            )
        deleted_names = [name_of(resource.urn) for resource in resources if resource.delete]
        if deleted_names:
            yield self.build_warning(
                f"old objects are not deleted yet: {', '.join(deleted_names)}",
                "`gpuform up` deletes them",
            )

    def find_plaintext_secrets(self, settings: StackSettings) -> Iterator[Finding]:
        """Yield a warning for each plain-text secret in the stack's file."""
        for finding in ConfigKeys.from_project(self.project).find_plaintext_secrets(settings):
            yield self.build_warning(finding.text, finding.remedy)

    def open_secrets(self, settings: StackSettings) -> SecretsManager:
        """Return the checked secrets manager of the stack, from the settings or the state.

        Nothing is written, not even a salt that the settings lack.

        Raises:
            EngineError: the passphrase or the key is missing or wrong.
        """
        # The state may name its secrets provider where the settings name none.
        data = self.backend.read(self.project.name, self.name)
        stored_provider = load_checkpoint(data).secrets_provider if data else None

        def read_passphrase() -> str:
            return find_passphrase(self.environ, self.project.directory, None)

        secrets_manager = find_settings_crypter(settings, stored_provider, read_passphrase)
        secrets_manager = secrets_manager or create_stored_crypter(
            stored_provider or SecretsProvider(PASSPHRASE_PROVIDER), read_passphrase
        )
        secrets_manager.check()
        return secrets_manager

    def report_configuration(
        self,
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
        yield Finding(self.area, Level.OK, f"{verdict}; {counts}")
