"""Define the command `gpuform`: its subcommands, and how errors end the process.

The console script calls `cli`. A subcommand's module is imported when the command is run.
"""

import builtins
import importlib
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from keyword import iskeyword
from typing import Any, NoReturn

import click

from gpuform.stacks.cli.failures import describe_failure
from gpuform.stacks.cli.flags import ALIASES, FAMILIES, FURTHER, TITLES
from gpuform.stacks.cli.session import add_common_flags

# Name -> module below `commands`, and the line of `gpuform --help`, so that help loads no command.
_COMMANDS = {
    "new": (
        "new_command",
        "Create a project that runs at once from a template, or list the templates.",
    ),
    "test": (
        "test_command",
        ("Run the test cases of a stack: no capacity, a node that dies, a run that is killed."),
    ),
    "preview": ("run_commands", "Show what `up` would change."),
    "review": ("review_commands", "Show saved plans to the people who approve them."),
    "rehearse": (
        "rehearse_command",
        "Show what a plan does when something goes wrong.",
    ),
    "fetch-plan": (
        "review_commands",
        "Download the reviewed plan of a pull request, to apply the plan.",
    ),
    "plan-part": (
        "run_commands",
        "Plan some of several stacks on this machine, as a part of one plan.",
    ),
    "join": ("run_commands", "Join the parts of all stacks into one plan."),
    "up": (
        "run_commands",
        "Create, update and delete resources until they match their declarations.",
    ),
    "import": (
        "declaration_commands",
        "Import existing objects into the stack, with their declarations.",
    ),
    "refresh": (
        "run_commands",
        "Update the state with what the platforms report of every resource.",
    ),
    "drift": ("maintenance_commands", "Show drift: what changed outside of the stack."),
    "destroy": ("run_commands", "Delete every resource of the stack."),
    "expire": (
        "maintenance_commands",
        "Destroy what has expired, and stop or start resources with running hours.",
    ),
    "repair": (
        "maintenance_commands",
        "Repair broken nodes that run no jobs.",
    ),
    "status": (
        "status_commands",
        "Show the stack's resources: state, readiness, GPUs, cost, alerts.",
    ),
    "kubeconfig": (
        "access_commands",
        "Put clusters' credentials into your kubeconfig.",
    ),
    "ssh-config": ("access_commands", "Write the stack's machines as SSH hosts."),
    "connect": ("access_commands", "Connect to a cluster."),
    "export-topology": (
        "topology_command",
        "Export the locations of the stack's nodes to schedulers.",
    ),
    "notify": (
        "report_commands",
        "Show who is notified of what, or send a test to everybody.",
    ),
    "logs": (
        "stack_data_commands",
        "Show a run step by step: its changes and its messages.",
    ),
    "calendar": (
        "report_commands",
        "Show what begins and ends: reservations, lifetimes, running hours.",
    ),
    "explain": (
        "report_commands",
        "Explain who created, changed or deleted something, when and why.",
    ),
    "lsp": (
        "server_commands",
        "Serve an editor by the Language Server Protocol, on stdin and stdout.",
    ),
    "mcp": ("server_commands", "Serve agents by the Model Context Protocol, on stdin and stdout."),
    "doctor": (
        "platform_commands",
        "Check for what would make a run fail, and say how to fix it.",
    ),
    "orphans": (
        "platform_commands",
        "Show objects on the platforms that no stack of this backend owns.",
    ),
    "offers": (
        "platform_commands",
        "Show what the platforms offer: regions, GPU types, drivers, images, server types.",
    ),
    "console": (
        "declaration_commands",
        "Evaluate expressions of the topology language against the stack.",
    ),
    "graph": (
        "status_commands",
        "Draw a graph of the stack: clusters with their nodes, volumes and fabrics.",
    ),
    "manifests": (
        "declaration_commands",
        "Print the YAML of the stack's volume claims, to apply it yourself.",
    ),
    "validate": (
        "topology_file_commands",
        "Check topology files: every problem at once, with file, line and column.",
    ),
    "convert": (
        "declaration_commands",
        "Convert declarations: to YAML or Python, from the state or from Terraform.",
    ),
    "stack": ("stack_commands", "Create, list, select, rename, remove and read stacks."),
    "state": ("state_commands", "Read and edit a stack's state."),
    "cancel": ("maintenance_commands", "Remove the locks that an ended command left on a stack."),
    "login": ("setup_commands", "Choose the backend that stores stacks: a folder or a bucket."),
    "logout": ("setup_commands", "Forget the backend chosen by `login`."),
    "config": ("config_commands", "List, read and change a stack's configuration."),
    "about": (
        "setup_commands",
        "Show versions, the machine, the project, its backend and its stack.",
    ),
    "whoami": (
        "setup_commands",
        "Show the user that runs are recorded for; with --verbose, the backend.",
    ),
    "schema": ("topology_file_commands", "Print the JSON Schema of topology files, for editors."),
    "fmt": (
        "topology_file_commands",
        "Format topology files in place, and print the names of those that changed.",
    ),
    "plugin": (
        "setup_commands",
        "Install the provider plugin for the Pulumi CLI, and maintain it.",
    ),
    "emulator": ("server_commands", "Serve the platforms' APIs on this machine."),
    "help": ("setup_commands", "Show a page of the documentation, or list the pages."),
    "completion": (
        "setup_commands",
        "Print the script that makes a shell complete gpuform's commands.",
    ),
}

