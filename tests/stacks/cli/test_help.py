"""Help is complete, and does not pay for the engine."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import click
import pytest

from gpuform.stacks.cli.app import _COMMANDS, cli
from gpuform.stacks.cli.flags import FURTHER, TITLES


def walk_commands(group: click.Group, *names: str) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*names, name)), command
        if isinstance(command, click.Group):
            yield from walk_commands(command, *names, name)


ALL_COMMANDS = list(walk_commands(cli))


@pytest.mark.parametrize(("name", "command"), ALL_COMMANDS, ids=[name for name, _ in ALL_COMMANDS])
def test_every_command_and_flag_has_help(name: str, command: click.Command) -> None:
    assert command.help
    assert "Example" in command.help
    assert command.help.splitlines()[0].endswith(".")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"


def test_the_overview_repeats_the_first_lines_of_commands() -> None:
    help_by_command = {
        name: command.help for name, command in walk_commands(cli) if " " not in name
    }
    assert {name: (help_ or "").splitlines()[0] for name, help_ in help_by_command.items()} == {
        name: summary for name, (_, summary) in _COMMANDS.items()
    }


def test_the_overview_shows_every_command_in_its_family_or_names_it_at_the_end(run: Any) -> None:
    output = run("--help").out
    shown = re.findall(r"(?m)^  ([a-z-]+) {2,}[A-Z]", output.partition("Plan and change:")[2])
    named = output.partition("\nMore:\n  ")[2].partition("\n")[0].split(", ")
    assert sorted([*shown, *named]) == sorted(_COMMANDS)
    assert set(named) == FURTHER
    titles = re.findall(r"(?m)^([A-Z][a-z ]+):$", output)
    assert titles == ["Options", *TITLES.values(), "More"]
    access = output.partition("Connect to a cluster:\n")[2].splitlines()
    assert [line.split()[0] for line in access[:3]] == ["kubeconfig", "ssh-config", "connect"]


@pytest.mark.parametrize("flag", ["-h", "-help", "--help"])
@pytest.mark.parametrize("words", [(), ("up",), ("state", "rm")])
def test_help_has_the_flags_of_terraform_and_pulumi(
    run: Any, words: tuple[str, ...], flag: str
) -> None:
    ran = run(*words, flag)
    assert ran.code == 0
    assert ran.out.startswith(f"Usage: {' '.join(['gpuform', *words])} ")


def test_the_old_name_of_export_topology_works(run: Any) -> None:
    assert (
        run("topology", "--help").out.splitlines()[2]
        == (run("export-topology", "--help").out.splitlines()[2])
    )


def test_the_list_of_commands_is_complete() -> None:
    assert {name for name, _ in ALL_COMMANDS} == {
        *(
            "preview",
            "up",
            "refresh",
            "destroy",
            "stack",
            "config",
            "emulator",
            *(f"emulator {name}" for name in ("env", "share", "start", "status", "stop")),
        ),
        *("state", "cancel", "status", "schema", "fmt", "new", "validate", "review", "rehearse"),
        *("test", "lsp", "mcp"),
        *(
            "login",
            "logout",
            "state recover",
            "logs",
            "explain",
            "calendar",
            "doctor",
            "graph",
            "convert",
        ),
        *(
            "import",
            "orphans",
            "fetch-plan",
            "plan-part",
            "join",
            "drift",
            "expire",
            "repair",
            "manifests",
            "offers",
            "console",
            "notify",
            "rehearse",
        ),
        *("kubeconfig", "ssh-config", "connect", "export-topology", "about", "whoami"),
        *(f"state {name}" for name in ("list", "show", "delete", "protect", "unprotect")),
        *(f"state {name}" for name in ("taint", "untaint", "rename", "move", "repair", "upgrade")),
        *(f"stack {name}" for name in ("init", "ls", "select", "rm", "output", "export")),
        *(f"stack {name}" for name in ("import", "history", "rename", "migrate", "unselect")),
        "stack change-secrets-provider",
        *("plugin", *(f"plugin {name}" for name in ("install", "uninstall", "doctor"))),
        *(f"config {name}" for name in ("ls", "set", "get", "rm")),
        *("help", "completion"),
    }


def test_up_has_the_short_flags_of_pulumi() -> None:
    up = dict(ALL_COMMANDS)["up"]
    short = {opt for p in up.params for opt in p.opts if opt.startswith("-") and len(opt) == 2}
    assert short == {"-s", "-y", "-f", "-j", "-p", "-r", "-C", "-v", "-t", "-x", "-m", "-c"}


@pytest.mark.parametrize("args", [["--help"], ["up", "--help"], ["--version"]])
def test_help_loads_neither_pulumi_nor_rich(args: list[str]) -> None:
    code = (
        "import sys\n"
        "from gpuform.stacks.cli.app import cli\n"
        f"try:\n    cli.main(args={args!r}, prog_name='gpuform')\n"
        "except SystemExit as ended:\n    assert ended.code == 0, ended.code\n"
        "heavy = {'pulumi', 'grpc', 'rich', 'flask', 'httpx', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_version_prints_the_installed_version(run: Any) -> None:
    from importlib.metadata import version

    assert run("--version").out == f"gpuform {version('gpuform')}\n"


def test_an_unknown_command_suggests_the_nearest(run: Any) -> None:
    ran = run("destory")
    assert ran.code == 2
    assert "No such command 'destory'" in ran.err
    assert "'destroy'" in ran.err


@pytest.mark.parametrize("args", [(), ("stack",), ("state",)])
def test_a_group_without_command_shows_its_help(run: Any, args: tuple[str, ...]) -> None:
    ran = run(*args)
    assert ran.code == 0
    assert ran.out == run(*args, "--help").out
