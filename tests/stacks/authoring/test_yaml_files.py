"""Adding to files that people edit: what is there stays, character by character."""

import difflib

import pytest

from gpuform.stacks.authoring.declared import Declared, Entry, Reference, Variable
from gpuform.stacks.authoring.yaml_files import FileNotEdited, with_entries, without_option

VOLUME = Entry(
    "shared_volumes",
    "data",
    "together",
    {"volume_name": "data", "size_tib": 5.0},
    {"import": "v-1", "protect": True},
)
CLUSTER = Entry(
    "clusters",
    "train",
    "together",
    {"cluster_name": "training", "volume_id": Reference("shared_volumes", "data")},
    {"import": "c-1"},
)
DECLARED = Declared([VOLUME, CLUSTER], [Variable("day", {"secret": True})])
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


def added(before: str, after: str) -> list[str]:
    """The added lines; nothing may be removed."""
    found = list(difflib.ndiff(before.splitlines(), after.splitlines()))
    assert not [line for line in found if line.startswith("-")]
    return [line[2:] for line in found if line.startswith("+")]


def test_entries_go_to_the_end_of_their_sections_in_the_file_s_own_indentation() -> None:
    made = with_entries(FILE, DECLARED, "t.yaml")
    assert added(FILE, made) == [
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
    lines = made.splitlines()
    assert lines[lines.index("    data:") - 1] == "        # size_tib: 9"
    assert lines.index("# Outputs come last.") > lines.index("    data:")


@pytest.mark.parametrize(
    "before", ["", "# nothing yet\n", "--- # now\n", "clusters:\nshared_volumes:\n", "x: 1"]
)
def test_a_file_may_be_empty_or_have_empty_sections_or_no_line_break_at_its_end(
    before: str,
) -> None:
    before = before.replace("x: 1", "outputs:\n  x: 1")
    made = with_entries(before, DECLARED, "t.yaml")
    assert "clusters:\n  train:" in made
    assert before.startswith("clusters:") or made.startswith(before)
    assert made.endswith("\n")
    assert without_option(made, [("clusters", "train")], "import", "t.yaml") != made


def test_line_breaks_and_a_byte_order_mark_stay() -> None:
    before = "\ufeff" + FILE.replace("\n", "\r\n")
    made = with_entries(before, DECLARED, "t.yaml")
    assert made.startswith("\ufeff# Two")
    assert made.count("\n") == made.count("\r\n")


def test_the_end_of_a_document_stays_the_end() -> None:
    made = with_entries("---\nclusters:\n  a: {platform: together}\n...\n", DECLARED, "t.yaml")
    assert made.endswith("\n...\n")


@pytest.mark.parametrize(
    ("before", "told"),
    [
        ("shared_volumes: {}\n", "t.yaml:1:1: shared_volumes is not written in lines"),
        ("\n{clusters: {a: {platform: aios}}}\n", "t.yaml:1:1: the whole file stands in braces"),
        ("clusters:\n  train: {platform: aios}\n", "t.yaml:2:3: clusters.train is there already"),
        ("clusters: [\n", "t.yaml:"),
        (
            "clusters: &x\n  a: {platform: aios}\nshared_volumes: *x\n",
            "t.yaml:1:1: the file cannot",
        ),
        ("shared_volumes:\n  a: {volume_name: |+\n\n", "t.yaml:"),
    ],
)
def test_what_cannot_be_added_to_is_refused(before: str, told: str) -> None:
    with pytest.raises(FileNotEdited) as refused:
        with_entries(before, DECLARED, "t.yaml")
    assert str(refused.value).startswith(told)


def test_text_that_would_change_is_refused() -> None:
    """A kept line break at the end of a section belongs to its last text."""
    before = "shared_volumes:\n  a:\n    volume_name: |+\n      x\n\n\nclusters:\n"
    with pytest.raises(FileNotEdited, match="cannot be edited as it is written"):
        with_entries(before, DECLARED, "t.yaml")


@pytest.mark.parametrize(
    ("options", "left"),
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
def test_an_option_goes_with_its_line(options: str, left: str) -> None:
    text = "clusters:\n  a:\n    platform: together\n{}    num_gpus: 8\n  b:\n    platform: aios\n"
    assert without_option(text.replace("{}", options), [("clusters", "a")], "import", "t.yaml") == (
        text.replace("{}", left)
    )


def test_an_option_goes_from_an_entry_in_one_line() -> None:
    text = "clusters:\n  a: {platform: together, options: {import: x}} # one\n"
    left = "clusters:\n  a: {platform: together} # one\n"
    assert without_option(text, [("clusters", "a")], "import", "t.yaml") == left
