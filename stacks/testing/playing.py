"""A case, played in this process: its run on an emulator of its own, from its start to its end."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpuform.providers import permissions
from gpuform.providers.context import create_wsgi_transport, mount_transport
from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.environment import KNOWN_SCHEDULERS_VARIABLE as KNOWN_SCHEDULERS
from gpuform.providers.permissions import Permission
from gpuform.providers.platform import platforms
from gpuform.providers.values import Redactor
from gpuform.schemas.cases_file import CaseInputs
from gpuform.schemas.errors import UserError
from gpuform.schemas.plan import Plan
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.planning import StepDone
from gpuform.stacks.engine.project import StackSettings, is_secure, load_project
from gpuform.stacks.engine.stack import Stack, Workspace
from gpuform.stacks.engine.state import NothingSelected, ResourceState, Snapshot, edits
from gpuform.stacks.engine.store import SEALED, Backend, build_full_name
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider, make_urn, name_of
from gpuform.stacks.engine.values import PropertyMap, from_plain, property_paths
from gpuform.stacks.gates.evaluating import GateEvaluator
from gpuform.stacks.gates.file import read_project_gates
from gpuform.stacks.operations import automation
from gpuform.stacks.operations.config_setting import ConfigSetting
from gpuform.stacks.operations.opening.selected_stack import SelectedStack
from gpuform.stacks.operations.plans.plan_masking import mask_plan
from gpuform.stacks.operations.runs.callbacks import Message, OperationEvent, RunEnded
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.results import RunResult, convert_outputs
from gpuform.stacks.resource_rules import kind_of
from gpuform.stacks.testing.cases import entries_of
from gpuform.stacks.testing.events import Events, objects_of
from gpuform.stacks.testing.report import KILLED, EntrySeen, Left, Report, ResourceSeen
from gpuform.stacks.testing.seeding import SeedError, last_change, read_state, seed, stack_of

STACK: Final = "test"
"""The stack of a case that names none."""
SALT: Final = "v1:C8d7iSLxLv0=:v1:bW+G5yKcDXYQ0ZFo:GcQIE7F7FjwkimP3RvYnqTE2cN0GCQ=="
"""`encryptionsalt` of every case, for the empty passphrase, so that its key is derived once: the
secrets of tests are none."""
_NAME: Final = "stack"
"""The file that has the stack's name for the cases that follow."""
_BEGIN: Final = 1767225600.0
"""The platform's clock at the start of an empty stack: 2026-01-01T00:00:00Z."""
_EVENTS: Final = "events.json"
_SEED: Final = "gpuform test"
_SECTION_OF: Final = {kind: section for section, kind in SECTIONS.items()}


@dataclass(frozen=True, slots=True)
class Part:
    """What one process has to play: a case, in a folder of its own, on a port of its chain.

    `project` is the path of Pulumi.yaml. `is_begun` says that the folder holds what another case
    has left; `state` is the file of a state to start from. `environ` is added to the environment.
    """

    project: Path
    folder: Path
    port: int
    inputs: CaseInputs
    is_begun: bool
    state: Path | None = None
    environ: Mapping[str, str] = field(default_factory=dict)


def play(part: Part, tell: Callable[[Plan], None]) -> Report:
    """The run with all that happens. `tell` hears of the plan before anything is done."""
    with _on_emulator(part) as server:
        begin, before = server.clock.now(), []
        stage = _Stage(part, tell)
        events = Events(server, part.inputs.events or (), part.folder / _EVENTS)
        try:
            selected = stage.prepared(server)
            if part.inputs.start and part.inputs.start.later:
                server.clock.advance(property_paths.parse_duration(part.inputs.start.later))
            begin, before = server.clock.now(), stage.names()
            events.arrange()
            report = stage.run(selected)
        except UserError as error:
            report = stage.refused(error)
        left = stage.left(server, server.clock.now() - begin)
        return replace(
            report,
            left=left,
            unplayed=events.unplayed,
            misses=events.misses,
            refused=events.failed,
            before=before,
            entries=stage.entries(),
            secrets=stage.secrets,
        )


