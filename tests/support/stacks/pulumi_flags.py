"""Compare gpuform's commands and flags with those recorded from the Pulumi CLI."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import click

from gpuform.stacks.cli.app import cli

RECORDED = Path(__file__).parents[2] / "stacks" / "cli" / "pulumi_flags.json"
_EVERYWHERE = {"--cwd", "--color", "--non-interactive", "--verbose", "--stack"}

Pairs = set[tuple[str, str]]


@dataclass(frozen=True)
class Differences:
    """Flags and commands that only one of the two CLIs has.

    `only_pulumi` and `only_gpuform` are pairs of a flag and a command that both CLIs have.
    """

    only_pulumi: Pairs
    only_gpuform: Pairs
    missing_commands: set[str]
    missing_global_flags: set[str]


@cache
def find_differences() -> Differences:
    recorded = json.loads(RECORDED.read_text())
    lacking: Pairs = set()
    own: Pairs = set()
    for name, theirs in recorded["flags"].items():
        command = _find_command(name)
        if command is not None:
            ours = _list_flags(command)
            lacking |= {(flag, name) for flag in set(theirs) - ours}
            own |= {(flag, name) for flag in ours - set(theirs) - _EVERYWHERE}
    alone = {name for name in recorded["commands"] if _find_command(name) is None}
    return Differences(lacking, own, alone, set(recorded["global"]) - _list_flags(cli))


def _find_command(name: str) -> click.Command | None:
    command: click.Command | None = cli
    for word in name.split():
        is_group = isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word) if is_group else None  # type: ignore[union-attr]
    return command


def _list_flags(command: click.Command) -> set[str]:
    options = (option for option in command.params if isinstance(option, click.Option))
    options = (option for option in options if not option.hidden)
    texts = (name for option in options for name in (*option.opts, *option.secondary_opts))
    return {name for name in texts if name.startswith("--")}
