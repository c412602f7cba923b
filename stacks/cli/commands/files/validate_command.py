"""`gpuform validate`: all that is wrong with topology files, without credentials or network."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

import click

from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.session import Session, session, stack_flags
from gpuform.stacks.cli.several import check_several, several_flags

if TYPE_CHECKING:
    from gpuform.stacks.cli.choosing import Chosen
    from gpuform.stacks.document.diagnostics import Diagnostic
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
@several_flags
@stack_flags
def validate(
    files: tuple[Path, ...], form: str, every_stack: bool, filters: tuple[str, ...]
) -> int:
    """Check topology files: every problem at once, with file, line and column.

    Without FILE it checks the project's topology.yaml. The project's gates.yaml and prices.yaml
    are checked with it. Nothing is asked of a platform and no passphrase is needed; values that
    the stack named by --stack sets in the clear are used, any others count as not known yet.
    Exits 1 when there are problems. A warning is none: it tells a value that no platform offered
    when `gpuform offers` asked lately, and that looks like one that was.

    With --all it checks all stacks, with what they read of each other: circles, stacks and outputs
    that are not there, also of Python programs. It then shows the stacks in their order.

    \b
    Examples:
      gpuform validate
      gpuform validate --stack prod --format github
      gpuform validate --all
    """
    check_several(every_stack=every_stack, filters=filters)
    if every_stack and files:
        raise click.UsageError("--all checks the topologies of all stacks: name no FILE with it")
    with session() as current:
        return _all(current, filters, form) if every_stack else _files(current, files, form)


def _files(current: Session, files: tuple[Path, ...], form: str) -> int:
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - not for help
    from gpuform.stacks.gates.file import check_gates  # noqa: PLC0415 - as above
    from gpuform.stacks.offering.seen import misspelt, seen_lately  # noqa: PLC0415 - as above
    from gpuform.stacks.topology.offline import (  # noqa: PLC0415 - as above
        own_topology,
        project_folder,
        surroundings_of,
    )
    from gpuform.stacks.topology.planning import plan  # noqa: PLC0415 - as above

    problems, warnings, valid = Diagnostics(), Diagnostics(), []
    for file in files or (own_topology(Path.cwd()),):
        found = Diagnostics()
        planned = plan(file, surroundings_of(file, current.stack), found)
        problems.extend(found)
        folder = project_folder(file)
        warnings.extend(misspelt(planned, seen_lately(folder, time())))
        if not found:
            valid.append(_summary(str(file), planned))
        check_gates(folder, problems)
    return _told(current, list(problems), list(warnings), valid, form)


def _all(current: Session, filters: Sequence[str], form: str) -> int:
    from gpuform.stacks.cli.choosing import chosen_of  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.multi_stack import check_estate  # noqa: PLC0415 - as above
    from gpuform.stacks.offering.seen import misspelt, seen_lately  # noqa: PLC0415 - as above

    problems, warnings = Diagnostics(), Diagnostics()
    chosen = chosen_of(current, filters, problems)
    found = check_estate(chosen.order, chosen.names, problems)
    for member in chosen.members:
        if member.name in found:
            seen = seen_lately(member.project.directory, time())
            warnings.extend(misspelt(found[member.name], seen))
    valid = [] if problems else list(_lines(chosen, found))
    return _told(current, list(problems), list(warnings), valid, form)


def _lines(chosen: "Chosen", found: Mapping[str, "Planned"]) -> Iterator[str]:
    """A line for each stack: what it declares, and what it reads."""
    if not chosen.names:
        yield "No stack is touched: nothing is to be checked."
    for name in chosen.names:
        planned = found.get(name)
        line = _summary(name, planned) if planned else f"{name} is a Python program"
        before = chosen.reads(name)
        yield f"{line}; after {', '.join(before)}" if before else line


def _told(
    current: Session,
    problems: Sequence["Diagnostic"],
    warnings: Sequence["Diagnostic"],
    valid: Sequence[str],
    form: str,
) -> int:
    from gpuform.stacks.document.diagnostics import FORMATS  # noqa: PLC0415 - not for help
    from gpuform.stacks.review.names import counted  # noqa: PLC0415 - the engine, not for help

    told = [*problems, *warnings]
    if told or form != "text":
        current.screen.print(FORMATS[form](told))
    if problems:
        current.screen.warn(f"error: {counted(len(problems), 'problem')}")
    elif form == "text":
        current.screen.print("\n".join(valid))
    return FAILED if problems else SUCCESS


def _summary(what: str, planned: "Planned") -> str:
    from gpuform.stacks.review.names import counted  # noqa: PLC0415 - the engine, not for help

    summary = f"{what} is valid: {counted(len(planned.resources), 'resource')}"
    later = planned.open_groups()
    return f"{summary}, and those of {', '.join(later)}, not known here" if later else summary
