"""YAML as people expect it: anchors, merge keys, and problems with their places and hints."""

from pathlib import Path
from typing import Any

import pytest

from gpuform.stacks.document.diagnostics import Diagnostics, SourcePosition
from gpuform.stacks.document.nodes import (
    find_key_position,
    find_nearest_node,
    list_scalars,
    to_plain_value,
)
from gpuform.stacks.document.reading import read_file, read_text


def read(text: str) -> tuple[Any, list[str]]:
    problems = Diagnostics()
    values = to_plain_value(read_text(text, "f", problems))
    return values, [str(problem) for problem in problems]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        *[("", {}), ("# nothing\n", {}), ("---\n", {}), ("null", {}), ("{}", {})],
        ("a: 1\nb: [x, 2, {c: no}]", {"a": 1, "b": ["x", 2, {"c": "no"}]}),
        ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
        ("\r\na: 1\r\nb: no\r\n", {"a": 1, "b": "no"}),
        ("1: a\n2.50: b\ntrue: c", {"1": "a", "2.50": "b", "true": "c"}),
        ("a: |\n  x\n  y\nb: >\n  x\n  y\n", {"a": "x\ny\n", "b": "x y\n"}),
        ('a: "\\0\\u00e9"', {"a": "\0\u00e9"}),
        ("a: &x {b: 1}\nc: *x\nd: [*x]", {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}]}),
        ("a: &x 1\nb: *x\nc: &x 2\nd: *x", {"a": 1, "b": 1, "c": 2, "d": 2}),
        ("a: &k key\n*k : 1", {"a": "key", "key": 1}),
    ],
)
def test_values(text: str, values: Any) -> None:
    assert read(text) == (values, [])


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("x: &x {a: 1, b: 2}\ny: {<<: *x, b: 3}", {"a": 1, "b": 3}),
        ("x: &x {a: 1, b: 2}\ny: {b: 3, <<: *x}", {"a": 1, "b": 3}),
        ("w: &w {a: 1, b: 1}\nx: &x {b: 2, c: 2}\ny: {<<: [*w, *x]}", {"a": 1, "b": 1, "c": 2}),
        ("w: &w {a: 1, b: 1}\nx: &x {<<: *w, b: 2}\ny: {<<: *x}", {"a": 1, "b": 2}),
        ("w: &w {d: {p: 1}}\ny: {<<: *w, d: {q: 2}}", {"d": {"q": 2}}),
        ("y: {<<: {a: 1}, <<: {a: 2, b: 2}}", {"a": 1, "b": 2}),
        ("y: {<<: []}", {}),
        ('y: {"<<": 1}', {"<<": 1}),
    ],
)
def test_merge_keys(text: str, merged: Any) -> None:
    values, problems = read(text)
    assert (values["y"], problems) == (merged, [])


