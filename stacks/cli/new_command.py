"""`gpuform new`: a project that runs at once, from a template."""

from pathlib import Path

import click

from gpuform.stacks.cli.session import Session, common_flags, session


@click.command()
@click.argument("template", required=False)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="The folder to make the project in; the current one when not given.",
)
@click.option("--name", "-n", help="The project's name; the folder's when not given.")
@click.option("--description", "-d", default="", help="What it is; the template's when not given.")
@click.option("--python", is_flag=True, help="A Python program instead of a topology file.")
@click.option("--force", "-f", is_flag=True, help="Also where files are; those in the way go.")
@click.option(
    "--yes", "-y", is_flag=True, expose_value=False, help="As for Pulumi; nothing is asked anyway."
)
@common_flags
def new(
    template: str | None,
    directory: Path,
    name: str | None,
    description: str,
    python: bool,
    force: bool,
) -> None:
    """Make a project that runs at once from a template, or list the templates.

    The folder has to be empty, hidden files apart, or --force given. What is made runs against the
    emulator as it is; `pulumi up` works in it, too.

    \b
    Examples:
      gpuform new
      gpuform new together-training --dir training
    """
    with session() as current:
        if template is None:
            _list(current)
            return
        from gpuform.stacks.projects import (  # noqa: PLC0415 - the engine, not for help
            project_files,
            project_name,
            write_project,
        )

        name = project_name(directory) if name is None else name
        files = project_files(template, name, description, python=python)
        write_project(directory, files, force=force)
        current.screen.print(f"Project {name} is made: {', '.join(files)}")
        current.screen.print("\nNext:")
        if directory.resolve() != Path.cwd():
            current.screen.print(f"  cd {directory}")
        current.screen.print("  gpuform stack init dev")
        current.screen.print("  gpuform up --emulate")


def _list(current: Session) -> None:
    from gpuform.stacks.projects import templates  # noqa: PLC0415 - the engine, not for help

    found = templates()
    width = max(map(len, [*found, "TEMPLATE"]))
    current.screen.print(f"{'TEMPLATE':<{width}}  MAKES")
    for name, description in found.items():
        current.screen.print(f"{name:<{width}}  {description}")
    current.screen.print("\nMake one: gpuform new TEMPLATE --dir FOLDER")
