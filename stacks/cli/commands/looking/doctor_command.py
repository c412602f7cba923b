"""`gpuform doctor`: everything that a run needs, looked at, and what to do where it is wrong."""

import os
from pathlib import Path

import click

from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.operations.opening.emulating import emulator_for


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of text.")
@click.option(
    "--emulate",
    is_flag=True,
    help="Ask an emulator of the platforms, as `up --emulate` does.",
)
@stack_flags
def doctor(as_json: bool, emulate: bool) -> int:
    """Look for what would make a run fail, and say what to do about it.

    Versions, the project's program, the backend, the stack's passphrase, state and locks, and of
    each platform whether the credentials are there, valid and allowed to read: one request is sent
    to each. Nothing is changed. Exits with 1 when there is a problem; warnings are none.

    \b
    Examples:
      gpuform doctor
      gpuform doctor --stack prod --json
    """
    from gpuform.stacks.cli.terminal.findings_view import show_findings  # noqa: PLC0415 - not for help
    from gpuform.stacks.doctor.examining import examine  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.opening.interpreter import interpreter_of  # noqa: PLC0415 - as above

    with session() as current, emulator_for(_project_folder(), wanted=emulate):
        found = examine(Path.cwd(), os.environ, current.stack, interpreter_of)
        return show_findings(found, current.screen, as_json=as_json)


def _project_folder() -> Path:
    """Where an emulator's objects are kept: with the project, if there is one."""
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help
    from gpuform.stacks.engine.project import find_project  # noqa: PLC0415 - as above

    try:
        return find_project(Path.cwd()).directory
    except EngineError:
        return Path.cwd()
