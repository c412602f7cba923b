"""Render a page for each command of `gpuform`, from the commands themselves."""

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from gpuform.stacks.cli.app import cli
from gpuform.stacks.cli.flags import ALIASES, FAMILIES, TITLES, OptionWithOldNames, find_help_page
from gpuform.stacks.cli.session import add_common_flags, add_stack_flags
from tools.reference.markdown import escape_prose, join_as_code, render_page, render_table

_NOT_RUN: Final = (
    "<!-- not run: tests/documentation/test_examples.py runs it in a project of its own -->"
)
# click wraps no paragraph that begins with a backspace: the examples, and tables of text.
_UNWRAPPED: Final = "\b"
_EXAMPLES_BEGIN: Final = f"{_UNWRAPPED}\nExample"
_HEAD: Final = ("flag", "value", "default", "meaning")


def render_command_pages() -> Iterator[tuple[str, str]]:
    """Yield the path below `commands/` and the text of each page.

    Raises:
        KeyError: a command has no family.
    """
    yield "index.md", _render_index()
    root = click.Context(cli, info_name="gpuform")
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None  # noqa: S101 - it is listed
        # The command's own hints name the page, so the same function decides its path.
        path = find_help_page(name).partition("commands/")[2]
        yield f"{path}.md", _render_command(command, name, root)


def _render_index() -> str:
    """Return the page that lists all commands by family, and the flags that commands share."""
    root = click.Context(cli, info_name="gpuform")
    return render_page(
        "Commands",
        "This page lists every command of `gpuform`, by topic. Each command has a page with all "
        "of its flags.",
        [
            *(_render_family(family, root) for family in FAMILIES),
            "## Flags of every command\n\nThese flags may come before or after the command.",
            _render_flags(_list_added_flags(add_common_flags)),
            "`--help` or `-h` shows a command's flags. `gpuform --version` shows the version.",
            "A flag of several letters also works with a single dash, as in Terraform: `-json`.",
            "## Flags of commands that work on a stack",
            _render_flags(
                [
                    option
                    for option in _list_added_flags(add_stack_flags)
                    if option.name not in _list_flag_names(add_common_flags)
                ]
            ),
            "## Exit codes\n\n[Exit codes](../exit-codes.md) explains each code.",
        ],
    )


def _render_family(family: str, root: click.Context) -> str:
    """Return the section of a family of commands, with the link and effect of each command."""
    rows = []
    for name in FAMILIES[family]:
        command = cli.get_command(root, name)
        if command is not None:
            line = _render_paragraphs(command)[0]
            rows.append([f"[gpuform {name}]({family}/{name}.md)", line])
    return f"## {TITLES[family]}\n\n{render_table(('command', 'effect'), rows)}"


def _render_command(command: click.Command, name: str, root: click.Context) -> str:
    """Return the page of a command and all of its subcommands."""
    first, *others = _render_paragraphs(command)
    paragraphs = [*others, *_render_other_names(_find_other_names(name, cli, root))]
    context = click.Context(command, info_name=name, parent=root)
    return render_page(
        f"gpuform {name}",
        first,
        [
            *_render_body(command, context, paragraphs),
            *_render_subcommands(command, context),
            _READ_ON,
        ],
    )


_READ_ON: Final = """\
## Read on

* [All commands](../index.md)
* [Exit codes](../../exit-codes.md)
* [Configuration and variables](../../configuration.md)
"""


def _render_body(
    command: click.Command, context: click.Context, paragraphs: Iterable[str]
) -> Iterator[str]:
    """Yield a command's usage, paragraphs, examples and flags.

    Flags of every command are only linked. A command without examples has no such block.
    """
    yield f"```text\n{_format_usage(command, context)}\n```"
    yield from paragraphs
    examples = _read_examples(command)
    if examples:
        yield f"{_NOT_RUN}\n```bash\n{examples}\n```"
    options = [option for option in command.params if isinstance(option, click.Option)]
    yield _render_flags(
        option for option in options if option.name not in _list_flag_names(add_stack_flags)
    )
    yield _render_shared_flags(options)


