"""The page of each command has every flag and every subcommand."""

import re
from collections.abc import Iterator

import click
import pytest

from gpuform.stacks.cli.app import cli
from gpuform.stacks.cli.flags import FAMILIES, TITLES, OptionWithOldNames, find_help_page
from tools.reference.command_pages import render_command_pages

PAGES = dict(render_command_pages())
ROOT = click.Context(cli, info_name="gpuform")
COMMANDS = cli.list_commands(ROOT)


def get_page(command: str) -> str:
    return PAGES[f"{find_help_page(command).removeprefix('reference/commands/')}.md"]


def list_subcommands(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """Yield a command and all subcommands, with contexts."""
    yield command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from list_subcommands(inner, click.Context(inner, info_name=name, parent=context))


def test_every_command_is_in_one_family_and_has_one_page() -> None:
    in_families = [name for names in FAMILIES.values() for name in names]
    assert sorted(in_families) == sorted(COMMANDS)
    assert FAMILIES.keys() == TITLES.keys()
    assert len(PAGES) == len(COMMANDS) + 1
    for name in COMMANDS:
        path = find_help_page(name).removeprefix("reference/commands/")
        assert f"[gpuform {name}]({path}.md)" in PAGES["index.md"]
    with pytest.raises(KeyError, match=r"flags\.py"):
        find_help_page("none")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_page_has_every_flag_of_every_subcommand(name: str) -> None:
    top = cli.get_command(ROOT, name)
    assert top is not None
    page = get_page(name)
    for command, context in list_subcommands(top, click.Context(top, info_name=name, parent=ROOT)):
        sections = re.split(r"^## ", page, flags=re.MULTILINE)
        if command is not top:
            own_section = next(
                section_text
                for section_text in sections
                if section_text.startswith(f"{context.command_path}\n")
            )
        else:
            own_section = sections[0]
        for option in (
            parameter for parameter in command.params if isinstance(parameter, click.Option)
        ):
            section = own_section
            if "[flags of every command]" in own_section and option.name in (
                *("cwd", "color", "non_interactive", "verbose", "stack"),
            ):
                section = PAGES["index.md"]
            shown = option.shown_names if isinstance(option, OptionWithOldNames) else option.opts
            for flag in (*shown, *option.secondary_opts):
                assert f"`{flag}`" in section, (context.command_path, flag)
        assert context.command_path in own_section


def test_a_page_has_examples_aliases_and_flags() -> None:
    up = get_page("up")
    assert up.startswith("# gpuform up\n\n<!-- Generated: ")
    assert "```bash\ngpuform up\ngpuform up --yes --emulate\n" in up
    assert "Other name: `update`." in up
    assert "| `--allow` | `NAME` |  | Allow a refused action" in up
    assert "May be repeated. |" in up
    assert "| `--lock-timeout` | `DURATION` | `0` |" in up
    assert "`PULUMI_RUN_PROGRAM`" in get_page("destroy")
    assert "Other names: `remove`, `delete`." in get_page("config")


def test_a_page_has_the_tables_of_its_help() -> None:
    orphans = get_page("orphans")
    assert "\nExit codes, for a scheduled job:\n\n```text\n0  no orphans, and every" in orphans
    assert "\nzsh:                  echo 'eval" in get_page("completion")


def test_each_block_of_examples_says_who_runs_it() -> None:
    for page in PAGES.values():
        blocks = re.findall(r"^(.*)\n```bash$", page, re.MULTILINE)
        assert all(line.startswith("<!-- not run: tests/documentation/") for line in blocks)
        assert "\b" not in page
