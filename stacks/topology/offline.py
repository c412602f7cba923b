"""What a topology is checked with where nothing can be asked: files alone, and no passphrase."""

from dataclasses import dataclass
from pathlib import Path

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import (
    Project,
    ProjectError,
    StackSettings,
    find_project,
    is_secure,
    to_text,
    topology_in,
)
from gpuform.stacks.topology.planning import Surroundings


def own_topology(folder: Path) -> Path:
    """The topology of the project in a folder or above it. Raises EngineError without one."""
    project = find_project(folder)
    program = project.program
    found = topology_in(program if program.is_dir() else program.parent)
    if found is None:
        raise EngineError(
            f"{program} has no topology.yaml",
            hint="name the file: `gpuform validate FILE`; a Python program is checked by "
            "`gpuform preview`",
        )
    return Path(found.name) if found.parent == folder else found


def project_folder(file: Path) -> Path:
    """The folder of a topology's project, which has its gates and prices; else its own."""
    try:
        return find_project(file.parent).directory
    except ProjectError:
        return file.parent


def surroundings_of(file: Path, stack: str | None, project: Project | None = None) -> Surroundings:
    """Those of a file's project and stack, as far as files tell them.

    The project is the one that the file is in when not given. Raises EngineError for a stack
    without a settings file.
    """
    try:
        project = project or find_project(file.parent)
    except ProjectError:
        if stack is not None:
            raise
        return Surroundings(_Settings(None, None), {})
    names = {"project": project.name}
    if stack is None:
        return Surroundings(_Settings(project, None), names)
    name = stack.rsplit("/", 1)[-1]
    settings = StackSettings.load(project, name)
    if not settings.path.exists():
        raise EngineError(
            f"there is no {settings.path.name} for the stack {name}",
            hint=f"make it: `gpuform stack init {name}`, or leave --stack out",
        )
    return Surroundings(_Settings(project, settings), {**names, "stack": name})


@dataclass(frozen=True, slots=True)
class _Settings:
    """The values of a stack and of its project that stand in the clear."""

    project: Project | None
    settings: StackSettings | None

    def get(self, name: str) -> str | None:
        value = self.settings.get(name) if self.settings else None
        if value is None and self.project and name in self.project.config:
            value = self.project.config[name].value
        return None if value is None or is_secure(value) else to_text(value, None)

    def is_secret(self, name: str) -> bool:
        given = self.settings.get(name) if self.settings else None
        default = self.project.config.get(name) if self.project else None
        return is_secure(given) or (given is None and default is not None and default.secret)
