"""`gpuform help`: the documentation in a terminal."""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

import click
from click.shell_completion import CompletionItem

from gpuform.stacks.cli.flags import page_of
from gpuform.stacks.cli.session import Session, common_flags, session
from gpuform.stacks.help_pages import NoSuchPage, Page, find_page, page_names, read_page

_WIDTH: Final = 100
_PARTS: Final = ("", "start", "guides", "concepts", "reference")
"""The folders of pages, in the order of a reader."""


def _complete(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Commands and pages; behind a command, those below it."""
    given: Sequence[str] = context.params.get("page") or ()
    path = _path_of(context, given)
    names = _below(context, path) if path is not None else []
    if not given:
        names += page_names()
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


@click.command("help")
@click.argument("page", nargs=-1, shell_complete=_complete)
@common_flags
@click.pass_context
def help_(context: click.Context, page: tuple[str, ...]) -> None:
    """Show a page of the documentation, or list the pages.

    PAGE is a name of the list (guides/adopt), or the end of one where only one page has it (adopt).
    It is also a command, or a command with its subcommand. #ANCHOR chooses a part of the page. On
    a terminal the page comes in a pager, the one of the variable PAGER or else less; elsewhere it
    is Markdown.

    \b
    Examples:
      gpuform help
      gpuform help adopt
      gpuform help stack init
      gpuform help concepts/intents#what-is-kept
    """
    with session() as current:
        _show(current, _chosen(context, page) if page else "\n".join(_list()))


def _chosen(context: click.Context, words: tuple[str, ...]) -> str:
    wanted, _, anchor = words[0].partition("#")
    path = _path_of(context, (wanted, *words[1:]))
    if path is None and len(words) > 1:
        raise NoSuchPage(f"there is no command {' '.join(words)}", hint="all pages: gpuform help")
    if path is None:
        return _part(read_page(find_page(wanted)), anchor)
    if len(path) > 1:
        anchor = "-".join(["gpuform", *path])
    return _part(read_page(page_of(path[0])), anchor) + _others(path)


def _part(page: Page, anchor: str) -> str:
    return page.section(anchor) if anchor else page.text


def _others(path: tuple[str, ...]) -> str:
    """Other pages that have the name of a command."""
    named = [each for each in page_names() if each.endswith(f"/{path[-1]}")]
    others = [each for each in named if each != page_of(path[0])] if len(path) == 1 else []
    return "".join(f"\nSee also: `gpuform help {each}`\n" for each in others)


def _list() -> Iterator[str]:
    yield "# The documentation of gpuform\n"
    yield "`gpuform help PAGE` shows a page, and `gpuform help COMMAND` a command's.\n"
    names = page_names()
    widest = max(map(len, names))
    names.sort(key=lambda name: _PARTS.index(_part_of(name)))
    for part, inside in groupby(names, _part_of):
        if part:
            yield f"## {part.capitalize()}\n"
        yield "```text"
        yield from (f"{name:<{widest}}  {read_page(name).title}" for name in inside)
        yield "```\n"


def _part_of(name: str) -> str:
    return name.partition("/")[0] if "/" in name else ""


def _show(current: Session, markdown: str) -> None:
    screen = current.screen
    if not screen.is_terminal:
        screen.write(markdown.rstrip() + "\n")
        return
    text = _rendered(screen.harmless(markdown), color=screen.paint.color)
    if not screen.interactive:
        screen.mark(text.rstrip())
        return
    os.environ.setdefault("LESS", "FRX")  # as git has it: a short page stays on the screen
    click.echo_via_pager(text, color=screen.paint.color)


def _rendered(markdown: str, *, color: bool) -> str:
    """For a terminal, as wide as it is; a long line is hard to read."""
    from rich.console import Console  # noqa: PLC0415 - slow, and only a terminal needs it
    from rich.markdown import Markdown  # noqa: PLC0415 - as above

    console = Console(force_terminal=color, color_system="standard" if color else None)
    console.width = min(console.width, _WIDTH)
    with console.capture() as capture:
        console.print(Markdown(markdown, hyperlinks=False, code_theme="ansi_dark"))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def _path_of(context: click.Context, words: Sequence[str]) -> tuple[str, ...] | None:
    """The command that is named, by its own names; None when there is none."""
    command: click.Command | None = context.find_root().command
    path = []
    for word in words:
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
        if command is None or command.name is None:
            return None
        path.append(command.name)
    return tuple(path)


def _below(context: click.Context, path: tuple[str, ...]) -> list[str]:
    command: click.Command | None = context.find_root().command
    for word in path:
        command = command.get_command(context, word) if isinstance(command, click.Group) else None
    return command.list_commands(context) if isinstance(command, click.Group) else []