def _render_subcommands(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield a section for each subcommand at any depth; nothing for a single command."""
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None  # noqa: S101 - it is listed
        below = click.Context(inner, info_name=name, parent=context)
        paragraphs = [
            *_render_paragraphs(inner),
            *_render_other_names(_find_other_names(name, command, context)),
        ]
        yield f"## {below.command_path}"
        yield from _render_body(inner, below, paragraphs)
        yield from _render_subcommands(inner, below)


def _format_usage(command: click.Command, context: click.Context) -> str:
    """Return the usage line of a command: the command and its flags and arguments in short."""
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _render_paragraphs(command: click.Command) -> list[str]:
    """Return the paragraphs of a command's help without the examples."""
    return [
        _render_paragraph(part)
        for part in _split_help(command)
        if not part.startswith(_EXAMPLES_BEGIN)
    ]


def _render_paragraph(text: str) -> str:
    """Return a paragraph of a help: prose, or a table of text below its heading."""
    if not text.startswith(_UNWRAPPED):
        return escape_prose(text)
    _, heading, *rows = text.splitlines()
    table = textwrap.dedent("\n".join(rows))
    return f"{escape_prose(heading)}\n\n```text\n{table}\n```"


def _read_examples(command: click.Command) -> str:
    """Return the commands in the block `Examples:` of a command's help."""
    blocks = [block for block in _split_help(command) if block.startswith(_EXAMPLES_BEGIN)]
    lines = [line for block in blocks for line in block.splitlines()[2:]]
    return inspect.cleandoc("\n".join(["", *lines]))


def _split_help(command: click.Command) -> list[str]:
    """Return the paragraphs of a command's help, with the examples; [""] without a help."""
    return re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))


def _find_other_names(name: str, group: click.Group, context: click.Context) -> list[str]:
    """Return Pulumi's names for a command, as far as the group accepts them."""
    commands = group.list_commands(context)
    names = []
    for alias, targets in ALIASES.items():
        # An alias of several commands means the first one that the group has, as on the command
        # line.
        first = next((target for target in targets if target in commands), None)
        if alias not in commands and first == name and (group is not cli or targets[0] == name):
            names.append(alias)
    return names


def _render_other_names(others: list[str]) -> Iterator[str]:
    """Yield a sentence with the other names of a command; nothing without any."""
    if others:
        yield f"Other name{'s' if len(others) > 1 else ''}: {join_as_code(others)}."


def _render_shared_flags(options: Iterable[click.Option]) -> str:
    """Return a sentence that links the shared flags among `options`, or "" if some are missing."""
    names = {option.name for option in options}
    if not names >= _list_flag_names(add_common_flags):
        return ""
    common = "the [flags of every command](../index.md#flags-of-every-command)"
    if names >= _list_flag_names(add_stack_flags):
        return (
            "It also takes [`--stack NAME`]"
            f"(../index.md#flags-of-commands-that-work-on-a-stack) and {common}."
        )
    return f"It also takes {common}."


def _render_flags(options: Iterable[click.Option]) -> str:
    """Return a table with a row for each flag, or "" without flags."""
    return render_table(_HEAD, [_format_flag(option) for option in options])


def _format_flag(option: click.Option) -> list[str]:
    """Return the cells of a flag's row: names, value, default and meaning."""
    shown_names = option.shown_names if isinstance(option, OptionWithOldNames) else option.opts
    names = join_as_code([*shown_names, *option.secondary_opts])
    meaning = escape_prose(option.help or "")
    if option.multiple:
        meaning += " May be repeated."
    if option.envvar:
        meaning += f" Also from the variable `{option.envvar}`."
    return [names, _format_value(option), _format_default(option), meaning]


def _format_value(option: click.Option) -> str:
    """Return the flag's possible values or a placeholder as code, or "" without a value."""
    if option.is_flag or option.count:
        return ""
    if isinstance(option.type, click.Choice):
        return join_as_code(map(str, option.type.choices))
    if option.metavar:
        return f"`{option.metavar}`"
    if isinstance(option.type, click.Path):
        return "`FOLDER`" if not option.type.file_okay else "`FILE`"
    # click calls a number with limits INTEGER RANGE.
    return f"`{option.type.name.upper().replace(' RANGE', '')}`"


def _format_default(option: click.Option) -> str:
    """Return `required`, the default as code, or "" for a switch and for a computed default."""
    if option.required:
        return "required"
    value: Any = option.default
    # A default that a function computes depends on the machine.
    if option.is_flag or callable(value) or not isinstance(value, str | int | float) or value == "":
        return ""
    return f"`{value}`"


def _list_flag_names(decorator: Any) -> set[str]:
    """Return the names of the flags added to a command by a decorator."""
    return {option.name or "" for option in _list_added_flags(decorator)}


def _list_added_flags(decorator: Any) -> list[click.Option]:
    """Return the flags added to a command by a decorator of `gpuform.stacks.cli.session`."""
    # Decorators of click add their flags only to a command.
    command = decorator(click.command()(lambda: None))
    return [option for option in command.params if isinstance(option, click.Option)]
