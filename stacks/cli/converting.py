"""What `gpuform convert` is asked for, and what it gives; nothing is written here."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import click

from gpuform.stacks.cli.failures import SUCCESS
from gpuform.stacks.cli.session import Session
from gpuform.stacks.converting.errors import NotConverted
from gpuform.stacks.converting.topology_program import program_of
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.project import ProjectError, find_project
from gpuform.stacks.engine.stack_settings import StackSettings, is_secure
from gpuform.stacks.topology.offline import own_topology, surroundings_of
from gpuform.stacks.topology.planning import plan


@dataclass(frozen=True, slots=True)
class Request:
    """One conversion; `source` is None for the project's own file."""

    source: Path | None
    kind: str
    form: str
    set_secrets: bool = False
    emulate: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The text of the new file, what there is to say about it, and the exit code."""

    text: str
    notes: tuple[str, ...] = ()
    code: int = SUCCESS


def converted(request: Request, session: Session) -> Result:
    """Raises EngineError, NotConverted among them, for what cannot be read or said."""
    if request.kind == "topology":
        if request.form == "yaml":
            raise click.UsageError("a topology is YAML already: `gpuform fmt` formats it")
        file = request.source or own_topology(Path.cwd())
        return Result(topology_as_python(file, session.stack))
    raise NotImplementedError


def topology_as_python(file: Path, stack: str | None) -> str:
    """The program of a topology file. Raises NotConverted, with all that is wrong in it."""
    problems = Diagnostics()
    planned = plan(file, surroundings_of(file, stack), problems)
    if problems:
        raise NotConverted(list(problems))
    return program_of(planned, file, _kept_secret(file))


def _kept_secret(file: Path) -> set[str]:
    """The configuration values that some stack of the project keeps encrypted."""
    try:
        project = find_project(file.parent)
    except ProjectError:
        return set()
    found = {key for key, default in project.config.items() if default.secret}
    for path in project.directory.glob("Pulumi.*.y*ml"):
        settings = StackSettings.load(project, path.name.split(".", 1)[1].rsplit(".", 1)[0])
        found |= {key for key, value in settings.config.items() if is_secure(value)}
    return {key.rpartition(":")[2] for key in found if _is_own(key, project.name)}


def _is_own(key: str, project: str) -> bool:
    return ":" not in key or key.startswith(f"{project}:")
