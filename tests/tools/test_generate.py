"""The generated files are current and complete, and no others exist in their folders."""

import re
from pathlib import Path

import pytest

from tools import generate
from tools.reference.markdown import MARK

REFERENCE = Path(__file__).parents[2] / "docs/reference"
# The files, which the first test compares with what is generated: to generate them for each
# collection of the tests would take seconds.
PAGES = {
    str(file.relative_to(REFERENCE)): text
    for file in sorted(REFERENCE.rglob("*.md"))
    if MARK in (text := file.read_text())
}


# `.ci/run` has the same as a step of its own.
@pytest.mark.slow
def test_the_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0, capsys.readouterr().err


def test_a_file_that_is_not_current_is_named_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Pages as they are: to render each of them three times takes half a minute.
    monkeypatch.setattr(generate, "render_pages", PAGES.items)
    reference = tmp_path / "docs/reference"
    old = reference / "resources/together/gone.md"
    unrelated = reference / "speed.md"
    old.parent.mkdir(parents=True)
    for page in (old, unrelated):
        page.write_text("written by hand")
    assert generate.main(["--check"], tmp_path) == 1
    stderr = capsys.readouterr().err
    assert "reference/topology.md is not current\n" in stderr
    assert "together/gone.md should not exist\n" in stderr
    assert "speed.md" not in stderr
    assert "together/resources.py is not current\n" in stderr
    assert "plugin/schema.json is not current\n" in stderr
    assert old.exists()
    assert generate.main([], tmp_path) == 0
    assert (reference / "topology.md").read_text() == PAGES["topology.md"]
    assert (old.exists(), unrelated.exists()) == (False, True)
    assert generate.main(["--check"], tmp_path) == 0


def test_a_page_begins_with_its_title_and_says_that_it_is_generated() -> None:
    for path, text in PAGES.items():
        title, _, mark, _, lead = text.splitlines()[:5]
        assert title.startswith("# "), path
        assert mark == MARK
        assert re.match(r"[A-Z`]", lead), path


@pytest.mark.parametrize("path", PAGES)
def test_links_in_generated_pages_lead_to_headings(path: str) -> None:
    """Links to pages that are written by hand are the site's own check."""
    for link in re.findall(r"\]\(([^)\s]+)\)", PAGES[path]):
        target, _, anchor = link.partition("#")
        assert not target.startswith("/"), link
        if target.startswith(("http:", "https:")):
            continue
        target_page = (Path("/") / path).parent / target if target else Path("/") / path
        name = str(_resolve(target_page)).removeprefix("/")
        if name in PAGES and anchor:
            assert anchor in _list_anchors(PAGES[name]), (path, link)


def _resolve(path: Path) -> Path:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return Path(*parts)


def _list_anchors(text: str) -> list[str]:
    anchors = []
    for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\s-]", "", title).strip().lower()
        anchors.append(re.sub(r"[-\s]+", "-", words))
    assert len(anchors) == len(set(anchors)), "two headings have one anchor"
    return anchors
