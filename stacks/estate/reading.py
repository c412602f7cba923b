"""Which stacks there are: those of `stacks.yaml`, else those of every project in the folder."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gpuform.schemas.stacks_file import StacksInputs
from gpuform.stacks.document.checked import read_checked
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import MappingNode, find
from gpuform.stacks.document.reports import text
from gpuform.stacks.engine.project import Project, load_project
from gpuform.stacks.engine.store import anchor, backend_url
from gpuform.stacks.estate.members import FILE, Estate, EstateError, Member
from gpuform.stacks.topology.files import shown

_PROJECT_FILES: Final = ("Pulumi.yaml", "Pulumi.yml")
_NOT_WALKED: Final = frozenset({"node_modules", "venv", "__pycache__"})


def read_estate(start: Path, environ: Mapping[str, str], stack: str | None = None) -> Estate:
    """The stacks of the nearest stacks.yaml upwards; without one, those below the folder.

    `stack` leaves only those of this name. Raises EstateError with every problem and its place,
    and where there is no stack.
    """
    problems = Diagnostics()
    estate = find_estate(start, environ, problems)
    if problems:
        raise EstateError(f"the stacks are not known:\n{text(list(problems))}")
    if stack is None:
        return estate
    chosen = {name: each for name, each in estate.members.items() if each.stack == stack}
    if not chosen:
        names = ", ".join(sorted({each.stack for each in estate.members.values()}))
        raise EstateError(f"no project has a stack named {stack!r}", hint=f"there are {names}")
    return Estate(estate.root, chosen, estate.file)


def find_estate(start: Path, environ: Mapping[str, str], problems: Diagnostics) -> Estate:
    """The same; what is wrong goes to `problems`. Raises EstateError where there is no stack."""
    start = Path(os.path.abspath(start))  # noqa: PTH100 - Path.resolve would follow links
    file = next((p / FILE for p in (start, *start.parents) if (p / FILE).is_file()), None)
    if file is None:
        found = _Reader(start, environ, problems).of_tree()
        hint = f"write a {FILE}, or make a stack: `gpuform stack init NAME` in its folder"
        if not found and not problems:
            raise EstateError(f"there is no {FILE}, and no project with a stack in {start}", hint)
        return Estate(start, found)
    return Estate(file.parent, _Reader(file.parent, environ, problems).of_file(file), file)


@dataclass(frozen=True, slots=True)
class _Reader:
    root: Path
    environ: Mapping[str, str]
    problems: Diagnostics

    def of_tree(self) -> dict[str, Member]:
        members: dict[str, Member] = {}
        for path in _project_files(self.root):
            project = load_project(path)
            for stack in _stacks_of(project):
                settings = project.settings_path(stack)
                self._add(members, project, stack, SourcePosition(shown(settings)), ())
        return members

    def of_file(self, file: Path) -> dict[str, Member]:
        root, values = read_checked(file, shown(file), StacksInputs, self.problems)
        members: dict[str, Member] = {}
        if self.problems:
            return members
        for index, entry in enumerate(values["stacks"]):
            self._entry(members, root, index, entry)
        for name, member in members.items():
            for other in member.after:
                if other not in members:
                    there = ", ".join(each for each in members if each != name)
                    message = f"{name} comes after {other!r}, which is none of the stacks"
                    hint = f"name it as PROJECT/STACK; there is {there}"
                    self.problems.add(member.place, "unknown-stack", message, hint)
        return members

    def _entry(
        self, members: dict[str, Member], root: MappingNode, index: int, entry: Mapping[str, Any]
    ) -> None:
        place = find(root, ("stacks", index, "folder")).place
        folders = self._folders(entry["folder"], place)
        for project in folders:
            stacks = [entry["stack"]] if entry.get("stack") else _stacks_of(project)
            if not stacks:
                where = shown(project.directory)
                hint = "name it with `stack`, or make one: `gpuform stack init NAME`"
                self.problems.add(place, "no-stack", f"{where} has no stack", hint)
            for stack in stacks:
                self._add(members, project, stack, place, tuple(entry.get("after") or ()))

    def _folders(self, pattern: str, place: SourcePosition) -> Sequence[Project]:
        if Path(pattern).is_absolute():
            self.problems.add(place, "folder", f"{pattern} is no folder below the file's own")
            return ()
        try:
            found = sorted(each for each in self.root.glob(pattern) if each.is_dir())
        except (ValueError, NotImplementedError) as error:
            self.problems.add(place, "folder", f"{pattern} is no pattern of folders: {error}")
            return ()
        files = [file for folder in found if (file := _project_file(folder)) is not None]
        if not files:
            why = "has no Pulumi.yaml" if found else "is not there"
            self.problems.add(place, "folder", f"{pattern} {why}", "name a project's folder")
        return [load_project(file) for file in files]

    def _add(
        self,
        members: dict[str, Member],
        project: Project,
        stack: str,
        place: SourcePosition,
        after: tuple[str, ...],
    ) -> None:
        member = Member(project, stack, _backend_of(project, self.environ), place, after)
        known = members.setdefault(member.name, member)
        if known.project.path != project.path:
            message = (
                f"two stacks are named {member.name}: of {shown(known.project.path)} and of "
                f"{shown(project.path)}"
            )
            hint = "give each project a name of its own, in its Pulumi.yaml"
            self.problems.add(place, "same-name", message, hint)
        elif known is not member:
            message = f"{member.name} is named twice: at {known.place} as well"
            self.problems.add(place, "same-name", message, "name it once")


def _backend_of(project: Project, environ: Mapping[str, str]) -> str:
    """As a run in the project's folder finds it."""
    return anchor(backend_url(environ, project), project.directory)


def _project_file(folder: Path) -> Path | None:
    return next((folder / name for name in _PROJECT_FILES if (folder / name).is_file()), None)


def _project_files(root: Path) -> Iterator[Path]:
    for folder, names, _ in os.walk(root):
        names[:] = sorted(n for n in names if not n.startswith(".") and n not in _NOT_WALKED)
        found = _project_file(Path(folder))
        if found is not None:
            yield found


def _stacks_of(project: Project) -> list[str]:
    """Those that have settings, by their file names."""
    path = project.settings_path("*")
    found = path.parent.glob(path.name) if path.parent.is_dir() else ()
    begin, end = len("Pulumi."), -len(path.suffix)
    return sorted(each.name[begin:end] for each in found if each.is_file())
