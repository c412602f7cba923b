"""Read the test cases of a project, with the topology entries that each case's configuration
expands.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpuform.schemas.cases_file import CaseInputs, CasesInputs, ExpectInputs
from gpuform.stacks.document.checked import read_checked
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition, format_text
from gpuform.stacks.document.nodes import (
    MappingNode,
    find_key_position,
    find_nearest_node,
    find_node,
)
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.language_host import find_topology
from gpuform.stacks.engine.project import Project, find_project
from gpuform.stacks.multi_stack import list_stacks_with_settings
from gpuform.stacks.testing.report import EntrySeen
from gpuform.stacks.topology.declarations import Group, Instance, ModuleInstance, Repetition
from gpuform.stacks.topology.files import format_path
from gpuform.stacks.topology.offline import read_plan_context
from gpuform.stacks.topology.planning import plan as plan_topology
from gpuform.stacks.topology.scope import Scope

FOLDER: Final = "tests"
"""Where a project's test files are."""

_INHERITED: Final = ("config", "secrets", "stack_references")


class TestFilesError(EngineError):
    """Test files that cannot be used."""

    help_page = "guides/test-a-stack"


@dataclass(frozen=True, slots=True)
class Case:
    """One case; `inputs` are with the defaults of its file."""

    file: Path
    name: str
    inputs: CaseInputs
    project: Project
    root: MappingNode

    @property
    def address(self) -> str:
        """What it is called where there are several files: cluster/comes_up."""
        return f"{self.file.stem}/{self.name}"

    @property
    def expect(self) -> ExpectInputs:
        return self.inputs.expect or ExpectInputs()

    @property
    def first(self) -> str | None:
        """The name of the case that it starts from."""
        return self.inputs.start.case if self.inputs.start else None

    @property
    def state(self) -> Path | None:
        """The file of the state that it starts from."""
        start = self.inputs.start
        return None if start is None or start.state is None else self.file.parent / start.state

    def says(self, *steps: str | int) -> bool:
        """Whether it says this itself, not only what all cases of its file have."""
        return find_node(self.root, ("cases", self.name, *steps)) is not None

    def place(self, *steps: str | int) -> SourcePosition:
        """Where something of it is written; the case itself without `steps`."""
        whole = ("cases", self.name, *steps)
        if not steps:
            return find_key_position(self.root, whole)
        of_all = ("defaults", *steps)
        node = (
            find_node(self.root, whole)
            or find_node(self.root, of_all)
            or find_nearest_node(self.root, whole)
        )
        return node.position


def read_cases(paths: Sequence[Path], folder: Path) -> list[Case]:
    """Those of test files, and of projects by their folders; without paths, of the one here.

    Raises TestFilesError with every problem and its place, and where there are no cases.
    """
    found = (file for path in paths or (folder,) for file in _files(path))
    files = list({file.resolve(): file for file in found}.values())
    _require_own_names(files)
    problems = Diagnostics()
    cases = [case for file in files for case in _of_file(file, problems)]
    if problems:
        raise TestFilesError(f"the tests are wrong:\n{format_text(list(problems))}")
    return cases


def chosen(cases: Iterable[Case], patterns: Sequence[str]) -> list[Case]:
    """The cases of which one of the patterns is part of the address, with those they start from.

    Raises TestFilesError where a pattern meets none.
    """
    cases = list(cases)
    wanted: set[tuple[Path, str]] = set()
    for pattern in patterns:
        if not pattern:
            raise TestFilesError("the filter is empty: it means every case", hint="leave it out")
        met = [case for case in cases if pattern in case.address]
        if not met:
            names = ", ".join(case.address for case in cases)
            raise TestFilesError(f"no case matches {pattern!r}", hint=f"the cases are {names}")
        wanted |= {(case.file, case.name) for case in met}
    by_name = {(case.file, case.name): case for case in cases}
    for key in list(wanted):
        case: Case | None = by_name[key]
        while case is not None:
            wanted.add((case.file, case.name))
            case = by_name[case.file, case.first] if case.first else None
    return [case for case in cases if not patterns or (case.file, case.name) in wanted]


