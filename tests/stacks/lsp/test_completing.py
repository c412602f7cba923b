"""Test completion: the offered words, and how the editor inserts them."""

from pathlib import Path

import pytest

from gpuform.stacks.lsp.sources import check_topology
from gpuform.stacks.lsp.topology_text import Completion, TopologyText

BEFORE = """\
config:
  my-key: {}
  ok: {}
shared_volumes:
  v:
    platform: together
    for_each: {a: 1, b-c: 2}
  one: {platform: together}
"""


def complete_at_mark(folder: Path, text: str) -> dict[str, Completion]:
    """Return the completions at the mark ¦."""
    (folder / "m.yaml").write_text("inputs:\n  size: {}\n  n: {}\noutputs: {out: 1}\n")
    (folder / "gates.yaml").write_text("gates: {}\n")
    marked_topology = BEFORE + text
    at = marked_topology.index("¦")
    line, column = marked_topology.count("\n", 0, at), at - marked_topology.rfind("\n", 0, at) - 1
    topology = TopologyText(folder / "topology.yaml", marked_topology.replace("¦", ""))
    return {completion.name: completion for completion in topology.list_completions(line, column)}


COMPLETION_CASES = [
    ('outputs:\n  x: "{{ shared_volumes.v.¦ }}"', {"a", "b-c"}, {"id"}),
    ('outputs:\n  x: "{{ shared_volumes.v.a.¦ }}"', {"id", "status"}, {"a"}),
    ('outputs:\n  x: "{{ shared_volumes.one.¦ }}"', {"id", "status"}, {"a"}),
    ('outputs:\n  x: "{{ 1 is ¦ }}"', {"odd", "defined"}, {"shared_volumes", "=="}),
    ('outputs:\n  x: "{{ 1 is not ¦ }}"', {"odd"}, {"shared_volumes"}),
    ("include:\n  - ¦", {"m.yaml", "file", "name"}, {"gates.yaml", "topology.yaml"}),
    ("include:\n  - {file: ¦", {"m.yaml"}, {"name"}),
    ("include:\n  - {file: m.yaml, ¦", {"name", "with"}, {"file", "m.yaml"}),
    ("include:\n  - {file: m.yaml, name: x, with: {¦", {"size", "n"}, {"file"}),
    ("include:\n  - file: m.yaml\n    with:\n      size: 1\n      ¦", {"n"}, {"size", "file"}),
    (
        "clusters:\n  t:\n    options:\n      depends_on: [¦",
        {'"{{ shared_volumes.one }}"'},
        {'"{{ clusters.t }}"'},
    ),
    (
        "clusters:\n  t:\n    options: {protect: true, depends_on: [x, ¦",
        {'"{{ shared_volumes.one }}"'},
        {"depends_on", "aliases"},
    ),
    ("clusters:\n  t:\n    options: {depends_on: [x], ¦", {"aliases"}, {"depends_on"}),
    (
        'include: [{file: m.yaml, name: t, for_each: [k]}]\noutputs: {o: "{{ modules.t.¦ }}"}',
        {"k"},
        {"out"},
    ),
    (
        'include: [{file: m.yaml, name: t, for_each: [k]}]\noutputs: {o: "{{ modules.t.k.¦ }}"}',
        {"out"},
        {"k"},
    ),
    ('include: [{file: m.yaml, name: t}]\noutputs: {o: "{{ modules.t.¦ }}"}', {"out"}, set()),
    ('outputs: {o: "{{ ¦ }}"}', {"config", "shared_volumes"}, {"each", "inputs", "modules"}),
]


@pytest.mark.parametrize(("text", "offered", "not_offered"), COMPLETION_CASES)
def test_completion_offers_the_words_of_the_place(
    tmp_path: Path, text: str, offered: set[str], not_offered: set[str]
) -> None:
    completions = complete_at_mark(tmp_path, text)
    assert offered - completions.keys() == set()
    assert not_offered & completions.keys() == set()


@pytest.mark.parametrize(
    "text",
    ["# clus¦", "clusters: {}  # pla¦", "outputs: {x: \"{{ 'conf¦", "outputs: {x: \"{{ 1 ~ '¦"],
)
def test_completion_offers_nothing_in_comments_and_quoted_texts(tmp_path: Path, text: str) -> None:
    assert complete_at_mark(tmp_path, text) == {}


@pytest.mark.parametrize(
    ("text", "replacement", "replaced_length"),
    [
        ('outputs:\n  x: "{{ config.¦ }}"', "['my-key']", 1),
        ("outputs:\n  x: '{{ config.my¦ }}'", '["my-key"]', 3),
        ('outputs:\n  x: "{{ config[\'my¦ }}"', "", 0),
    ],
)
def test_completion_puts_a_name_that_is_no_identifier_into_brackets(
    tmp_path: Path, text: str, replacement: str, replaced_length: int
) -> None:
    completions = complete_at_mark(tmp_path, text)
    assert (completions["my-key"].replacement, completions["my-key"].replaced_length) == (
        replacement,
        replaced_length,
    )
    assert completions["ok"].replacement == ""


def test_the_position_of_a_problem_is_that_in_the_open_text(tmp_path: Path) -> None:
    """The saved file has the problem at another position."""
    path = tmp_path / "topology.yaml"
    path.write_text('outputs:\n  x: "xxxxxxxxxxxxxx{{ clusters.no.id }}"\n')
    topology = 'outputs:\n  x: "{{ 1 ~ clusters.no.id }}"\n'
    ((problem,),) = check_topology(path, {path.resolve(): topology}).values()
    assert (problem.position.line, problem.position.column) == (2, topology.index("clusters") - 8)


def test_completion_works_without_the_projects_program(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\nmain: nowhere\n")
    assert "shared_volumes" in complete_at_mark(tmp_path, 'outputs: {o: "{{ ¦ }}"}')
