"""The part of the slow tests that .ci/run plays reaches every kind, verb and command.

The tests look at what their own session has collected. In a session of a part of the tests they say
nothing, and are skipped.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from conformance.catalogue import KINDS

from gpuform.stacks.cli.app import cli

ROOT = Path(__file__).parents[1]
VERBS = ("check", "diff", "create", "read", "update", "delete")
"""Those of Pulumi's protocol: a test of the lifecycles has the verb in its name or its case."""
PLAYED_BY_FAST_TESTS = {
    "fetch-plan": "test_review_posting.py",
    "login": "test_login.py",
    "logout": "test_login.py",
    "plugin uninstall": "test_plugin_commands.py",
    "stack rename": "test_stack_commands.py",
    "stack unselect": "test_stack_commands.py",
    "state recover": "test_damaged_files.py",
    "state upgrade": "test_state_commands.py",
}
"""Commands that no page shows: .ci/run plays them all the same, with the README's tests."""
PLAYED_BY_SLOW_TESTS = {
    "lsp": "stacks/lsp/test_session.py",
    "mcp": "stacks/mcp/test_session.py",
    "stack migrate": "stacks/cli/test_state_crashes.py",
    "plan-part": "stacks/cli/test_plan_parts.py",
    "join": "stacks/cli/test_plan_parts.py",
}
"""Servers, which no page can show: clients of theirs play them. Of the others, a page's line is too
long for the pattern of this test, or CI does not play the page each time."""

pytestmark = [pytest.mark.slow, pytest.mark.sampled(1)]


@pytest.fixture
def selected(request: pytest.FixtureRequest) -> list[str]:
    """Return the ids of this session's slow tests."""
    is_whole = [*map(Path, request.config.args)] in ([Path("tests")], [ROOT / "tests"])
    if not is_whole or request.config.option.keyword:
        pytest.skip("this session has a part of the tests alone")
    return [item.nodeid for item in request.session.items if item.get_closest_marker("slow")]


@pytest.mark.parametrize("kind", sorted(map(str, KINDS)))
@pytest.mark.parametrize("host", ["engine", "plugin", "stock-host"])
def test_every_kind_is_played_in_every_host(selected: list[str], kind: str, host: str) -> None:
    assert [id_ for id_ in selected if {kind, host} <= {*names_in_case(id_, kind, host)}]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_played(selected: list[str], verb: str) -> None:
    lifecycles = [id_ for id_ in selected if id_.startswith("tests/conformance/")]
    assert [id_ for id_ in lifecycles if re.search(rf"(_|\b){verb}s?(_|\b)", id_)]


def test_every_command_is_played(selected: list[str]) -> None:
    pages = [id_ for id_ in selected if "test_the_commands_of_a_page_do_what_the_page_says[" in id_]
    texts = [(ROOT / id_.partition("[")[2][:-1]).read_text(encoding="utf-8") for id_ in pages]
    played = {
        *(id_.partition("[")[2] for id_ in selected if "test_flag_combinations" in id_),
        *re.findall(r"(?m)^(?:\$ |.*\()?gpuform ([a-z].*)", "\n".join(texts)),
        *PLAYED_BY_FAST_TESTS,
        *(name for name, file in PLAYED_BY_SLOW_TESTS.items() if file in "\n".join(selected)),
    }

    missing = [
        command
        for command in commands()
        if not any(re.match(rf"{command}\b", played_command) for played_command in played)
    ]

    assert missing == []


@pytest.mark.parametrize("command", PLAYED_BY_FAST_TESTS)
def test_the_fast_tests_play_the_others(command: str) -> None:
    file = ROOT / "tests/stacks/cli" / PLAYED_BY_FAST_TESTS[command]
    words = r",\s*".join(f'"{word}"' for word in command.split())
    assert re.search(rf"\b(run|dev)\(\s*{words}", file.read_text(encoding="utf-8"))


def names_in_case(id_: str, *names: str) -> Iterator[str]:
    """Return the members of `names` in the case of a test."""
    case = id_.partition("[")[2].rstrip("]")
    return (name for name in names if re.search(rf"(^|-){re.escape(name)}(-|$)", case))


def commands(group: click.Group = cli, path: str = "") -> Iterator[str]:
    """Return the words of each command, groups left out."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")
        elif command is not None and not command.hidden:
            yield f"{path}{name}"
