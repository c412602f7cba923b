"""Whatever is written means the same when it is read again."""

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.schemas.values import is_equal
from gpuform.stacks.authoring.declared import Declared, Entry, Mixed, Reference
from gpuform.stacks.authoring.python_text import literal, statement
from gpuform.stacks.authoring.yaml_files import with_entries
from gpuform.stacks.authoring.yaml_values import scalar, topology_text
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import to_plain_value
from gpuform.stacks.document.reading import read_text
from gpuform.stacks.expressions.template import has_expression, parse

TEXTS = st.text() | st.text("{}%#'\"\\: -,[]&*!|>\n\r\t0.x") | st.sampled_from(
    ["no", "null", "~", "1e3", "007", "1:30", "2026-01-01", "0x1F", "12", "1.5", "<<", "true", "=",
     "a: b", "a #b", "- a", "...", "---", "{{ x }}", "{% if %}", "{# c #}", "a b", "@x", "`x"]
)  # fmt: skip
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def read(text: str) -> Any:
    problems = Diagnostics()
    found = to_plain_value(read_text(text, "t.yaml", problems))
    assert not list(problems), [each.message for each in problems]
    return found


def evaluated(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: evaluated(item) for key, item in value.items()}
    if isinstance(value, list):
        return [evaluated(item) for item in value]
    is_expression = isinstance(value, str) and has_expression(value)
    return parse(value).evaluate({}) if is_expression else value


@pytest.mark.slow
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), VALUES, max_size=4))
def test_yaml_is_read_as_it_was_meant(values: dict[str, Any]) -> None:
    declared = Declared([Entry("clusters", "train", "aios", values)])
    for text in (topology_text(declared), with_entries("# mine\n", declared, "t.yaml")):
        found = evaluated(read(text))["clusters"]["train"]
        del found["platform"]
        assert is_equal(found, values)
        assert list(found) == list(read(text)["clusters"]["train"])[1:]


@given(VALUES)
def test_python_is_read_as_it_was_meant(value: Any) -> None:
    def none(_: object) -> str:
        raise AssertionError("there is no name")

    assert is_equal(ast.literal_eval(literal(value, none)), value)
    lines = "\n".join(statement("x = ", value, "", none))
    assert is_equal(ast.literal_eval(lines.removeprefix("x = ")), value)


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_mixed_text_is_its_parts(texts: list[str]) -> None:
    reference = Reference("clusters", "a", ("status",))
    parts = [part for text in texts for part in (text, reference)]
    found = read(f"x: {scalar(Mixed(tuple(parts)))}\n")["x"]
    assert parse(found).evaluate({"clusters": {"a": {"status": "up"}}}) == "up".join([*texts, ""])


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 2**53 + 1])
def test_numbers_that_no_file_holds_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="no number that a file can hold"):
        scalar(number)