SYNTAX = "this is not YAML: "
QUOTE_IT = '\n  put an expression in quotes: "{{ ... }}"'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "3:1: the key 'a' occurs twice: first in line 1\n  keep one of"),
        ("1: a\n'1': b", "2:1: the key '1' occurs twice: first in line 1"),
        ("a: {b: 1, b: 2}", "1:11: the key 'b' occurs twice"),
        ("- a", "1:1: the file must contain keys with values"),
        ("text", "1:1: the file must contain keys with values"),
        ("a: 1\n---\nb: 1", "2:1: the file must contain one document: remove this `---`"),
        ("---\n---\n", "2:1: the file must contain one document"),
        ("a: *b", "1:4: no anchor &b precedes this alias"),
        ("a: &b [*b]", "1:8: the value &b contains its own alias *b"),
        ("a: {<<: 1}", "1:5: << merges mappings: write the alias of a mapping, *name"),
        ("x: &x {}\na: {<<: [*x, 2]}", "2:5: << merges mappings"),
        ("a: !!int 3", "1:4: the tag tag:yaml.org,2002:int is not supported: remove it"),
        ("a: !x {b: 1}", "1:4: the tag !x is not supported: remove it"),
        ("a: !!python/object/apply:os.system [x]", "1:4: the tag tag:yaml.org,2002:python/"),
        ("%TAG !e! tag:x\n---\na: !e!b 1", "1:1: tags are not supported: remove %TAG"),
        ("%YAML 3.0\n---\na: 1", f"1:1: {SYNTAX}found incompatible YAML document"),
        ("? [a]\n: 1", "1:3: a key must be text"),
        ("? ~\n: 1", "1:3: a key must be text"),
        ("null: 1", "1:1: a key must be text"),
        ("a: {{ b }}", "1:5: a key must be text" + QUOTE_IT),
        ("a: {{ b }}/c", f"1:11: {SYNTAX}an expression stands without quotes"),
        ("a: {{ b }}/c", QUOTE_IT),
        ("a:\n\tb: 1", "\n  indent with spaces, not tabs"),
        ("a:\n\tb: 1", f"2:1: {SYNTAX}a tab indents this line"),
        ("a: [1\nb: 2", f"1:4: {SYNTAX}the [ that opens here is not closed\n  close it with ]"),
        ("a: 'x", f"1:4: {SYNTAX}the quote that opens here is not closed"),
        ('a: 1\nb: "x\nc: 2\n', f"2:4: {SYNTAX}the quote that opens here is not closed"),
        ('a: "x\nb: "y"\n', f"1:4: {SYNTAX}the quote that opens here is closed only in line 2"),
        (
            'a: "{{ x }}\nb: "{{ y }}"\nc: "z"\n',
            f"1:4: {SYNTAX}the quote that opens here is closed only in line 2",
        ),
        ('a: "x\n  y"\nb: [1\nc: 2', f"3:4: {SYNTAX}the [ that"),
        ("a: @x", f'1:4: {SYNTAX}a value cannot begin with @\n  put the value in quotes: "@x"'),
        ('a: "\\ud800"', f"1:7: {SYNTAX}found invalid Unicode character escape code"),
        (
            "a: 1\nb: x\0y",
            "2:5: the character U+0000 must not appear unescaped\n  remove it, or write",
        ),
        ("a:\n b: \x1b", "2:5: the character U+001B must not appear unescaped"),
        ("a: \ud800", "1:4: the character U+D800 must not appear unescaped"),
        ("a: x\u2028y", "1:5: the character U+2028 must not appear unescaped"),
        ("a: x\x85y", "1:5: the character U+0085 must not appear unescaped"),
        ("a: [1, 2\n", f"1:4: {SYNTAX}the [ that opens here is not closed"),
        ("a: [*a", f"1:7: {SYNTAX}a comma or ] is missing before this"),
        ("a: 1\n\ufeffb: 2", "2:1: the character U+FEFF must not appear unescaped"),
    ],
)
def test_problems_have_a_place_and_say_what_to_do(text: str, message: str) -> None:
    _, problems = read(text)
    assert any(message in problem and problem.startswith("f:") for problem in problems), problems


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a:\n  b:\n    c: 1\n     d: 2",
            (
                "4:6: {SYNTAX}this line is indented by 5 spaces, below a key that has a value "
                "already\n  indent it by 4 spaces, as c in line 3"
            ),
        ),
        (
            "a:\n  b:\n    c: 1\n   d: 2",
            (
                "4:4: {SYNTAX}this line is indented by 3 spaces, as no key above it"
                "\n  indent it by 4 as c in line 3, or by 2 as b in line 2, or by 0 as a in line 1"
            ),
        ),
        (
            "a:\n  b: 1\n  - c",
            (
                "3:3: {SYNTAX}an item of a list is beside the key b of line 2"
                "\n  indent the item below the key whose list it belongs to, or remove the hyphen"
            ),
        ),
        (
            "a:\n  b c\n  d: e",
            "2:3: {SYNTAX}this line has no colon after the key\n  write `b: c`",
        ),
        (
            "a:\n  b:c\n  d: e",
            "2:3: {SYNTAX}a space is missing after the colon\n  write `b: c`",
        ),
        (
            "a:\n - b\n -c\n - d\ne: f",
            "3:2: {SYNTAX}a space is missing after the hyphen\n  write `- c`",
        ),
        (
            "a: b: c",
            '1:5: {SYNTAX}this line has a second colon\n  put the value in quotes: "b: c"',
        ),
    ],
)
def test_a_slip_in_indentation_and_punctuation_is_described_without_words_of_libyaml(
    text: str, message: str
) -> None:
    _, problems = read(text)
    assert problems == [f"f:{message.format(SYNTAX=SYNTAX)}"]


def test_an_expression_in_quotes_is_not_told_to_be_quoted() -> None:
    _, problems = read("a: \"{{ '\\ud800' }}\"")
    assert [QUOTE_IT in problem for problem in problems] == [False]


def test_all_problems_are_told_in_the_order_of_lines() -> None:
    values, problems = read("a: 1\na: 2\nb: !x 3\nc: *d\ne: 5")
    assert [problem.split(" ")[0] for problem in problems] == ["f:2:1:", "f:3:4:", "f:4:4:"]
    assert values == {"a": 1, "b": "3", "c": None, "e": 5}


def test_nodes_know_their_places() -> None:
    root = read_text("a:\n  - b: 1\n    c: [x, 2]\n", "f", Diagnostics())
    assert find_nearest_node(root, ["a", 0, "c", 1]).position == SourcePosition("f", 3, 12)
    assert find_nearest_node(root, ["a", 0, "missing", "more"]).position == SourcePosition(
        "f", 2, 5
    )
    assert find_key_position(root, ["a", 0, "c"]) == SourcePosition("f", 3, 5)
    assert find_key_position(root, ["a", 0, "missing"]) == SourcePosition("f", 2, 5)
    assert [node.value for node in list_scalars(root)] == [1, "x", 2]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: 1\nb: \xff", "f:2:4: this is not UTF-8 text\n  save the file as UTF-8"),
        (b"\xef\xbb\xbfab\xff", "f:1:4: this is not UTF-8 text"),
        ("a: 1".encode("utf-16"), "f:1:1: this is not UTF-8 text"),
        ("a: 1".encode("utf-16-le"), "f:1:2: the character U+0000 must not appear unescaped"),
    ],
)
def test_bytes_that_are_no_text(data: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_bytes(data)
    problems = Diagnostics()
    assert to_plain_value(read_file(file, "f", problems)) == {}
    assert [message in str(problem) for problem in problems] == [True]


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    file = tmp_path / "topology.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1")
    problems = Diagnostics()
    root = read_file(file, "f", problems)
    assert (to_plain_value(root), root.position, len(problems)) == (
        {"a": 1},
        SourcePosition("f", 1, 1),
        0,
    )


@pytest.mark.parametrize("name", ["missing.yaml", ".", "a\0b", "x" * 5000])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    problems = Diagnostics()
    assert to_plain_value(read_file(tmp_path / name, "f", problems)) == {}
    (problem,) = problems
    assert str(problem).startswith("f:1:1: cannot be read: ")
