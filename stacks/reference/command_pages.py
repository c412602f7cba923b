"""A page for each command of `gpuform`, from the commands themselves."""

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from gpuform.stacks.cli.app import cli
from gpuform.stacks.cli.flags import ALIASES, FAMILIES, TITLES, page_of
from gpuform.stacks.cli.session import common_flags, stack_flags
from gpuform.stacks.reference.markdown import listed, page, plain, table

_NOT_RUN: Final = (
    "<!-- not run: tests/documentation/test_examples.py runs it in a project of its own -->"
)
_HEAD: Final = ("flag", "value", "default", "meaning")


def command_pages() -> Iterator[tuple[str, str]]:
    """The path below `commands/` of each page, and its text. Raises KeyError without a family."""
    yield "index.md", _index()
    root = click.Context(cli, info_name="gpuform")
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None  # noqa: S101 - it is listed
        path = page_of(name).partition("commands/")[2]
        yield f"{path}.md", _page(command, name, root)


def _index() -> str:
    root = click.Context(cli, info_name="gpuform")
    return page(
        "Commands",
        "This page lists every command of `gpuform`, by family. Each command has a page with all "
        "of its flags.",
        [
            *(_family(family, root) for family in FAMILIES),
            "## Flags of every command\n\nThey may stand before the command or after it.",
            _flags(_added_by(common_flags)),
            "`--help` shows a command's flags. `gpuform --version` shows the version.",
            "## Flags of commands that work on a stack",
            _flags(
                [each for each in _added_by(stack_flags) if each.name not in _names(common_flags)]
            ),
            "## Exit codes\n\n[Exit codes](../exit-codes.md) says what each one means.",
        ],
    )


def _family(family: str, root: click.Context) -> str:
    rows = []
    for name in FAMILIES[family]:
        command = cli.get_command(root, name)
        if command is not None:
            line = plain(_paragraphs(command)[0])
            rows.append([f"[gpuform {name}]({family}/{name}.md)", line])
    return f"## {TITLES[family]}\n\n{table(('command', 'does'), rows)}"


def _page(command: click.Command, name: str, root: click.Context) -> str:
    first, *others = _paragraphs(command)
    told = [*others, *_called(_other_names(name, cli, root))]
    context = click.Context(command, info_name=name, parent=root)
    return page(
        f"gpuform {name}",
        plain(first),
        [*_body(command, context, told), *_subcommands(command, context), _READ_ON],
    )


_READ_ON: Final = """\
## Read on

* [All commands](../index.md)
* [Exit codes](../../exit-codes.md)
* [Configuration and variables](../../configuration.md)
"""


def _body(
    command: click.Command, context: click.Context, paragraphs: Iterable[str]
) -> Iterator[str]:
    yield f"```text\n{_usage(command, context)}\n```"
    for each in paragraphs:
        yield plain(each)
    examples = _examples(command)
    if examples:
        yield f"{_NOT_RUN}\n```bash\n{examples}\n```"
    own = [each for each in command.params if isinstance(each, click.Option)]
    yield _flags(each for each in own if each.name not in _names(stack_flags))
    yield _shared(own)


def _subcommands(command: click.Command, context: click.Context) -> Iterator[str]:
    if not isinstance(command, click.Group):
        return
    for name in command.list_commands(context):
        inner = command.get_command(context, name)
        assert inner is not None  # noqa: S101 - it is listed
        below = click.Context(inner, info_name=name, parent=context)
        told = [*_paragraphs(inner), *_called(_other_names(name, command, context))]
        yield f"## {below.command_path}"
        yield from _body(inner, below, told)
        yield from _subcommands(inner, below)


def _usage(command: click.Command, context: click.Context) -> str:
    return " ".join([context.command_path, *command.collect_usage_pieces(context)])


def _paragraphs(command: click.Command) -> list[str]:
    """What the command's text says, without its examples."""
    return [each for each in _texts(command) if not each.startswith("\b")]


def _examples(command: click.Command) -> str:
    """The commands of the block `Examples:`."""
    blocks = [each for each in _texts(command) if each.startswith("\b\nExample")]
    lines = [line for each in blocks for line in each.splitlines()[2:]]
    return inspect.cleandoc("\n".join(["", *lines]))


def _texts(command: click.Command) -> list[str]:
    return re.split(r"\n\s*\n", inspect.cleandoc(command.help or ""))


def _other_names(name: str, group: click.Group, context: click.Context) -> list[str]:
    """The names of Pulumi's by which the group finds the command as well."""
    there = group.list_commands(context)
    found = []
    for alias, meant in ALIASES.items():
        first = next((each for each in meant if each in there), None)
        if alias not in there and first == name and (group is not cli or meant[0] == name):
            found.append(alias)
    return found


def _called(others: list[str]) -> Iterator[str]:
    if others:
        yield f"Other name{'s' if len(others) > 1 else ''}: {listed(others)}."


def _shared(own: Iterable[click.Option]) -> str:
    names = {each.name for each in own}
    if not names >= _names(common_flags):
        return ""
    common = "the [flags of every command](../index.md#flags-of-every-command)"
    if names >= _names(stack_flags):
        return (
            "It also takes [`--stack NAME`]"
            f"(../index.md#flags-of-commands-that-work-on-a-stack) and {common}."
        )
    return f"It also takes {common}."


def _flags(options: Iterable[click.Option]) -> str:
    return table(_HEAD, [_row(each) for each in options])


def _row(option: click.Option) -> list[str]:
    names = listed([*option.opts, *option.secondary_opts])
    meaning = plain(option.help or "")
    if option.multiple:
        meaning += " May be given several times."
    if option.envvar:
        meaning += f" Also from the variable `{option.envvar}`."
    return [names, _value(option), _default(option), meaning]


def _value(option: click.Option) -> str:
    if option.is_flag or option.count:
        return ""
    if isinstance(option.type, click.Choice):
        return listed(map(str, option.type.choices))
    if option.metavar:
        return f"`{option.metavar}`"
    if isinstance(option.type, click.Path):
        return "`FOLDER`" if not option.type.file_okay else "`FILE`"
    return f"`{option.type.name.upper().replace(' RANGE', '')}`"


def _default(option: click.Option) -> str:
    if option.required:
        return "required"
    value: Any = option.default
    if option.is_flag or callable(value) or not isinstance(value, str | int | float) or value == "":
        return ""
    return f"`{value}`"


def _names(adding: Any) -> set[str]:
    return {each.name or "" for each in _added_by(adding)}


def _added_by(adding: Any) -> list[click.Option]:
    """The flags that a decorator of `session` adds."""
    command = adding(click.command()(lambda: None))
    return [each for each in command.params if isinstance(each, click.Option)]
