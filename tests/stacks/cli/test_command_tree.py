"""There is one way for each thing in all commands: the same names, short flags and switches.

The tests walk over the command tree, so that they hold for new commands as well. An exception
belongs into one of the tables below, with its reason.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import click
import pytest
from support.stacks.planned_project import PlannedProject

from gpuform.stacks.cli.app import cli
from gpuform.stacks.cli.flags import FAMILIES, FURTHER, AliasedGroup, OptionWithOldNames


def walk_commands(group: click.Group, *above: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*above, name)), command
        if isinstance(command, click.Group):
            yield from walk_commands(command, *above, name)


Run = Callable[..., Any]
COMMANDS: Final = dict(walk_commands(cli))


def list_options(command: click.Command) -> list[click.Option]:
    return [parameter for parameter in command.params if isinstance(parameter, click.Option)]


def list_shown_names(option: click.Option) -> list[str]:
    return option.shown_names if isinstance(option, OptionWithOldNames) else option.opts


def list_names(command: click.Command) -> set[str]:
    """Return all names of a command's options, old ones as well."""
    return {name for option in list_options(command) for name in option.opts}


SECOND_MEANINGS: Final[Mapping[str, set[str]]] = {
    "-f": {"--force", "--skip-preview"},
    "-c": {"--config", "--create"},
    "-j": {"--json", "--jobs"},
}
"""Short flags with two meanings, both without a prompt or of Pulumi; -j is pytest's in `test`."""


def test_a_short_flag_has_one_meaning() -> None:
    meanings: defaultdict[str, set[str]] = defaultdict(set)
    for command in COMMANDS.values():
        for option in list_options(command):
            long_name = next(name for name in option.opts if name.startswith("--"))
            for name in list_shown_names(option):
                if not name.startswith("--"):
                    meanings[name].add(long_name)
    several = {name: long_names for name, long_names in meanings.items() if len(long_names) > 1}
    assert several == SECOND_MEANINGS


def test_a_flag_has_no_two_short_names() -> None:
    short_names: defaultdict[str, set[str]] = defaultdict(set)
    for command in COMMANDS.values():
        for option in list_options(command):
            shown_names = list_shown_names(option)
            short = {name for name in shown_names if not name.startswith("--")}
            for name in set(shown_names) - short:
                short_names[name] |= short
    del short_names["--filter"]  # -k in `test`, as in pytest
    assert {name: short for name, short in short_names.items() if len(short) > 1} == {}


@pytest.mark.parametrize("flag", ["--json", "--yes", "--output", "--target", "--stack"])
def test_a_common_flag_has_its_short_name_in_every_command(flag: str) -> None:
    without = [
        words
        for words, command in COMMANDS.items()
        for option in list_options(command)
        if flag in option.opts and flag[1:3] not in option.opts and words != "test"
    ]
    assert without == []


@pytest.mark.parametrize("words", COMMANDS)
def test_a_format_json_is_also_the_flag_json(words: str) -> None:
    for option in list_options(COMMANDS[words]):
        if "--format" in option.opts:
            assert isinstance(option, OptionWithOldNames), "use add_format_flags"
            assert isinstance(option.type, click.Choice)
            assert "json" not in option.type.choices or "--json" in list_names(COMMANDS[words])


FILES_WITH_OTHER_NAMES: Final = {
    "--file": "the file that `stack export`, `kubeconfig` and `ssh-config` maintain, as in Pulumi",
    "--save-plan": "a plan beside the output",
    "--profile": "a trace beside the output",
    "--event-log": "Pulumi's log beside the output",
    "--junit": "a report beside the output",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_the_file_of_the_output_is_called_output(words: str) -> None:
    for option in list_options(COMMANDS[words]):
        names = list_shown_names(option)
        if (option.help or "").startswith(("Write", "Save", "The file to write")) and (
            isinstance(option.type, click.Path)
        ):
            assert {"--output", "-o"} <= {*names} or {*names} & {*FILES_WITH_OTHER_NAMES}, names
        assert not {"--out", "--outfile", "--output-file"} & {*names}


@pytest.mark.parametrize("words", COMMANDS)
def test_preview_only_is_also_dry_run(words: str) -> None:
    names = list_names(COMMANDS[words])
    assert ("--preview-only" in names) is ("--dry-run" in names)
    # What works on the platforms' resources in parallel, and asks first, can also only show it.
    if {"--yes", "--parallel"} <= names:
        assert "--dry-run" in names, f"gpuform {words} has no --dry-run"


@pytest.mark.parametrize("words", [w for w, c in COMMANDS.items() if isinstance(c, click.Group)])
def test_every_group_accepts_the_other_names_of_its_commands(words: str) -> None:
    group = COMMANDS[words]
    assert isinstance(group, AliasedGroup)
    context = click.Context(group)
    for names in ({"ls", "list"}, {"rm", "remove"}):
        found = {name for name in names if group.get_command(context, name) is not None}
        assert found in (set(), names), f"gpuform {words} has only {found}"


WITHOUT_EMULATOR: Final = {
    "new": "--stack names the stack of its example",
    "config set": "changes the configuration, of any stack",
    "config rm": "changes the configuration, of any stack",
    "cancel": "removes locks, of any stack",
    "stack": "prints its help",
    "state": "prints its help",
}


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_that_reads_a_stack_accepts_emulate(words: str) -> None:
    names = list_names(COMMANDS[words])
    # A command with a lock changes the state: of the emulator only if it asks the platforms.
    if "--stack" in names and "--lock-timeout" not in names and words not in WITHOUT_EMULATOR:
        assert "--emulate" in names, f"gpuform {words} refuses --emulate"


def test_what_shows_changes_has_a_detailed_exit_code() -> None:
    with_code = {w for w, c in COMMANDS.items() if "--detailed-exitcode" in list_names(c)}
    assert {"preview", "drift", "review"} <= with_code


def test_every_command_is_in_one_family() -> None:
    in_families = [name for names in FAMILIES.values() for name in names]
    assert sorted(in_families) == sorted(words for words in COMMANDS if " " not in words)
    assert set(in_families) >= FURTHER


def test_the_preview_exits_with_2_only_if_something_would_change(
    applied_project: PlannedProject,
) -> None:
    assert applied_project.run("preview", "--detailed-exitcode").code == 0
    assert applied_project.run("config", "set", "gpus", "24").code == 0
    assert applied_project.run("preview").code == 0
    assert applied_project.run("preview", "--detailed-exitcode").code == 2
    assert applied_project.run("preview", "--detailed-exitcode", "--json").code == 2


def test_a_dry_run_of_up_is_a_preview(applied_project: PlannedProject) -> None:
    assert applied_project.run("config", "set", "gpus", "24").code == 0
    requests = applied_project.sent_changes
    dry_run = applied_project.run("up", "--dry-run")
    assert dry_run.code == 0
    assert dry_run.out == applied_project.run("preview").out
    assert applied_project.sent_changes == requests


def test_old_names_of_flags_work_and_are_not_shown(run: Run) -> None:
    context = click.Context(cli)
    convert = cli.get_command(context, "convert")
    drift = cli.get_command(context, "drift")
    assert convert is not None
    assert drift is not None
    assert (
        convert.make_context("convert", ["--out", "a.py"], parent=context).params["out"] == "a.py"
    )
    assert drift.make_context("drift", ["-f", "json"], parent=context).params["form"] == "json"
    assert drift.make_context("drift", ["-j"], parent=context).params["form"] == "json"
    assert "--out," not in run("convert", "--help").out
    assert "-f, --format" not in run("drift", "--help").out
