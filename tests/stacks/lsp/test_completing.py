"""What is offered at a place: right there, and as it can be put in."""

from pathlib import Path

import pytest

from gpuform.stacks.lsp.checking import check
from gpuform.stacks.lsp.topologies import Completion, TopologyText

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


def completed(folder: Path, text: str) -> dict[str, Completion]:
    """Those at the place of the mark ¦."""
    (folder / "m.yaml").write_text("inputs:\n  size: {}\n  n: {}\noutputs: {out: 1}\n")
    (folder / "gates.yaml").write_text("gates: {}\n")
    whole = BEFORE + text
    at = whole.index("¦")
    line, column = whole.count("\n", 0, at), at - whole.rfind("\n", 0, at) - 1
    topology = TopologyText(folder / "topology.yaml", whole.replace("¦", ""))
    return {each.name: each for each in topology.completions(line, column)}


PLACES = [
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


@pytest.mark.parametrize(("text", "offered", "not_offered"), PLACES)
def test_what_can_be_written_there(
    tmp_path: Path, text: str, offered: set[str], not_offered: set[str]
) -> None:
    found = completed(tmp_path, text)
    assert offered - found.keys() == set()
    assert not_offered & found.keys() == set()


@pytest.mark.parametrize(
    "text",
    ["# clus¦", "clusters: {}  # pla¦", "outputs: {x: \"{{ 'conf¦", "outputs: {x: \"{{ 1 ~ '¦"],
)
def test_nothing_is_offered_in_comments_and_texts(tmp_path: Path, text: str) -> None:
    assert completed(tmp_path, text) == {}


@pytest.mark.parametrize(
    ("text", "instead", "of"),
    [
        ('outputs:\n  x: "{{ config.¦ }}"', "['my-key']", 1),
        ("outputs:\n  x: '{{ config.my¦ }}'", '["my-key"]', 3),
        ('outputs:\n  x: "{{ config[\'my¦ }}"', "", 0),
    ],
)
def test_a_name_that_is_no_word_is_put_into_brackets(
    tmp_path: Path, text: str, instead: str, of: int
) -> None:
    found = completed(tmp_path, text)
    assert (found["my-key"].instead, found["my-key"].of) == (instead, of)
    assert found["ok"].instead == ""


def test_a_problem_in_an_expression_is_where_it_is_in_the_editor(tmp_path: Path) -> None:
    """On disk it stands elsewhere."""
    path = tmp_path / "topology.yaml"
    path.write_text('outputs:\n  x: "xxxxxxxxxxxxxx{{ clusters.no.id }}"\n')
    text = 'outputs:\n  x: "{{ 1 ~ clusters.no.id }}"\n'
    ((problem,),) = check(path, {path.resolve(): text}).values()
    assert (problem.position.line, problem.position.column) == (2, text.index("clusters") - 8)


def test_a_program_that_is_not_there_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\nmain: nowhere\n")
    assert "shared_volumes" in completed(tmp_path, 'outputs: {o: "{{ ¦ }}"}')
