"""Rendered values mean the same when they are read again."""

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.schemas.values import is_equal
from gpuform.stacks.declaration_writer.declarations import (
    Declarations,
    DeclaredReference,
    InterpolatedText,
    ResourceEntry,
)
from gpuform.stacks.declaration_writer.edits import add_entries
from gpuform.stacks.declaration_writer.python_program import render_literal, render_statement
from gpuform.stacks.declaration_writer.topology_yaml import render_scalar, render_topology
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
    content = to_plain_value(read_text(text, "t.yaml", problems))
    assert not list(problems), [problem.message for problem in problems]
    return content


def evaluate(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: evaluate(item) for key, item in value.items()}
    if isinstance(value, list):
        return [evaluate(item) for item in value]
    is_expression = isinstance(value, str) and has_expression(value)
    return parse(value).evaluate({}) if is_expression else value


@pytest.mark.slow
@given(st.dictionaries(st.from_regex(r"[a-z_]{1,9}", fullmatch=True), VALUES, max_size=4))
def test_rendered_yaml_reads_back_as_the_same_values(values: dict[str, Any]) -> None:
    declared = Declarations([ResourceEntry("clusters", "train", "aios", values)])
    for rendered in (render_topology(declared), add_entries("# mine\n", declared, "t.yaml")):
        properties = evaluate(read(rendered))["clusters"]["train"]
        del properties["platform"]
        assert is_equal(properties, values)
        assert list(properties) == list(read(rendered)["clusters"]["train"])[1:]


@given(VALUES)
def test_rendered_python_evaluates_to_the_same_value(value: Any) -> None:
    def fail_on_name(_: object) -> str:
        raise AssertionError("the value has no references")

    assert is_equal(ast.literal_eval(render_literal(value, fail_on_name)), value)
    lines = "\n".join(render_statement("x = ", value, "", fail_on_name))
    assert is_equal(ast.literal_eval(lines.removeprefix("x = ")), value)


@given(st.lists(TEXTS, min_size=1, max_size=3))
def test_interpolated_text_evaluates_to_its_joined_parts(texts: list[str]) -> None:
    reference = DeclaredReference("clusters", "a", ("status",))
    parts = [part for literal in texts for part in (literal, reference)]
    template = read(f"x: {render_scalar(InterpolatedText(tuple(parts)))}\n")["x"]
    assert parse(template).evaluate({"clusters": {"a": {"status": "up"}}}) == "up".join(
        [*texts, ""]
    )


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 2**53 + 1])
def test_render_scalar_refuses_numbers_that_files_cannot_hold(number: float) -> None:
    with pytest.raises(ValueError, match="a file cannot hold the number"):
        render_scalar(number)
