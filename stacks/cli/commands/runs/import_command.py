"""The flags of `gpuform import`."""

from pathlib import Path
from typing import Any

import click

from gpuform.stacks.cli.flags import emulate_flag, lock_flag, parallel_flag, yes_flag
from gpuform.stacks.cli.session import session, stack_flags
from gpuform.stacks.operations.runs.options import ImportOptions


def _given(
    _context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = [text.partition("=") for text in values]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.BadParameter("write it as FIELD=VALUE")
    return tuple((name, value) for name, _, value in pairs)


@click.command("import")
@click.argument("type_", metavar="[TYPE]", required=False)
@click.argument("name", required=False)
@click.argument("id_", metavar="[ID]", required=False)
@click.option("--all", "-a", "everything", is_flag=True, help="Everything that the account holds.")
@click.option("--platform", metavar="NAME", help="Whose account, with --all: together, scp, ...")
@click.option(
    "--type", "types", multiple=True, metavar="TYPE", help="With --all: only these types."
)
@click.option(
    "--name", "names", multiple=True, metavar="PATTERN", help="With --all: only of these names."
)
@click.option(
    "--region",
    "regions",
    multiple=True,
    metavar="REGION",
    help="Only of these regions, of what tells its own; scp is asked at their addresses.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="With --all: only with all of these tags.",
)
@click.option(
    "--set",
    "given",
    multiple=True,
    metavar="FIELD=VALUE",
    callback=_given,
    help="An input that the platform does not tell; '{{ config.NAME }}' for a secret.",
)
@click.option("--parent", metavar="URN", help="The resource that these are shown under.")
@click.option(
    "--protect/--no-protect", default=False, help="Whether they are protected against deletion."
)
@click.option(
    "--out",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file of the topology, or of the program, that gets the entries.",
)
@click.option("--python", is_flag=True, help="Write Python, also where there is a topology.")
@click.option("--preview-only", is_flag=True, help="Show what would be written, and do nothing.")
@yes_flag
@parallel_flag
@emulate_flag
@lock_flag
@stack_flags
def import_(**flags: Any) -> int:
    """Take objects that exist into the stack, with their entries.

    One by TYPE, NAME and ID (together:Cluster train 6f3a...), or all that an account holds. Writes
    their entries into topology.yaml, or into the Python program, shows what will be adopted, asks,
    adopts it into the state, and proves it by a plan without changes. Nothing on the platform is
    changed. What is in the stack already is left alone, what another stack of this backend has is
    refused, and a run that was interrupted goes on when the command is run again.

    Secrets stay out of the file: they become secret configuration. What a file says stays as it
    is, comments and layout included.

    \b
    Examples:
      gpuform import together:Cluster train 6f3a1c52-...
      gpuform import --all --platform tensorone --tag team=research
      gpuform import scp:NodePool train POOL001-krw1a/train-a/train --set server_type_id=...
    """
    yes = flags.pop("yes")
    options = ImportOptions(**flags)
    _check(options)
    from gpuform.stacks.cli.importing import import_and_show  # noqa: PLC0415 - not for help

    with session() as current:
        return import_and_show(options, current, yes=yes)


def _check(options: ImportOptions) -> None:
    one = (options.type_, options.name, options.id_)
    if options.everything:
        if any(one):
            raise click.UsageError("--all takes no TYPE, NAME and ID")
        if not options.platform:
            raise click.UsageError("--all wants a --platform")
        return
    if not all(one):
        raise click.UsageError("give TYPE, NAME and ID of an object, or --all and a --platform")
    if options.platform or options.types or options.names or options.tags:
        raise click.UsageError("--platform, --type, --name and --tag go with --all")
