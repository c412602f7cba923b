"""The filters and methods that expressions have: deterministic ones, with bounded results.

Jinja2's own where they fit. `int` and `float` refuse what is no number instead of making it 0;
nothing is random, or formats to any width, or takes a regular expression.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from jinja2 import filters as jinja

from gpuform.stacks.expressions.budget import bounded, spend
from gpuform.stacks.expressions.errors import ExpressionError
from gpuform.stacks.expressions.values import as_text, number, plain

Filter = Callable[..., Any]
_UNSET: Final = object()
_DIGITS: Final = 15


def _of_text(name: str) -> Filter:
    """Jinja2's filter, given a text whatever the value is."""
    function = jinja.FILTERS[name]
    return lambda value, *args, **kwargs: function(as_text(value), *args, **kwargs)


def to_number(kind: type[int] | type[float], value: Any, default: Any) -> Any:
    """`int` and `float`: a number or a text that is one; else the default, if one is given."""
    try:
        return number(kind(value))
    except (TypeError, ValueError, OverflowError, ExpressionError):
        if default is not _UNSET:
            return default
        raise ExpressionError(
            f"{value!r} is not a number", "give a default: int(0)", tells_values=True
        ) from None


def _int(value: Any, default: Any = _UNSET) -> Any:
    return to_number(int, value, default)


def _float(value: Any, default: Any = _UNSET) -> Any:
    return to_number(float, value, default)


def _join(value: Iterable[Any], d: str = "") -> str:
    texts = [as_text(item) for item in value]
    spend(sum(map(len, texts)) + len(d) * len(texts))
    return d.join(texts)


def _replace(value: Any, old: str, new: str) -> str:
    text, by = as_text(value), as_text(new)
    spend(len(text) + text.count(old) * len(by))
    return text.replace(old, by)


def _indent(value: Any, width: int = 4, first: bool = False) -> str:
    text = as_text(value)
    spend(len(text) + int(width) * (text.count("\n") + 1))
    pad = " " * int(width)
    lines = text.splitlines(keepends=True)
    return "".join(
        (pad if first or at else "") + line if line.strip() else line
        for at, line in enumerate(lines)
    )


def _round(value: float, precision: int = 0) -> float:
    if abs(precision) > _DIGITS:
        raise ExpressionError(f"round takes at most {_DIGITS} digits")
    return round(value, precision) if precision else round(value)


def _sum(numbers: Iterable[float]) -> float:
    return sum(numbers)


def _reverse(value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else list(value)[::-1]


def _flatten(lists: Iterable[Any]) -> list[Any]:
    return [item for each in lists for item in (each if isinstance(each, list | tuple) else [each])]


def _tojson(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False)


def _fromjson(text: str) -> Any:
    return json.loads(text)


def _b64encode(value: Any) -> str:
    return base64.b64encode(as_text(value).encode()).decode()


def _b64decode(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        raise ExpressionError("the value is not base64 of a text") from None


def _keys(value: Mapping[str, Any]) -> list[str]:
    return list(value)


def _values(value: Mapping[str, Any]) -> list[Any]:
    return list(value.values())


def _items(value: Mapping[str, Any]) -> list[list[Any]]:
    return [[key, item] for key, item in value.items()]


_OF_JINJA: Final = (
    *("abs", "count", "d", "default", "dictsort", "first", "groupby", "last", "length", "list"),
    *("map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort", "unique"),
    "urlencode",
)
_OF_TEXT: Final = ("capitalize", "lower", "title", "trim", "upper")
_OUR_OWN: Final[Mapping[str, Filter]] = MappingProxyType(
    {
        "b64decode": _b64decode,
        "b64encode": _b64encode,
        "flatten": _flatten,
        "float": _float,
        "fromjson": _fromjson,
        "indent": _indent,
        "int": _int,
        "items": _items,
        "join": _join,
        "replace": _replace,
        "reverse": _reverse,
        "round": _round,
        "string": as_text,
        "sum": _sum,
        "tojson": _tojson,
    }
)
FILTERS: Final[Mapping[str, Filter]] = MappingProxyType(
    {
        name: bounded(function)
        for name, function in {
            **{name: jinja.FILTERS[name] for name in _OF_JINJA},
            **{name: _of_text(name) for name in _OF_TEXT},
            **_OUR_OWN,
        }.items()
    }
)
"""By name."""

_OF_TEXTS: Final = (
    *("capitalize", "endswith", "lower", "lstrip", "removeprefix", "removesuffix", "rsplit"),
    *("rstrip", "split", "splitlines", "startswith", "strip", "title", "upper"),
)
METHODS: Final[Mapping[type, Mapping[str, Filter]]] = MappingProxyType(
    {
        str: {
            **{name: bounded(getattr(str, name)) for name in _OF_TEXTS},
            "replace": bounded(_replace),
            "join": bounded(lambda text, items: _join(items, text)),
        },
        Mapping: {
            "get": bounded(lambda mapping, key, default=None: mapping.get(key, default)),
            "items": bounded(_items),
            "keys": bounded(_keys),
            "values": bounded(_values),
        },
    }
)
"""By type and name; the first argument is the value."""
