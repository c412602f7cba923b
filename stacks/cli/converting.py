"""What `gpuform convert` is asked for, and what it gives; nothing is written here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click

from gpuform.stacks.authoring.declared import Declared
from gpuform.stacks.authoring.python_text import program_text
from gpuform.stacks.authoring.yaml_text import topology_text
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.opening import workspace_of
from gpuform.stacks.cli.session import Session
from gpuform.stacks.converting.errors import NotConverted
from gpuform.stacks.converting.program_topology import topology_of_program
from gpuform.stacks.converting.python import program_of
from gpuform.stacks.converting.state_topology import topology_of_state
from gpuform.stacks.converting.terraform import topology_of_terraform
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import ProjectError, StackSettings, find_project, is_secure
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.operations.opening.passphrase import passphrase_of
from gpuform.stacks.operations.opening.worlds import world_for
from gpuform.stacks.review.names import counted
from gpuform.stacks.topology.offline import own_topology, surroundings_of
from gpuform.stacks.topology.planning import plan


@dataclass(frozen=True, slots=True)
class Request:
    """One conversion; `source` is None for the project's own file."""

    source: Path | None
    kind: str
    form: str
    folder: Path
    """Where the new file will be."""
    emulate: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """The text of the new file, what there is to say about it, and the exit code.

    `secrets` are values that the stack's configuration has to have for it, by key.
    """

    text: str
    notes: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    code: int = SUCCESS


def converted(request: Request, session: Session) -> Result:
    """Raises EngineError, NotConverted among them, for what cannot be read or said."""
    if request.kind == "topology":
        if request.form == "yaml":
            raise click.UsageError("a topology is YAML already: `gpuform fmt` formats it")
        file = request.source or own_topology(Path.cwd())
        return Result(topology_as_python(file, session.stack, request.folder))
    if request.kind == "terraform":
        return _from_terraform(request)
    if request.source is not None:
        raise click.UsageError(f"--from {request.kind} reads the project's own: name no file")
    write = program_text if request.form == "python" else topology_text
    read = _from_state if request.kind == "state" else _from_program
    declared, secrets = read(request, session)
    if not (declared.entries or declared.outputs):
        raise EngineError(
            f"the {request.kind} has nothing to convert; nothing was written",
            "name another stack with --stack" if request.kind == "state" else None,
        )
    return Result(write(declared), secrets=secrets)


def _from_state(_request: Request, session: Session) -> tuple[Declared, Mapping[str, str]]:
    stack = _stack(session)
    config, secret_keys = stack.settings.program_config(stack.crypter)
    own = (key for key in secret_keys if key.startswith(f"{stack.project.name}:"))
    known = {config[key]: key.partition(":")[2] for key in own}
    return topology_of_state(stack.snapshot.resources, known)


def _from_program(request: Request, session: Session) -> tuple[Declared, Mapping[str, str]]:
    stack = _stack(session)
    with world_for(stack, emulate=request.emulate):
        return topology_of_program(stack.subject().program, stack.snapshot.resources)


def _from_terraform(request: Request) -> Result:
    taken = topology_of_terraform(request.source or Path())
    write = program_text if request.form == "python" else topology_text
    left = [f"  {each}".replace(":0:1: ", ": ") for each in taken.left]
    notes = ["What is not taken over, or not as it is written there:", *left] if left else []
    count = len(taken.declared.entries)
    notes.append(
        f"{counted(count, 'resource')} of Terraform's: `gpuform up` takes over what exists."
    )
    notes.append("Then remove them from Terraform: `terraform state rm ADDRESS` destroys nothing.")
    return Result(write(taken.declared), tuple(notes), taken.secrets, FAILED if left else SUCCESS)


def _stack(session: Session) -> Stack:
    workspace = workspace_of(session)
    return workspace.open(session.stack, passphrase_of(workspace, session.screen.passphrase()))


def topology_as_python(file: Path, stack: str | None, folder: Path) -> str:
    """The program of a topology file, for a folder to run it in.

    Raises NotConverted, with all that is wrong in the file.
    """
    problems = Diagnostics()
    planned = plan(file, surroundings_of(file, stack), problems)
    if problems:
        raise NotConverted(list(problems))
    return program_of(planned, file, _kept_secret(file), folder)


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
