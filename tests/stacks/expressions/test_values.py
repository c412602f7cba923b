"""Test the values of templates: values keep their types, texts are joined as in YAML."""

from typing import Any

import pytest

from gpuform.stacks.expressions.sandbox import Function
from gpuform.stacks.expressions.template import has_expression, parse
from gpuform.stacks.expressions.values import ExpressionError

VARIABLES = {
    "text": "abc",
    "number": 8,
    "share": 0.5,
    "yes": True,
    "nothing": None,
    "list": [3, 1, 2],
    "object": {"b": 2, "a": {"c": 1}, "items": "own"},
    "ask": Function(lambda name, size=1: {"name": name, "size": size}),
}


def evaluate(text: str) -> Any:
    return parse(text).evaluate(VARIABLES)


@pytest.mark.parametrize("name", ["text", "number", "share", "yes", "nothing", "list", "object"])
def test_an_expression_alone_keeps_its_type(name: str) -> None:
    result = evaluate(f"{{{{ {name} }}}}")
    assert (result, type(result)) == (VARIABLES[name], type(VARIABLES[name]))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("{{ 1 }}", 1), ("{{ 1.0 }}", 1.0), ("{{ '1' }}", "1"), ("{{ none }}", None)],
        *[("{{ (1, [2]) }}", [1, [2]]), ("{{ {'a': [none]} }}", {"a": [None]}), ("{{ [] }}", [])],
        *[("{{ {2: 'x', true: 'y'} }}", {"2": "x", "true": "y"})],
        *[("{{ number + 1 }}", 9), ("{{ number / 2 }}", 4.0), ("{{ number // 3 }}", 2)],
        *[("{{ number % 3 }}", 2), ("{{ 2 ** 10 }}", 1024), ("{{ -number }}", -8)],
        *[("{{ 'ab' * 2 }}", "abab"), ("{{ 2 * [1] }}", [1, 1]), ("{{ 'a' * -1 }}", "")],
        *[("{{ [1] + list }}", [1, 3, 1, 2]), ("{{ 'a' + text }}", "aabc")],
        *[("{{ number > 5 and yes }}", True), ("{{ not yes }}", False), ("{{ 1 < 2 < 2 }}", False)],
        *[("{{ 1 in list }}", True), ("{{ 'x' not in text }}", True), ("{{ list == [3] }}", False)],
        *[("{{ 'a' if yes else 'b' }}", "a"), ("{{ text if number > 9 else none }}", None)],
        *[("{{ list[0] }}", 3), ("{{ list[-1] }}", 2), ("{{ list[1:] }}", [1, 2])],
        *[("{{ text[::-1] }}", "cba"), ("{{ object.a.c }}", 1), ("{{ object['b'] }}", 2)],
        *[("{{ object.items }}", "own"), ("{{ object.missing is defined }}", False)],
        *[("{{ object.missing.more | default('d') }}", "d"), ("{{ range(2, 8, 3) }}", [2, 5])],
        *[("{{ ask('x', size=2) }}", {"name": "x", "size": 2}), ("{{ ask('x').size }}", 1)],
        *[("{{ 9007199254740992 }}", 2**53), ("{{ '\\n' }}", "\n"), ("{{ '{{' }}", "{{")],
    ],
)
def test_values(text: str, value: Any) -> None:
    result = evaluate(text)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[(" {{ number }}", " 8"), ("{{ number }}\n", "8\n"), ("{{ 1 }}{{ 2 }}", "12")],
        *[("a-{{ yes }}", "a-true"), ("a-{{ not yes }}", "a-false"), ("a-{{ share }}", "a-0.5")],
        *[("a-{{ list }}", "a-[3, 1, 2]"), ("a-{{ ['\u00e9', none] }}", 'a-["\u00e9", null]')],
        *[("a-{{ {'b': yes} }}", 'a-{"b": true}'), ("{# gone #}a", "a"), ("a{# gone #}", "a")],
        *[("{% raw %}{{ x }}{% endraw %}", "{{ x }}"), ("a {%- raw %} b{% endraw %}", "a b")],
        *[("{{ number ~ yes ~ 'x' ~ [1] }}", "8truex[1]"), ("{{ 1 ~ 2 }}", "12")],
    ],
)
def test_anything_else_is_text(text: str, value: str) -> None:
    assert evaluate(text) == value


@pytest.mark.parametrize(
    ("text", "has"),
    [("{{ a }}", True), ("{% a %}", True), ("{# a #}", True), ("{a}", False), ("}} %}", False)],
)
def test_what_has_expressions(text: str, has: bool) -> None:
    assert has_expression(text) is has


