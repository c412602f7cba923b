"""Find the virtualenv of a project, whose interpreter runs the project's program.

Pulumi's language host runs a program with the interpreter that `runtime.options` of Pulumi.yaml
name (`virtualenv`, `toolchain`: Pulumi's project file reference). The embedded engine runs the
program in its own process: this process has to run in that interpreter.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode

from gpuform.providers.context import get_run_context
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import get_pip_requirement
from gpuform.stacks.engine.project import Project, read_text, yaml_text

MOVED = "GPUFORM_MOVED"
"""Set in a process that runs in the project's interpreter, so that it starts no other."""
COMMAND_MODULE = "gpuform.stacks.cli"
"""The module that runs gpuform's commands; operations must not import it."""
_PROBE = f"import importlib.util as util, sys; sys.exit(util.find_spec({COMMAND_MODULE!r}) is None)"
_PYTHONS = ("bin/python", "Scripts/python.exe")
_UV_FILES = ("uv.lock", "pyproject.toml")


def build_command_start(python: str | Path = sys.executable) -> list[str]:
    """Return the beginning of a command line: gpuform's commands, run by the interpreter."""
    # -P: a module in the working directory must not hide one of gpuform's.
    return [str(python), "-P", "-m", COMMAND_MODULE]


def find_other_interpreter(project: Project) -> Path | None:
    """Return the interpreter of the project's virtualenv, or None if this process runs there.

    None also stands for a project without a virtualenv.

    Raises:
        EngineError: the interpreter is missing or has no gpuform.
    """
    environment = find_program_environment(project)
    return None if environment is None or environment.is_current else environment.find_python()


def refuse_other_interpreter(project: Project) -> None:
    """Raise EngineError where the project's program needs another interpreter than this process."""
    python = find_other_interpreter(project)
    if python is not None:
        raise EngineError(
            f"{project.path} runs its program with {python}, but this process is another Python",
            hint=f"run this command with {python}",
        )


@dataclass(frozen=True, slots=True)
class ProgramEnvironment:
    """A virtualenv, and the node of Pulumi.yaml that names it."""

    folder: Path
    toolchain: str
    file_name: str
    node: Node

    @property
    def is_current(self) -> bool:
        """Return True if this process runs in the virtualenv; False if the folder is missing."""
        # Folders are compared: a virtualenv's interpreter is often a link to another one's.
        with suppress(OSError):
            return Path(sys.prefix).samefile(self.folder)
        return False

    def find_python(self) -> Path:
        """Return the virtualenv's interpreter, after checking for gpuform in the virtualenv.

        Raises:
            EngineError: there is no virtualenv, or its interpreter cannot be run or has no gpuform.
        """
        pythons = [self.folder / name for name in _PYTHONS if (self.folder / name).is_file()]
        if not pythons:
            raise self.build_error(f"no virtualenv in {self.folder}", _CREATE_HINTS)
        try:
            process = subprocess.run(  # noqa: S603 - the project names it, as for the Pulumi CLI
                # -P: a package in the current folder does not count as installed.
                [str(pythons[0]), "-P", "-c", _PROBE],
                capture_output=True,
                check=False,
                env=self.build_activated_variables(),
            )
        except OSError as error:
            raise self.build_error(f"{pythons[0]} cannot be run: {error.strerror}") from error
        if process.returncode != 0:
            raise self.build_error(
                f"the project's virtualenv {self.folder} has no gpuform", _INSTALL_HINTS
            )
        return pythons[0]

    def build_activated_variables(self) -> dict[str, str]:
        """Return this process's environment variables, changed as by an activated virtualenv."""
        # As a virtualenv's own `activate`: PYTHONHOME would lead its interpreter to another
        # library.
        variables = {
            name: value for name, value in get_run_context().environ.items() if name != "PYTHONHOME"
        }
        path = [str(self.folder / name) for name in ("bin", "Scripts")]
        variables["PATH"] = os.pathsep.join([*path, variables.get("PATH", os.defpath)])
        return {**variables, "VIRTUAL_ENV": str(self.folder)}

    def build_error(self, message: str, remedies: dict[str, str] | None = None) -> EngineError:
        """Build an error at the option's line in Pulumi.yaml; `remedies` are hints by toolchain."""
        option = "virtualenv" if self.toolchain == "pip" else "toolchain"
        hint = f"remove the option `{option}` to run the program with gpuform's own Python"
        if remedies:
            hint = (
                f"{remedies[self.toolchain].format(self.folder, get_pip_requirement())}; or {hint}"
            )
        return yaml_text.locate_error(self.file_name, self.node, message, hint)


