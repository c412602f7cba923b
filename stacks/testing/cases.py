"""Read the test cases of projects, and define what the process of a case reports about its run.

`gpuform test` reads cases here; `runner` orders them by `build_chains`. `case_run` builds the
reports, which are pickled and sent to the process of `gpuform test` to be compared with the
expectations.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpuform.schemas.cases_file import CaseInputs, CasesInputs, ExpectInputs
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition, format_text
from gpuform.stacks.document.nodes import (
    MappingNode,
    find_key_position,
    find_nearest_node,
    find_node,
)
from gpuform.stacks.document.reading import read_checked
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.project import Project, find_project
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.multi_stack import list_stacks_with_settings
from gpuform.stacks.operations.runs.options import OutputValue
from gpuform.stacks.resource_rules import find_kind
from gpuform.stacks.topology.declarations import Instance, InstanceGroup, ModuleInstance, Repetition
from gpuform.stacks.topology.files import format_path
from gpuform.stacks.topology.planning import plan as plan_topology
from gpuform.stacks.topology.planning import read_plan_context
from gpuform.stacks.topology.scope import Scope

KILLED = "killed"

PlatformObjects = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""By platform and kind: `id`, `name` and `status` of each object."""


@dataclass(frozen=True, slots=True)
class ReportedResource:
    """A resource in the state; `address` is SECTION.NAME, and `outputs` are not encrypted."""

    name: str
    address: str
    outputs: Mapping[str, OutputValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpandedEntry:
    """A topology's entry or module in one run, with its instances.

    `absent` are the keys of the instances that `when` left out. `position` is the file and line of
    the declaration. `is_conditional` is True if the entry has a `when`.
    """

    address: str
    position: str
    instances: tuple[str, ...]
    absent: tuple[str, ...]
    is_conditional: bool
    resource_names: tuple[str, ...] = ()
    """The names of the entry's resources, also of absent ones; `*` stands for unknown names."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """The stack's resources and outputs and the platforms' objects after a run."""

    resources: Sequence[ReportedResource] = ()
    outputs: Mapping[str, OutputValue] = field(default_factory=dict)
    objects: PlatformObjects = field(default_factory=dict)
    seconds: float = 0.0
    """How long the run took, by the platform's clock."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """The result of one run of a case."""

    ending: str
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    plan: Plan | None = None
    final_state: FinalState = field(default_factory=FinalState)
    pending_events: Sequence[int] = ()
    """The numbers of the events that had not happened when the run ended."""
    fault_mismatches: Mapping[int, str] = field(default_factory=dict)
    """By event number: how a fault met requests other than the case says."""
    failed_events: Mapping[int, str] = field(default_factory=dict)
    """By event number: why the event could not happen."""
    initial_names: Sequence[str] = ()
    """The names and addresses of the resources in the state before the run."""
    entries: Sequence[ExpandedEntry] | None = None
    """The entries of the topology; None for a Python program."""
    case_problems: Sequence[tuple[tuple[str | int, ...], str]] = ()
    """The path and the message of each invalid field of the case; with any, nothing was tested."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """Values to mask in everything that is printed."""


FOLDER: Final = "tests"
"""The folder of a project with its test files."""

_SECTION_OF: Final = {kind: section for section, kind in SECTIONS.items()}
_MERGED_FIELDS: Final = ("config", "secrets", "stack_references")


class TestFilesError(EngineError):
    """The test files are invalid, or a filter matches no case."""

    help_page = "guides/test-a-stack"


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a test file; `inputs` include the defaults of the file."""

    file: Path
    name: str
    inputs: CaseInputs
    project: Project
    root: MappingNode

    @property
    def address(self) -> str:
        """Return FILE/NAME of the case, which is unique in a project: cluster/comes_up."""
        return f"{self.file.stem}/{self.name}"

    @property
    def expect(self) -> ExpectInputs:
        """Return the expectations of the case; empty if the case has none."""
        return self.inputs.expect or ExpectInputs()

    @property
    def predecessor(self) -> str | None:
        """Return the name of the case with the state and objects to start from, or None."""
        return self.inputs.start.case if self.inputs.start else None

    @property
    def state_file(self) -> Path | None:
        """Return the path of the state file to start from, or None."""
        start = self.inputs.start
        return None if start is None or start.state is None else self.file.parent / start.state

    def has_own_field(self, *steps: str | int) -> bool:
        """Return whether the case has the field, apart from the file's defaults."""
        return find_node(self.root, ("cases", self.name, *steps)) is not None

    def get_position(self, *steps: str | int) -> SourcePosition:
        """Return the position of a field of the case; without `steps`, of the case's name.

        A field that only the defaults have is found there; for a missing field the nearest parent
        is taken.
        """
        path = ("cases", self.name, *steps)
        if not steps:
            return find_key_position(self.root, path)
        path_in_defaults = ("defaults", *steps)
        node = (
            find_node(self.root, path)
            or find_node(self.root, path_in_defaults)
            or find_nearest_node(self.root, path)
        )
        return node.position


def read_cases(paths: Sequence[Path], folder: Path) -> list[Case]:
    """Return the cases of test files, and of projects given as folders.

    Without `paths` the cases of the project in `folder` are returned.

    Raises:
        TestFilesError: a file is invalid, with every problem and its position, or there are no
            cases.
    """
    listed_files = (file for path in paths or (folder,) for file in _list_test_files(path))
    # A file that is named twice, or beside its project, is read once.
    files = list({file.resolve(): file for file in listed_files}.values())
    _reject_equal_stems(files)
    problems = Diagnostics()
    cases = [case for file in files for case in _read_file(file, problems)]
    if problems:
        raise TestFilesError(f"the test files have problems:\n{format_text(list(problems))}")
    return cases


def select_cases(cases: Iterable[Case], patterns: Sequence[str]) -> list[Case]:
    """Return the cases with a pattern in the address, and all their predecessors.

    Without patterns all cases are returned. The order of `cases` is kept.

    Raises:
        TestFilesError: a pattern is empty or matches no case.
    """
    cases = list(cases)
    selected_keys: set[tuple[Path, str]] = set()
    for pattern in patterns:
        if not pattern:
            raise TestFilesError("the filter is empty and matches every case", hint="remove it")
        matching_cases = [case for case in cases if pattern in case.address]
        if not matching_cases:
            names = ", ".join(case.address for case in cases)
            raise TestFilesError(f"no case matches {pattern!r}", hint=f"the cases are {names}")
        selected_keys |= {(case.file, case.name) for case in matching_cases}
    by_name = {(case.file, case.name): case for case in cases}
    for key in list(selected_keys):
        case: Case | None = by_name[key]
        while case is not None:
            selected_keys.add((case.file, case.name))
            case = by_name[case.file, case.predecessor] if case.predecessor else None
    return [case for case in cases if not patterns or (case.file, case.name) in selected_keys]


def build_chains(cases: Iterable[Case]) -> list[list[Case]]:
    """Group the cases into chains: cases that start from each other, each after its predecessor.

    Each predecessor must be among `cases`. Cases of different chains are independent and may run in
    parallel. The first case of a chain starts from no other.
    """
    cases = list(cases)
    by_name = {(case.file, case.name): case for case in cases}
    chains: dict[tuple[Path, str], list[tuple[int, Case]]] = {}
    for case in cases:
        origin, depth = case, 0
        while origin.predecessor is not None:
            # `find_problems` of the file has refused cycles, so the walk ends.
            origin, depth = by_name[origin.file, origin.predecessor], depth + 1
        chains.setdefault((origin.file, origin.name), []).append((depth, case))
    return [
        [case for _, case in sorted(chain, key=lambda depth_and_case: depth_and_case[0])]
        for chain in chains.values()
    ]


def _list_test_files(path: Path) -> list[Path]:
    """Return the test file at `path`, or the sorted test files of the project in the folder `path`.

    Raises:
        TestFilesError: the path does not exist, or the project has no test files.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise TestFilesError(
            f"{path} does not exist", hint="name a test file or a project's folder"
        )
    project = find_project(path)
    test_files = _find_test_files(project.directory)
    if not test_files:
        raise TestFilesError(
            f"project {project.name} has no tests: no {FOLDER}/*.yaml in "
            f"{format_path(project.directory)}",
            hint="write one; `gpuform help guides/test-a-stack` shows how",
        )
    return test_files


def has_test_files(project_folder: Path) -> bool:
    """Return True if the project in the folder has test files."""
    return bool(_find_test_files(project_folder))


def _find_test_files(project_folder: Path) -> list[Path]:
    test_folder = project_folder / FOLDER
    return sorted(
        file for extension in ("yaml", "yml") for file in test_folder.glob(f"*.{extension}")
    )


def _reject_equal_stems(files: Iterable[Path]) -> None:
    """Raise TestFilesError for t.yaml beside t.yml: their cases would share their snapshots."""
    files_by_stem: dict[Path, Path] = {}
    for file in files:
        other = files_by_stem.setdefault(file.resolve().with_suffix(""), file)
        if other is not file:
            raise TestFilesError(
                f"{format_path(other)} and {file.name} give their cases the same names",
                hint="rename one of them",
            )


def _read_file(file: Path, problems: Diagnostics) -> list[Case]:
    """Return the cases of a test file, with the file's defaults applied.

    Problems are added to `problems`; a file that is not valid has no cases.
    """
    file_problems = Diagnostics()
    root, values = read_checked(file, format_path(file), CasesInputs, file_problems)
    problems.extend(file_problems)
    if file_problems:
        return []
    project = find_project(file.resolve().parent)
    defaults = values.get("defaults") or {}
    cases = [
        Case(file, name, CaseInputs.model_validate(merge_defaults(defaults, case)), project, root)
        for name, case in values["cases"].items()
    ]
    for case in cases:
        if case.inputs.stack and (
            missing_settings := describe_missing_settings(project, case.inputs.stack)
        ):
            problems.add_once(
                case.get_position("stack"), "file", missing_settings, missing_settings
            )
        if case.state_file is not None and not case.state_file.is_file():
            position = case.get_position("start", "state")
            problems.add(position, "file", f"file {format_path(case.state_file)} not found")
    return cases


def describe_missing_settings(project: Project, stack: str) -> str | None:
    """Return the message for a stack without a settings file, or None if the stack has one."""
    if project.get_settings_path(stack).is_file():
        return None
    stacks = ", ".join(list_stacks_with_settings(project)) or "none"
    return f"{project.get_settings_path(stack).name} not found; stacks with settings: {stacks}"


def merge_defaults(defaults: Mapping[str, Any], case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a case merged with the defaults of the test file.

    A field of the case replaces the default; `config`, `secrets` and `stack_references` are merged
    by key.
    """
    merged = {**defaults, **case}
    for name in _MERGED_FIELDS:
        if name in defaults and name in case:
            merged[name] = {**defaults[name], **case[name]}
    return merged


def list_entries(project: Project, stack: str) -> list[ExpandedEntry] | None:
    """Return a topology's entries and modules, expanded with the stack's configuration.

    Returns None if the program is Python, and an empty list if the topology cannot be expanded.
    """
    topology = find_topology(project.program)
    if topology is None:
        return None
    problems = Diagnostics()
    file = topology.path
    planned = plan_topology(file, read_plan_context(file, stack, project), problems)
    if problems:
        # The run itself reports these problems.
        return []
    return [
        _describe_entry(group, scope.names.module)
        for scope in Scope(planned.names).list_scopes()
        for group in scope.list_groups()
    ]


def _describe_entry(group: InstanceGroup[Any], module: ModuleInstance | None) -> ExpandedEntry:
    return ExpandedEntry(
        group.declaration.address,
        str(group.declaration.position),
        tuple(instance.address for instance in group.instances.values()),
        tuple(sorted(group.absent)),
        group.declaration.when is not None,
        tuple(_list_resource_names(group, module)),
    )


def _list_resource_names(group: InstanceGroup[Any], module: ModuleInstance | None) -> Iterator[str]:
    """Yield the names of an entry's resources, also of instances left out by `when`.

    `*` stands for names unknown before the run.
    """
    keys = {*group.instances, *group.absent, *(["*"] if group.open else [])}
    for key in keys:
        repetition = Repetition(group.declaration, key, module=module)
        if all(isinstance(instance, Instance) for instance in group.instances.values()):
            yield from (repetition.name, f"{group.declaration.section}.{repetition.name}")
        # A module that `when` leaves out is not expanded: its resources are unknown.
        if key in group.absent:
            yield from (f"{repetition.name}-*", f"*.{repetition.name}-*")


def get_address(type_: str, urn: str) -> str:
    """Return SECTION.NAME of a resource, or NAME for a type without a section in topologies."""
    kind = find_kind(type_)
    section = _SECTION_OF.get(kind[1]) if kind else None
    return f"{section}.{name_of(urn)}" if section else name_of(urn)
