"""What of a run is shown, as its flags say: Pulumi's, with its defaults."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click


@dataclass(frozen=True, slots=True)
class Showing:
    """`sames`: resources that do not change, too. `secrets`: those of the stack's outputs, in the
    clear. `urns`: each resource's URN. `removes`: the stack goes after the run.
    """

    sames: bool = False
    secrets: bool = False
    urns: bool = False
    outputs: bool = True
    progress: bool = True
    removes: bool = False


def _flag(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(f"--{name}", is_flag=True, help=text)


def _accepted(name: str, why: str) -> Callable[[Any], Any]:
    text = f"Accepted for Pulumi's sake: {why}."
    return click.option(f"--{name}", is_flag=True, expose_value=False, help=text)


show_secrets_flag = _flag("show-secrets", "Show secrets in the stack's outputs in the clear.")
show_reads_flag = _accepted("show-reads", "what the program reads is always shown")
showing_flags = (
    _flag("show-sames", "Show the resources that do not change, too."),
    _flag("urns", "Show each resource's URN."),
    _flag("suppress-outputs", "Show no outputs of the stack."),
    _flag("suppress-progress", "Do not tell what is under way: only what has ended."),
    _accepted("diff", "property changes are always shown"),
    _accepted("show-replacement-steps", "a replacement is one change"),
    _accepted("show-full-output", "outputs are never cut"),
    _accepted("suppress-permalink", "there is none"),
)