_CREATE_HINTS = {
    "pip": "create it: `python3 -m venv {0} && {0}/bin/pip install '{1}'`, and the program's "
    "requirements",
    "uv": "create it: `uv sync`",
    "poetry": "create it: `poetry install`",
}
_INSTALL_HINTS = {
    "pip": "install it there: `{0}/bin/pip install '{1}'` (requires Python 3.11)",
    "uv": "install it there: `uv add '{1}'` (requires Python 3.11)",
    "poetry": "install it there: `poetry add '{1}'` (requires Python 3.11)",
}


def find_program_environment(project: Project) -> ProgramEnvironment | None:
    """Return the virtualenv named by the `runtime` options of Pulumi.yaml, or None.

    Its folder need not exist: `find_python` checks. The file is parsed again, because the project
    keeps no line numbers for errors.

    Raises:
        EngineError: the toolchain is unknown, or Poetry is missing or has no virtualenv.
    """
    file_name = str(project.path)
    options = _read_runtime_options(project.path, file_name)
    toolchain = options.get("toolchain")
    name = str(toolchain.value) if isinstance(toolchain, ScalarNode) else "pip"
    node = options.get("virtualenv", toolchain)
    if toolchain is not None and name not in _CREATE_HINTS:
        choice = "one of pip, poetry and uv"
        raise yaml_text.locate_error(
            file_name, toolchain, f"the toolchain must be {choice}, not {name!r}"
        )
    if node is None:
        return None
    folder = project.virtualenv
    if name == "poetry":
        folder = _find_poetry_virtualenv(project.program, file_name, node)
    elif name == "uv" and folder is None:
        folder = _find_uv_virtualenv(project.directory)
    if folder is None:
        return None
    # Only dots are resolved: links stay, as they do for the Pulumi CLI.
    return ProgramEnvironment(Path(os.path.abspath(folder)), name, file_name, node)  # noqa: PTH100 - resolves


def _read_runtime_options(path: Path, file_name: str) -> dict[str, Node]:
    """Return the nodes of the `runtime` options of Pulumi.yaml by name; empty without options."""
    node: Node | None = yaml_text.parse(read_text(path), file_name)
    for key in ("runtime", "options"):
        entries = yaml_text.get_entries(node, file_name) if isinstance(node, MappingNode) else {}
        node = entries[key][1] if key in entries else None
    if not isinstance(node, MappingNode):
        return {}
    return {key: value for key, (_, value) in yaml_text.get_entries(node, file_name).items()}


def _find_uv_virtualenv(directory: Path) -> Path:
    """Return .venv beside the nearest uv.lock, else beside pyproject.toml, else in the project."""
    for name in _UV_FILES:
        for folder in (directory, *directory.parents):
            if (folder / name).is_file():
                return folder / ".venv"
    return directory / ".venv"


def _find_poetry_virtualenv(program: Path, file_name: str, node: Node) -> Path:
    """Ask Poetry for the project's virtualenv, whose folder depends on the user's settings.

    Raises EngineError, at `node` of Pulumi.yaml, without Poetry or a virtualenv.
    """
    poetry = shutil.which("poetry")
    if poetry is None:
        raise yaml_text.locate_error(
            file_name,
            node,
            "the toolchain is poetry, which is not on the PATH",
            hint="install Poetry",
        )
    folder = program if program.is_dir() else program.parent
    process = subprocess.run(  # noqa: S603 - the project names it, as for the Pulumi CLI
        [poetry, "env", "info", "--path"], cwd=folder, capture_output=True, text=True, check=False
    )
    path = process.stdout.strip()
    if process.returncode != 0 or not path:
        raise yaml_text.locate_error(
            file_name,
            node,
            "Poetry has no virtualenv for this project",
            hint="create it: `poetry install`",
        )
    return Path(path)
