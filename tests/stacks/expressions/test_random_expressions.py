"""Any text with expressions has a value, or is refused with a reason."""

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuform.stacks.expressions.sandbox import FILTERS, METHODS, SANDBOX, Function
from gpuform.stacks.expressions.template import parse
from gpuform.stacks.expressions.values import ExpressionError

VARIABLES: dict[str, Any] = {
    "x": [1, "a", None, 2.5, [True]],
    "s": "some text",
    "m": {"a": 1, "b": {"c": ["d"]}},
    "n": 7,
    "f": Function(lambda *args, **kwargs: [args, kwargs]),
}
LEAVES = [*VARIABLES, "u", "self", "range", "none", "true", "0", "-1", "1.5", "9e99", "'a'", "'%s'"]
LEAVES += ["''", "'__class__'", "[]", "{}", "()", "10 ** 9", "'upper'", "'\\ud800'", "'[1, 2]'"]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "not in", "and", "or", "is"]
METHOD_NAMES = sorted({name for methods in METHODS.values() for name in methods})


def extend_expressions(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    filters = st.sampled_from(sorted(FILTERS))
    tests = st.sampled_from(sorted(name for name in SANDBOX.tests if name.isidentifier()))
    names = st.sampled_from([*METHOD_NAMES, "a", "b", "__class__", "__init__", "function"])
    return st.one_of(
        st.builds("{} | {}".format, inner, filters),
        st.builds("{} | {}({})".format, inner, filters, inner),
        st.builds("{} | {}({}, {})".format, inner, filters, inner, inner),
        st.builds("{} | map('{}', {})".format, inner, filters, inner),
        st.builds("{} | select('{}', {})".format, inner, tests, inner),
        st.builds("({}) is {}".format, inner, tests),
        st.builds("({} {} {})".format, inner, st.sampled_from(OPERATORS), inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({}).{}".format, inner, names),
        st.builds("({}).{}({})".format, inner, names, inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("({})[{}:{}]".format, inner, inner, inner),
        st.builds("({})({}, a={})".format, inner, inner, inner),
        st.builds("({})(*{}, **{})".format, inner, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{{}: {}}}".format, inner, inner),
        st.builds("not {}".format, inner),
        st.builds("-{}".format, inner),
    )


expressions = st.recursive(st.sampled_from(LEAVES), extend_expressions, max_leaves=6)


def evaluate_text(text: str) -> None:
    try:
        value = parse(text).evaluate(VARIABLES)
    except ExpressionError:
        return
    assert "object at 0x" not in str(value)
    json.dumps(value, allow_nan=False).encode()


@pytest.mark.slow
@given(expressions)
@example("x | groupby('a')")
@example("[f, f] | sort")
@example("'a' | indent('a' * 1000)")
@example("1 | round(-10 ** 8)")
@example("9e99 * 9e99 * 9e99 * 9e99")
@example("[x] | map('map', 'map')")
@settings(max_examples=400)
def test_any_expression(expression: str) -> None:
    evaluate_text(f"{{{{ {expression} }}}}")


_SIGNS = "{{{}}}%#'\"\\ ()[]|.,:~+-*/=<>019aexf_\n\x00\ud800\u00e9"


@pytest.mark.slow
@given(
    st.text(max_size=30).map("{{{{{}}}}}".format)
    | st.text(_SIGNS, max_size=30).map("{{{{ {} }}}}".format)
    | st.text(_SIGNS, max_size=40)
    | st.lists(st.sampled_from([*LEAVES, *OPERATORS, "{{", "}}", "|", "(", ")", "."])).map(" ".join)
)
@example("{{ \u00aa }}")
@example("{{ '\\N{x}' }}")
@example("{{ 1__0 }}")
@settings(max_examples=400)
def test_any_text(text: str) -> None:
    evaluate_text(text)
