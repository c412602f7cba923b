"""Every filter and method that expressions have, with what it refuses."""

from typing import Any

import pytest

from gpuform.stacks.expressions.sandbox import FILTERS, METHODS
from gpuform.stacks.expressions.template import parse
from gpuform.stacks.expressions.values import ExpressionError

VARIABLES = {"m": {"b": 2, "a": 1}, "rows": [{"k": "x", "n": 2}, {"k": "y"}, {"k": "x", "n": 1}]}

CASES: dict[str, list[tuple[str, Any]]] = {
    "abs": [("-3 | abs", 3)],
    "b64decode": [("'w6k=' | b64decode", "\u00e9")],
    "b64encode": [("'\u00e9' | b64encode", "w6k="), ("8 | b64encode", "OA==")],
    "capitalize": [("'aB' | capitalize", "Ab")],
    "count": [("[1, 2] | count", 2)],
    "d": [("missing | d(1)", 1)],
    "default": [("missing | default(1)", 1), ("'' | default(1)", ""), ("'' | default(1, true)", 1)],
    "dictsort": [("m | dictsort", [["a", 1], ["b", 2]]), ("{} | dictsort", [])],
    "first": [("[1, 2] | first", 1)],
    "flatten": [("[[1, 2], [], 'ab', [[3]]] | flatten", [1, 2, "ab", [3]])],
    "float": [("'1.5' | float", 1.5), ("2 | float", 2.0), ("'x' | float(0)", 0)],
    "fromjson": [("'[1, {\"a\": null}]' | fromjson", [1, {"a": None}])],
    "groupby": [("rows | groupby('k') | map('first') | list", ["x", "y"])],
    "indent": [("'a\\n\\nb' | indent(2)", "a\n\n  b"), ("'a\\nb' | indent(1, true)", " a\n b")],
    "int": [("'12' | int", 12), ("2.9 | int", 2), ("'x' | int(7)", 7), ("'x' | int(default=7)", 7)],
    "items": [("m | items", [["b", 2], ["a", 1]])],
    "join": [("[1, true, 'x', [2]] | join('-')", "1-true-x-[2]"), ("[] | join", "")],
    "last": [("[1, 2] | last", 2)],
    "length": [("'abc' | length", 3), ("m | length", 2)],
    "list": [("'ab' | list", ["a", "b"]), ("m | list", ["b", "a"])],
    "lower": [("'AB' | lower", "ab")],
    "map": [
        ("rows | map(attribute='k')", ["x", "y", "x"]),
        ("rows | map(attribute='n', default=0)", [2, 0, 1]),
        ("['a'] | map('upper')", ["A"]),
        ("['ab'] | map('replace', 'a', 'c') | map('upper')", ["CB"]),
    ],
    "max": [("[1, 3, 2] | max", 3)],
    "min": [("[3, 1, 2] | min", 1)],
    "reject": [("[1, 2] | reject('odd')", [2])],
    "rejectattr": [("rows | rejectattr('n', 'defined') | map(attribute='k')", ["y"])],
    "replace": [("'aab' | replace('a', 'c')", "ccb"), ("'a' | replace('a', 1)", "1")],
    "reverse": [
        ("[1, 2] | reverse", [2, 1]),
        ("'ab' | reverse", "ba"),
        ("m | reverse", ["a", "b"]),
    ],
    "round": [("1.25 | round", 1), ("1.25 | round(1)", 1.2), ("1250 | round(-2)", 1200)],
    "select": [("[1, 2, 3] | select('in', [1, 3])", [1, 3]), ("[0, 1] | select", [1])],
    "selectattr": [("rows | selectattr('k', 'eq', 'y')", [{"k": "y"}])],
    "sort": [("[2, 1] | sort(reverse=true)", [2, 1]), ("['b', 'A'] | sort", ["A", "b"])],
    "string": [("true | string", "true"), ("[1] | string", "[1]"), ("1.0 | string", "1.0")],
    "sum": [("[1, 2.5] | sum", 3.5), ("[] | sum", 0)],
    "title": [("'a b' | title", "A B")],
    "tojson": [("{'a': [none, '\u00e9']} | tojson", '{"a": [null, "\u00e9"]}')],
    "trim": [("' a ' | trim", "a")],
    "unique": [("[2, 1, 2] | unique", [2, 1])],
    "upper": [("'ab' | upper", "AB"), ("true | upper", "TRUE")],
    "urlencode": [("'a b/c' | urlencode", "a%20b/c"), ("{'a': 'b c'} | urlencode", "a=b+c")],
}