class Machine(dict[str, Any]):
    stands_for = "m-1"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("{{ machine }}", "m-1"), ("{{ [machine] }}", ["m-1"]), ("x-{{ machine }}", "x-m-1")],
        *[("{{ machine ~ 1 }}", "m-11"), ("{{ [machine] | tojson }}", '["m-1"]')],
        *[("{{ machine.size }}", 8), ("{{ [machine, machine] | join(',') }}", "m-1,m-1")],
        ("{{ [machine] | map(attribute='size') | list }}", [8]),
    ],
)
def test_what_stands_for_something_else(text: str, value: Any) -> None:
    assert parse(text).evaluate({"machine": Machine(size=8)}) == value


UNKNOWN_NAME = "'missing' is undefined"
NO_VALUE = "null cannot be part of a string\ngive a default: default('')"
TOO_LONG = "a whole number can have at most 16 digits\nwrite the number as text"
NO_FUNCTION = "a function is not a value\ncall it: name(...)"
NO_NUMBER = "the result is too large, or not a number"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *[("{{ missing }}", UNKNOWN_NAME), ("a {{ missing }}", UNKNOWN_NAME)],
        *[("{{ [missing] }}", UNKNOWN_NAME), ("{{ missing() }}", UNKNOWN_NAME)],
        *[("{{ missing ~ 1 }}", UNKNOWN_NAME), ("{{ missing[1:] }}", UNKNOWN_NAME)],
        *[("{{ missing == 1 }}", UNKNOWN_NAME), ("{{ missing | upper }}", UNKNOWN_NAME)],
        ("{{ object.c }}", "the object has no 'c': it has b, a, items"),
        ("{{ {}.c }}", "the object has no 'c': it has nothing"),
        ("{{ list[3] }}", "the value has no item 3: it has 3"),
        ("{{ text.c }}", "a text has no 'c'"),
        ("{{ list['c'] }}", "a list has no 'c'"),
        *[
            ("a {{ nothing }}", NO_VALUE),
            ("{{ none ~ 'a' }}", NO_VALUE),
            ("{{ {none: 1} }}", NO_VALUE),
        ],
        *[("{{ range }}", NO_FUNCTION), ("{{ [text.upper] }}", NO_FUNCTION)],
        *[("a {{ range }}", NO_FUNCTION), ("{{ range | string }}", NO_FUNCTION)],
        *[("{{ 9007199254740993 }}", TOO_LONG), (f"{{{{ {'9' * 5000} }}}}", TOO_LONG)],
        *[(f"{{{{ 0x{'f' * 5000} }}}}", TOO_LONG), ("{{ 2 ** 53 + 1 }}", TOO_LONG)],
        *[("{{ '[1e999]' | fromjson }}", NO_NUMBER), ("{{ 1e308 * 10 }}", NO_NUMBER)],
        *[("{{ 1e999 }}", NO_NUMBER), ("{{ 'NaN' | fromjson }}", NO_NUMBER)],
        ("{{ (-8) ** 0.5 }}", "is not a value"),
        ("{{ 9 ** 99999 }}", "the result of the power is too large"),
        ("{{ '%s' % 1 }}", "% does not format strings\njoin strings with ~"),
        ("{{ text() }}", "a text cannot be called"),
        ("{{ list() }}", "a list cannot be called"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ 1 + 'a' }}", "unsupported operand"),
        ("{{ 1 < 'a' }}", "not supported between"),
        *[("{{ 1[0:1] }}", "not subscriptable"), ("{{ object[:1] }}", "unhashable")],
        ("{{ list[::0] }}", "slice step cannot be zero"),
        ("{{ range(0, 1, 0) }}", "must not be zero"),
        ("{{ ask() }}", "missing 1 required positional argument"),
        ("{{ '\\ud800' }}", "the string contains an unpaired surrogate"),
        ("{{ {'\\udfff': 1} }}", "the string contains an unpaired surrogate"),
        ("{{ ('[' * 70 ~ ']' * 70) | fromjson }}", "more than 64 levels of nested lists and o"),
    ],
)
def test_what_has_no_value(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(text)
    assert message in f"{caught.value}\n{caught.value.hint}"


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        *[("{{ text | int }}", True), ("{{ text.c }}", True), ("{{ text + 1 }}", True)],
        *[("{{ text * 9999999 }}", False), ("{{ text() }}", False), ("{{ nothing ~ 1 }}", False)],
        *[("{{ text.upper }}", False), ("{{ text | b64decode }}", False)],
    ],
)
def test_a_failure_says_whether_it_shows_values(text: str, tells: bool) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(text)
    assert caught.value.tells_values is tells
    assert tells or VARIABLES["text"] not in f"{caught.value}{caught.value.hint}"


def test_a_failure_is_told_in_short() -> None:
    with pytest.raises(ExpressionError) as caught:
        parse("{{ x | int }}").evaluate({"x": "y" * 100_000})
    assert len(str(caught.value)) < 1000
