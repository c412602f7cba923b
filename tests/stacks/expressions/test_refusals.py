"""What expressions cannot reach, and texts that are none."""

from typing import Any

import pytest

from gpuform.stacks.expressions.errors import ExpressionError
from gpuform.stacks.expressions.sandbox import Function
from gpuform.stacks.expressions.template import parse

VARIABLES = {"x": [1], "s": "text", "m": {"a": 1}, "ask": Function(lambda: 1)}


def refusal(text: str) -> str:
    with pytest.raises(ExpressionError) as caught:
        parse(text).evaluate(VARIABLES)
    return f"{caught.value}\n{caught.value.hint}"


@pytest.mark.parametrize("value", ["x", "s", "m", "ask", "range", "self", "1", "none", "s.upper"])
@pytest.mark.parametrize(
    "form",
    [
        *["{}.__class__", "{}['__class__']", "{}.__init__.__globals__", "{}['__doc__']"],
        *["{}.function", "{}.__call__", "{}.func", "{}._TemplateReference__context"],
        *["[{}] | map(attribute='__class__')", "[{}] | groupby('__class__')"],
        *["[{}] | sort(attribute='__class__')", "[{}] | map(attribute='function')"],
        *["[{}] | selectattr('__class__') | first", "[{}] | min(attribute='__class__')"],
        *["{} | attr('__class__')", "'{{0.__class__}}'.format({})", "'%r' % {}"],
        *["[{}] | map('attr', '__class__')", "'%r' | format({})", "{} | pprint"],
    ],
)
def test_nothing_of_python_is_in_reach(value: str, form: str) -> None:
    expression = form.format(value if value != "1" else "(1)")
    found = ""
    try:
        found = str(parse(f"{{{{ {expression} }}}}").evaluate(VARIABLES))
    except ExpressionError as error:
        found = str(error)
    assert "<" not in found
    assert "object at" not in found


@pytest.mark.parametrize(
    "name",
    [
        *["self", "cycler", "joiner", "namespace", "lipsum", "dict", "caller", "super", "loop"],
        *["context", "environment", "_", "__builtins__", "open", "import", "exec", "l_0_x"],
        *["result", "varargs", "kwargs", "undefined", "config", "resolve", "blocks"],
    ],
)
@pytest.mark.parametrize("form", ["{}", "{}()", "[{}]", "{} ~ ''", "{} | string", "{}.a", "{}[0]"])
def test_there_are_no_other_names(name: str, form: str) -> None:
    assert refusal(f"{{{{ {form.format(name)} }}}}")


@pytest.mark.parametrize("expression", ["undefined._fail_with_undefined_error", "u.__class__"])
def test_what_is_undefined_has_nothing(expression: str) -> None:
    assert "is undefined" in refusal(f"{{{{ {expression} }}}}")


NO_STATEMENTS = "a value holds expressions, {{ ... }}, and no statements, {% ... %}\nwrite a choice"
NONE = "this is not an expression: "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *[("{% set a = 1 %}", NO_STATEMENTS), ("{{ 1 }}{% if x %}{% endif %}", NO_STATEMENTS)],
        ("{% for i in x %}{{ i }}{% endfor %}", NO_STATEMENTS),
        *[("{% include '/etc/passwd' %}", NO_STATEMENTS), ("{% import 'a' as a %}", NO_STATEMENTS)],
        *[("{% extends 'a' %}", NO_STATEMENTS), ("{% macro m() %}{% endmacro %}", NO_STATEMENTS)],
        *[
            ("{{ }}", NONE),
            ("{{", NONE),
            ("{{ 1", NONE),
            ("{% x %}", "a value holds expressions, "),
        ],
        *[("{{ 1 + }}", NONE), ("{{ 'a }}", NONE), ("{{ a b }}", NONE), ("{{ $ }}", NONE)],
        *[("{{ a = 1 }}", NONE), ("{{ lambda: 1 }}", NONE), ("{{ [a for a in x] }}", NONE)],
        *[("{{ range(a=1, a=2) }}", NONE), ("{{ range(__debug__=1) }}", NONE)],
        ("{{ '\\x' }}", NONE),
    ],
)
def test_texts_that_are_no_expressions(text: str, told: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert f"{caught.value}\n{caught.value.hint}".startswith(told)


def test_nothing_is_changed() -> None:
    variables: dict[str, Any] = {"x": [1], "m": {"a": 1}}
    for expression in ("x.append(2)", "m.update({'b': 1})", "x.clear()", "m.pop('a')"):
        with pytest.raises(ExpressionError):
            parse(f"{{{{ {expression} }}}}").evaluate(variables)
    assert variables == {"x": [1], "m": {"a": 1}}
