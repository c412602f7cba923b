"""No text makes an evaluation that does not end soon, or that fills the memory."""

from typing import Any

import pytest

from gpuform.stacks.expressions import values
from gpuform.stacks.expressions.template import parse
from gpuform.stacks.expressions.values import ExpressionError

pytestmark = pytest.mark.slow

VARIABLES: dict[str, Any] = {
    "list": list(range(100_000)),
    "text": "\u00e9" * 100_000,
    "lines": "\n" * 100_000,
    "blank": [""] * 100_000,
    "rows": [{"a": at % 7, "b": str(at)} for at in range(20_000)],
}
FEWER = {name: value[: len(value) // 10] for name, value in VARIABLES.items()}

TOO_MUCH = "the expression takes too many steps, or its result is too large"
TOO_LARGE = "the expressions of one value can have at most 2000 parts"
TOO_DEEP = "the expression is nested too deeply"


def evaluate(text: str) -> object:
    return parse(text).evaluate(VARIABLES)


@pytest.mark.parametrize(
    "expression",
    [
        *["'a' * 10 ** 12", "10 ** 12 * 'a'", "[list] * 1000", "range(10 ** 15)", "list * 1000"],
        *["text | replace('', text)", "text.replace('\u00e9', text)", "'a' | indent(10 ** 12)"],
        *["lines | indent(10 ** 6)", "lines | join(text)", "text.join(lines.split('\\n'))"],
        *["range(900000) | string", "range(900000) | map('string')", "(text * 9) | list"],
        *["range(90000) | select('in', range(100000, 190000))", "text * 999"],
        *["list | map('default', text)", "list | map(attribute='a', default=text)"],
        f"list | map(attribute='{'a.' * 20_000}a', default=1)",
        *["list | reject('eq', text)", "list | groupby('a', default=text)"],
        *["list | groupby(list)", "rows | sort(attribute=text)", "rows | map(attribute=text)"],
        *["text | trim(text)", "text.strip(text)", "text.lstrip(text)", "text.rstrip(text)"],
        f"[{{'a': text}}] | sort(attribute='{'a,' * 30_000}a')",
        *["list | tojson | b64encode | urlencode", "range(10 ** 6) | sort | unique"],
    ],
)
def test_one_operation_is_bounded(expression: str) -> None:
    with pytest.raises(ExpressionError, match=TOO_MUCH):
        evaluate(f"{{{{ {expression} }}}}")


@pytest.mark.parametrize(
    "expression",
    [
        *["list[:]", "list | max", "-1 in list", "list == list[:1]", "list | sum", "list | length"],
        *["list | first", "blank | join", "''.join(blank)", "list | unique", "text.upper()"],
        *["text | lower", "rows | groupby('a')", "rows | sort(attribute='a')", "text | tojson"],
        *["rows | map(attribute='z', default=1)", "text is string", "list is sameas list"],
        *["list * 0", "0 * list", "list + list", "text ~ ''", "[list]", "{'a': list}", "(list, 1)"],
        *[
            "lines.splitlines()",
            "text.strip()",
            "text | trim",
            "list | reverse",
            "list | default(1)",
        ],
    ],
)
def test_many_operations_are_bounded(expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "MOST", values.MOST // 10)
    template = parse(f"{{{{ [{f'({expression}) and 1,' * 200}] }}}}")
    with pytest.raises(ExpressionError, match=TOO_MUCH):
        template.evaluate(FEWER)


def test_shared_values_count_each_time() -> None:
    assert evaluate("{{ [list, list] | length }}") == 2
    with pytest.raises(ExpressionError, match=TOO_MUCH):
        evaluate(f"{{{{ [{'list,' * 200}] | tojson }}}}")


def test_the_parts_of_a_text_count_together() -> None:
    assert len(str(evaluate("{{ text }}" * 5))) == 500_000
    with pytest.raises(ExpressionError, match=TOO_MUCH):
        evaluate("{{ text }}" * 50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *[("{{ 1 }}" * 14_000, TOO_LARGE), (f"{{{{ [{'1,' * 30_000}] }}}}", TOO_LARGE)],
        *[(f"{{{{ 1{'<2' * 30_000} }}}}", TOO_LARGE), (f"{{{{ 1{'~1' * 30_000} }}}}", TOO_LARGE)],
        *[(f"{{{{ {opening * 20_000}", TOO_DEEP) for opening in ("[", "(", "{1:", "-", "not ")],
        *[(f"{{{{ {'[' * 70}{']' * 70} }}}}", TOO_DEEP), (f"{{{{ 1{'+1' * 30_000} }}}}", TOO_DEEP)],
        *[(f"{{{{ list{'|list' * 15_000} }}}}", TOO_DEEP), (f"{{{{ a{'.a' * 100} }}}}", TOO_DEEP)],
        *[(f"{{{{ 1{' and 1' * 9_000} }}}}", TOO_DEEP), ("{{" * 50_000, TOO_DEEP)],
        *[(f"{{{{ {'1 if 0 else ' * 8_000}1 }}}}", TOO_DEEP), (f"{{{{ a{'[a' * 9_000}", TOO_DEEP)],
        ("{#" * 50_000, "this is not an expression: "),
        ("{% raw %}" * 10_000, "a value can contain expressions, "),
        ("{{ '" + "\\'" * 40_000, "this is not an expression: "),
        ("{{ 1 }}" + " " * 100_000, "a string with expressions can have at most 100000 characters"),
    ],
)
def test_texts_are_bounded(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        *["list | sum", "range(50000) | map('string') | list", "rows | groupby('a') | length"],
        *["text | length", "range(100000) | length", "rows | map(attribute='b') | list | length"],
        *["rows | selectattr('a', 'eq', 3) | list | length", "(text ~ text) | b64encode | length"],
    ],
)
def test_large_values_can_be_worked_with(expression: str) -> None:
    assert evaluate(f"{{{{ {expression} }}}}")


def test_each_evaluation_has_its_own_budget() -> None:
    template = parse("{{ list | length }}")
    assert {template.evaluate(VARIABLES) for _ in range(25)} == {100_000}
