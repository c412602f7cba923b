"""Adding entries to topology files keeps every other character."""

import difflib

import pytest

from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    Declarations,
    DeclaredReference,
    ResourceEntry,
)
from gpuform.stacks.declaration_writer.edits import FileNotEdited, add_entries, remove_option

VOLUME = ResourceEntry(
    "shared_volumes",
    "data",
    "together",
    {"volume_name": "data", "size_tib": 5.0},
    {"import": "v-1", "protect": True},
)
CLUSTER = ResourceEntry(
    "clusters",
    "train",
    "together",
    {"cluster_name": "training", "volume_id": DeclaredReference("shared_volumes", "data")},
    {"import": "c-1"},
)
DECLARED = Declarations([VOLUME, CLUSTER], [ConfigEntry("day", {"secret": True})])
FILE = """\
# Two volumes.
config:
  gpus: {type: integer}   # whole nodes

# Where the data is.
shared_volumes:
    other:
        platform:   together   # as ever
        volume_name: 'x'
        # size_tib: 9

# Outputs come last.
outputs: {a: 1}
"""


def find_added_lines(before: str, after: str) -> list[str]:
    """Return the added lines, and check that no line was removed."""
    differences = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    assert not [line for line in differences if line.startswith("-")]
    return [line[2:] for line in differences if line.startswith("+")]


def test_add_entries_appends_to_sections_in_the_file_s_indentation() -> None:
    edited = add_entries(FILE, DECLARED, "t.yaml")
    assert find_added_lines(FILE, edited) == [
        "  day: {secret: true}",
        "    data:",
        "        platform: together",
        "        volume_name: data",
        "        size_tib: 5",
        "        options: {import: v-1, protect: true}",
        "",
        "clusters:",
        "  train:",
        "    platform: together",
        "    cluster_name: training",
        '    volume: "{{ shared_volumes.data }}"',
        "    options: {import: c-1}",
    ]
    lines = edited.splitlines()
    assert lines[lines.index("    data:") - 1] == "        # size_tib: 9"
    assert lines.index("# Outputs come last.") > lines.index("    data:")


@pytest.mark.parametrize(
    "before", ["", "# nothing yet\n", "--- # now\n", "clusters:\nshared_volumes:\n", "x: 1"]
)
def test_add_entries_accepts_empty_files_and_sections_and_a_missing_line_break(
    before: str,
) -> None:
    before = before.replace("x: 1", "outputs:\n  x: 1")
    edited = add_entries(before, DECLARED, "t.yaml")
    assert "clusters:\n  train:" in edited
    assert before.startswith("clusters:") or edited.startswith(before)
    assert edited.endswith("\n")
    assert remove_option(edited, [("clusters", "train")], "import", "t.yaml") != edited


def test_add_entries_keeps_line_breaks_and_a_byte_order_mark() -> None:
    before = "\ufeff" + FILE.replace("\n", "\r\n")
    edited = add_entries(before, DECLARED, "t.yaml")
    assert edited.startswith("\ufeff# Two")
    assert edited.count("\n") == edited.count("\r\n")


def test_add_entries_writes_before_the_end_marker_of_the_document() -> None:
    edited = add_entries("---\nclusters:\n  a: {platform: together}\n...\n", DECLARED, "t.yaml")
    assert edited.endswith("\n...\n")


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (
            "shared_volumes: {}\n",
            "t.yaml:1:1: shared_volumes is not written with each key on a line",
        ),
        ("\n{clusters: {a: {platform: aios}}}\n", "t.yaml:1:1: the file is written in braces"),
        (
            "clusters:\n  train: {platform: aios}\n",
            "t.yaml:2:3: clusters.train is already declared",
        ),
        ("clusters: [\n", "t.yaml:"),
        (
            "clusters: &x\n  a: {platform: aios}\nshared_volumes: *x\n",
            "t.yaml:1:1: the file cannot",
        ),
        ("shared_volumes:\n  a: {volume_name: |+\n\n", "t.yaml:"),
    ],
)
def test_add_entries_refuses_files_it_cannot_edit(before: str, message: str) -> None:
    with pytest.raises(FileNotEdited) as refused:
        add_entries(before, DECLARED, "t.yaml")
    assert str(refused.value).startswith(message)


def test_add_entries_refuses_to_change_a_block_text() -> None:
    """A kept line break at the end of a section belongs to the section's last text."""
    before = "shared_volumes:\n  a:\n    volume_name: |+\n      x\n\n\nclusters:\n"
    with pytest.raises(FileNotEdited, match="cannot be edited in its present form"):
        add_entries(before, DECLARED, "t.yaml")


@pytest.mark.parametrize(
    ("options", "remaining"),
    [
        (
            "    options: {import: x, protect: true}  # keep\n",
            "    options: {protect: true}  # keep\n",
        ),
        ("    options: {protect: true, import: x}\n", "    options: {protect: true}\n"),
        ("    options: {import: x}\n", ""),
        ("    options:\n      import: x   # from before\n", ""),
        (
            "    options:\n      import: x\n      protect: true\n",
            "    options:\n      protect: true\n",
        ),
        (
            "    options:\n      protect: true\n      import: x\n\n",
            "    options:\n      protect: true\n\n",
        ),
        ("    options: {protect: true}\n", "    options: {protect: true}\n"),
        ("", ""),
    ],
)
def test_remove_option_removes_its_line(options: str, remaining: str) -> None:
    topology = (
        "clusters:\n  a:\n    platform: together\n{}    num_gpus: 8\n  b:\n    platform: aios\n"
    )
    assert remove_option(
        topology.replace("{}", options), [("clusters", "a")], "import", "t.yaml"
    ) == (topology.replace("{}", remaining))


def test_remove_option_edits_an_entry_on_one_line() -> None:
    topology = "clusters:\n  a: {platform: together, options: {import: x}} # one\n"
    remaining = "clusters:\n  a: {platform: together} # one\n"
    assert remove_option(topology, [("clusters", "a")], "import", "t.yaml") == remaining
