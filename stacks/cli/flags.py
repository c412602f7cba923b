"""Define the flags that several commands share, and turn them into the options of runs.

The modules of `commands` use these as decorators.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import click

from gpuform.stacks.cli.session import get_flag, remember_flag
from gpuform.stacks.cli.terminal.screen import DisplayOptions, Screen
from gpuform.stacks.engine.property_paths import parse_duration as parse_pulumi_duration
from gpuform.stacks.operations.runs.options import RunOptions

if TYPE_CHECKING:
    from gpuform.stacks.engine.store import LockTimeout


class OptionWithOldNames(click.Option):
    """An option that also has old names, which work and are not shown in help."""

    def __init__(
        self, param_decls: Sequence[str], *, old_names: Sequence[str], **attributes: Any
    ) -> None:
        super().__init__([*param_decls, *old_names], **attributes)
        self.old_names = old_names

    @property
    def shown_names(self) -> list[str]:
        """Return the names shown in help and documentation."""
        return [name for name in self.opts if name not in self.old_names]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return the row of the help, without the old names."""
        current_option = copy(self)
        current_option.opts = self.shown_names
        return click.Option.get_help_record(current_option, ctx)


def add_format_flags(
    formats: Sequence[str], *, default: str | None = None, help_text: str
) -> Callable[["Command"], "Command"]:
    """Return a decorator adding --format as the parameter `form`, and --json for JSON among others.

    Without `default` the flag is required.
    """

    # A default of None would count as a value for click, so that the flag were not required.
    given: dict[str, Any] = {"default": default, "show_default": True} if default else {}

    def add_flags(command: "Command") -> "Command":
        if "json" in formats:
            command = click.option(
                "--json", "-j", "form", flag_value="json", help="The same as --format json."
            )(command)
        # -f is --force and --skip-preview elsewhere, as in Pulumi.
        return click.option(
            "--format",
            "form",
            cls=OptionWithOldNames,
            old_names=("-f",),
            type=click.Choice(formats),
            required=not given,
            help=help_text,
            **given,
        )(command)

    return add_flags


def file_option(
    *names: str,
    help: str,  # noqa: A002 - the name of click's argument
) -> Callable[["Command"], "Command"]:
    """Return the decorator of an option whose value is the path of a file."""
    path = click.Path(dir_okay=False, path_type=Path)
    return click.option(*names, type=path, metavar="FILE", help=help)


output_flag = click.option(
    "--output",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file instead of stdout.",
)
emulate_flag = click.option(
    "--emulate",
    is_flag=True,
    help="Use an emulator of the platforms; its objects are stored in .gpuform/.",
)
emulated_state_flag = click.option(
    "--emulate",
    is_flag=True,
    expose_value=False,
    help="Accepted as by other commands: this one needs only the state.",
)
preview_only_names = ("--preview-only", "--dry-run", "preview_only")
adopt_flag = click.option(
    "--adopt",
    multiple=True,
    metavar="ID",
    help="Adopt this object as the result of an interrupted create of the stack.",
)
create_anew_flag = click.option(
    "--create-anew",
    is_flag=True,
    help="Assert that no existing object comes from an interrupted create of the stack, and "
    "create again.",
)
require_checks_flag = click.option(
    "--require-checks",
    is_flag=True,
    help="Fail when a check could not be made: no key, no answer, unknown capacity or price.",
)
offline_flag = click.option(
    "--offline",
    is_flag=True,
    help="Do not ask the platforms: use the state, which may be out of date.",
)
parallel_flag = click.option(
    "--parallel",
    "-p",
    type=click.INT,
    envvar="PULUMI_PARALLEL",
    # As under the Pulumi CLI, less than 1 is one at a time.
    callback=lambda _context, _option, value: None if value is None else max(1, value),
    metavar="N",
    help="Number of parallel resource operations; 0 or less means 1; default: 256.",
)
allow_flag = click.option(
    "--allow",
    multiple=True,
    metavar="NAME",
    help="Allow a refused action, such as destroy-reserved, for this run only.",
)
message_flag = click.option(
    "--message",
    "-m",
    default="",
    metavar="TEXT",
    help="A message for the history; default: the title of the commit.",
)
pulumi_json_flag = click.option(
    "--json", "-j", is_flag=True, help="Print Pulumi's JSON to stdout, and nothing else."
)
yes_flag = click.option(
    "--yes", "-y", is_flag=True, help="Skip the confirmation; the preview is still shown."
)


