"""`gpuform about` and `gpuform whoami`: what is at work here."""

from pathlib import Path

import click

from gpuform.schemas.safe_text import format_json
from gpuform.stacks.cli.session import common_flags, session, stack_flags


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON instead of text.")
@stack_flags
def about(as_json: bool) -> None:
    """Show versions, the machine, the project, its backend and its stack.

    For those who help: nothing is asked, and no value of the configuration or the environment is
    shown. `gpuform doctor` says what is wrong.

    \b
    Example:
      gpuform about
    """
    from gpuform.stacks.operations.about_facts import about as facts  # noqa: PLC0415 - not for help

    with session() as current:
        found = facts(Path.cwd(), current.environ, current.stack)
        if as_json:
            current.screen.print(format_json(found, indent=2))
            return
        for section, rows in found.items():
            current.screen.print(current.screen.paint("bold", section))
            for name, value in rows.items():
                text = ", ".join(value) if isinstance(value, list) else str(value)
                current.screen.print(f"  {name.replace('_', ' '):<18}  {text}".rstrip())


@click.command()
@click.option("--json", "-j", "as_json", is_flag=True, help="JSON, with the backend.")
@common_flags
def whoami(as_json: bool) -> None:
    """Show as whom runs are recorded; with --verbose, in which backend.

    \b
    Example:
      gpuform whoami --verbose
    """
    from gpuform.stacks.engine.project import NoProject, find_project  # noqa: PLC0415 - as above
    from gpuform.stacks.operations.about_facts import describe_user  # noqa: PLC0415 - not for help

    with session() as current:
        try:
            project = find_project(Path.cwd())
        except NoProject:
            project = None
        found = describe_user(project, current.environ)
        if as_json:
            current.screen.print(format_json(found, indent=2))
        elif current.verbose:
            current.screen.print(f"User: {found['user']}\nBackend URL: {found['url']}")
        else:
            current.screen.print(found["user"])