def in_chains(cases: Iterable[Case]) -> list[list[Case]]:
    """The cases that start from each other, each after the one that it starts from.

    Chains have nothing to do with each other.
    """
    cases = list(cases)
    by_name = {(case.file, case.name): case for case in cases}
    chains: dict[tuple[Path, str], list[tuple[int, Case]]] = {}
    for case in cases:
        origin, depth = case, 0
        while origin.first is not None:
            origin, depth = by_name[origin.file, origin.first], depth + 1
        chains.setdefault((origin.file, origin.name), []).append((depth, case))
    return [[case for _, case in sorted(each, key=lambda one: one[0])] for each in chains.values()]


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise TestFilesError(f"{path} is not there", hint="name a test file or a project's folder")
    project = find_project(path)
    tests = project.directory / FOLDER
    found = sorted(file for ending in ("yaml", "yml") for file in tests.glob(f"*.{ending}"))
    if not found:
        raise TestFilesError(
            f"project {project.name} has no tests: there is no {FOLDER}/*.yaml in "
            f"{format_path(project.directory)}",
            hint="write one; `gpuform help guides/test-a-stack` shows how",
        )
    return found


def _require_own_names(files: Iterable[Path]) -> None:
    """Raises TestFilesError for t.yaml beside t.yml: their cases would share their snapshots."""
    by_stem: dict[Path, Path] = {}
    for file in files:
        other = by_stem.setdefault(file.resolve().with_suffix(""), file)
        if other is not file:
            raise TestFilesError(
                f"{format_path(other)} and {file.name} call their cases alike",
                hint="rename one of them",
            )


def _of_file(file: Path, problems: Diagnostics) -> list[Case]:
    own = Diagnostics()
    root, values = read_checked(file, format_path(file), CasesInputs, own)
    problems.extend(own)
    if own:
        return []
    project = find_project(file.resolve().parent)
    defaults = values.get("defaults") or {}
    cases = [
        Case(file, name, CaseInputs.model_validate(with_defaults(defaults, case)), project, root)
        for name, case in values["cases"].items()
    ]
    for case in cases:
        if case.inputs.stack and (missing := without_settings(project, case.inputs.stack)):
            problems.add_once(case.place("stack"), "file", missing, missing)
        if case.state is not None and not case.state.is_file():
            place = case.place("start", "state")
            problems.add(place, "file", f"there is no file {format_path(case.state)}")
    return cases


def without_settings(project: Project, stack: str) -> str | None:
    """What to say of a stack that has no settings to give; None of one that has."""
    if project.get_settings_path(stack).is_file():
        return None
    known = ", ".join(list_stacks_with_settings(project)) or "none of any stack"
    return f"there is no {project.get_settings_path(stack).name}; there is {known}"


def with_defaults(defaults: Mapping[str, Any], case: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a case, which add to those that all cases have."""
    whole = {**defaults, **case}
    for name in _INHERITED:
        if name in defaults and name in case:
            whole[name] = {**defaults[name], **case[name]}
    return whole


def entries_of(project: Project, stack: str) -> list[EntrySeen] | None:
    """Those of a project's topology, modules included, with the stack's configuration.

    None where the program is Python; none of a topology that cannot be expanded.
    """
    topology = find_topology(project.program)
    if topology is None:
        return None
    problems = Diagnostics()
    file = topology.path
    planned = plan_topology(file, read_plan_context(file, stack, project), problems)
    if problems:
        return []
    return [
        _seen(group, scope.names.module)
        for scope in Scope(planned.names).list_scopes()
        for group in scope.list_groups()
    ]


def _seen(group: Group[Any], module: ModuleInstance | None) -> EntrySeen:
    return EntrySeen(
        group.declaration.address,
        str(group.declaration.position),
        tuple(each.address for each in group.instances.values()),
        tuple(sorted(group.absent)),
        group.declaration.when is not None,
        tuple(_names(group, module)),
    )


def _names(group: Group[Any], module: ModuleInstance | None) -> Iterator[str]:
    """What the resources of an entry are called, also those that are left out."""
    keys = {*group.instances, *group.absent, *(["*"] if group.open else [])}
    for key in keys:
        made = Repetition(group.declaration, key, module=module)
        if all(isinstance(each, Instance) for each in group.instances.values()):
            yield from (made.name, f"{group.declaration.section}.{made.name}")
        if key in group.absent:  # a module that is left out has not been looked into
            yield from (f"{made.name}-*", f"*.{made.name}-*")
