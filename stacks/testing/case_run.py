"""Run a case in this process: start its emulator, prepare its stack, run the operation, and report.

`processes` calls this module in a process of its own for each case.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.context import create_wsgi_transport, mount_transport
from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.environment import KNOWN_SCHEDULERS_VARIABLE as KNOWN_SCHEDULERS
from gpuform.providers.permissions import Permission
from gpuform.providers.platform import platforms
from gpuform.providers.values import PropertyMap, Redactor
from gpuform.schemas.cases_file import CaseInputs
from gpuform.schemas.errors import EngineError, GpuformError
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.planning import StepDone
from gpuform.stacks.engine.project import StackSettings, is_secure, load_project
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.state import NothingSelected, ResourceState, Snapshot, edits
from gpuform.stacks.engine.store import SEALED, Backend, build_full_name
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, make_urn, name_of
from gpuform.stacks.engine.value_json import from_plain
from gpuform.stacks.gates.evaluating import GateEvaluator
from gpuform.stacks.gates.file import read_project_gates
from gpuform.stacks.operations import automation
from gpuform.stacks.operations.config_setting import ConfigSetting
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.runs.callbacks import Message, OperationEvent, RunEnded
from gpuform.stacks.operations.runs.options import RunOptions, RunResult, convert_outputs
from gpuform.stacks.operations.runs.plan_file import mask_plan
from gpuform.stacks.testing.cases import (
    KILLED,
    ExpandedEntry,
    FinalState,
    ReportedResource,
    RunReport,
    get_address,
    list_entries,
)
from gpuform.stacks.testing.events import CaseEvents, list_objects
from gpuform.stacks.testing.seeding import (
    SeedError,
    find_last_change,
    get_stack_and_project,
    read_state,
    replace_ids,
    seed_emulator,
    seed_objects,
)

STACK: Final = "test"
"""The stack's name in a case that names no stack."""
SALT: Final = "v1:C8d7iSLxLv0=:v1:bW+G5yKcDXYQ0ZFo:GcQIE7F7FjwkimP3RvYnqTE2cN0GCQ=="
"""`encryptionsalt` of every case, for the empty passphrase; tests have no secrets worth a key.

A fixed salt lets the fork server derive the key once for all cases.
"""
_STACK_NAME_FILE: Final = "stack"
"""The file with the stack's name, for the cases that start from this one."""
_START_TIMESTAMP: Final = 1767225600.0
"""The platform's clock at the start of an empty stack: 2026-01-01T00:00:00Z."""
_EVENTS_FILE: Final = "events.json"
_SEED: Final = "gpuform test"


@dataclass(frozen=True, slots=True)
class CaseRunSpec:
    """What one process has to run: a case, in a folder of its own, on the port of its chain.

    Args:
        project: the path of Pulumi.yaml.
        folder: the folder of the emulator's database, the state and the settings.
        port: the emulator's port.
        inputs: the fields of the case.
        has_predecessor: True if `folder` holds a copy of what a previous case has left.
        state: the path of a state file to start from.
        environ: variables added to the environment of the run.
        dependents: the paths of states of other stacks; their objects that use those of `state`
            are on the emulator, too.
        required: the paths of states of other stacks, whose objects the stack uses; all of these
            objects are on the emulator.
    """

    project: Path
    folder: Path
    port: int
    inputs: CaseInputs
    has_predecessor: bool
    state: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict)
    dependents: Sequence[Path] = ()
    required: Sequence[Path] = ()


def run_case(spec: CaseRunSpec, on_plan: Callable[[Plan], None]) -> RunReport:
    """Run the case with all events, and return the report, also of a failed run.

    `on_plan` is called with the plan before anything is changed: a killed run returns no report.
    Replaces the platforms' and Pulumi's variables of this process's environment.
    """
    with serve_emulator(spec) as server:
        started_at, initial_names = server.clock.now(), []
        case_stack = CaseStack(spec, on_plan)
        events = CaseEvents(server, spec.inputs.events or (), spec.folder / _EVENTS_FILE)
        try:
            selected = case_stack.prepare(server)
            if spec.inputs.start and spec.inputs.start.later:
                server.clock.advance(property_paths.parse_duration(spec.inputs.start.later))
            started_at, initial_names = server.clock.now(), case_stack.list_resource_names()
            events.start()
            report = case_stack.run_operation(selected)
        except GpuformError as error:
            # A run that cannot start is a result of the case, not a fault of gpuform.
            report = case_stack.build_error_report(error)
        final_state = case_stack.read_final_state(server, server.clock.now() - started_at)
        return replace(
            report,
            final_state=final_state,
            pending_events=events.pending,
            fault_mismatches=events.fault_mismatches,
            failed_events=events.failed,
            initial_names=initial_names,
            entries=case_stack.list_entries(),
            secrets=case_stack.secrets,
        )


