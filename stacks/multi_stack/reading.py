"""Find the stacks of a workspace: those of `stacks.yaml`, or of every project below a folder.

Commands with `--all` and `gpuform.stacks.operations` call `read_workspace`.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from gpuform.schemas.errors import EngineError
from gpuform.schemas.stacks_plan import StacksInputs
from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition, format_text
from gpuform.stacks.document.nodes import MappingNode, find_nearest_node
from gpuform.stacks.document.reading import read_checked
from gpuform.stacks.engine.project import OtherRuntime, Project, load_project
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.store import Backend, anchor_file_url, build_full_name, get_backend_url
from gpuform.stacks.gates.file import STACKS_FILE
from gpuform.stacks.topology.files import format_path

FILE: Final = STACKS_FILE
_POSITIONED_MESSAGE: Final = re.compile(r":(?P<line>\d+):(?P<column>\d+): (?P<text>.+)", re.DOTALL)


class MultiStackError(EngineError):
    """Something is wrong with the stacks that a command works on together."""

    help_page = "guides/several-stacks"


@dataclass(frozen=True, slots=True)
class WorkspaceStack:
    """Describe one stack of a workspace.

    `backend` is the URL of its state, as configured. `after` names stacks that are applied before
    it although it reads nothing of them. `position` is where the stack is declared. `environment`
    and `approve` are those of CI jobs that apply the stack; empty where they are not declared.
    """

    project: Project
    stack: str
    backend: str
    position: SourcePosition
    after: tuple[str, ...] = ()
    environment: str = ""
    approve: str = ""

    @property
    def name(self) -> str:
        """Return `PROJECT/STACK`, the name in files and messages."""
        return f"{self.project.name}/{self.stack}"

    @property
    def full_name(self) -> str:
        """Return `organization/PROJECT/STACK`, the name in programs."""
        return build_full_name(self.project.name, self.stack)

    def open_workspace(self, environ: Mapping[str, str]) -> Workspace:
        """Open the project with the stack's backend, independent of the current folder."""
        return Workspace(self.project, Backend.open(self.backend, environ), environ)


@dataclass(frozen=True, slots=True)
class MultiStackWorkspace:
    """Hold all stacks of a workspace by name, in the order of the file.

    `root` is the folder that contains all of them; `file` is the stacks.yaml, if there is one.
    `is_complete` is False if a project could not be read. `start` is the folder where the search
    for the file began; None stands for `root`.
    """

    root: Path
    stacks: Mapping[str, WorkspaceStack] = field(default_factory=dict)
    file: Path | None = None
    is_complete: bool = True
    start: Path | None = None

    def find(self, backend: str, stack: str) -> WorkspaceStack | None:
        """Return the stack with the full name `stack` in `backend`, or None.

        Backends have stacks of equal names, so both must match.
        """
        candidate = self.stacks.get(stack.removeprefix("organization/"))
        return (
            candidate
            if candidate is not None
            and _normalize_backend(candidate.backend) == _normalize_backend(backend)
            else None
        )


def add_problem(error: EngineError, file: Path, problems: Diagnostics) -> None:
    """Add an error about `file` to `problems`.

    The position is the one at the beginning of the message, or else line 1.
    """
    match = _POSITIONED_MESSAGE.fullmatch(error.message.removeprefix(str(file)))
    position, message = SourcePosition(format_path(file)), error.message
    if match is not None:
        position = SourcePosition(position.file, int(match["line"]), int(match["column"]))
        message = match["text"]
    problems.add(position, "project", message, error.hint or "")


def _normalize_backend(backend: str) -> str:
    """Return a backend URL in one spelling for each folder, for comparison."""
    if not backend.startswith("file://"):
        return backend.rstrip("/")
    # A file URL may have options such as `?no_tmp_dir=true`, escapes, `~` and links.
    path = unquote(backend.removeprefix("file://").partition("?")[0])
    return os.path.realpath(os.path.expanduser(path))  # noqa: PTH111 - as a text


