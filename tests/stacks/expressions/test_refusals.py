"""Test the refusals of expressions, and of texts that are no expressions."""

import re
from typing import Any

import pytest

from gpuform.stacks.expressions.sandbox import Function
from gpuform.stacks.expressions.template import parse
from gpuform.stacks.expressions.values import ExpressionError

VARIABLES = {"x": [1], "s": "text", "m": {"a": 1}, "ask": Function(lambda: 1)}


def get_refusal(text: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        parse(text).evaluate(VARIABLES)
    return f"{caught.value}\n{caught.value.hint}"


KINDS = {
    "x": "a list",
    "s": "a text",
    "m": "a map",
    "1": "a number",
    "none": "a null",
    **dict.fromkeys(("ask", "range", "self", "s.upper"), "a function"),
}
"""Values by what a refusal calls them."""


@pytest.mark.parametrize("value", KINDS)
@pytest.mark.parametrize(
    ("form", "name"),
    [
        *[("{}.__class__", "__class__"), ("{}['__class__']", "__class__")],
        *[("{}.__init__.__globals__", "__init__"), ("{}['__doc__']", "__doc__")],
        *[("{}.function", "function"), ("{}.__call__", "__call__"), ("{}.func", "func")],
        ("{}._TemplateReference__context", "_TemplateReference__context"),
        *[("[{}] | map(attribute='__class__')", "__class__")],
        *[("[{}] | map(attribute='function')", "function")],
        *[("[{}] | groupby('__class__')", "__class__")],
        *[("[{0}, {0}] | sort(attribute='__class__')", "__class__")],
        *[("[{0}, {0}] | min(attribute='__class__')", "__class__")],
        *[("[{}] | selectattr('__class__') | first", "__class__")],
    ],
)
def test_no_value_has_an_attribute_of_python(value: str, form: str, name: str) -> None:
    kind = KINDS[value]
    expected = (
        f"the object has no '{name}': it has a" if value == "m" else f"{kind} has no '{name}'"
    )
    assert get_refusal(f"{{{{ {form.format(f'({value})')} }}}}") == f"{expected}\n"


@pytest.mark.parametrize("value", KINDS)
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("{} | attr('__class__')", "unknown filter attr\nuse one of abs, b64decode, "),
        ("{} | pprint", "unknown filter pprint\nuse one of abs, b64decode, "),
        ("'%r' | format({})", "unknown filter format\ndid you mean float?"),
        ("[{}] | map('attr', '__class__')", "No filter named 'attr'.\n"),
        ("'{{0.__class__}}'.format({})", "a text has no 'format'\n"),
        ("'%r' % {}", "% does not format strings\njoin strings with ~"),
    ],
)
def test_no_filter_or_format_shows_an_attribute(value: str, form: str, expected: str) -> None:
    assert get_refusal(f"{{{{ {form.format(f'({value})')} }}}}").startswith(expected)


FORMS = ["{}", "{}()", "[{}]", "{} ~ ''", "{} | string", "{}.a", "{}[0]"]


@pytest.mark.parametrize(
    "name",
    [
        *["cycler", "joiner", "namespace", "lipsum", "dict", "caller", "super", "loop"],
        *["context", "environment", "_", "__builtins__", "open", "import", "exec", "l_0_x"],
        *["result", "varargs", "kwargs", "undefined", "config", "resolve", "blocks"],
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_there_are_no_other_names(name: str, form: str) -> None:
    assert get_refusal(f"{{{{ {form.format(name)} }}}}") == f"'{name}' is undefined\n"


NO_VALUE = "a function is not a value\ncall it: name(...)"


@pytest.mark.parametrize(
    ("form", "expected"),
    list(
        zip(
            FORMS,
            [
                *[NO_VALUE, "a function cannot be called\n", NO_VALUE, NO_VALUE, NO_VALUE],
                *["a function has no 'a'\n", "a function has no 0\n"],
            ],
            strict=True,
        )
    ),
)
def test_the_template_itself_is_no_value(form: str, expected: str) -> None:
    assert get_refusal(f"{{{{ {form.format('self')} }}}}") == expected


@pytest.mark.parametrize("expression", ["undefined._fail_with_undefined_error", "u.__class__"])
def test_what_is_undefined_has_nothing(expression: str) -> None:
    assert "is undefined" in get_refusal(f"{{{{ {expression} }}}}")


NO_STATEMENTS = (
    "a value can contain expressions, {{ ... }}, but not statements, {% ... %}\nwrite a condition"
)
NONE = "this is not an expression: "


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *[("{% set a = 1 %}", NO_STATEMENTS), ("{{ 1 }}{% if x %}{% endif %}", NO_STATEMENTS)],
        ("{% for i in x %}{{ i }}{% endfor %}", NO_STATEMENTS),
        *[("{% include '/etc/passwd' %}", NO_STATEMENTS), ("{% import 'a' as a %}", NO_STATEMENTS)],
        *[("{% extends 'a' %}", NO_STATEMENTS), ("{% macro m() %}{% endmacro %}", NO_STATEMENTS)],
        *[
            ("{{ }}", NONE),
            ("{{", NONE),
            ("{{ 1", NONE),
            ("{% x %}", "a value can contain expressions, "),
        ],
        *[("{{ 1 + }}", NONE), ("{{ 'a }}", NONE), ("{{ a b }}", NONE), ("{{ $ }}", NONE)],
        *[("{{ a = 1 }}", NONE), ("{{ lambda: 1 }}", NONE), ("{{ [a for a in x] }}", NONE)],
        *[("{{ range(a=1, a=2) }}", NONE), ("{{ range(__debug__=1) }}", NONE)],
        ("{{ '\\x' }}", NONE),
    ],
)
def test_texts_that_are_no_expressions(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert f"{caught.value}\n{caught.value.hint}".startswith(message)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        *[("x.append(2)", "a list has no 'append'"), ("x.clear()", "a list has no 'clear'")],
        ("m.update({'b': 1})", "the object has no 'update': it has a"),
        ("m.pop('a')", "the object has no 'pop': it has a"),
    ],
)
def test_nothing_is_changed(expression: str, expected: str) -> None:
    variables: dict[str, Any] = {"x": [1], "m": {"a": 1}}
    with pytest.raises(ExpressionError, match=f"^{re.escape(expected)}$"):
        parse(f"{{{{ {expression} }}}}").evaluate(variables)
    assert variables == {"x": [1], "m": {"a": 1}}