def inspect_killed_run(spec: CaseRunSpec) -> RunReport:
    """Return the report of a killed run: the state and objects that remain, and its events.

    The report has no plan and no duration, which died with the run.
    """
    with serve_emulator(spec) as server:
        case_stack = CaseStack(spec, lambda _plan: None)
        case_stack.collect_secrets()
        events = CaseEvents.load_after_kill(
            server, spec.inputs.events or (), spec.folder / _EVENTS_FILE
        )
        return RunReport(
            KILLED,
            final_state=case_stack.read_final_state(server, 0.0),
            pending_events=events.pending,
            fault_mismatches=events.fault_mismatches,
            failed_events=events.failed,
            secrets=case_stack.secrets,
        )


@contextmanager
def serve_emulator(
    spec: CaseRunSpec, *, in_memory: bool = False, seed: str = _SEED
) -> Iterator[Server]:
    """Serve the case's emulator, which everything in this process contacts from now on.

    With `in_memory` the emulator's objects are in no file. The environment variables of platforms,
    Pulumi and gpuform are replaced, and stay replaced.
    """
    store = None if in_memory else spec.folder / "emulator.db"
    with serve(spec.port, store, seed=seed, start=_START_TIMESTAMP) as server:
        # Settings of the person who runs the tests must not change the result.
        for name in list(os.environ):
            if name.startswith(_ENVIRONMENT_PREFIXES) or name in _list_platform_variables():
                del os.environ[name]
        # No scheduler is known, so that a case contacts no real one, whatever it allows.
        schedulers = {KNOWN_SCHEDULERS: "{}"}
        os.environ.update({**environment(server.url), **spec.environ, **schedulers})
        os.environ["PULUMI_HOME"] = str(spec.folder / "home")
        os.environ["PULUMI_BACKEND_URL"] = f"file://{spec.folder / 'state'}"
        os.environ["PULUMI_CONFIG_PASSPHRASE"] = ""
        # A run removes deleted clusters from the kubeconfig.
        os.environ["KUBECONFIG"] = str(spec.folder / "kubeconfig")
        for name in ("home", "state", "settings"):
            (spec.folder / name).mkdir(exist_ok=True)
        # Every step of a wait reads the clock, which would be slow over HTTP.
        with mount_transport(f"{server.url}/_emulator", create_wsgi_transport(server.app)):
            yield server


_ENVIRONMENT_PREFIXES: Final = ("PULUMI_", "GPUFORM_", "TOGETHER_")


def _list_platform_variables() -> set[str]:
    settings = chain.from_iterable(platform.settings for platform in platforms().values())
    return {setting.variable for setting in settings if setting.variable}


class CaseError(EngineError):
    """A field of a case is invalid; `path_in_case` are the keys that lead to it."""

    help_page = "guides/test-a-stack"

    def __init__(self, error: GpuformError, path_in_case: tuple[str | int, ...]) -> None:
        super().__init__(error.message, error.hint)
        self.path_in_case = path_in_case


@contextmanager
def _convert_to_case_error(*path_in_case: str | int) -> Iterator[None]:
    """Convert errors for users in this context to CaseErrors at the path of a case's field."""
    try:
        yield
    except GpuformError as error:
        raise CaseError(error, path_in_case) from error


