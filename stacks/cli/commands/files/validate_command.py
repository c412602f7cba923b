"""`gpuform validate`: all that is wrong with topology files, without credentials or network."""

from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import click

from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.session import session, stack_flags

if TYPE_CHECKING:
    from gpuform.stacks.topology.planning import Planned

_FORMATS = ("text", "json", "sarif", "github")


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "--format",
    "-f",
    "form",
    type=click.Choice(_FORMATS),
    default="text",
    show_default=True,
    help="How problems are told: sarif for code scanning, github for a workflow's log.",
)
@stack_flags
def validate(files: tuple[Path, ...], form: str) -> int:
    """Check topology files: every problem at once, with file, line and column.

    Without FILE it checks the project's topology.yaml. The project's gates.yaml and prices.yaml
    are checked with it. Nothing is asked of a platform and no passphrase is needed; values that
    the stack named by --stack sets in the clear are used, any others count as not known yet.
    Exits 1 when there are problems. A warning is none: it tells a value that no platform offered
    when `gpuform offers` asked lately, and that looks like one that was.

    \b
    Examples:
      gpuform validate
      gpuform validate --stack prod --format github
    """
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - not for help
    from gpuform.stacks.document.reports import FORMATS  # noqa: PLC0415 - as above
    from gpuform.stacks.gates.file import check_gates  # noqa: PLC0415 - as above
    from gpuform.stacks.offering.seen import misspelt, seen_lately  # noqa: PLC0415 - as above
    from gpuform.stacks.review.names import counted  # noqa: PLC0415 - as above
    from gpuform.stacks.topology.offline import (  # noqa: PLC0415 - as above
        own_topology,
        project_folder,
        surroundings_of,
    )
    from gpuform.stacks.topology.planning import plan  # noqa: PLC0415 - as above

    with session() as current:
        problems, warnings, valid = Diagnostics(), Diagnostics(), []
        for file in files or (own_topology(Path.cwd()),):
            found = Diagnostics()
            planned = plan(file, surroundings_of(file, current.stack), found)
            problems.extend(found)
            folder = project_folder(file)
            warnings.extend(misspelt(planned, seen_lately(folder, time())))
            if not found:
                valid.append(_summary(file, planned))
            check_gates(folder, problems)
        told = [*problems, *warnings]
        if told or form != "text":
            current.screen.print(FORMATS[form](told))
        if problems:
            current.screen.warn(f"error: {counted(len(problems), 'problem')}")
        elif form == "text":
            current.screen.print("\n".join(valid))
    return FAILED if problems else SUCCESS


def _summary(file: Path, planned: "Planned") -> str:
    from gpuform.stacks.review.names import counted  # noqa: PLC0415 - the engine, not for help

    summary = f"{file} is valid: {counted(len(planned.resources), 'resource')}"
    later = planned.open_groups()
    return f"{summary}, and those of {', '.join(later)}, not known here" if later else summary
