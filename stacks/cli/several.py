"""`--all` and `--filter`: the flags by which a command is about several stacks."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

all_flag = click.option(
    "--all",
    "every_stack",
    is_flag=True,
    help="All stacks of stacks.yaml, else of the projects in this folder; with --stack those of "
    "this name.",
)
filter_flag = click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="WHAT",
    help="With --all, only these: a name (network/prod, clusters-*), a folder (./clusters), or "
    "what a git diff touches ([main]); `...` before it adds the dependants.",
)

jobs_flag = click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="With --all, most stacks that work at a time; one for each processor while planning, and "
    "8 while applying, when not given.",
)


@dataclass(frozen=True, slots=True)
class Several:
    """What --filter and --jobs say of a command on several stacks."""

    filters: tuple[str, ...] = ()
    jobs: int | None = None


def several_flags(command: F) -> F:
    """Adds --all and --filter."""
    return all_flag(filter_flag(command))


def check_several(*, every_stack: bool, filters: Sequence[str]) -> None:
    """Raises UsageError where stacks are chosen among one."""
    if filters and not every_stack:
        raise click.UsageError("--filter chooses among the stacks of --all")
