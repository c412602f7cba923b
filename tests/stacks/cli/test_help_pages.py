"""`gpuform help`: the documentation in a terminal, by the names that people type."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gpuform.stacks.cli.app import cli
from gpuform.stacks.cli.flags import find_help_page
from gpuform.stacks.help_pages import TOPICS, UnknownPage, find_page, list_page_names, read_page

Run = Callable[..., Any]
DOCS = Path(__file__).parents[3] / "docs"


def walk_commands(group: click.Group, *above: str) -> Iterator[tuple[str, ...]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        yield (*above, name)
        if isinstance(command, click.Group):
            yield from walk_commands(command, *above, name)


COMMANDS = list(walk_commands(cli))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_help_of_every_command_names_its_page(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command, "--help")
    assert ran.out.endswith(f"\n  Page: gpuform help {' '.join(command)}\n")
    page = run("help", *command)
    assert page.code == 0, page.err
    level = "##" if command[1:] else "#"
    assert page.out.startswith(f"{level} gpuform {' '.join(command)}\n")
    assert f"\n{level} " not in re.sub(r"(?ms)^```.*?^```$", "", page.out)


def test_help_lists_every_page(run: Run) -> None:
    output = run("help").out
    names = {file.relative_to(DOCS).with_suffix("").as_posix() for file in DOCS.rglob("*.md")}
    assert {line.split()[0] for line in output.splitlines() if "  " in line} == names
    assert re.search(r"^concepts/gone +What counts as gone$", output, re.MULTILINE)
    parts = re.findall(r"^## (\w+)$", output, re.MULTILINE)
    assert parts == ["Start", "Guides", "Concepts", "Reference"]


@pytest.mark.parametrize("name", list_page_names())
def test_every_page_can_be_shown(name: str) -> None:
    page = read_page(name)
    assert page.title
    for link in re.findall(r"\]\(([^)]+)\)", re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", "", page.text)):
        if not link.startswith(("https:", "http:")):
            assert not link.startswith("."), link


@pytest.mark.parametrize(
    ("query", "page"),
    [
        ("adopt", "guides/adopt"),
        ("guides/adopt", "guides/adopt"),
        ("guides/adopt.md", "guides/adopt"),
        ("concepts", "concepts/index"),
        ("reference/commands", "reference/commands/index"),
        ("commands", "reference/commands/index"),
        ("runs/up", "reference/commands/runs/up"),
        ("index", "index"),
        ("gates", "guides/gates-and-cost"),
        ("drain", "concepts/taking-nodes"),
        ("Workspace", "concepts/stack"),
    ],
)
def test_a_page_is_found_by_its_name_or_the_end_of_its_name(query: str, page: str) -> None:
    assert find_page(query) == page


def test_every_topic_leads_to_a_page_and_is_the_name_of_none() -> None:
    names = list_page_names()
    assert set(TOPICS.values()) <= set(names)
    assert [
        topic for topic in TOPICS if any(f"/{name}".endswith(f"/{topic}") for name in names)
    ] == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("adobt",), "unknown page adobt\n  did you mean guides/adopt"),
        (("guides/adobt",), "did you mean guides/adopt"),
        (("concepts/plan#nowhere",), "the page concepts/plan has no section nowhere\n  "),
        (("stack", "innit"), "unknown command stack innit\n  all pages: gpuform help\n"),
        (("zzz",), "unknown page zzz\n  all pages: gpuform help\n"),
        (("apply",), "gpuform has no `apply`: `gpuform up` creates, updates and deletes"),
        (("state", "pull"), "gpuform has no `state pull`: `gpuform stack export` prints the state"),
        (("",), "all pages: gpuform help\n"),
        (("../README",), "unknown page"),
    ],
)
def test_an_unknown_page_suggests_the_nearest(
    run: Run, args: tuple[str, ...], message: str
) -> None:
    ran = run("help", *args)
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err


def test_an_ambiguous_page_name_lists_the_pages() -> None:
    with pytest.raises(UnknownPage) as raised:
        find_page("cluster")
    assert raised.value.message == "several pages are named cluster"
    assert "gpuform help reference/resources/together/cluster" in str(raised.value.hint)


def test_help_prefers_a_command_and_names_the_guide(run: Run) -> None:
    output = run("help", "review").out
    assert output.startswith("# gpuform review\n")
    assert output.endswith("\nSee also: `gpuform help guides/review`\n")
    assert run("help", "guides/review").out.startswith("# Review")
    assert run("help", "down").out.startswith("# gpuform destroy\n")
    assert run("help", "stack", "list").out.startswith("## gpuform stack ls\n")


def test_help_shows_a_section_of_a_page(run: Run) -> None:
    part = run("help", "concepts/intents#how-an-interrupted-create-is-recovered").out
    assert part.startswith("## How an interrupted create is recovered\n")
    assert "\n## " not in part
    page = run("help", "intents").out
    assert part.strip() in page


def test_a_page_in_the_terminal_has_no_html_and_resolved_links(
    tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "guides").mkdir()
    (tmp_path / "guides" / "one.md").write_text(
        "# One\n\n<!-- in: examples/01 -->\n![a plan](../pictures/plan.svg#only-dark)\n\n"
        "See [two](../concepts/two.md#a-part), [here](#b), [out](https://a.b/c.md).\n\n"
        "<!-- file: a.md -->\n```markdown\n# no heading\n<!-- kept -->\n\n\n\n[a](b.md)\n```\n\n"
        "## B\n\nb\n\n### `c` of [d](two.md)\n\n## B\n\nagain\n"
    )
    monkeypatch.setattr("gpuform.stacks.help_pages.find_page_folders", lambda: [tmp_path])
    page = read_page("guides/one")
    assert page.text.startswith(
        "# One\n\nSee [two](concepts/two#a-part), [here](guides/one#b), [out](https://a.b/c.md).\n\n"
        "```markdown\n# no heading\n<!-- kept -->\n\n\n\n[a](b.md)\n```\n"
    )
    assert page.title == "One"
    assert page.get_section("b").endswith("### `c` of [d](guides/two)\n")
    assert page.get_section("c-of-d") == "### `c` of [d](guides/two)\n"
    assert page.get_section("b_1") == "## B\n\nagain\n"


def _run_on_terminal(*args: str, env: dict[str, str]) -> str:
    ours, theirs = pty.openpty()
    done = subprocess.Popen(
        [sys.executable, "-m", "gpuform.stacks.cli", *args],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **env},
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not more:
            break
        output += more
    assert done.wait() == 0
    os.close(ours)
    return output.decode().replace("\r\n", "\n")


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_help_on_a_terminal_is_rendered_and_paged(project: Path) -> None:
    env = {"PAGER": "sed s/^/paged:/", "PULUMI_DISABLE_CI_DETECTION": "true"}
    output = _run_on_terminal("help", "concepts/gone", env=env)
    assert output.startswith("paged:")
    assert "\x1b[1" in output
    assert "# What" not in output
    assert all(line.startswith("paged:") for line in output.splitlines())
    plain = _run_on_terminal("--non-interactive", "--color", "never", "help", "stack", env=env)
    assert "paged:" not in plain
    assert "\x1b" not in plain
    assert "gpuform stack init" in plain


def test_help_does_not_import_the_engine() -> None:
    code = (
        "import sys\n"
        "from gpuform.stacks.cli.app import cli\n"
        "try:\n    cli.main(args=['help', 'adopt'], prog_name='gpuform')\n"
        "except SystemExit as ended:\n    assert ended.code == 0, ended.code\n"
        "heavy = {'pulumi', 'grpc', 'rich', 'flask', 'httpx', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_command_has_a_page() -> None:
    assert {find_help_page(name) for name, *below in COMMANDS if not below} <= set(
        list_page_names()
    )
