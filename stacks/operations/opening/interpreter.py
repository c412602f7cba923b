"""A project's own virtualenv, whose interpreter its program runs with.

Pulumi's language host runs a program with the interpreter that `runtime.options` of Pulumi.yaml
name (`virtualenv`, `toolchain`: Pulumi's project file reference). The embedded engine runs it in
its own process, so that one has to be of that interpreter.
"""

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from yaml.nodes import MappingNode, Node, ScalarNode

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import requirement
from gpuform.stacks.engine.project import Project, read_text, yaml_text

MOVED = "GPUFORM_MOVED"
"""Set where a command runs in the interpreter that it is to run in, so that it does not move."""
_MODULE = "gpuform.stacks.cli"
_PROBE = f"import importlib.util as util, sys; sys.exit(util.find_spec({_MODULE!r}) is None)"
_PYTHONS = ("bin/python", "Scripts/python.exe")
_UV_FILES = ("uv.lock", "pyproject.toml")


def interpreter_of(project: Project) -> Path | None:
    """The interpreter of the project's virtualenv; None where that runs already, or there is none.

    Raises EngineError when it is missing or has no gpuform.
    """
    environment = environment_of(project)
    return None if environment is None or environment.is_running else environment.python()


def refuse_other_interpreter(project: Project) -> None:
    """Raises EngineError where the project's program wants another interpreter than this one."""
    python = interpreter_of(project)
    if python is not None:
        raise EngineError(
            f"{project.path} has its program run by {python}, and this process is another one's",
            hint=f"run this with {python}",
        )


@dataclass(frozen=True, slots=True)
class ProgramEnvironment:
    """A virtualenv, and the place in Pulumi.yaml that asks for it."""

    folder: Path
    toolchain: str
    where: str
    node: Node

    @property
    def is_running(self) -> bool:
        # Not the interpreters: one of a virtualenv is often a link to another's.
        with suppress(OSError):
            return Path(sys.prefix).samefile(self.folder)
        return False

    def python(self) -> Path:
        """The interpreter, which can import gpuform."""
        found = [self.folder / name for name in _PYTHONS if (self.folder / name).is_file()]
        if not found:
            raise self.problem(f"there is no virtualenv in {self.folder}", _HOW_TO_MAKE)
        try:
            done = subprocess.run(  # noqa: S603 - the project names it, as for the Pulumi CLI
                [str(found[0]), "-P", "-c", _PROBE],
                capture_output=True,
                check=False,
                env=self.variables(),
            )
        except OSError as error:
            raise self.problem(f"{found[0]} cannot be run: {error.strerror}") from error
        if done.returncode != 0:
            raise self.problem(
                f"the project's virtualenv {self.folder} has no gpuform", _HOW_TO_INSTALL
            )
        return found[0]

    def variables(self) -> dict[str, str]:
        """The environment variables of the virtualenv, activated."""
        variables = {name: text for name, text in os.environ.items() if name != "PYTHONHOME"}
        path = [str(self.folder / name) for name in ("bin", "Scripts")]
        variables["PATH"] = os.pathsep.join([*path, variables.get("PATH", os.defpath)])
        return {**variables, "VIRTUAL_ENV": str(self.folder)}

    def problem(self, message: str, how: dict[str, str] | None = None) -> EngineError:
        option = "virtualenv" if self.toolchain == "pip" else "toolchain"
        hint = f"remove the option `{option}` to run the program with gpuform's own Python"
        if how:
            hint = f"{how[self.toolchain].format(self.folder, requirement())}; or {hint}"
        return yaml_text.locate_error(self.where, self.node, message, hint)


_HOW_TO_MAKE = {
    "pip": "make it: `python3 -m venv {0} && {0}/bin/pip install '{1}'`, "
    "and the program's requirements",
    "uv": "make it: `uv sync`",
    "poetry": "make it: `poetry install`",
}
_HOW_TO_INSTALL = {
    "pip": "install it there: `{0}/bin/pip install '{1}'` (it needs Python 3.11)",
    "uv": "install it there: `uv add '{1}'` (it needs Python 3.11)",
    "poetry": "install it there: `poetry add '{1}'` (it needs Python 3.11)",
}


def environment_of(project: Project) -> ProgramEnvironment | None:
    """What the options of Pulumi.yaml's `runtime` say; they were read once without their places."""
    where = str(project.path)
    options = _options(project.path, where)
    toolchain = options.get("toolchain")
    name = str(toolchain.value) if isinstance(toolchain, ScalarNode) else "pip"
    node = options.get("virtualenv", toolchain)
    if toolchain is not None and name not in _HOW_TO_MAKE:
        choice = "one of pip, poetry and uv"
        raise yaml_text.locate_error(
            where, toolchain, f"the toolchain must be {choice}, not {name!r}"
        )
    if node is None:
        return None
    folder = project.virtualenv
    if name == "poetry":
        folder = _poetry_folder(project.program, where, node)
    elif name == "uv" and folder is None:
        folder = _uv_folder(project.directory)
    if folder is None:
        return None
    # As written, without the dots: links stay, as they do for the Pulumi CLI.
    return ProgramEnvironment(Path(os.path.abspath(folder)), name, where, node)  # noqa: PTH100 - resolves


def _options(path: Path, where: str) -> dict[str, Node]:
    node: Node | None = yaml_text.parse(read_text(path), where)
    for key in ("runtime", "options"):
        found = yaml_text.entries(node, where) if isinstance(node, MappingNode) else {}
        node = found[key][1] if key in found else None
    if not isinstance(node, MappingNode):
        return {}
    return {key: value for key, (_, value) in yaml_text.entries(node, where).items()}


def _uv_folder(directory: Path) -> Path:
    """Beside the nearest uv.lock, else the nearest pyproject.toml, else in the project."""
    for name in _UV_FILES:
        for folder in (directory, *directory.parents):
            if (folder / name).is_file():
                return folder / ".venv"
    return directory / ".venv"


def _poetry_folder(program: Path, where: str, node: Node) -> Path:
    """Poetry keeps virtualenvs where it likes, so it is asked."""
    poetry = shutil.which("poetry")
    if poetry is None:
        raise yaml_text.locate_error(
            where, node, "the toolchain is poetry, which is not on the PATH", hint="install Poetry"
        )
    folder = program if program.is_dir() else program.parent
    done = subprocess.run(  # noqa: S603 - the project names it, as for the Pulumi CLI
        [poetry, "env", "info", "--path"], cwd=folder, capture_output=True, text=True, check=False
    )
    path = done.stdout.strip()
    if done.returncode != 0 or not path:
        raise yaml_text.locate_error(
            where,
            node,
            "Poetry has no virtualenv for this project",
            hint="make it: `poetry install`",
        )
    return Path(path)
