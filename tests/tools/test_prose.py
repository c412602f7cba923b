"""Phrases that are no longer used are found in pages, docstrings and messages, and nowhere else."""

from pathlib import Path
from textwrap import dedent

import pytest

from tools import prose

MESSAGES = [
    ("The resource is made anew.", "anew"),
    ("Use --create-anew, or `anew`, or [this](made-anew.md).", None),
    ("The restart was foretold.", "foretold"),
    ("The user is told of it.", "is told"),
    ("The two nodes are told apart, and one is told to wait.", None),
    ("The page tells what to do.", "tells what"),
    ("The agent tells you the reason.", None),
    ("The run is gone on\nwith later.", "gone on with"),
    ("The next run goes on.", None),
    ("This shall exist.", "shall"),
    ("It is no entry of a history.", "It is no entry"),
    ("a value that is no number", "that is no number"),
    ("It is no longer there, and there is no more.", None),
    ("without outputs that are None", None),
    ("What is none is refused.", "What is none"),
    ("The sums are no drift any more.", "are no drift any more"),
    ("Nobody uses it any more.", None),
    ("There is no stack of that name.", "There is no stack of that name"),
    ("The input of that name is used.", None),
    ("The cases are played by one process.", "cases are played"),
    ("The world is large.", None),
    ("<!-- made anew -->\n```\nmade anew\n```", None),
    ("  ```\n  made anew\n  ```", None),
]


@pytest.mark.parametrize(("page", "phrase"), MESSAGES)
def test_a_phrase_in_prose_is_found_and_code_is_ignored(page: str, phrase: str | None) -> None:
    (passage,) = prose.read_page(page)

    matches = [match[0] for entry in prose.PHRASES for match in entry.find_in(passage.prose)]

    assert [" ".join(words.split()) for words in matches] == ([] if phrase is None else [phrase])


def test_the_lines_of_a_page_are_counted_across_code(tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text("# Title\n\n```yaml\nanew: 1\n```\n\nRead it\nanew.\n")

    (find,) = prose.check_file(file)

    assert str(find) == f"{file}:8: anew: write again; recreate"


def test_docstrings_messages_and_formatted_texts_of_a_module_are_read(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        dedent('''\
            """Make it.

            Then it is made anew.
            """

            ANEW = "anew"  # made anew


            PAGE = """\\
            It shall
            exist.
            """


            def report(name: str) -> str:
                """Return what the user is told."""
                anew = f"{name} shall be {'made anew' if name else 'gone'}"
                return anew + (
                    "the run is gone "
                    f"on with: {name}"
                )
            ''')
    )

    finds = prose.check_file(file)

    assert [(find.line, find.words) for find in finds] == [
        (3, "anew"),
        (10, "shall"),
        (16, "is told"),
        (17, "shall"),
        (17, "anew"),
        (19, "gone on with"),
    ]


def test_the_command_prints_each_find_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs" / "guides").mkdir(parents=True)
    (tmp_path / "docs" / "guides" / "page.md").write_text("It shall exist.\n")
    (tmp_path / "README.md").write_text("It exists.\n")
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "notes.txt").write_text("It shall exist.\n")

    code = prose.main([], tmp_path)

    assert code == 1
    page = tmp_path / "docs" / "guides" / "page.md"
    assert capsys.readouterr().out == f"{page}:1: shall: write must, will, want to\n"


def test_the_command_succeeds_without_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("It exists.\n")

    assert prose.main([str(page)], tmp_path) == 0
    assert capsys.readouterr().out == ""
