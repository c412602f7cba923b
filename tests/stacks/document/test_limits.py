"""Test the limits on depth, size and aliases of a file."""

from pathlib import Path

import pytest

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import to_plain_value
from gpuform.stacks.document.reading import DEEPEST, LARGEST, MOST_NODES, read_file, read_text


def list_messages(text: str) -> list[str]:
    problems = Diagnostics()
    to_plain_value(read_text(text, "f", problems))
    return [problem.message for problem in problems]


TOO_MANY = f"more than {MOST_NODES} values, including those that aliases repeat"
TOO_DEEP = f"more than {DEEPEST} levels of nested lists and objects"

TEN = ",".join("1" * 10)
LAUGHS = f"a0: &a0 [{TEN}]\n" + "".join(
    f"a{at}: &a{at} [{','.join([f'*a{at - 1}'] * 10)}]\n" for at in range(1, 12)
)
LONG_TEXT = f'a: &a "{"x" * 100_000}"\n'
THOUSAND = "a: &a {" + "".join(f"k{at}: 1," for at in range(1000)) + "}\n"


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        LONG_TEXT + f"b: [{'*a,' * 400}]",
        THOUSAND + f"b: {{<<: [{'*a,' * 300}]}}",
        THOUSAND + "".join(f"b{at}: {{<<: *a}}\n" for at in range(300)),
    ],
    ids=["laughs", "a long text", "merged in one", "merged in many"],
)
def test_aliases_do_not_multiply_without_end(text: str) -> None:
    assert list_messages(text) == [TOO_MANY]


def test_aliases_may_repeat_what_is_small() -> None:
    assert list_messages(LONG_TEXT + f"b: [{'*a,' * 100}]") == []
    assert list_messages(THOUSAND + f"b: {{<<: [{'*a,' * 100}]}}") == []


def build_alias_chain(length: int) -> str:
    more = (f"a{at}: &a{at} [*a{at - 1}]\n" for at in range(1, length))
    return "a0: &a0 [x]\n" + "".join(more)


@pytest.mark.parametrize(
    ("deep", "most"),
    [
        (lambda depth: "a: " + "[" * depth + "]" * depth, DEEPEST),
        (lambda depth: "a: " * depth, 1),
        (lambda depth: "{a: " * depth + "1" + "}" * depth, DEEPEST),
        (lambda depth: "".join(" " * at + "a:\n" for at in range(depth)), DEEPEST),
        (lambda depth: "a:\n" + "- " * depth + "x", DEEPEST - 1),
        (build_alias_chain, DEEPEST - 1),
    ],
    ids=["lists", "one line", "objects", "indented", "dashes", "aliases"],
)
def test_depth(deep, most: int) -> None:
    assert list_messages(deep(most)) == []
    assert list_messages(deep(most + 1)) != []
    assert len(list_messages(deep(2_000))) == 1


@pytest.mark.parametrize("depth", [DEEPEST + 1, 100_000])
@pytest.mark.parametrize("opening", ["[", "{", "- ", "? ", "[{"])
def test_too_deep_is_refused_at_once(opening: str, depth: int) -> None:
    assert list_messages("a:\n " + opening * depth) == [TOO_DEEP]


def test_a_long_key_is_told_in_short() -> None:
    key = "x" * 10_000
    (message,) = list_messages(f'? &k "{key}"\n: 1\n*k : 2\n')
    assert len(message) < 200


def test_a_long_tag_is_told_in_short() -> None:
    (message,) = list_messages(f"a: !{'x' * 10_000} 1")
    assert len(message) < 200


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.yaml"
    file.write_bytes(b"#" * LARGEST)
    problems = Diagnostics()
    read_file(file, "f", problems)
    assert not problems
    with file.open("ab") as more:
        more.write(b"#")
    read_file(file, "f", problems)
    assert [problem.message for problem in problems] == [f"the file has more than {LARGEST} bytes"]


def test_an_endless_file_is_not_read() -> None:
    problems = Diagnostics()
    read_file(Path("/dev/zero"), "f", problems)
    assert [problem.rule for problem in problems] == ["limit"]
