"""The filters and methods that expressions have: deterministic ones, with bounded results.

Jinja2's own where they fit. `int` and `float` refuse what is no number instead of making it 0;
nothing is random, or formats to any width, or takes a regular expression.
"""

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from itertools import islice
from types import GeneratorType, MappingProxyType
from typing import Any, Final

from jinja2 import filters as jinja

from gpuform.stacks.expressions.budget import MOST, spend, weighed
from gpuform.stacks.expressions.errors import ExpressionError

Filter = Callable[..., Any]
_UNSET: Final = object()


def _bounded(function: Filter) -> Filter:
    """The filter with its result weighed; what comes piece by piece is made whole."""

    @wraps(function)  # with the marks by which Jinja passes the environment
    def bounded(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if isinstance(result, GeneratorType):
            result = list(islice(result, MOST))
        return weighed(result)

    return bounded


def to_number(kind: type[int] | type[float], value: Any, default: Any) -> Any:
    """`int` and `float`: a number or a text that is one; else the default, if one is given."""
    try:
        return kind(value)
    except (TypeError, ValueError, OverflowError):
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
    texts = [str(item) for item in value]
    spend(sum(map(len, texts)) + len(d) * len(texts))
    return d.join(texts)


def _replace(text: str, old: str, new: str) -> str:
    spend(len(text) + text.count(old) * len(new))
    return text.replace(old, new)


def _indent(text: str, width: int = 4, first: bool = False) -> str:
    spend(len(text) + width * (text.count("\n") + 1))
    pad = " " * width
    lines = text.splitlines(keepends=True)
    return "".join(
        (pad if first or at else "") + line if line.strip() else line
        for at, line in enumerate(lines)
    )


def _round(value: float, precision: int = 0) -> float:
    return round(value, precision) if precision else round(value)


def _sum(numbers: Iterable[float]) -> float:
    return sum(numbers)


def _flatten(lists: Iterable[Sequence[Any]]) -> list[Any]:
    return [item for each in lists for item in each]


def _tojson(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)


def _fromjson(text: str) -> Any:
    return json.loads(text)


def _b64encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _b64decode(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        raise ExpressionError("the value is not base64 of a text") from None


def _keys(value: Mapping[str, Any]) -> list[str]:
    return list(value)


def _values(value: Mapping[str, Any]) -> list[Any]:
    return list(value.values())


def _items(value: Mapping[str, Any]) -> list[list[Any]]:
    return [[key, item] for key, item in value.items()]


_OF_JINJA: Final = (
    *("abs", "capitalize", "count", "d", "default", "dictsort", "first", "groupby"),
    *("last", "length", "list", "lower", "map", "max", "min", "reject", "rejectattr", "reverse"),
    *("select", "selectattr", "sort", "string", "title", "trim", "unique", "upper"),
    "urlencode",
)
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
        "round": _round,
        "sum": _sum,
        "tojson": _tojson,
    }
)
FILTERS: Final[Mapping[str, Filter]] = MappingProxyType(
    {
        name: _bounded(function)
        for name, function in {
            **{name: jinja.FILTERS[name] for name in _OF_JINJA},
            **_OUR_OWN,
        }.items()
    }
)
"""By name."""

METHODS: Final[Mapping[type, Mapping[str, Filter]]] = MappingProxyType(
    {
        str: {
            **{
                name: getattr(str, name)
                for name in (
                    *("capitalize", "endswith", "lower", "lstrip", "removeprefix", "removesuffix"),
                    *("rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title"),
                    "upper",
                )
            },
            "replace": _replace,
            "join": lambda text, items: _join(items, text),
        },
        Mapping: {
            "get": lambda mapping, key, default=None: mapping.get(key, default),
            "items": _items,
            "keys": _keys,
            "values": _values,
        },
    }
)
"""By type and name; the first argument is the value."""
