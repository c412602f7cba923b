"""Which stacks there are: those of `stacks.yaml`, else those of every project in the folder."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpuform.schemas.stacks_plan import StacksInputs
from gpuform.stacks.document.checked import read_checked
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition, format_text
from gpuform.stacks.document.nodes import MappingNode, find_nearest_node
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import OtherRuntime, Project, load_project
from gpuform.stacks.engine.store import anchor_file_url, get_backend_url
from gpuform.stacks.multi_stack.members import FILE, Estate, EstateError, Member, note
from gpuform.stacks.topology.files import format_path

_PROJECT_FILES: Final = ("Pulumi.yaml", "Pulumi.yml")
_STACK_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_NOT_WALKED: Final = frozenset({"node_modules", "venv", "__pycache__"})


def read_estate(start: Path, environ: Mapping[str, str], stack: str | None = None) -> Estate:
    """The stacks of the nearest stacks.yaml upwards; without one, those below the folder.

    `stack` leaves only those of this name. Raises EstateError with every problem and its place,
    and where there is no stack.
    """
    problems = Diagnostics()
    estate = find_estate(start, environ, problems)
    if problems:
        raise EstateError(f"the stacks are not known:\n{format_text(list(problems))}")
    if stack is None:
        return estate
    chosen = {name: estate.members[name] for name in named(estate, stack)}
    return Estate(estate.root, chosen, estate.file)


def named(estate: Estate, stack: str) -> list[str]:
    """The members of which `--stack` is the name. Raises EstateError where there is none."""
    chosen = [name for name, each in estate.members.items() if stack in (each.stack, name)]
    if not chosen:
        names = ", ".join(sorted({each.stack for each in estate.members.values()}))
        raise EstateError(f"no project has a stack named {stack!r}", hint=f"there is {names}")
    return chosen


def find_estate(start: Path, environ: Mapping[str, str], problems: Diagnostics) -> Estate:
    """The same; what is wrong goes to `problems`. Raises EstateError where there is no stack."""
    start = Path(os.path.abspath(start))  # noqa: PTH100 - Path.resolve would follow links
    file = next((p / FILE for p in (start, *start.parents) if (p / FILE).is_file()), None)
    if file is None:
        reader = _Reader(start, environ, problems)
        found = reader.of_tree()
        hint = f"write a {FILE}, or make a stack: `gpuform stack init NAME` in its folder"
        if not found and not problems:
            raise EstateError(f"there is no {FILE}, and no project with a stack in {start}", hint)
        return Estate(start, found, is_whole=not reader.unread)
    reader = _Reader(file.parent, environ, problems)
    members = reader.of_file(file)
    return Estate(file.parent, members, file, is_whole=not reader.unread)


@dataclass(frozen=True, slots=True)
class _Reader:
    root: Path
    environ: Mapping[str, str]
    problems: Diagnostics
    unread: list[Path] = field(default_factory=list)
    """Files of projects that could not be read."""

    def of_tree(self) -> dict[str, Member]:
        members: dict[str, Member] = {}
        for path in project_files(self.root):
            project = self._project(path, skips_others=True)
            if project is None:
                continue
            for stack in stacks_with_settings(project):
                settings = project.settings_path(stack)
                self._add(members, project, stack, SourcePosition(format_path(settings)), ())
        return members

    def of_file(self, file: Path) -> dict[str, Member]:
        root, values = read_checked(file, format_path(file), StacksInputs, self.problems)
        members: dict[str, Member] = {}
        if self.problems:
            return members
        for index, entry in enumerate(values["stacks"]):
            self._entry(members, root, index, entry)
        for index, entry in enumerate(values["stacks"]):
            for at, other in enumerate(entry.get("after") or ()):
                # What could not be read may be what is meant.
                if other not in members and not self.unread:
                    place = find_nearest_node(root, ("stacks", index, "after", at)).place
                    message = f"{other!r} in `after` is none of the stacks"
                    hint = f"name it as PROJECT/STACK; there is {', '.join(members)}"
                    self.problems.add(place, "unknown-stack", message, hint)
        return members

    def _entry(
        self, members: dict[str, Member], root: MappingNode, index: int, entry: Mapping[str, Any]
    ) -> None:
        place = find_nearest_node(root, ("stacks", index, "folder")).place
        named = entry.get("stack")
        if named and not _STACK_NAME.fullmatch(named):
            at = find_nearest_node(root, ("stacks", index, "stack")).place
            message = f"{named!r} is no name of a stack"
            hint = "write letters, digits, hyphens, underscores and dots, without the project"
            self.problems.add(at, "unknown-stack", message, hint)
            return
        for project in self._projects(entry["folder"], place):
            stacks = [named] if named else stacks_with_settings(project)
            if not stacks:
                where = format_path(project.directory)
                hint = "name it with `stack`, or make one: `gpuform stack init NAME`"
                self.problems.add(place, "no-stack", f"{where} has no stack", hint)
            for stack in stacks:
                self._add(members, project, stack, place, tuple(entry.get("after") or ()))

    def _projects(self, pattern: str, place: SourcePosition) -> Sequence[Project]:
        path = Path(pattern)
        if path.is_absolute() or ".." in path.parts:
            message = f"{pattern} is no folder below the file's own"
            hint = f"put {FILE} into a folder that all projects are below"
            self.problems.add(place, "folder", message, hint)
            return ()
        try:
            # Path.glob knows no pattern without a name.
            found = sorted(self.root.glob(pattern)) if path.parts else [self.root]
        except ValueError as error:
            self.problems.add(place, "folder", f"{pattern!r} is no pattern of folders: {error}")
            return ()
        found = [each for each in found if each.is_dir() and self._is_walked(each, path)]
        files = [file for folder in found if (file := _project_file(folder)) is not None]
        if not files:
            why = "has no Pulumi.yaml" if found else "is not there"
            self.problems.add(place, "folder", f"{pattern} {why}", "name a project's folder")
        return [each for file in files if (each := self._project(file)) is not None]

    def _is_walked(self, folder: Path, pattern: Path) -> bool:
        """What a star finds is no hidden folder, and no folder of packages."""
        return all(
            part in pattern.parts or not _is_passed_over(part)
            for part in folder.relative_to(self.root).parts
        )

    def _project(self, file: Path, *, skips_others: bool = False) -> Project | None:
        """None, with its problems noted, where it cannot be used.

        Nobody has asked for a project of another language that a tree has beside the others.
        """
        try:
            return load_project(file)
        except OtherRuntime as error:
            if skips_others:
                return None
            note(error, file, self.problems)
            self.unread.append(file)
            return None
        except EngineError as error:
            note(error, file, self.problems)
            self.unread.append(file)
            return None

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
                f"two stacks are named {member.name}: of {format_path(known.project.path)} and of "
                f"{format_path(project.path)}"
            )
            hint = "give each project a name of its own, in its Pulumi.yaml"
            self.problems.add(place, "same-name", message, hint)
        elif known is not member:
            message = f"{member.name} is named twice: at {known.place} as well"
            self.problems.add(place, "same-name", message, "name it once")


def _backend_of(project: Project, environ: Mapping[str, str]) -> str:
    """As a run in the project's folder finds it."""
    return anchor_file_url(get_backend_url(environ, project), project.directory)


def _project_file(folder: Path) -> Path | None:
    return next((folder / name for name in _PROJECT_FILES if (folder / name).is_file()), None)


def project_files(root: Path) -> Iterator[Path]:
    """The Pulumi.yaml of every project below a folder, sorted by folder."""
    for folder, names, _ in os.walk(root):
        names[:] = sorted(name for name in names if not _is_passed_over(name))
        found = _project_file(Path(folder))
        if found is not None:
            yield found


def _is_passed_over(folder: str) -> bool:
    return folder.startswith(".") or folder in _NOT_WALKED


def stacks_with_settings(project: Project) -> list[str]:
    """The stacks of a project that have settings, by their file names."""
    path = project.settings_path("*")
    found = path.parent.glob(path.name) if path.parent.is_dir() else ()
    begin, end = len("Pulumi."), -len(path.suffix)
    return sorted(each.name[begin:end] for each in found if each.is_file())