def look(part: Part) -> Report:
    """Of a run that did not live to tell it, what it has left. How long it took, nobody knows."""
    with _on_emulator(part) as server:
        stage = _Stage(part, lambda _plan: None)
        stage.learn_secrets()
        events = Events.of_killed(server, part.inputs.events or (), part.folder / _EVENTS)
        return Report(
            KILLED,
            left=stage.left(server, 0.0),
            unplayed=events.unplayed,
            misses=events.misses,
            refused=events.failed,
            secrets=stage.secrets,
        )


@contextmanager
def _on_emulator(part: Part) -> Iterator[Server]:
    """Everything in this process asks the emulator from here on, and nothing else."""
    store = part.folder / "emulator.db"
    with serve(part.port, store, seed=_SEED, start=_BEGIN) as server:
        for name in list(os.environ):
            if name.startswith(_OTHER_WORLD) or name in _platform_variables():
                del os.environ[name]
        # No scheduler is known: a case asks none that is real, whatever it allows.
        schedulers = {KNOWN_SCHEDULERS: "{}"}
        os.environ.update({**environment(server.url), **part.environ, **schedulers})
        os.environ["PULUMI_HOME"] = str(part.folder / "home")
        os.environ["PULUMI_BACKEND_URL"] = f"file://{part.folder / 'state'}"
        os.environ["PULUMI_CONFIG_PASSPHRASE"] = ""
        # A run takes what it deletes out of the kubeconfig.
        os.environ["KUBECONFIG"] = str(part.folder / "kubeconfig")
        for name in ("home", "state", "settings"):
            (part.folder / name).mkdir(exist_ok=True)
        # The clock is asked for every step of a wait, which HTTP would make slow.
        with mount_transport(f"{server.url}/_emulator", create_wsgi_transport(server.app)):
            yield server


_SELECTIONS: Final = ("target", "exclude", "replace")
_OTHER_WORLD: Final = ("PULUMI_", "GPUFORM_")


def _platform_variables() -> set[str]:
    settings = (each.settings for each in platforms().values())
    return {setting.variable for of_one in settings for setting in of_one if setting.variable}


class CaseError(EngineError):
    """Something of a case that cannot be; `at` is where that is in it."""

    help_page = "guides/test-a-stack"

    def __init__(self, error: UserError, at: tuple[str | int, ...]) -> None:
        super().__init__(error.message, error.hint)
        self.at = at


@contextmanager
def _part_of_case(*at: str | int) -> Iterator[None]:
    """What fails in here is an error of the case, not of the stack."""
    try:
        yield
    except UserError as error:
        raise CaseError(error, at) from error


def _refuse_real_schedulers(permission: str) -> None:
    """Raises EngineError for the one permission that would lead out of the emulator."""
    if Permission.REAL_SCHEDULERS in permissions.parse_permissions(permission):
        raise EngineError(
            f"{Permission.REAL_SCHEDULERS} is not for cases: none asks a scheduler that is real",
            hint="leave it out; a cluster of the emulator has a scheduler of its own",
        )