def evaluate(expression: str) -> Any:
    return parse(f"{{{{ {expression} }}}}").evaluate(VARIABLES)


def test_every_filter_has_a_case() -> None:
    assert CASES.keys() == FILTERS.keys()


@pytest.mark.parametrize(
    ("expression", "value"), [case for cases in CASES.values() for case in cases]
)
def test_filters(expression: str, value: Any) -> None:
    result = evaluate(expression)
    assert (result, type(result)) == (value, type(value))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("'x' | int", "'x' is not a number: give a default: int(0)"),
        ("none | float", "None is not a number"),
        *[("'nan' | float", "is not a number"), ("'inf' | float", "is not a number")],
        (f"'{'9' * 5000}' | int", "is not a number"),
        *[("[1] | int", "is not a number"), ("1 | round(-99999999)", "round takes at most 15")],
        ("'x' | b64decode", "the value is not the base64 form of a text"),
        *[
            ("'\u00e9' | b64decode", ("not the base64 form of a text")),
            ("'/w==' | b64decode", "not the base64"),
        ],
        ("'[1' | fromjson", "Expecting"),
        ("[] | first", "No first item"),
        ("[1] | map(attribute='k')", "a number has no 'k'"),
        ("[none] | join", "null cannot be part of a string"),
        ("none | upper", "null cannot be part of a string"),
        ("[1, 'a'] | sort", "not supported between"),
        ("'a' | indent('x')", "invalid literal"),
        ("1 | length", "has no len"),
        ("[m] | unique", "unhashable"),
        ("'a' | uper", "unknown filter uper: did you mean upper?"),
        ("'a' | zzzz", "unknown filter zzzz: use one of abs, "),
        ("1 is evn", "unknown test evn: did you mean even?"),
        ("['a'] | map('format')", "No filter named 'format'"),
    ],
)
def test_what_filters_refuse(expression: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        evaluate(expression)
    assert message in f"{caught.value}: {caught.value.hint}"


METHOD_CASES: dict[str, list[tuple[str, Any]]] = {
    "capitalize": [("'aB'.capitalize()", "Ab")],
    "endswith": [("'ab'.endswith('b')", True)],
    "get": [("m.get('a')", 1), ("m.get('c')", None), ("m.get('c', 5)", 5)],
    "items": [("m.items()", [["b", 2], ["a", 1]])],
    "join": [("'-'.join([1, true])", "1-true")],
    "keys": [("m.keys()", ["b", "a"])],
    "lower": [("'AB'.lower()", "ab")],
    "lstrip": [("' a '.lstrip()", "a ")],
    "removeprefix": [("'ab'.removeprefix('a')", "b")],
    "removesuffix": [("'ab'.removesuffix('b')", "a")],
    "replace": [("'aab'.replace('a', 'c')", "ccb")],
    "rsplit": [("'a.b.c'.rsplit('.', 1)", ["a.b", "c"])],
    "rstrip": [("' a '.rstrip()", " a")],
    "split": [("'a,b'.split(',')", ["a", "b"])],
    "splitlines": [("'a\\nb'.splitlines()", ["a", "b"])],
    "startswith": [("'ab'.startswith('a')", True)],
    "strip": [("' a '.strip()", "a")],
    "title": [("'a b'.title()", "A B")],
    "upper": [("'ab'.upper()", "AB")],
    "values": [("m.values()", [2, 1])],
}


def test_every_method_has_a_case() -> None:
    assert METHOD_CASES.keys() == {name for methods in METHODS.values() for name in methods}


@pytest.mark.parametrize(
    ("expression", "value"), [case for cases in METHOD_CASES.values() for case in cases]
)
def test_methods(expression: str, value: Any) -> None:
    result = evaluate(expression)
    assert (result, type(result)) == (value, type(value))