_PROJECT_FILES: Final = ("Pulumi.yaml", "Pulumi.yml")
_STACK_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_IGNORED_FOLDERS: Final = frozenset({"node_modules", "venv", "__pycache__"})


def read_workspace(start: Path, environ: Mapping[str, str]) -> MultiStackWorkspace:
    """Read the stacks of the nearest stacks.yaml upwards, or else of all projects below `start`.

    Args:
        start: the folder where the search starts.
        environ: the environment, which may name the backend.

    Raises:
        MultiStackError: with every problem and its position.
    """
    problems = Diagnostics()
    workspace = find_workspace(start, environ, problems)
    if problems:
        raise MultiStackError(f"cannot load the stacks:\n{format_text(list(problems))}")
    return workspace


def select_by_name(workspace: MultiStackWorkspace, stack: str) -> list[str]:
    """List the names of the stacks selected by `--stack`.

    `stack` is STACK, of any project, or PROJECT/STACK. Raises MultiStackError if there is none.
    """
    selected = [
        name for name, candidate in workspace.stacks.items() if stack in (candidate.stack, name)
    ]
    if not selected:
        names = ", ".join(sorted({candidate.stack for candidate in workspace.stacks.values()}))
        raise MultiStackError(
            f"no project has a stack named {stack!r}", hint=f"the stacks are {names}"
        )
    return selected


def find_workspace(
    start: Path, environ: Mapping[str, str], problems: Diagnostics, *, is_root: bool = False
) -> MultiStackWorkspace:
    """Find the workspace around `start`, and add problems to `problems`.

    With `is_root` the folders above `start` do not count.

    Raises:
        MultiStackError: no problem was found, and neither a stacks.yaml nor a stack.
    """
    start = Path(os.path.abspath(start))  # noqa: PTH100 - Path.resolve would follow links
    _, file = find_workspace_root(start)
    if file is None or (is_root and file.parent != start):
        reader = _WorkspaceReader(start, environ, problems)
        stacks = reader.read_tree()
        hint = (
            f"write a {FILE}, or create a stack with `gpuform stack init NAME` in the project's "
            "folder"
        )
        if not stacks and not problems:
            raise MultiStackError(f"no {FILE}, and no project with a stack in {start}", hint)
        return MultiStackWorkspace(start, stacks, is_complete=not reader.unread, start=start)
    reader = _WorkspaceReader(file.parent, environ, problems)
    members = reader.read_file(file)
    return MultiStackWorkspace(file.parent, members, file, not reader.unread, start)


def find_workspace_root(start: Path) -> tuple[Path, Path | None]:
    """Return the folder of the nearest stacks.yaml upwards, and the file; else `start` and None."""
    start = Path(os.path.abspath(start))  # noqa: PTH100 - Path.resolve would follow links
    for folder in (start, *start.parents):
        if (folder / FILE).is_file():
            return folder, folder / FILE
    return start, None


def read_some_stacks(
    start: Path, folders: Mapping[str, str], environ: Mapping[str, str]
) -> MultiStackWorkspace:
    """Read only the stacks of a workspace that `folders` names, in the order of the names.

    `folders` has the folder of each stack's project, relative to the workspace's folder.

    Raises:
        MultiStackError: a folder is outside of the workspace, or has no project of that name.
    """
    root, file = find_workspace_root(start)
    stacks: dict[str, WorkspaceStack] = {}
    for name, folder in folders.items():
        project_name, _, stack = name.rpartition("/")
        is_inside = not Path(folder).is_absolute() and ".." not in Path(folder).parts
        path = _find_project_file(root / folder) if is_inside else None
        project = None if path is None else load_project(path)
        if project is None or project.name != project_name or not _STACK_NAME.fullmatch(stack):
            raise MultiStackError(
                f"{name}: {folder} is not the folder of this stack in {root}",
                hint="run the command in the checkout of the commit that was planned",
            )
        position = SourcePosition(format_path(project.path))
        stacks[name] = WorkspaceStack(project, stack, _get_backend_url(project, environ), position)
    return MultiStackWorkspace(root, stacks, file, start=start)


