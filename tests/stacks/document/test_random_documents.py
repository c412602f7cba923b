"""Test that any file gives values or positioned problems, never an exception."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import to_plain_value
from gpuform.stacks.document.reading import LINE_BREAK, read_file, read_text

VALID = """\
config: &c
  count: {default: 8, type: integer}   # a comment
stack_references: {base: "org/base/prod"}
defaults: !!str x
clusters:
  <<: *c
  train: {platform: together, name: "{{ config.count }}", list: [1, -2.5, no, ~, 007]}
  text: |
    two
    lines
  'quoted': >-
    folded
"""
_SIGNS = "abx01 \n\n  :::---[]{},,&*!?|>'\"%@`#<<~\t\r\\.{{}}\x00\x85\ufeff\u2028\u00e9\U0001f600"
texts = st.text(max_size=80) | st.text(_SIGNS, max_size=60)


@st.composite
def draw_mutated(draw: st.DrawFn) -> str:
    """Draw the valid file with some pieces replaced, removed or doubled."""
    mutated_text = VALID
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(mutated_text)))
        end = draw(st.integers(start, min(len(mutated_text), start + 20)))
        mutated_text = (
            mutated_text[:start]
            + draw(st.text(_SIGNS, max_size=4) | st.just(mutated_text[start:end] * 2))
            + (mutated_text[end:])
        )
    return mutated_text


def check_positions(text: str, problems: Diagnostics) -> None:
    lines = LINE_BREAK.split(text)
    for problem in problems:
        assert problem.position.file == "f"
        assert 1 <= problem.position.line <= len(lines)
        assert 1 <= problem.position.column <= len(lines[problem.position.line - 1]) + 1
        assert problem.message
        assert problem.rule


@pytest.mark.slow
@given(texts | draw_mutated())
@example("\ud800")
@example("a: \udfff")
@example("a: [*a")
@example("? *a")
@example("<<")
@example("[")
@example("a: {<<: {<<: [[]]}}")
@settings(max_examples=400)
def test_any_text(text: str) -> None:
    problems = Diagnostics()
    to_plain_value(read_text(text, "f", problems))
    check_positions(text, problems)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("random") / "topology.yaml"


@pytest.mark.slow
@given(
    data=st.binary(max_size=80) | draw_mutated().map(lambda text: text.encode("utf-8", "replace"))
)
@example(data=b"\xef\xbb\xbf")
@example(data=b"\xef\xbb\xbf\xef\xbb\xbfa: 1")
@settings(max_examples=300)
def test_any_bytes(data: bytes, file: Path) -> None:
    file.write_bytes(data)
    problems = Diagnostics()
    to_plain_value(read_file(file, "f", problems))
    check_positions(data.decode("utf-8", "replace"), problems)


def test_the_valid_file_is_valid() -> None:
    problems = Diagnostics()
    read_text(VALID, "f", problems)
    assert not problems


_characters = st.characters(exclude_categories=["Cs"], exclude_characters="\x85\u2028\u2029")
names = st.text(_characters, max_size=8)
numbers = st.integers(-(2**53), 2**53) | st.floats(
    -1e9, 1e9, allow_nan=False, allow_subnormal=False
).map(lambda number: round(number, 6))
json_like = st.recursive(
    st.none() | st.booleans() | numbers | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
)


def convert_exponents_to_text(value: Any) -> Any:
    """Return the value as it is read: YAML 1.2 reads PyYAML's numbers with exponents as text."""
    if isinstance(value, dict):
        return {key: convert_exponents_to_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [convert_exponents_to_text(item) for item in value]
    if isinstance(value, float) and "e" in repr(value):
        return yaml.safe_dump(value).partition("\n")[0]
    return value


def are_equal_with_types(value: Any, other_value: Any) -> bool:
    if isinstance(value, dict) and isinstance(other_value, dict):
        return list(value) == list(other_value) and all(
            are_equal_with_types(value[key], other_value[key]) for key in value
        )
    if isinstance(value, list) and isinstance(other_value, list):
        return len(value) == len(other_value) and all(map(are_equal_with_types, value, other_value))
    return type(value) is type(other_value) and value == other_value


@pytest.mark.slow
@pytest.mark.parametrize("flow", [None, True, False])
@given(values=st.dictionaries(names, json_like, max_size=4))
def test_what_is_dumped_is_read_again(values: dict[str, Any], flow: bool | None) -> None:
    dumped = yaml.safe_dump(values, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    problems = Diagnostics()
    read_values = to_plain_value(read_text(dumped, "f", problems))
    assert not problems
    assert are_equal_with_types(read_values, convert_exponents_to_text(values))


@given(names)
def test_quoted_text_is_text(text: str) -> None:
    dumped = yaml.safe_dump({text: text}, default_style='"')
    assert to_plain_value(read_text(dumped, "f", Diagnostics())) == {text: text}
