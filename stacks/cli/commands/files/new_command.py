"""`gpuform new`: a project that runs at once, from a template."""

from pathlib import Path

import click

from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.code_hosts.asked import FORGES, ForgeName


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
@click.option(
    "--forge", type=click.Choice(FORGES), help="For ci: whose workflows; the git remote's if not."
)
@click.option("--branch", default="main", show_default=True, help="For ci: the default branch.")
@click.option(
    "--backend",
    metavar="URL",
    help="For ci: where the state is; as Pulumi.yaml says if not. The jobs sign in to its cloud.",
)
@stack_flags
def new(  # noqa: PLR0913, PLR0917 - the flags
    template: str | None,
    directory: Path,
    name: str | None,
    description: str,
    python: bool,
    force: bool,
    forge: ForgeName | None,
    branch: str,
    backend: str | None,
) -> None:
    """Make a project that runs at once from a template, or list the templates.

    `gpuform new ci` writes workflows for the repository around a project: plan and comment on a
    pull request, a check before the merge, apply of the reviewed plan, scheduled drift and orphans.
    The jobs install the gpuform that wrote them, from a wheel in the project, and sign in to the
    cloud of the state and of its secrets without a stored key.

    The folder has to be empty, hidden files apart, or --force given. What is made runs against the
    emulator as it is; `pulumi up` works in it, too.

    \b
    Examples:
      gpuform new
      gpuform new together-training --dir training
      gpuform new ci --forge github --stack prod --backend s3://team-state
    """
    with session() as current:
        if template is None:
            _list(current)
            return
        if template == "ci":
            from gpuform.stacks.cli.commands.files.new_ci import WorkflowOptions, new_ci  # noqa: PLC0415 - not for help

            wanted = WorkflowOptions(current.stack or "prod", branch, forge, backend)
            new_ci(current, directory, wanted, force=force)
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
        current.screen.print("  gpuform stack init dev --emulate")
        current.screen.print("  gpuform up --emulate")
        current.screen.print("\nOn the real platform:")
        current.screen.print("  gpuform stack init prod")
        current.screen.print("  gpuform doctor  # says which keys are missing")
        current.screen.print("  gpuform up")


def _list(current: Session) -> None:
    from gpuform.stacks.projects import templates  # noqa: PLC0415 - the engine, not for help

    found = templates()
    width = max(map(len, [*found, "TEMPLATE"]))
    current.screen.print(f"{'TEMPLATE':<{width}}  MAKES")
    for name, description in found.items():
        current.screen.print(f"{name:<{width}}  {description}")
    current.screen.print("\nMake one: gpuform new TEMPLATE --dir FOLDER")
    current.screen.print("Workflows for its repository: gpuform new ci")
