"""The Pulumi CLI's commands and flags, as recorded from it, beside gpuform's."""

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
    """Pairs of a flag and a command that both have; `commands` are Pulumi's alone."""

    lacking: Pairs
    own: Pairs
    commands: set[str]
    everywhere: set[str]


@cache
def differences() -> Differences:
    recorded = json.loads(RECORDED.read_text())
    lacking: Pairs = set()
    own: Pairs = set()
    for name, theirs in recorded["flags"].items():
        command = _command(name)
        if command is not None:
            ours = _flags(command)
            lacking |= {(flag, name) for flag in set(theirs) - ours}
            own |= {(flag, name) for flag in ours - set(theirs) - _EVERYWHERE}
    alone = {name for name in recorded["commands"] if _command(name) is None}
    return Differences(lacking, own, alone, set(recorded["global"]) - _flags(cli))


def _command(name: str) -> click.Command | None:
    found: click.Command | None = cli
    for word in name.split():
        is_group = isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word) if is_group else None  # type: ignore[union-attr]
    return found


def _flags(command: click.Command) -> set[str]:
    options = (each for each in command.params if isinstance(each, click.Option))
    options = (each for each in options if not each.hidden)
    texts = (text for each in options for text in (*each.opts, *each.secondary_opts))
    return {text for text in texts if text.startswith("--")}
