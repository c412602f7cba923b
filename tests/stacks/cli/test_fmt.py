"""`gpuform fmt`: one form, the same meaning, every comment, whatever it is given."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.formatting import format_topology
from gpuform.stacks.yaml_meaning import FormattingError

ROOT = Path(__file__).parents[3]
UNTIDY = textwrap.dedent("""\
    # yaml-language-server: $schema=topology.schema.json


    config:
        gpus: {type: integer,default: 16 ,  multiple_of: 8}   # of one kind
        # the date
        day:    2026-11-21
    clusters: &all
       train:
         tags:
         - a   \n\
         -   - b
             - no
         # after the list
         script: |
             first
               second

         <<: *all
    # the end
    """)
TIDY = textwrap.dedent("""\
    # yaml-language-server: $schema=topology.schema.json

    config:
      gpus: {type: integer, default: 16, multiple_of: 8}   # of one kind
      # the date
      day: 2026-11-21
    clusters: &all
      train:
        tags:
          - a
          - - b
            - no
        # after the list
        script: |
          first
            second

        <<: *all
    # the end
    """)


def format_text(text: str) -> str:
    return format_topology(text.encode(), "x.yaml").decode()


def test_an_untidy_file_is_formatted_and_a_tidy_one_stays() -> None:
    assert format_text(UNTIDY) == TIDY
    assert format_text(TIDY) == TIDY


@pytest.mark.parametrize(
    "value",
    [
        *("no", "yes", "on", "~", "null", "", "1e3", "0o7", "007", "012", "1:30", "2026-01-01"),
        *("1.10000000000000000000001", "'no'", '"a\\tb"', "'it''s'", "!!str 5", "&a x", "<<"),
        *('"{{ config.gpus // 8 }}"', "a#b", '"a # b"', "x" * 300, f'"{"x " * 200}"'),
    ],
)
def test_every_scalar_stays_as_it_is_written(value: str) -> None:
    assert format_text(f"a:   {value}\n") == f"a: {value}".rstrip() + "\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("\n\n", ""),
        ("# only\n\n\n# comments", "# only\n\n# comments\n"),
        ("\ufeffa: 1\r\nb: 2\r\n", "a: 1\nb: 2\n"),
        ("a : 1", "a: 1\n"),
        ("a: { b: 1,c : [ ] , d: { } }\n", "a: {b: 1, c: [], d: {}}\n"),
        ("a: [b, # one\n c,\n # two\n ]\n", "a: [b, # one\n  c,\n  # two\n]\n"),
        ("- [a,\n b]\n", "- [a,\n    b]\n"),
        ("a: one\n     two\n", "a: one\n  two\n"),
        ('a: "one\n\n     two"\n', 'a: "one\n\n  two"\n'),
        ("a:\n    &x\n    b: *x\n", "a:\n  &x\n  b: *x\n"),
        ("a: |2-\n    two more\n  two\n", "a: |2-\n    two more\n  two\n"),
        ("a:\n    b: |1\n       x\nc: 1\n", "a:\n  b: |1\n     x\nc: 1\n"),
        ("a: |+ # keeps\n     x\n\n\n", "a: |+ # keeps\n  x\n\n\n"),
        ("a: |\n     x\n\n\n", "a: |\n  x\n"),
        ("a: |\n     x", "a: |\n  x"),
        ("? a\n: b\n", "? a\n: b\n"),
        ("a:\n- - -   b\n-   # c\n    d: 1\n", "a:\n  - - - b\n  -   # c\n    d: 1\n"),
        ("a: &a x\n*a : [ *a ,!!str , 'c' ]\n", "a: &a x\n*a : [*a, !!str , 'c']\n"),
        ("---\na: 1\n...\n", "---\na: 1\n...\n"),
        ("a:\n# of b\n    b: 1\n", "a:\n  # of b\n  b: 1\n"),
        ("a:\n    b: 1\n    # of a\n# of all\n", "a:\n  b: 1\n  # of a\n# of all\n"),
        ("a:\n- b\n# of c\nc: 1\n", "a:\n  - b\n# of c\nc: 1\n"),
    ],
)
def test_the_form(before: str, after: str) -> None:
    assert format_text(before) == after
    assert format_text(after) == after


@pytest.mark.skipif(not yaml.__with_libyaml__, reason="PyYAML's own parser takes no tabs")
def test_tabs_between_parts_become_spaces() -> None:
    assert format_text("a: [1,\t2]\t# tab\t\n") == "a: [1, 2] # tab\n"


def test_long_flow_mappings_are_broken_into_lines() -> None:
    inner = ", ".join(f"key_{n}: {{value: {n}}}" for n in range(6))
    lines = format_text(f"a: {{{inner}}}  # why\n").splitlines()
    assert lines[:2] == ["a: {", "  key_0: {value: 0},"]
    assert lines[-2:] == ["  key_5: {value: 5}", "}  # why"]
    short = f"a: [{'x' * 94}]\n"
    assert format_text(short) == short
    key = f"{{{inner}}}: a\n"
    assert format_text(key) == key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\n", "x.yaml:2:1: not YAML"),
        ("a: 1\n\tb: 2\n", "x.yaml:2:1: not YAML"),
        ("a: 1\n---\nb: 2\n", "x.yaml:2:1: a topology file holds one document"),
        ("a: *b\n", "x.yaml:1:4: not YAML: no anchor &b before this alias"),
        ("a: \0\n", "x.yaml:1:"),
        ('a: "\\UFFFFFFFF"\n', "x.yaml:1:"),
    ],
)
def test_invalid_yaml_is_reported_with_its_position(text: str, message: str) -> None:
    with pytest.raises(FormattingError) as raised:
        format_text(text)
    assert str(raised.value).startswith(message)


def test_bytes_that_are_not_utf_8_are_reported_with_their_position() -> None:
    with pytest.raises(FormattingError, match=r"x\.yaml:2:4: the file is not UTF-8"):
        format_topology(b"a: 1\nb: \xff", "x.yaml")


PLAIN = st.sampled_from(
    ["a", "no", "~", "1e3", "007", "12.6", "1:30", "'q'", '"d #"', "x y", "a#b", "http://h:80/"]
)
COMMENT = st.sampled_from(["", "", "", "# c", "#c", "#", "# é: [", "#   - x"])
FLOW = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{' ,  '.join(items)}]"),
        st.lists(inner, max_size=4).map(
            lambda items: "{ " + ",".join(f"k{n}:   {item}" for n, item in enumerate(items)) + "}"
        ),
    ),
    max_leaves=12,
)


@st.composite
def yaml_blocks(draw: st.DrawFn, depth: int = 0, column: int = 0) -> str:
    """Draw the lines of one block at a column, in the most irregular layout that YAML allows."""
    is_list = draw(st.booleans())
    lines = []
    for number in range(draw(st.integers(1, 3))):
        if comment := draw(COMMENT):
            lines.append(" " * draw(st.integers(0, 8)) + comment)
        lines += [""] * draw(st.integers(0, 2))
        head = " " * column + ("-" if is_list else f"key{number}:")
        kind = draw(st.sampled_from(["flow", "text", "block"] if depth < 4 else ["flow"]))
        beside = draw(COMMENT)
        trailing = f"  {beside}" if beside else " " * draw(st.integers(0, 2))
        if kind == "flow":
            lines.append(f"{head} {draw(FLOW)}{trailing}")
        elif kind == "text":
            mark = draw(st.sampled_from(["|", ">", "|-", ">+", "|+"]))
            inner = column + draw(st.integers(1, 5))
            texts = draw(st.lists(st.sampled_from(["t", "", "  t", "# t", "t  "]), max_size=4))
            lines.append(f"{head} {mark}{trailing}")
            lines += [" " * inner + line for line in ["begin", *texts]]
        else:
            least = 1 if is_list else 0
            inner = column + draw(st.integers(least, 5))
            block = draw(yaml_blocks(depth + 1, inner))
            if inner == column and not block.lstrip().startswith("-"):
                block = textwrap.indent(block, " ")
            lines += [f"{head}{trailing}", *block.split("\n")]
    return "\n".join(lines)


@pytest.mark.slow
@given(yaml_blocks())
def test_any_document_keeps_its_meaning_and_is_formatted_once(text: str) -> None:
    try:
        before = yaml.compose(text)
    except yaml.YAMLError:
        return
    made = format_text(text)
    assert format_text(made) == made
    assert describe_node(before) == describe_node(yaml.compose(made))
    assert made.count("#") == text.count("#")
    for line in made.splitlines():
        indent = len(line) - len(line.lstrip(" "))
        assert indent % 2 == 0 or "|" in made or ">" in made


def describe_node(node: Any) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return (node.tag, node.value, node.style)
    if isinstance(node, yaml.MappingNode):
        return (node.tag, [(describe_node(key), describe_node(value)) for key, value in node.value])
    return node and (node.tag, [describe_node(item) for item in node.value])


YAMLISH = st.text(st.sampled_from("ab:-? \n\t#|>&*!%{}[],'\"\\\r\ufeff\x85é+2"), max_size=40)


@given(st.one_of(YAMLISH.map(str.encode), st.text().map(lambda t: t.encode()), st.binary()))
def test_anything_is_formatted_or_refused(data: bytes) -> None:
    try:
        made = format_topology(data, "x.yaml")
    except FormattingError:
        return
    assert format_topology(made, "x.yaml") == made


def test_a_comment_that_would_be_lost_keeps_the_file_as_it_is(
    run: Any, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuform.stacks.formatting.lay_out", lambda text: text.replace("# c", ""))
    (project / "topology.yaml").write_text("a: 1\nb:   2 # c\n")
    ran = run("fmt")
    assert (ran.code, ran.out) == (1, "")
    assert "topology.yaml:2:8: formatting would change the meaning from here on" in ran.err
    assert (project / "topology.yaml").read_text() == "a: 1\nb:   2 # c\n"


def test_fmt_formats_the_topology_and_its_includes(run: Any, project: Path) -> None:
    (project / "topology.yaml").write_text("include:   [parts/a.yaml]\n")
    (project / "parts").mkdir()
    (project / "parts/a.yaml").write_text("include: [b.yaml, ../topology.yaml, gone.yaml]\n")
    (project / "parts/b.yaml").write_text("a:    1\n")
    ran = run("fmt")
    assert ran.code == 1
    assert ran.out.split() == ["topology.yaml", "parts/b.yaml"]
    assert ran.err == "error: parts/gone.yaml: No such file or directory\n"
    assert (project / "parts/b.yaml").read_text() == "a: 1\n"


def test_a_bad_file_does_not_keep_the_others_from_being_formatted(run: Any, project: Path) -> None:
    (project / "bad.yaml").write_text("a: [\n")
    (project / "good.yaml").write_text("a:  1\n")
    ran = run("fmt", "bad.yaml", ".", "good.yaml")
    assert (ran.code, ran.out) == (1, "good.yaml\n")
    assert "error: bad.yaml:2:1: not YAML" in ran.err
    assert "error: . is a folder\n  pass the files in it" in ran.err
    assert run("fmt", "good.yaml").out == ""
    assert run("fmt", "good.yaml").code == 0


def test_check_and_diff_write_nothing(run: Any, project: Path) -> None:
    (project / "topology.yml").write_text("a:  1")
    ran = run("fmt", "--check")
    assert (ran.code, ran.out) == (1, "topology.yml\n")
    ran = run("fmt", "--diff")
    assert ran.code == 0
    assert "-a:  1\n\\ No newline at end of file\n+a: 1\n" in ran.out
    assert run("fmt", "--check", "--diff").code == 1
    assert (project / "topology.yml").read_text() == "a:  1"
    assert run("fmt").code == 0
    assert run("fmt", "--check").code == 0


def test_stdin_goes_to_stdout(run: Any) -> None:
    ran = run("fmt", "-", answers="a:  1")
    assert (ran.code, ran.out) == (0, "a: 1\n")
    assert run("fmt", "-", answers="a: 1\n").out == "a: 1\n"
    ran = run("fmt", "-", answers="a: [\n")
    assert (ran.code, ran.out) == (1, "")
    assert "stdin:2:1: not YAML" in ran.err
    ran = run("fmt", "-", "--check", answers="a:  1")
    assert (ran.code, ran.out) == (1, "stdin\n")
    assert run("fmt", "-", "x.yaml").code == 2


def test_the_file_keeps_its_mode_and_its_links(run: Any, project: Path) -> None:
    file = project / "topology.yaml"
    file.write_text("a:  1\n")
    file.chmod(0o640)
    (project / "link.yaml").symlink_to(file)
    assert run("fmt", "link.yaml").code == 0
    assert file.stat().st_mode & 0o777 == 0o640
    assert (project / "link.yaml").is_symlink()
    assert file.read_text() == "a: 1\n"


def test_fmt_without_a_topology_says_what_to_do(run: Any) -> None:
    ran = run("fmt")
    assert ran.code == 1
    assert "no topology.yaml in" in ran.err
    assert "gpuform fmt FILE..." in ran.err


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*/topology.y*ml")), ids=str)
def test_the_examples_are_formatted(path: Path) -> None:
    assert format_topology(path.read_bytes(), str(path)) == path.read_bytes()


def test_fmt_does_not_import_the_sdk(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: train\nruntime: python\n")
    (tmp_path / "topology.yaml").write_text("topology: train\n")
    code = (
        "import atexit, sys; from gpuform.stacks.cli import main; "
        "atexit.register(lambda: print({'pulumi', 'grpc'} & set(sys.modules))); main()"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, "fmt"],
        check=False,
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (completed.returncode, completed.stdout.splitlines()[-1:]) == (0, ["set()"]), (
        completed.stderr
    )
