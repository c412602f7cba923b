"""What is declared, said in another form; nothing is written here."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpuform.stacks.authoring.declared import Declared
from gpuform.stacks.authoring.python_text import program_text
from gpuform.stacks.authoring.yaml_values import topology_text
from gpuform.stacks.convert.program_topology import topology_of_program, topology_of_state
from gpuform.stacks.convert.python import program_of
from gpuform.stacks.convert.registered_options import NotConverted
from gpuform.stacks.convert.terraform import topology_of_terraform
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project import ProjectError, StackSettings, find_project, is_secure
from gpuform.stacks.operations.opening.selecting import SelectedStack
from gpuform.stacks.operations.opening.worlds import world_for
from gpuform.stacks.review.value_text import counted
from gpuform.stacks.topology.offline import own_topology, surroundings_of
from gpuform.stacks.topology.planning import plan


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """One conversion: `kind` is what it is made from, and `form` what it is said in.

    `source` is the file or folder to read, None for the project's own; `folder` is where the new
    file will be. `stack` is the name of the one to go by, None for the selected one.
    """

    kind: Literal["topology", "state", "program", "terraform"]
    form: Literal["yaml", "python"]
    source: Path | None = None
    folder: Path = Path()
    stack: str | None = None
    emulate: bool = False


@dataclass(frozen=True, slots=True)
class ConvertResult:
    """The text of the new file, and what there is to say about it.

    `secrets` are values that the stack's configuration has to have for it, by key. It `is_whole`
    unless something of Terraform's is not taken over.
    """

    text: str
    notes: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    is_whole: bool = True


def convert(options: ConvertOptions, select: Callable[[], SelectedStack]) -> ConvertResult:
    """Raises EngineError, NotConverted among them, for what cannot be read or said.

    `select` chooses the stack, for what is made from one.
    """
    if options.kind == "topology":
        file = options.source or own_topology(Path.cwd())
        return ConvertResult(topology_as_python(file, options.stack, options.folder))
    if options.kind == "terraform":
        return _from_terraform(options)
    write = program_text if options.form == "python" else topology_text
    read = _from_state if options.kind == "state" else _from_program
    declared, secrets = read(options, select())
    if not (declared.entries or declared.outputs):
        raise EngineError(
            f"the {options.kind} has nothing to convert; nothing was written",
            "name another stack with --stack" if options.kind == "state" else None,
        )
    return ConvertResult(write(declared), secrets=secrets)


def _from_state(
    _options: ConvertOptions, selected: SelectedStack
) -> tuple[Declared, Mapping[str, str]]:
    stack = selected.open()
    config, secret_keys = stack.settings.program_config(stack.crypter)
    own = (key for key in secret_keys if key.startswith(f"{stack.project.name}:"))
    known = {config[key]: key.partition(":")[2] for key in own}
    return topology_of_state(stack.snapshot.resources, known)


def _from_program(
    options: ConvertOptions, selected: SelectedStack
) -> tuple[Declared, Mapping[str, str]]:
    stack = selected.open()
    with world_for(stack, emulate=options.emulate):
        return topology_of_program(stack.subject().program, stack.snapshot.resources)


def _from_terraform(options: ConvertOptions) -> ConvertResult:
    taken = topology_of_terraform(options.source or Path())
    write = program_text if options.form == "python" else topology_text
    left = [f"  {each}".replace(":0:1: ", ": ") for each in taken.left]
    notes = ["What is not taken over, or not as it is written there:", *left] if left else []
    count = len(taken.declared.entries)
    notes.append(
        f"{counted(count, 'resource')} of Terraform's: `gpuform up` takes over what exists."
    )
    notes.append("Then remove them from Terraform: `terraform state rm ADDRESS` destroys nothing.")
    return ConvertResult(write(taken.declared), tuple(notes), taken.secrets, is_whole=not left)


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