def parse_duration(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Return a duration (30s, 10m, 12h) in seconds; a callback of click.

    Raises:
        BadParameter: `value` is not a duration.
    """
    try:
        return parse_pulumi_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


ALIASES: Final = {
    "update": ("up",),
    "pre": ("preview",),
    "down": ("destroy",),
    "dn": ("destroy",),
    "list": ("ls",),
    "ls": ("list",),
    "new": ("init",),
    "remove": ("rm", "delete"),
    "delete": ("rm",),
    "rm": ("delete",),
    "create": ("init",),
    "hist": ("history",),
    "topology": ("export-topology",),
}
"""A name, and the commands that it stands for in a group without a command of this name."""


class AliasedGroup(click.Group):
    """A group that finds commands by Pulumi's other names, too; help shows the first name."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name, or else Pulumi's other name, or None."""
        # The group's own command comes first: Pulumi's other names are only a fallback.
        names = (cmd_name, *ALIASES.get(cmd_name, ()))
        commands = (super(AliasedGroup, self).get_command(ctx, name) for name in names)
        return next((command for command in commands if command is not None), None)


FAMILIES: Final[Mapping[str, tuple[str, ...]]] = {
    "runs": (
        *("preview", "up", "refresh", "destroy", "import", "drift", "expire", "repair"),
        "cancel",
    ),
    "review": ("review", "rehearse", "fetch-plan", "plan-part", "join", "graph"),
    "files": ("new", "validate", "test", "fmt", "convert", "console", "schema", "manifests"),
    "looking": ("status", "calendar", "explain", "logs", "notify", "doctor", "orphans", "offers"),
    "access": ("kubeconfig", "ssh-config", "connect", "export-topology"),
    "stack": ("stack", "state", "config", "login", "logout", "about", "whoami"),
    "tools": ("emulator", "lsp", "mcp", "plugin", "help", "completion"),
}
"""Each family with its commands. A command of `gpuform` has to be in one of them."""

FURTHER: Final = frozenset(
    {
        *("completion", "fetch-plan", "join", "lsp", "mcp", "plan-part", "plugin", "schema"),
        "whoami",
    }
)
"""Commands that programs call, or that people call once: `gpuform --help` only names them."""

TITLES: Final[Mapping[str, str]] = {
    "runs": "Plan and change",
    "review": "Review",
    "files": "Files",
    "looking": "Look",
    "access": "Connect to a cluster",
    "stack": "Stacks",
    "tools": "Tools",
}
"""What the families are called."""


def find_help_page(command: str) -> str:
    """Return the documentation page of a command: `reference/commands/runs/up` for `up`.

    Raises:
        KeyError: the command is in no family.
    """
    family = next((name for name, commands in FAMILIES.items() if command in commands), None)
    if family is None:
        raise KeyError(f"{command} is in no family of stacks/cli/flags.py")
    return f"reference/commands/{family}/{command}"


def _remember_seconds(context: click.Context, parameter: click.Parameter, value: str) -> None:
    """Convert the value of a duration flag to seconds, and store the seconds in the session."""
    # The flag is converted here: the session stores it before the command's own code runs.
    remember_flag(context, parameter, parse_duration(context, parameter, value))


lock_flag = click.option(
    "--lock-timeout",
    metavar="DURATION",
    default="0",
    expose_value=False,
    callback=_remember_seconds,
    help="Wait this long (30s, 10m) while another command has the stack's lock.",
)


def build_lock_timeout(screen: Screen) -> "LockTimeout":
    """Return how long this command waits for a stack's lock: not at all without --lock-timeout.

    The holder of the lock is printed on stderr.
    """
    from gpuform.stacks.engine.store import LockTimeout  # noqa: PLC0415 - the engine, not for help

    return LockTimeout(get_flag("lock_timeout", 0.0), screen.warn)


Command = TypeVar("Command", bound=Callable[..., Any])

all_flag = click.option(
    "--all",
    "every_stack",
    is_flag=True,
    help="All stacks of stacks.yaml, else of the projects in this folder; with --stack only the "
    "stacks of this name.",
)
filter_flag = click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="WHAT",
    help="With --all, only these stacks: a name (network/prod, clusters-*), a folder "
    "(./clusters), or those that a git diff affects ([main]); `...` before it adds the "
    "dependants.",
)

jobs_flag = click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="With --all, number of stacks that run in parallel; default: one for each processor "
    "while planning, and 8 while applying.",
)


@dataclass(frozen=True, slots=True)
class MultiStackFlags:
    """The values of --filter and --jobs."""

    filters: tuple[str, ...] = ()
    jobs: int | None = None


def add_multi_stack_flags(command: Command) -> Command:
    """Add --all and --filter to the command."""
    return all_flag(filter_flag(command))


def reject_filter_without_all(*, every_stack: bool, filters: Sequence[str]) -> None:
    """Raise UsageError for --filter without --all."""
    if filters and not every_stack:
        raise click.UsageError("--filter requires --all")


_OPTION_NAMES = frozenset(option.name for option in fields(RunOptions))


@dataclass(frozen=True, slots=True)
class RunArguments:
    """The options of a run, whether it asks for confirmation or rehearses, and what is shown."""

    options: RunOptions
    yes: bool = False
    json: bool = False
    detailed_exitcode: bool = False
    rehearse: bool = False
    display: DisplayOptions = field(default_factory=DisplayOptions)

    @classmethod
    def from_flags(cls, options: RunOptions, flags: Mapping[str, Any]) -> Self:
        """Build the arguments from `options` and the values of the command's flags."""
        option_values = {name: value for name, value in flags.items() if name in _OPTION_NAMES}
        options = replace(options, **option_values)
        return cls(
            options,
            # With defaults, because not every command has all flags: `preview` has no --yes.
            yes=flags.get("yes", False),
            json=flags["json"],
            detailed_exitcode=flags.get("detailed_exitcode", False),
            rehearse=flags.get("rehearse", False),
            display=DisplayOptions(
                sames=flags.get("show_sames", False),
                secrets=flags.get("show_secrets", False),
                urns=flags.get("urns", False),
                outputs=not flags.get("suppress_outputs", False),
                progress=not flags.get("suppress_progress", False),
                removes=options.remove,
            ),
        )

    @property
    def command(self) -> str:
        """Return the name of the command, for messages."""
        return self.options.command
