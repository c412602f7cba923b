"""Test that pages are true: commands, files, links, and their place in the site."""

import ast
import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from documentation.page import COMMANDS, Enter, Run, read_blocks, read_steps
from documentation.reader import ROOT, PageContradicted, matches_page, open_reader

from gpuform.stacks.cli.app import cli  # noqa: F401 - the commands' modules are compiled once

DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
README = ROOT / "README.md"
EXAMPLES = sorted((ROOT / "examples").glob("*/README.md"))
SETTINGS = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]


def _get_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


RUN_BY_CI = (
    "README.md",
    "docs/start/",
    "docs/guides/adopt.md",
    "docs/guides/capacity.md",
    "docs/guides/notifications.md",
    "docs/guides/plugin.md",
    "docs/guides/secrets.md",
    "docs/guides/state-for-a-team.md",
    "docs/guides/terraform.md",
)
"""The first pages, and all with commands of their own. CI plays one in eight of the others."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=_get_name(page),
            marks=pytest.mark.sampled(1 if _get_name(page).startswith(RUN_BY_CI) else 8),
        )
        for page in [README, *EXAMPLES, *PAGES]
        if read_steps(page)
    ],
)
def test_the_commands_of_a_page_do_what_the_page_says(page: Path, tmp_path: Path) -> None:
    first_steps = [Enter(0, _get_name(page.parent))] if page in EXAMPLES else []
    with open_reader(tmp_path / "home") as reader:
        reader.follow([*first_steps, *read_steps(page)])


@pytest.mark.parametrize(
    ("command", "exits"),
    [("true", 0), ("false", 1), ("(exit 7)", 7), ("false\ntrue", 1), ("false || true", 0)],
)
def test_a_command_with_another_result_contradicts_its_page(
    command: str, exits: int, tmp_path: Path
) -> None:
    with open_reader(tmp_path / "home") as reader:
        reader.follow([Run(1, command, exits, None), Run(2, "cd ..; pwd", 0, f"{tmp_path}\n")])
        with pytest.raises(PageContradicted):
            reader.follow([Run(1, command, exits + 1, None)])
        with pytest.raises(PageContradicted):
            reader.follow([Run(1, "echo one", 0, "two\n")])


@pytest.mark.parametrize(
    "page",
    [page_path for page_path in [README, *PAGES] if [*read_blocks(page_path)]],
    ids=_get_name,
)
def test_a_block_of_code_is_run_or_valid(page: Path) -> None:
    for block in read_blocks(page):
        where = f"{_get_name(page)}:{block.line}"
        assert block.language, f"{where}: say the language of the block, `text` if it is none"
        if block.language in COMMANDS and not block.is_run:
            reason = block.directives.get("not run")
            assert reason is None or reason.endswith(tuple("abcdefghijklmnopqrstuvwxyz.)")), where
        try:
            _read(block.language, block.text)
        except (SyntaxError, ValueError, yaml.YAMLError) as error:
            pytest.fail(f"{where}: {error}")


def _read(language: str, text: str) -> None:
    match language:
        case "python":
            ast.parse(text)
        case "json":
            json.loads(text)
        case "toml":
            tomllib.loads(text)
        case "yaml":
            list(yaml.safe_load_all(text))


@pytest.mark.parametrize("page", PAGES, ids=_get_name)
def test_a_page_begins_with_its_title(page: Path) -> None:
    title, blank, *rest = page.read_text().splitlines()
    assert re.fullmatch(r"# \S.*", title)
    assert not blank
    assert rest


def test_every_page_has_its_place_in_the_site() -> None:
    """Nobody finds a page that the navigation does not list."""
    placed = [*_list_files(SETTINGS["nav"])]
    assert sorted(placed) == sorted(page.relative_to(DOCS).as_posix() for page in PAGES)


def _list_files(nav: object) -> list[str]:
    match nav:
        case str():
            return [nav]
        case list():
            return [file for entry in nav for file in _list_files(entry)]
        case dict():
            return [file for entry in nav.values() for file in _list_files(entry)]
    raise TypeError(nav)


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 200


@pytest.mark.parametrize(
    ("documented", "printed", "alike"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\nb\n", "a\n", False),
        ("a\n", "a\nb\n", False),
        ("a\n...\nc\n", "a\nb\nb\nc\n", True),
        ("a\n...\nc\n", "a\nc\n", True),
        ("a\n...\nc\n", "a\nc\nd\n", False),
        ("a\n...\nb\n...\nc\n", "a\nc\nb\n", False),
        ("...\nc\n", "a\nc\nb\nc\n", True),
        ("a\n...\n", "a\n", True),
        ("...\na\n", "", False),
        ("took 20m00s\n", "took 19m59s\n", True),
        ("took 20m00s\n", "took GPUs\n", False),
        ("/home/ada/x\n", "/tmp/one/x\n", True),
        ("/home/ada/x\n", "/tmp/two/x\n", False),
        ("id 0f11e35c-a155-4e89-9e21-3f8ed2f99a2d\n", "id none\n", False),
    ],
)
def test_what_a_page_says_is_compared(documented: str, printed: str, alike: bool) -> None:
    assert matches_page(documented, printed, Path("/tmp/one")) is alike


LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#[^)]*)?\)")
BESIDE = [README, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
BESIDE += [
    readme
    for pattern in ("[!.]*", "[!.]*/*", "[!.]*/*/*")
    for readme in sorted(ROOT.glob(f"{pattern}/README.md"))
]


@pytest.mark.parametrize(
    "page", [readme for readme in BESIDE if LINK.search(readme.read_text())], ids=_get_name
)
def test_a_link_of_the_repository_leads_somewhere(page: Path) -> None:
    """The links of the site's pages are checked when it is built."""
    for target in LINK.findall(page.read_text()):
        assert (page.parent / target).exists(), target
