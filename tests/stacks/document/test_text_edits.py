"""Edits of YAML text: what an edit is not about stays, line by line."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.declaration_writer.declarations import ConfigEntry, Declarations
from gpuform.stacks.declaration_writer.edits import add_entries
from gpuform.stacks.document.text_edits import find_item, find_member, remove_spans
from gpuform.stacks.engine.project.yaml_text import remove_entry, set_entry

VALUES = st.sampled_from(
    [
        *("5", "'5'", '"5"   # five', "  aligned   # why", "&anchor x", "[1, yes, 1:30]", "~", ""),
        *("{a: 1,b:  'c'}", "|\n    one\n\n    # two\n", ">-\n    one\n    two", "\n    - x # y"),
        "\n    # of the object\n    inner:   a\n    other: [b,\n      c]",
    ]
)
COMMENTS = st.sampled_from(["", "", "  # about this\n", "# at the left\n", "\n", "\n\n  # far\n"])


@st.composite
def draw_settings_files(draw: st.DrawFn) -> tuple[str, list[str]]:
    """Draw a file with `config`, and return the file and the keys."""
    keys = draw(st.lists(st.sampled_from("abcdef"), unique=True, min_size=2, max_size=4))
    members = [
        f"{draw(COMMENTS)}  demo:{key}: {draw(VALUES)}\n".replace("&anchor", f"&{key}")
        for key in keys
    ]
    head = draw(st.sampled_from(["", "# the team\nsalt: v1:abc # keep\n", "---\n"]))
    end = draw(st.sampled_from(["", "\n# the end\nother: {a: 1}\n", "# the end\n", "...\n"]))
    file_text = f"{head}config:\n{''.join(members)}{end}"
    return file_text.replace("\n", draw(st.sampled_from(["\n", "\r\n"]))), keys


def has_in_order(lines: list[str], all_lines: list[str]) -> bool:
    """Return whether `all_lines` has all of `lines` in the same order."""
    remaining_lines = iter(all_lines)
    return all(line in remaining_lines for line in lines)


def list_comments(lines: list[str]) -> list[str]:
    """Return the comments between the entries."""
    return [line for line in lines if line.startswith(("#", "  #"))]


@given(draw_settings_files())
def test_an_entry_that_is_set_or_removed_leaves_every_other_line(
    file: tuple[str, list[str]],
) -> None:
    content, keys = file
    lines = content.splitlines(keepends=True)
    with_another = set_entry(content, ["config", "demo:z"], "new", "f").splitlines(keepends=True)
    assert has_in_order(lines, with_another)
    assert len(with_another) == len(lines) + 1
    rest = remove_entry(content, ["config", f"demo:{keys[0]}"], "f").splitlines(keepends=True)
    assert has_in_order(rest, lines)
    assert sum("demo:" in line for line in rest) == len(keys) - 1
    assert list_comments(rest) == list_comments(lines)


@given(draw_settings_files())
def test_a_variable_that_is_added_leaves_every_other_line(file: tuple[str, list[str]]) -> None:
    lines = file[0].replace("demo:", "demo_").splitlines(keepends=True)
    declared = Declarations([], [ConfigEntry("day", {"secret": True})])
    made = add_entries("".join(lines), declared, "f").splitlines(keepends=True)
    assert has_in_order(lines, made)
    assert len(made) == len(lines) + 1


@pytest.mark.parametrize(
    ("text", "at", "remaining"),
    [
        ("{a: 1, b: 2}", 0, "{b: 2}"),
        ("{a: 1, b: 2}", 1, "{a: 1}"),
        ("a: 1\nb: 2", 1, "a: 1"),
        ("a: 1 # one\nb:\n  - x\n\n# end\n", 1, "a: 1 # one\n\n# end\n"),
        ("a: &x {b: 1}\nc:\n  d: *x # it\ne: 1\n", 1, "a: &x {b: 1}\ne: 1\n"),
        ("- a\n- b: 1\n  c: |\n    x\n- d\n", 1, "- a\n- d\n"),
        ("[a, b]", 0, "[b]"),
        ("-   a\n-\n  b: 1", 1, "-   a"),
    ],
)
def test_a_member_or_an_item_goes_with_its_lines(text: str, at: int, remaining: str) -> None:
    node: Any = yaml.compose(text)
    find = find_member if isinstance(node, yaml.MappingNode) else find_item
    assert remove_spans(text, [find(text, node, at)]) == remaining
