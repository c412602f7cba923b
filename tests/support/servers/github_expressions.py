"""Evaluate expressions of GitHub's workflows, in the parts that gpuform's workflows use.

The rules are those of docs.github.com/en/actions/reference/workflows-and-actions/expressions.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Context = Mapping[str, Any]

_TOKEN: Final = re.compile(
    r"\s*('(?:[^']|'')*'|==|!=|&&|\|\||[!(),]|\d+|[A-Za-z_][\w-]*(?:\.[\w-]+)*)"
)
_OPERATORS: Final = {"&&": " and ", "||": " or ", "!": " not ", "==": " == ", "!=": " != "}
_STATUS_FUNCTION: Final = re.compile(r"\b(always|cancelled|failure|success)\(\)")


def evaluate(expression: str, context: Context) -> Any:
    """Return the value of an expression without its `${{ }}`; a missing value is an empty text.

    `context` has GitHub's contexts by name. The functions of a status read the results `always`,
    `cancelled`, `failure` and `success` of the context `status`.
    """
    parts: list[str] = []
    position, expression = 0, expression.strip()
    while position < len(expression):
        token = _TOKEN.match(expression, position)
        assert token is not None, f"unknown at {position}: {expression}"
        position = token.end()
        is_called = expression[position : position + 1] == "("
        parts.append(_translate(token[1], is_called=is_called))
    functions = _build_functions(context)
    # Operands of other types are compared as GitHub does only where both are texts or booleans.
    return eval(
        "".join(parts),
        {"functions": functions, "look_up": lambda name: look_up(name, context)},
    )


def is_met(condition: str, context: Context) -> bool:
    """Return whether the condition of a job or step is true.

    Without a function of a status, everything before must have succeeded.
    """
    expression = condition.strip().removeprefix("${{").removesuffix("}}")
    if not _STATUS_FUNCTION.search(expression) and not context["status"]["success"]:
        return False
    return bool(evaluate(expression, context))


def fill(value: Any, context: Context) -> Any:
    """Return the value with its expressions replaced, also inside of mappings and lists.

    A text that is one expression becomes the value of the expression, such as a list.
    """
    if isinstance(value, Mapping):
        return {key: fill(item, context) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, context) for item in value]
    if not isinstance(value, str):
        return value
    alone = re.fullmatch(r"\$\{\{((?:(?!\}\}).)*)\}\}", value)
    if alone:
        return evaluate(alone[1], context)
    return re.sub(
        r"\$\{\{(.*?)\}\}", lambda match: format_value(evaluate(match[1], context)), value
    )


def format_value(value: Any) -> str:
    """Return the value as GitHub puts it into a text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def look_up(name: str, context: Context) -> Any:
    """Return the value of a dotted name, or an empty text."""
    value: Any = context
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    # GitHub's null equals an empty text.
    return "" if value is None else value


def _translate(token: str, *, is_called: bool) -> str:
    """Return a token in Python."""
    if token.startswith("'"):
        return repr(token[1:-1].replace("''", "'"))
    if token in _OPERATORS:
        return _OPERATORS[token]
    if is_called:
        return f"functions[{token!r}]"
    if token in ("true", "false"):
        return token.title()
    return f"look_up({token!r})" if token[0].isalpha() else token


def _build_functions(context: Context) -> dict[str, Callable[..., Any]]:
    """Return the functions of expressions by name."""
    status = context.get("status", {})
    return {
        "always": lambda: True,
        **{name: lambda name=name: status[name] for name in ("cancelled", "failure", "success")},
        "contains": lambda where, item: item in where,
        "fromJSON": json.loads,
        "startsWith": lambda text, start: str(text).lower().startswith(str(start).lower()),
    }
