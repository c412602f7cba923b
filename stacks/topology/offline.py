"""Find the project of a topology file, and what its files alone say about a stack.

`gpuform validate`, `graph` and the language server use this module: no passphrase, no requests.
"""

from dataclasses import dataclass
from pathlib import Path

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.project import (
    Project,
    ProjectError,
    StackSettings,
    find_project,
    find_topology_file,
    is_secure,
    to_config_text,
)
from gpuform.stacks.topology.planning import PlanContext


def find_topology(folder: Path) -> Path:
    """Return the topology of the project in `folder` or in a folder above.

    A topology directly in `folder` is returned as a bare file name.

    Raises:
        EngineError: there is no project, or its program is not a topology.
    """
    project = find_project(folder)
    program = project.program
    topology_path = find_topology_file(program if program.is_dir() else program.parent)
    if topology_path is None:
        raise EngineError(
            f"{program} has no topology.yaml",
            hint="name the file: `gpuform validate FILE`; a Python program is checked by "
            "`gpuform preview`",
        )
    # Relative if possible: messages begin with the path.
    return Path(topology_path.name) if topology_path.parent == folder else topology_path


def find_project_folder(file: Path) -> Path:
    """Return the folder of a topology's project, or else the file's own folder.

    Raises YamlError for a Pulumi.yaml with wrong content.
    """
    try:
        return find_project(file.parent).directory
    except ProjectError:
        return file.parent


def read_plan_context(file: Path, stack: str | None, project: Project | None = None) -> PlanContext:
    """Read the context of a file's project and stack from files alone.

    Without `project`, the project that contains the file is used. The context is empty without a
    `stack` if there is no such project or the project cannot be used.

    Raises:
        EngineError: `stack` is given, but has no settings file or no usable project.
        YamlError: the project's or the stack's file has wrong content.
    """
    try:
        project = project or find_project(file.parent)
    except ProjectError:
        # Only a project has stacks.
        if stack is not None:
            raise
        return PlanContext(_Settings(None, None), {})
    names = {"project": project.name}
    if stack is None:
        return PlanContext(_Settings(project, None), names)
    # Settings files have the stack's own name, without organization and project.
    name = stack.rsplit("/", 1)[-1]
    settings = StackSettings.load(project, name)
    if not settings.path.exists():
        raise EngineError(
            f"stack {name} has no settings file {settings.path.name}",
            hint=f"create it: `gpuform stack init {name}`, or leave --stack out",
        )
    return PlanContext(_Settings(project, settings), {**names, "stack": name})


@dataclass(frozen=True, slots=True)
class _Settings:
    """The values of a stack and its project that are stored unencrypted."""

    project: Project | None
    settings: StackSettings | None

    def get(self, name: str) -> str | None:
        """Return the stack's value of a key, else the project's; None if unset or encrypted."""
        value = self.settings.get(name) if self.settings else None
        if value is None and self.project and name in self.project.config:
            value = self.project.config[name].value
        # Without a passphrase, a secret counts as not set.
        return None if value is None or is_secure(value) else to_config_text(value, None)

    def is_secret(self, name: str) -> bool:
        """Return True if the value of a key is encrypted, or a default declared as secret."""
        stack_value = self.settings.get(name) if self.settings else None
        default = self.project.config.get(name) if self.project else None
        return is_secure(stack_value) or (
            stack_value is None and default is not None and default.secret
        )
