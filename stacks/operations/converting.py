"""Convert a topology, program, state or Terraform configuration to YAML or Python.

`gpuform convert` calls this module and writes the files; nothing is written here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from gpuform.schemas.errors import EngineError
from gpuform.stacks.convert import NotConverted
from gpuform.stacks.convert.program_and_state import (
    build_declarations_from_program,
    build_declarations_from_state,
)
from gpuform.stacks.convert.python import render_program_of_topology
from gpuform.stacks.convert.terraform import convert_terraform
from gpuform.stacks.declaration_writer.declarations import Declarations
from gpuform.stacks.declaration_writer.python_program import render_program
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.engine.project import ProjectError, StackSettings, find_project, is_secure
from gpuform.stacks.operations.opening.selected_stack import SelectedStack, enter_environment
from gpuform.stacks.review.value_text import counted
from gpuform.stacks.topology.planning import find_topology, plan, read_plan_context


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """The options of a conversion: `kind` is the source's form, and `form` the result's.

    `source` is the file or folder to read, None for the project's own; `folder` is where the new
    file will be. `stack` names the stack whose plain values a topology is checked with; None for
    the project's defaults.
    """

    kind: Literal["topology", "state", "program", "terraform"]
    form: Literal["yaml", "python"]
    source: Path | None = None
    folder: Path = Path()
    stack: str | None = None
    emulate: bool = False
    modules: bool = True
    """Whether a topology may include files beside it."""


@dataclass(frozen=True, slots=True)
class ConvertResult:
    """The content of the new file, with notes for the user; `modules` are further files by name.

    `secrets` are values that the stack's configuration needs, by key. `is_complete` is False where
    something of Terraform's was left out.
    """

    content: str
    notes: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)
    is_complete: bool = True
    modules: Mapping[str, str] = field(default_factory=dict)


def convert(options: ConvertOptions, select: Callable[[], SelectedStack]) -> ConvertResult:
    """Convert the source of `options`, and return the content of the new file.

    `select` returns the stack; it is called for conversions from a state or a program. A program is
    run as a preview.

    Raises:
        EngineError: the source cannot be read, or a state or program has nothing to convert.
        NotConverted: the result's form cannot express something of the source.
    """
    if options.kind == "topology":
        file = options.source or find_topology(Path.cwd())
        return ConvertResult(convert_topology_to_python(file, options.stack, options.folder))
    if options.kind == "terraform":
        return _convert_terraform(options)
    write = render_program if options.form == "python" else render_topology
    read = _read_state_declarations if options.kind == "state" else _read_program_declarations
    declared, secrets = read(options, select())
    if not (declared.entries or declared.outputs):
        raise EngineError(
            f"the {options.kind} contains nothing to convert; nothing was written",
            "pass another stack with --stack" if options.kind == "state" else None,
        )
    return ConvertResult(write(declared), secrets=secrets)


def _read_state_declarations(
    _options: ConvertOptions, selected: SelectedStack
) -> tuple[Declarations, Mapping[str, str]]:
    """Return the declarations of the state, and the new file's secret values by key."""
    stack = selected.open()
    config, secret_keys = stack.settings.build_program_config(stack.crypter)
    project_keys = (key for key in secret_keys if key.startswith(f"{stack.project.name}:"))
    # A value of the state that is a secret of the configuration becomes a reference to its key.
    secret_names = {config[key]: key.partition(":")[2] for key in project_keys}
    return build_declarations_from_state(stack.snapshot.resources, secret_names)


def _read_program_declarations(
    options: ConvertOptions, selected: SelectedStack
) -> tuple[Declarations, Mapping[str, str]]:
    """Run the program as a preview; return the declarations, and the new file's secrets by key."""
    stack = selected.open()
    with enter_environment(stack, emulate=options.emulate):
        return build_declarations_from_program(
            stack.build_target().program, stack.snapshot.resources
        )


def _convert_terraform(options: ConvertOptions) -> ConvertResult:
    """Convert Terraform's configuration; the notes list omissions and the next steps.

    With an omission the result is not complete.
    """
    conversion = convert_terraform(
        options.source or Path(), repeats=options.form == "yaml", modules=options.modules
    )
    write = render_program if options.form == "python" else render_topology
    # Omissions without a line of their own have line 0, which is left out.
    omissions = [f"  {omission}".replace(":0:1: ", ": ") for omission in conversion.omissions]
    notes = ["Not converted, or converted with changes:", *omissions] if omissions else []
    notes.append(
        f"{counted(conversion.resource_count, 'resource')} converted from Terraform: the next "
        "`gpuform up` imports their objects."
    )
    notes.append(
        "Then remove the resources from Terraform: `terraform state rm ADDRESS` destroys nothing."
    )
    return ConvertResult(
        write(conversion.declarations),
        tuple(notes),
        conversion.secrets,
        is_complete=not omissions,
        modules={name: render_topology(module) for name, module in conversion.modules.items()},
    )


def convert_topology_to_python(file: Path, stack: str | None, folder: Path) -> str:
    """Return a Python program with the resources of a topology file.

    `folder` is where the program will be. `stack` names the stack whose plain values the check of
    the topology uses; with None the check uses the project's defaults.

    Raises:
        NotConverted: the file has problems; the error lists all of them.
        EngineError: `stack` has no settings file.
    """
    problems = Diagnostics()
    declarations = plan(file, read_plan_context(file, stack), problems)
    if problems:
        raise NotConverted(list(problems))
    return render_program_of_topology(declarations, file, _find_secret_keys(file), folder)


def _find_secret_keys(file: Path) -> set[str]:
    """Return the project's secret configuration keys, without the namespace.

    A key is secret if Pulumi.yaml declares it so, or if a stack has an encrypted value of it. Keys
    of other namespaces, such as `together:apiKey`, are left out. `file` is in the project's folder
    or below; without a project the result is empty.
    """
    try:
        project = find_project(file.parent)
    except ProjectError:
        return set()
    secret_keys = {key for key, default in project.config.items() if default.secret}
    for path in project.directory.glob("Pulumi.*.y*ml"):
        settings = StackSettings.load(project, path.name.split(".", 1)[1].rsplit(".", 1)[0])
        secret_keys |= {key for key, value in settings.config.items() if is_secure(value)}
    # Keys of other namespaces, such as `together:apiKey`, are no configuration of the program.
    return {
        key.rpartition(":")[2]
        for key in secret_keys
        if ":" not in key or key.startswith(f"{project.name}:")
    }