class CaseStack:
    """The stack of a case: its project, workspace, settings and secrets, and the run on it."""

    def __init__(self, spec: CaseRunSpec, on_plan: Callable[[Plan], None]) -> None:
        self._spec = spec
        self._on_plan = on_plan
        name_file = spec.folder / _STACK_NAME_FILE
        self._name = name_file.read_text() if spec.has_predecessor else spec.inputs.stack or STACK
        original_project = load_project(spec.project)
        self._original_project = original_project
        # Nothing of a case is written into the project's folder.
        self._project = replace(original_project, stack_config_dir=str(spec.folder / "settings"))
        backend = Backend.open(os.environ["PULUMI_BACKEND_URL"], os.environ)
        self._workspace = Workspace(self._project, backend, os.environ)
        self.secrets: tuple[str, ...] = tuple((spec.inputs.secrets or {}).values())
        self._plan: Plan | None = None
        self._warnings: list[str] = []
        self.emulator_ids: Mapping[str, str] = {}
        """The ids of the emulator's objects by those of the states, after `prepare`."""

    def prepare(
        self, server: Server, emulator_ids: Mapping[str, str] = MappingProxyType({})
    ) -> SelectedStack:
        """Create and return the stack, with configuration, state and referenced stacks.

        With a state file, a preview finds the declared secrets before the objects are created.
        `emulator_ids` are those of objects that the emulator has already. Raises CaseError for an
        invalid field of the case.
        """
        spec, workspace = self._spec, self._workspace
        with _convert_to_case_error("start", "state"):
            state = None if spec.state is None else self._read_state_file(spec.state)
        if not spec.has_predecessor:
            settings = self._project.get_settings_path(self._name)
            settings.write_text(f"encryptionsalt: {SALT}\n", encoding="utf-8")
            workspace.create_stack(self._name, lambda: "")
            (spec.folder / _STACK_NAME_FILE).write_text(self._name)
        self._write_config()
        selected = SelectedStack(workspace, self._name)
        with _convert_to_case_error("start", "state"):
            for file in spec.required:
                other_state = read_state(file.read_bytes(), file.name)
                emulator_ids = seed_objects(selected.open(), other_state, emulator_ids)
        for name, outputs in (spec.inputs.stack_references or {}).items():
            with _convert_to_case_error("stack_references", name):
                self._create_referenced_stack(name, replace_ids(outputs, emulator_ids))
        self._check_permissions()
        if state is not None:
            # Ages of the state's objects are counted from its last change on.
            server.clock.advance_to(find_last_change(state) or 0.0)
            declared_inputs = self._collect_declared_inputs(selected)
            with _convert_to_case_error("start", "state"):
                emulator_ids = seed_emulator(selected.open(), state, declared_inputs, emulator_ids)
                for file in spec.dependents:
                    other_state = read_state(file.read_bytes(), file.name)
                    seed_objects(selected.open(), other_state, emulator_ids, only_dependents=True)
        self.emulator_ids = emulator_ids
        self.collect_secrets()
        return selected

    def collect_secrets(self) -> None:
        """Add the secrets of the stack's configuration to `secrets`, if the stack exists."""
        if (stack := self._open_stack()) is not None:
            # A killed run may have died before it created the stack.
            self.secrets = (*self.secrets, *stack.build_target().program.collect_secrets())

    def _check_permissions(self) -> None:
        """Raise CaseError for an unknown permission in a test case, or one forbidden there."""
        allow = self._spec.inputs.allow or ()
        gates = read_project_gates(self._project.directory) if allow else ()
        for number, name in enumerate(allow):
            with _convert_to_case_error("allow", number):
                allowed = permissions.parse_permissions(name)
                if Permission.REAL_SCHEDULERS in allowed:
                    raise EngineError(
                        f"cases cannot have {Permission.REAL_SCHEDULERS}: they never contact a "
                        "real scheduler",
                        hint="remove it; a cluster of the emulator has its own scheduler",
                    )
                # Creating the evaluator checks the names of gates in the permission.
                GateEvaluator(gates, allowed, self._project.program)

    def _collect_declared_inputs(self, selected: SelectedStack) -> dict[str, PropertyMap]:
        """Return the inputs of the declared resources by URN, as far as a preview gets."""
        inputs_by_urn: dict[str, PropertyMap] = {}

        def collect_inputs(event: OperationEvent) -> None:
            if isinstance(event, StepDone) and event.step.new is not None:
                inputs_by_urn[event.step.urn] = event.step.new.inputs

        automation.preview(selected, on_event=collect_inputs)
        return inputs_by_urn

    def _read_state_file(self, file: Path) -> Snapshot:
        """Return the state in a file, renamed to the case's stack; sets the stack's name.

        The stack is called as in the state, unless the case names another. Raises SeedError.
        """
        try:
            data = file.read_bytes()
        except OSError as error:
            raise SeedError(f"cannot read the state {file}: {error.strerror}") from error
        state = read_state(data, file.name)
        stack, project = get_stack_and_project(state)
        if project != self._project.name:
            raise SeedError(
                f"{file.name} is a state of project {project}, not of {self._project.name}"
            )
        self._name = self._spec.inputs.stack or stack
        return edits.rename_stack(state, build_full_name(project, self._name))

    def _write_config(self) -> None:
        """Write the settings of the case's stack: those of the stack that it names, then its own.

        Without a named stack only the case's own values are written. Encrypted values of the named
        stack are left out with a warning: the passphrase is unknown.
        """
        spec, workspace = self._spec, self._workspace
        settings = StackSettings.load(self._project, self._name)
        # The settings may be a copy of the previous case's.
        for key in settings.config:
            settings.remove(key)
        if spec.inputs.stack:
            original_settings = StackSettings.load(self._original_project, self._name)
            for key, value in original_settings.config.items():
                if not is_secure(value):
                    settings.set(key, value)
                elif key not in (spec.inputs.secrets or {}):
                    self._warnings.append(
                        f"{key} is encrypted in {original_settings.path.name}, but tests have no "
                        "passphrase: set a value under `secrets`"
                    )
        settings.save()
        for field_, secret in (("config", False), ("secrets", True)):
            for key, value in (getattr(spec.inputs, field_) or {}).items():
                with _convert_to_case_error(field_, key):
                    setting = ConfigSetting.from_key(workspace, self._name, key, secret=secret)
                setting.set(value if isinstance(value, str) else json.dumps(value), None)

    def _create_referenced_stack(self, name: str, outputs: Mapping[str, Any]) -> None:
        """Create the state of another stack, PROJECT/STACK, with `outputs`.

        Raises EngineError for a name of another form.
        """
        project, _, stack = name.removeprefix("organization/").partition("/")
        if not project or not stack or "/" in stack:
            raise EngineError(
                f"{name!r} in `stack_references` is not the name of a stack",
                hint="write PROJECT/STACK",
            )
        urn = make_urn(stack, project, "", STACK_TYPE, f"{project}-{stack}")
        values = {key: from_plain(value) for key, value in outputs.items()}
        root = ResourceState(urn=urn, custom=False, type=STACK_TYPE, outputs=values)
        snapshot = Snapshot(build_full_name(project, stack), resources=[root])
        self._workspace.backend.write(project, stack, snapshot.to_json(SEALED))

    def run_operation(self, selected: SelectedStack) -> RunReport:
        """Run the case's operation; every confirmation is answered with yes."""
        inputs = self._spec.inputs
        options = RunOptions(
            allow=tuple(inputs.allow or ()),
            target=tuple(inputs.target or ()),
            exclude=tuple(inputs.exclude or ()),
            replace=tuple(inputs.replace or ()),
            refresh=bool(inputs.refresh),
        )
        operation = inputs.run or "up"
        if operation == "preview":
            result = automation.preview(selected, options, on_event=self._handle_event)
        else:
            result = getattr(automation, operation)(
                selected, options, on_event=self._handle_event, confirm=lambda _plan: True
            )
        return self._build_report(result)

    def _handle_event(self, event: OperationEvent) -> None:
        """Keep the masked plan of a successful preview and pass it on; also keep each warning."""
        if isinstance(event, RunEnded) and event.started.preview and event.outcome is not None:
            if event.outcome.succeeded:
                self._plan = mask_plan(event.plan, self.secrets)
                self._on_plan(self._plan)
        elif isinstance(event, Message) and event.severity == "warning":
            self._warnings.append(event.message)

    def _build_report(self, result: RunResult) -> RunReport:
        """Build the report of a run, with secrets masked in every message.

        Findings of gates and failed checks are among the errors.
        """
        diagnostics = result.diagnostics
        gates = [f"{gate.name}: {finding}" for gate in result.gates for finding in gate.findings]
        messages: dict[str, list[str]] = {"error": [], "warning": [*self._warnings]}
        for diagnostic in diagnostics:
            messages.setdefault(diagnostic.severity, []).append(diagnostic.message)
        return RunReport(
            ending=str(result.reason),
            case_problems=[
                self._locate_selection(diagnostic.error)
                for diagnostic in diagnostics
                if isinstance(diagnostic.error, NothingSelected)
            ],
            errors=self._redact([*messages["error"], *gates, *result.unchecked]),
            warnings=self._redact(messages["warning"]),
            # A failed preview leaves only the result's plan.
            plan=self._plan or result.plan,
        )

    def build_error_report(self, error: GpuformError) -> RunReport:
        """Return the report of a run stopped by `error`, before or during the operation."""
        (message,) = self._redact([str(error)])
        case_problems = []
        if isinstance(error, CaseError):
            case_problems = [(error.path_in_case, message)]
        elif isinstance(error, NothingSelected):
            case_problems = [self._locate_selection(error)]
        warnings = self._redact(self._warnings)
        return RunReport("failed", [message], warnings, self._plan, case_problems=case_problems)

    def _locate_selection(self, error: NothingSelected) -> tuple[tuple[str | int, ...], str]:
        """Return the case's field with the unknown selection, and the error's message.

        The path is empty if no field has the selection.
        """
        paths_in_case = (
            (name, number)
            for name in ("target", "exclude", "replace")
            for number, pattern in enumerate(getattr(self._spec.inputs, name) or [])
            if pattern in error.texts
        )
        return next(paths_in_case, ()), str(error)

    def _redact(self, messages: list[str]) -> list[str]:
        """Return the messages with secrets masked, each message once."""
        redactor = Redactor(self.secrets)
        return [redactor.redact(message) for message in dict.fromkeys(messages)]

    def read_final_state(self, server: Server, seconds: float) -> FinalState:
        """Return the resources and outputs in the state and the objects on the platforms."""
        stack = self._open_stack()
        resources = [] if stack is None else stack.snapshot.resources
        root = next((resource.outputs for resource in resources if resource.type == STACK_TYPE), {})
        return FinalState(
            resources=list(map(_report_resource, filter(_is_resource, resources))),
            outputs=convert_outputs(root),
            objects=list_objects(server),
            seconds=seconds,
        )

    def _open_stack(self) -> Stack | None:
        """Open the stack of the case, or return None for a missing stack."""
        if not self._workspace.backend.exists(self._project.name, self._name):
            return None
        return self._workspace.open(self._name, lambda: "")

    def list_entries(self) -> list[ExpandedEntry] | None:
        """Return the topology's entries expanded with the case's configuration.

        None means a Python program; the list is empty if the stack was never created.
        """
        if not self._project.get_settings_path(self._name).exists():
            # The run failed before it created the stack.
            return None if find_topology(self._project.program) is None else []
        return list_entries(self._project, self._name)

    def list_resource_names(self) -> list[str]:
        """Return the name and the address of each resource in the state, in one list."""
        stack = self._open_stack()
        resources = [] if stack is None else filter(_is_resource, stack.snapshot.resources)
        return [
            name
            for resource in resources
            for name in (name_of(resource.urn), get_address(resource.type, resource.urn))
        ]


def _is_resource(resource: ResourceState) -> bool:
    """Return True for a resource with a name for cases: no old object, stack or provider."""
    return not resource.delete and resource.type != STACK_TYPE and not is_provider(resource.type)


def _report_resource(resource: ResourceState) -> ReportedResource:
    """Build the report of a resource: name, address, and outputs with the id."""
    values = convert_outputs(resource.outputs | ({"id": resource.id} if resource.id else {}))
    # Outputs such as __provider belong to Pulumi's dynamic providers.
    visible_outputs = {name: output for name, output in values.items() if not name.startswith("__")}
    return ReportedResource(
        name_of(resource.urn), get_address(resource.type, resource.urn), visible_outputs
    )