class _Stage:
    """The stack of a part, and what is done with it."""

    def __init__(self, part: Part, tell: Callable[[Plan], None]) -> None:
        self._part = part
        self._tell = tell
        begun = part.folder / _NAME
        self._name = begun.read_text() if part.is_begun else part.inputs.stack or STACK
        real = load_project(part.project)
        self._real = real
        # Nothing of a case is written into the project's folder.
        self._project = replace(real, stack_config_dir=str(part.folder / "settings"))
        backend = Backend.open(os.environ["PULUMI_BACKEND_URL"], os.environ)
        self._workspace = Workspace(self._project, backend, os.environ)
        self.secrets: tuple[str, ...] = tuple((part.inputs.secrets or {}).values())
        self._plan: Plan | None = None
        self._warnings: list[str] = []

    def prepared(self, server: Server) -> SelectedStack:
        """The stack with its configuration and its state, and those that it reads."""
        part, workspace = self._part, self._workspace
        with _part_of_case("start", "state"):
            state = None if part.state is None else self._read(part.state)
        if not part.is_begun:
            settings = self._project.get_settings_path(self._name)
            settings.write_text(f"encryptionsalt: {SALT}\n", encoding="utf-8")
            workspace.create_stack(self._name, lambda: "")
            (part.folder / _NAME).write_text(self._name)
        self._configure()
        for name, outputs in (part.inputs.stack_references or {}).items():
            with _part_of_case("stack_references", name):
                self._give_out(name, outputs)
        self._require_permissions()
        selected = SelectedStack(workspace, self._name)
        if state is not None:
            server.clock.advance_to(last_change(state) or 0.0)
            declared = self._declared(selected)
            with _part_of_case("start", "state"):
                seed(selected.open(), state, declared)
        self.learn_secrets()
        return selected

    def learn_secrets(self) -> None:
        """Those of the configuration, if the stack is there."""
        if (stack := self._opened()) is not None:
            self.secrets = (*self.secrets, *stack.build_target().program.collect_secrets())

    def _require_permissions(self) -> None:
        """Raises CaseError for a permission that does not exist, and for one that no case has."""
        allow = self._part.inputs.allow or ()
        gates = read_project_gates(self._project.directory) if allow else ()
        for number, name in enumerate(allow):
            with _part_of_case("allow", number):
                _refuse_real_schedulers(name)
                GateEvaluator(gates, permissions.parse_permissions(name), self._project.program)

    def _declared(self, selected: SelectedStack) -> dict[str, PropertyMap]:
        """What the program declares of each resource, by URN, as far as it comes."""
        found: dict[str, PropertyMap] = {}

        def hear(event: OperationEvent) -> None:
            if isinstance(event, StepDone) and event.step.new is not None:
                found[event.step.urn] = event.step.new.inputs

        automation.preview(selected, on_event=hear)
        return found

    def _read(self, file: Path) -> Snapshot:
        """A state of this project; the stack has its name, unless the case names another."""
        try:
            data = file.read_bytes()
        except OSError as error:
            raise SeedError(f"the state {file} cannot be read: {error.strerror}") from error
        state = read_state(data, file.name)
        stack, project = stack_of(state)
        if project != self._project.name:
            raise SeedError(
                f"{file.name} is a state of project {project}, and this is {self._project.name}"
            )
        self._name = self._part.inputs.stack or stack
        return edits.rename_stack(state, build_full_name(project, self._name))

    def _configure(self) -> None:
        """The values of the stack's own file, then those of the case."""
        part, workspace = self._part, self._workspace
        settings = StackSettings.load(self._project, self._name)
        for key in settings.config:  # of the case that this one starts from
            settings.remove(key)
        kept = StackSettings.load(self._real, self._name) if part.inputs.stack else None
        for key, value in (kept.config if kept else {}).items():
            if is_secure(value) and key not in (part.inputs.secrets or {}):
                self._warnings.append(
                    f"{key} is encrypted in {kept.path.name if kept else ''}, and tests have no "
                    "passphrase: give it a value under `secrets`"
                )
            elif not is_secure(value):
                settings.set(key, value)
        settings.save()
        for field_, secret in (("config", False), ("secrets", True)):
            for key, value in (getattr(part.inputs, field_) or {}).items():
                with _part_of_case(field_, key):
                    setting = ConfigSetting.from_key(workspace, self._name, key, secret=secret)
                setting.set(_text(value), None)

    def _give_out(self, name: str, outputs: Mapping[str, Any]) -> None:
        """Another stack of that name is there, with these outputs."""
        project, _, stack = name.removeprefix("organization/").partition("/")
        if not project or not stack or "/" in stack:
            raise EngineError(
                f"{name!r} in `stack_references` is no stack", hint="name it as PROJECT/STACK"
            )
        urn = make_urn(stack, project, "", STACK_TYPE, f"{project}-{stack}")
        values = {key: from_plain(value) for key, value in outputs.items()}
        root = ResourceState(urn=urn, custom=False, type=STACK_TYPE, outputs=values)
        snapshot = Snapshot(build_full_name(project, stack), resources=[root])
        self._workspace.backend.write(project, stack, snapshot.to_json(SEALED))

    def run(self, selected: SelectedStack) -> Report:
        """The operation, answered with yes."""
        inputs = self._part.inputs
        options = RunOptions(
            allow=tuple(inputs.allow or ()),
            target=tuple(inputs.target or ()),
            exclude=tuple(inputs.exclude or ()),
            replace=tuple(inputs.replace or ()),
            refresh=bool(inputs.refresh),
        )
        operation = inputs.run or "up"
        if operation == "preview":
            result = automation.preview(selected, options, on_event=self._hear)
        else:
            result = getattr(automation, operation)(
                selected, options, on_event=self._hear, confirm=lambda _plan: True
            )
        return self._report(result)

    def _hear(self, event: OperationEvent) -> None:
        if isinstance(event, RunEnded) and event.started.preview and event.outcome is not None:
            if event.outcome.succeeded:
                self._plan = mask_plan(event.plan, self.secrets)
                self._tell(self._plan)
        elif isinstance(event, Message) and event.severity == "warning":
            self._warnings.append(event.message)

    def _report(self, result: RunResult) -> Report:
        said = result.diagnostics
        gates = [f"{each.name}: {text}" for each in result.gates for text in each.findings]
        errors = [each.message for each in said if each.severity == "error"]
        warnings = [each.message for each in said if each.severity == "warning"]
        unknown = [each.error for each in said if isinstance(each.error, NothingSelected)]
        return Report(
            ending=str(result.reason),
            wrong=[self._nowhere(error) for error in unknown],
            errors=self._told([*errors, *gates, *result.unchecked]),
            warnings=self._told([*self._warnings, *warnings]),
            plan=self._plan or result.plan,
        )

    def refused(self, error: UserError) -> Report:
        """What has stopped the run before it began, or in its midst."""
        (text,) = self._told([str(error)])
        wrong = []
        if isinstance(error, CaseError):
            wrong = [(error.at, text)]
        elif isinstance(error, NothingSelected):
            wrong = [self._nowhere(error)]
        return Report("failed", [text], self._told(self._warnings), self._plan, wrong=wrong)

    def _nowhere(self, error: NothingSelected) -> tuple[tuple[str | int, ...], str]:
        """Where the case names what is nowhere, and what to say of it."""
        lists = {name: getattr(self._part.inputs, name) or [] for name in _SELECTIONS}
        places = [
            (name, number)
            for name, given in lists.items()
            for number, text in enumerate(given)
            if text in error.texts
        ]
        return next(iter(places), ()), str(error)

    def _told(self, texts: list[str]) -> list[str]:
        redactor = Redactor(self.secrets)
        return [redactor.redact(text) for text in dict.fromkeys(texts)]

    def left(self, server: Server, seconds: float) -> Left:
        """What is in the state and on the platforms."""
        stack = self._opened()
        resources = [] if stack is None else stack.snapshot.resources
        root = next((each.outputs for each in resources if each.type == STACK_TYPE), {})
        return Left(
            resources=[_seen(each) for each in resources if _is_resource(each)],
            outputs=convert_outputs(root),
            objects=objects_of(server),
            seconds=seconds,
        )

    def _opened(self) -> Stack | None:
        if not self._workspace.backend.exists(self._project.name, self._name):
            return None
        return self._workspace.open(self._name, lambda: "")

    def entries(self) -> list[EntrySeen] | None:
        """The entries of the topology, as this configuration expands them."""
        if not self._project.get_settings_path(self._name).exists():  # there never was a stack
            return None if find_topology(self._project.program) is None else []
        return entries_of(self._project, self._name)

    def names(self) -> list[str]:
        """What the resources in the state are called: the name and the address of each."""
        stack = self._opened()
        resources = [] if stack is None else filter(_is_resource, stack.snapshot.resources)
        return [
            name
            for each in resources
            for name in (name_of(each.urn), address_of(each.type, each.urn))
        ]


def _text(value: Any) -> str:
    """A value of the configuration as Pulumi keeps it."""
    if isinstance(value, str):
        return value
    import json  # noqa: PLC0415 - few values need it

    return json.dumps(value)


def _is_resource(entry: ResourceState) -> bool:
    return not entry.delete and entry.type != STACK_TYPE and not is_provider(entry.type)


def _seen(entry: ResourceState) -> ResourceSeen:
    outputs = {**entry.outputs, **({"id": entry.id} if entry.id else {})}
    values = convert_outputs(outputs)
    shown = {name: each for name, each in values.items() if not name.startswith("__")}
    return ResourceSeen(name_of(entry.urn), address_of(entry.type, entry.urn), shown)


def address_of(type_: str, urn: str) -> str:
    """SECTION.NAME of a resource; its name alone where it is none of a platform's."""
    kind = kind_of(type_)
    section = _SECTION_OF.get(kind[1]) if kind else None
    return f"{section}.{name_of(urn)}" if section else name_of(urn)