@dataclass(frozen=True, slots=True)
class _WorkspaceReader:
    root: Path
    environ: Mapping[str, str]
    problems: Diagnostics
    unread: list[Path] = field(default_factory=list)
    """Files of projects that could not be read."""

    def read_tree(self) -> dict[str, WorkspaceStack]:
        """Return the stacks with a settings file of all projects below the root, by name.

        Projects in other languages are skipped without a problem.
        """
        stacks: dict[str, WorkspaceStack] = {}
        for path in find_project_files(self.root):
            # Nobody has named the projects of a tree: some may be in other languages.
            project = self._load_project(path, skips_others=True)
            if project is None:
                continue
            for stack in list_stacks_with_settings(project):
                settings = project.get_settings_path(stack)
                self._add_stack(stacks, project, stack, SourcePosition(format_path(settings)), {})
        return stacks

    def read_file(self, file: Path) -> dict[str, WorkspaceStack]:
        """Return the stacks of stacks.yaml by name; none if the file is invalid.

        Unknown names in `after` are reported, unless a project could not be read.
        """
        root, values = read_checked(file, format_path(file), StacksInputs, self.problems)
        members: dict[str, WorkspaceStack] = {}
        if self.problems:
            return members
        for index, entry in enumerate(values["stacks"]):
            self._add_entry(members, root, index, entry)
        for index, entry in enumerate(values["stacks"]):
            for after_index, other in enumerate(entry.get("after") or ()):
                # What could not be read may be what is meant.
                if other not in members and not self.unread:
                    position = find_nearest_node(
                        root, ("stacks", index, "after", after_index)
                    ).position
                    message = f"{other!r} in `after` is not one of the stacks"
                    hint = f"write it as PROJECT/STACK; the stacks are {', '.join(members)}"
                    self.problems.add(position, "unknown-stack", message, hint)
        return members

    def _add_entry(
        self,
        members: dict[str, WorkspaceStack],
        root: MappingNode,
        index: int,
        entry: Mapping[str, Any],
    ) -> None:
        """Add the stacks of one entry of stacks.yaml; without `stack`, all with a settings file."""
        position = find_nearest_node(root, ("stacks", index, "folder")).position
        stack_name = entry.get("stack")
        if stack_name and not _STACK_NAME.fullmatch(stack_name):
            name_position = find_nearest_node(root, ("stacks", index, "stack")).position
            message = f"{stack_name!r} is not a valid stack name"
            hint = (
                "write the stack's name without the project: letters, digits, hyphens, "
                "underscores and dots"
            )
            self.problems.add(name_position, "unknown-stack", message, hint)
            return
        for project in self._load_projects(entry["folder"], position):
            # Without a name, the entry means every stack with a settings file.
            stacks = [stack_name] if stack_name else list_stacks_with_settings(project)
            if not stacks:
                folder = format_path(project.directory)
                hint = "name it with `stack`, or create one: `gpuform stack init NAME`"
                self.problems.add(position, "no-stack", f"{folder} has no stack", hint)
            for stack in stacks:
                self._add_stack(members, project, stack, position, entry)

    def _load_projects(self, pattern: str, position: SourcePosition) -> Sequence[Project]:
        """Load the projects in the folders matching a pattern; report a pattern without any."""
        path = Path(pattern)
        if path.is_absolute() or ".." in path.parts:
            message = f"{pattern} is not a folder below the file's folder"
            hint = f"move {FILE} to a folder that is above all projects"
            self.problems.add(position, "folder", message, hint)
            return ()
        try:
            # Path.glob knows no pattern without a name.
            folders = sorted(self.root.glob(pattern)) if path.parts else [self.root]
        except ValueError as error:
            self.problems.add(
                position, "folder", f"{pattern!r} is not a valid pattern of folders: {error}"
            )
            return ()
        folders = [
            candidate
            for candidate in folders
            if candidate.is_dir() and self._is_searched(candidate, path)
        ]
        files = [file for folder in folders if (file := _find_project_file(folder)) is not None]
        if not files:
            reason = "has no Pulumi.yaml" if folders else "does not exist"
            self.problems.add(position, "folder", f"{pattern} {reason}", "name a project's folder")
        return [project for file in files if (project := self._load_project(file)) is not None]

    def _is_searched(self, folder: Path, pattern: Path) -> bool:
        """Return True unless a `*` of the pattern matches a hidden or package folder."""
        return all(
            part in pattern.parts or not _is_ignored(part)
            for part in folder.relative_to(self.root).parts
        )

    def _load_project(self, file: Path, *, skips_others: bool = False) -> Project | None:
        """Load a project, or return None after adding the problem.

        With `skips_others` a project of another language is skipped without a problem.
        """
        try:
            return load_project(file)
        except OtherRuntime as error:
            if skips_others:
                return None
            add_problem(error, file, self.problems)
            self.unread.append(file)
            return None
        except EngineError as error:
            add_problem(error, file, self.problems)
            self.unread.append(file)
            return None

    def _add_stack(
        self,
        members: dict[str, WorkspaceStack],
        project: Project,
        stack: str,
        position: SourcePosition,
        entry: Mapping[str, Any],
    ) -> None:
        """Add a stack of an entry of stacks.yaml; report another one with the same name."""
        member = WorkspaceStack(
            project,
            stack,
            _get_backend_url(project, self.environ),
            position,
            tuple(entry.get("after") or ()),
            entry.get("environment") or "",
            entry.get("approve") or "",
        )
        declared = members.setdefault(member.name, member)
        if declared.project.path != project.path:
            message = (
                f"two stacks have the name {member.name}: of "
                f"{format_path(declared.project.path)} and of {format_path(project.path)}"
            )
            hint = "give each project its own name, in its Pulumi.yaml"
            self.problems.add(position, "same-name", message, hint)
        # Two entries of stacks.yaml can match one project.
        elif declared is not member:
            message = f"{member.name} is listed twice: also at {declared.position}"
            self.problems.add(position, "same-name", message, "list it once")


