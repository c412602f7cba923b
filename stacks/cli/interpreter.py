"""A project's own virtualenv: the command goes on in its interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import click

from gpuform.stacks.engine.project import Project
from gpuform.stacks.operations.opening.interpreter import MOVED, ProgramEnvironment, environment_of

_MODULE = "gpuform.stacks.cli"


def goes_on_elsewhere(project: Project) -> bool:
    """Whether the command goes on in the project's virtualenv, once this process has let go of all.

    The caller then ends at once, with nothing done. False where that virtualenv is the one that
    runs already, or the project has none. Raises EngineError when it is missing or has no gpuform.
    """
    if os.environ.pop(MOVED, None):
        return False
    environment = environment_of(project)
    if environment is None or environment.is_running:
        return False
    python = environment.python()
    # Once the command's folder is given back, its arguments mean what they meant at first.
    click.get_current_context().find_root().call_on_close(lambda: _go_on(environment, python))
    return True


def _go_on(environment: ProgramEnvironment, python: Path) -> None:
    """Ends this process: the interpreter takes its place."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = [str(python), "-P", "-m", _MODULE, *sys.argv[1:]]
    variables = {**environment.variables(), MOVED: "1"}
    if os.name == "nt":  # exec there returns to the shell before the command has ended
        sys.exit(subprocess.run(command, check=False, env=variables).returncode)  # noqa: S603 - ours
    os.execve(python, command, variables)  # noqa: S606 - arguments need no shell