SIMILARITY = 0.7
"""How similar a command must be for a suggestion: `plan` is no `plugin` with an error of typing."""


class App(click.Group):
    """Loads commands on demand, and turns their exceptions into messages and exit codes."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, in the order of the overview."""
        del ctx
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return the command with this name or Pulumi's name, or None."""
        del ctx
        cmd_name = _resolve_alias(cmd_name)
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"gpuform.stacks.cli.commands.{_COMMANDS[cmd_name][0]}")
        name = cmd_name.replace("-", "_")
        # The function of `import`, `help` and the like ends with an underscore.
        is_taken = iskeyword(name) or hasattr(builtins, name)
        command: click.Command = getattr(module, f"{name}_" if is_taken else name)
        _add_help_page(command, f"gpuform help {cmd_name}")
        _accept_values_of_flags(command)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the flags before the command, with -h, -help and -version as other tools have."""
        names = {"--help", "--version"}
        end = next(
            (index for index, word in enumerate(args) if _resolve_alias(word) in _COMMANDS),
            len(args),
        )
        own_words = [_expand_flag(names, word) for word in args[:end]]
        return super().parse_args(ctx, [*own_words, *args[end:]])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown name fails with the nearest one as a suggestion."""
        near = get_close_matches(args[0], _COMMANDS, n=1, cutoff=SIMILARITY)
        # A shell that completes parses unfinished words: no error is printed for these.
        if near and _resolve_alias(args[0]) not in _COMMANDS and not ctx.resilient_parsing:
            ctx.fail(f"No such command '{args[0]}'. Did you mean '{near[0]}'?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the overview of the commands by family, without an import of their modules."""
        del ctx
        listed_names = [
            name for names in FAMILIES.values() for name in names if name not in FURTHER
        ]
        # click aligns each list by itself: one width for all families is easier to read.
        width = max(map(len, listed_names))
        for family, names in FAMILIES.items():
            rows = [
                (name.ljust(width), _COMMANDS[name][1]) for name in names if name not in FURTHER
            ]
            with formatter.section(TITLES[family]):
                formatter.write_dl(rows)
        with formatter.section("More"):
            formatter.write_text(", ".join(sorted(FURTHER)))

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run a command and end the process with the exit code. Always raises SystemExit.

        If the reader of stdout has ended, the code is 1, without a message.
        """
        # Otherwise click prints errors itself, and ends the process with its own exit codes.
        kwargs["standalone_mode"] = False
        try:
            result = super().main(*args, **kwargs)
        # The reader of the output has ended, such as `head`: nobody reads an error either.
        except BrokenPipeError:
            _drop_output()
            sys.exit(1)
        except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - reported here, once
            arguments = _list_arguments(args, kwargs)
            code, lines = self._find_first_guess(error, arguments) or describe_failure(
                error, verbose="--verbose" in arguments or "-v" in arguments
            )
            for line in lines:
                click.echo(_escape_line(line), err=True)
            sys.exit(code)
        sys.exit(result if isinstance(result, int) else 0)

    def _find_first_guess(
        self, error: BaseException, arguments: Sequence[str]
    ) -> tuple[int, list[str]] | None:
        """Return the exit code and the answer for another tool's command line, or None."""
        if not isinstance(error, click.UsageError):
            return None
        from gpuform.stacks.cli.first_guesses import find_answer  # noqa: PLC0415 - for errors alone

        answer = find_answer(arguments, error, self)
        return (error.exit_code, [f"error: {answer}"]) if answer else None


def _add_help_page(command: click.Command, page: str) -> None:
    """Add the documentation page to a command's help, `PAGE NAME` to a subcommand's."""
    command.epilog = f"Page: {page}"
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            _add_help_page(subcommand, f"{page} {name}")


def _accept_values_of_flags(command: click.Command) -> None:
    """Make a command accept --flag=true and --flag=false, as Pulumi does, and Terraform's -flag.

    Subcommands are changed as well; a changed command stays as it is.
    """
    # Called at each lookup of a command, which must be wrapped once.
    if "parse_args" in vars(command):
        return
    parse = command.parse_args
    options = [option for option in command.params if isinstance(option, click.Option)]
    flags = {name: option for option in options if option.is_bool_flag for name in option.opts}
    names = {"--help", *(name for option in options for name in option.opts)}

    def parse_args(context: click.Context, args: list[str]) -> list[str]:
        # What follows -- belongs to another command, such as kubectl.
        end = args.index("--") if "--" in args else len(args)
        own_words = [_expand_flag(names, word) for word in args[:end]]
        words = [_strip_flag_value(flags, word) for word in own_words]
        rest = parse(context, [*(word for word in words if word is not None), *args[end:]])
        for option in _find_disabled_parameters(flags, own_words):
            context.params[option] = False
        return rest

    setattr(command, "parse_args", parse_args)  # noqa: B010 - of this command alone
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            _accept_values_of_flags(subcommand)


def _expand_flag(names: Collection[str], word: str) -> str:
    """Return the flag of `names` for which `word` stands in other tools, such as -json."""
    flag, equals, value = word.partition("=")
    if flag in {"-auto-approve", "--auto-approve"} and "--yes" in names:
        return f"--yes{equals}{value}"
    if word == "-h" and "-h" not in names:
        return "--help"
    # A single letter is a short flag: -s=dev has its value.
    is_single_dashed = len(flag) > 2 and flag[0] == "-" and flag[1] != "-"
    return f"-{word}" if is_single_dashed and f"-{flag}" in names else word


def _strip_flag_value(flags: Mapping[str, click.Option], word: str) -> str | None:
    """Return `word` without a boolean flag's value.

    A flag that is switched off becomes its --no-flag, or None without one.
    """
    name, equals, value = word.partition("=")
    option = flags.get(name) if equals else None
    if option is None or value.lower() not in _BOOLEANS:
        return word
    if _BOOLEANS[value.lower()]:
        return name
    # The other name of --flag/--no-flag means false.
    return option.secondary_opts[0] if option.secondary_opts else None


def _find_disabled_parameters(flags: Mapping[str, click.Option], words: Sequence[str]) -> list[str]:
    """Return the names of the parameters whose last flag is --flag=false.

    For some this differs from no flag: --refresh=false overrides the project's `refresh: always`.
    """
    is_on: dict[str, bool] = {}
    for word in words:
        name, _, value = word.partition("=")
        option = flags.get(name)
        # Common flags are stored by `remember_flag`, and are no parameters of the command.
        if option is not None and option.expose_value and option.name is not None:
            is_on[option.name] = _BOOLEANS.get(value.lower(), True)
    return [name for name, on in is_on.items() if not on]


# The words that flags of Go programs take, such as the Pulumi CLI.
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def _resolve_alias(name: str) -> str:
    """Return the command of this name, or the command with this name in Pulumi's CLI."""
    return name if name in _COMMANDS else next(iter(ALIASES.get(name, [name])))


def _list_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Sequence[str]:
    """Return the words after `gpuform`, of `main`'s arguments or of this process."""
    return kwargs.get("args") or (args[0] if args else None) or sys.argv[1:]


def _escape_line(line: str) -> str:
    """Escape control characters, which a text of a platform or program may contain."""
    from gpuform.stacks.cli.terminal.screen import escape_text  # noqa: PLC0415 - for errors alone
    from gpuform.stacks.engine.ci_job import find_ci_job  # noqa: PLC0415 - as above

    # A message may contain text of a platform or a program.
    return escape_text(line, color=False, in_ci=find_ci_job(os.environ) is not None)


def _drop_output() -> None:
    """Redirect stdout to nowhere, because flushing a closed pipe at the end would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _show_version(context: click.Context, _parameter: click.Parameter, is_set: bool) -> None:
    """Print the version and end the command; nothing while a shell completes."""
    # A shell that completes a command prints no version.
    if is_set and not context.resilient_parsing:
        from importlib.metadata import version  # noqa: PLC0415 - slow, and only needed here

        click.echo(f"gpuform {version('gpuform')}")
        context.exit()


@click.command(
    cls=App,
    invoke_without_command=True,
    epilog="Pages: gpuform help. All commands: gpuform help commands",
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
@add_common_flags
@click.pass_context
def cli(context: click.Context) -> None:
    """Declarative GPU clusters on Pulumi.

    Works on the Pulumi project (Pulumi.yaml) of the current folder, with Pulumi's commands, flags
    and state files.

    \b
    Examples:
      gpuform stack init dev
      gpuform up --emulate
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