def _get_backend_url(project: Project, environ: Mapping[str, str]) -> str:
    """Return the backend URL of runs in the project's folder."""
    return anchor_file_url(get_backend_url(environ, project), project.directory)


def _find_project_file(folder: Path) -> Path | None:
    """Return the Pulumi.yaml or Pulumi.yml of a folder, or None."""
    return next((folder / name for name in _PROJECT_FILES if (folder / name).is_file()), None)


def find_project_files(root: Path) -> Iterator[Path]:
    """Yield the Pulumi.yaml of every project below a folder, sorted by folder."""
    for folder, names, _ in os.walk(root):
        # `os.walk` descends only into the names that remain.
        names[:] = sorted(name for name in names if not _is_ignored(name))
        file = _find_project_file(Path(folder))
        if file is not None:
            yield file


def _is_ignored(folder: str) -> bool:
    """Return True if a folder of this name is hidden, or never has projects.

    `venv`, `node_modules`.
    """
    return folder.startswith(".") or folder in _IGNORED_FOLDERS


def list_stacks_with_settings(project: Project) -> list[str]:
    """List the names of the project's stacks with a settings file, sorted.

    A file whose name contains no valid name of a stack belongs to none.
    """
    path = project.get_settings_path("*")
    files = path.parent.glob(path.name) if path.parent.is_dir() else ()
    begin, end = len("Pulumi."), -len(path.suffix)
    names = [file.name[begin:end] for file in files if file.is_file()]
    # Names of stacks are written into scripts of CI jobs.
    return sorted(name for name in names if _STACK_NAME.fullmatch(name))
