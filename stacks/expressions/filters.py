"""Define the filters and methods of expressions. The sandbox offers them to users by name.

Each operation that could create a large value spends its weight first. Jinja2's own filters are
used where they fit. `int` and `float` reject text that is not a number instead of returning 0;
there are no random values, no formatting to a width and no regular expressions. The functions'
parameter names, and their own names in Python's argument errors, are visible to users.
"""

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from jinja2 import Environment, pass_environment
from jinja2 import filters as jinja

from gpuform.stacks.expressions.values import (
    ExpressionError,
    as_text,
    limit_function,
    measure_weight,
    require_number,
    take_from_budget,
    to_plain_value,
)

Filter = Callable[..., Any]
_UNSET: Final = object()
_DIGITS: Final = 15


def to_number(kind: type[int] | type[float], value: Any, default: Any) -> Any:
    """Convert a value to a number of `kind`, or return `default` if one is given.

    Raises:
        ExpressionError: the value is not a number and there is no default.
    """
    try:
        # A number that no double can hold counts as no number.
        return require_number(kind(value))
    except (TypeError, ValueError, OverflowError, ExpressionError):
        if default is not _UNSET:
            return default
        raise ExpressionError(
            f"{value!r:.60} is not a number", "give a default: int(0)", tells_values=True
        ) from None


def to_integer(value: Any, default: Any = _UNSET) -> Any:
    """Convert a value to a whole number, or return `default` if one is given.

    The fraction of a number is cut off; a text with a fraction is not a whole number.

    Raises:
        ExpressionError: the value is not a whole number and there is no default.
    """
    return to_number(int, value, default)


def to_float(value: Any, default: Any = _UNSET) -> Any:
    """Convert a value to a decimal number, or return `default` if one is given.

    Raises:
        ExpressionError: the value is not a number and there is no default.
    """
    return to_number(float, value, default)


def join(value: Iterable[Any], d: str = "") -> str:
    """Join the items as one text, with the text `d` between the items.

    Raises ExpressionError for null among the items, and if the evaluation's budget is spent.
    """
    texts = [as_text(item) for item in value]
    take_from_budget(sum(map(len, texts)) + len(d) * len(texts))
    return d.join(texts)


def replace(value: Any, old: str, new: str) -> str:
    """Return the value's text with every `old` replaced by `new`.

    Raises ExpressionError for null, and if the evaluation's budget is spent.
    """
    source_text, by = as_text(value), as_text(new)
    # The size of the result is known before the text is built.
    take_from_budget(len(source_text) + source_text.count(old) * len(by))
    return source_text.replace(old, by)


def indent(value: Any, width: int = 4, first: bool = False) -> str:
    """Indent the lines that are not blank by `width` spaces; the first line only with `first`."""
    source_text = as_text(value)
    take_from_budget(len(source_text) + int(width) * (source_text.count("\n") + 1))
    pad = " " * int(width)
    lines = source_text.splitlines(keepends=True)
    return "".join(
        (pad if first or at else "") + line if line.strip() else line
        for at, line in enumerate(lines)
    )


def limit_strip(function: Filter) -> Filter:
    """Wrap a strip method to take the comparisons with `chars` from the budget."""

    def strip(value: Any, chars: str | None = None) -> Any:
        source_text = as_text(value)
        take_from_budget(len(source_text) * len(chars or ""))
        return function(source_text, chars)

    return strip


@pass_environment
def sort(
    environment: Environment,
    value: Any,
    reverse: bool = False,
    case_sensitive: bool = False,
    attribute: str | int | None = None,
) -> list[Any]:
    """Return the sorted list of items, as Jinja2's filter `sort` does.

    `attribute` may name several attributes, separated by commas; each further one takes the weight
    of the value from the budget.
    """
    # Each further attribute is compared once more.
    take_from_budget(measure_weight(value) * str(attribute).count(","))
    return jinja.do_sort(environment, value, reverse, case_sensitive, attribute)


@pass_environment
def group_by(
    environment: Environment,
    value: Any,
    attribute: str | int,
    default: Any = None,
    case_sensitive: bool = False,
) -> Any:
    """Return the items in groups of equal `attribute`, as Jinja2's filter `groupby` does.

    An item without the attribute counts as `default`, whose weight is taken from the budget for
    each item; without `default` such an item is an error.
    """
    # Every item without the attribute gets the default.
    take_from_budget(measure_weight(default) * len(value))
    return jinja.sync_do_groupby(environment, value, attribute, default, case_sensitive)


def round_number(value: float, precision: int = 0) -> float:
    """Round a number to `precision` decimal places; with 0 places, return a whole number.

    Raises:
        ExpressionError: `precision` is larger than 15, or smaller than -15.
    """
    if abs(precision) > _DIGITS:
        raise ExpressionError(f"round takes at most {_DIGITS} digits")
    return round(value, precision) if precision else round(value)


def sum_numbers(numbers: Iterable[float]) -> float:
    """Return the plain sum: Jinja's filter `sum` without the arguments `attribute` and `start`."""
    return sum(numbers)


def reverse(value: Any) -> Any:
    """Return a text with reversed characters, or any other value as a reversed list of items."""
    return value[::-1] if isinstance(value, str) else list(value)[::-1]


def flatten(lists: Iterable[Any]) -> list[Any]:
    """Flatten the first level of nested lists; other items stay."""
    return [
        item
        for element in lists
        for item in (element if isinstance(element, list | tuple) else [element])
    ]


def to_json(value: Any) -> str:
    """Return a value as JSON text; characters outside of ASCII are not escaped."""
    return json.dumps(to_plain_value(value), ensure_ascii=False)


def from_json(text: str) -> Any:
    """Parse a JSON text.

    Raises:
        ValueError: the text is not JSON.
        ExpressionError: a whole number is too large for a double.
    """
    return json.loads(text, parse_int=lambda digits: require_number(int(digits)))


def to_base64(value: Any) -> str:
    """Return the UTF-8 bytes of the value's text in Base64."""
    return base64.b64encode(as_text(value).encode()).decode()


def from_base64(text: str) -> str:
    """Decode base64 of a UTF-8 text. Raises ExpressionError."""
    try:
        return base64.b64decode(text, validate=True).decode()
    except ValueError:
        raise ExpressionError("the value is not the base64 form of a text") from None


def list_keys(value: Mapping[str, Any]) -> list[str]:
    return list(value)


def list_values(value: Mapping[str, Any]) -> list[Any]:
    return list(value.values())


def list_items(value: Mapping[str, Any]) -> list[list[Any]]:
    """Return the entries of an object in order, each as a list of key and value."""
    return [[key, item] for key, item in value.items()]


def _convert_to_text_filter(name: str) -> Filter:
    """Return Jinja2's filter `name` with the value converted to text first."""
    function = jinja.FILTERS[name]
    return lambda value, *args, **kwargs: function(as_text(value), *args, **kwargs)


_OF_JINJA: Final = (
    *("abs", "count", "d", "default", "dictsort", "first", "last", "length", "list"),
    *("map", "max", "min", "reject", "rejectattr", "select", "selectattr", "unique"),
    "urlencode",
)
_OF_TEXT: Final = ("capitalize", "lower", "title", "upper")
_OUR_OWN: Final[Mapping[str, Filter]] = MappingProxyType(
    {
        "b64decode": from_base64,
        "b64encode": to_base64,
        "flatten": flatten,
        "float": to_float,
        "fromjson": from_json,
        "groupby": group_by,
        "indent": indent,
        "int": to_integer,
        "items": list_items,
        "join": join,
        "replace": replace,
        "reverse": reverse,
        "round": round_number,
        "sort": sort,
        "string": as_text,
        "sum": sum_numbers,
        "tojson": to_json,
        "trim": limit_strip(str.strip),
    }
)
FILTERS: Final[Mapping[str, Filter]] = MappingProxyType(
    {
        name: limit_function(function)
        for name, function in {
            **{name: jinja.FILTERS[name] for name in _OF_JINJA},
            **{name: _convert_to_text_filter(name) for name in _OF_TEXT},
            **_OUR_OWN,
        }.items()
    }
)
"""The filters by name."""

_OF_TEXTS: Final = (
    *("capitalize", "endswith", "lower", "removeprefix", "removesuffix", "rsplit"),
    *("split", "splitlines", "startswith", "title", "upper"),
)
METHODS: Final[Mapping[type, Mapping[str, Filter]]] = MappingProxyType(
    {
        str: {
            **{name: limit_function(getattr(str, name)) for name in _OF_TEXTS},
            **{
                name: limit_function(limit_strip(getattr(str, name)))
                for name in ("lstrip", "rstrip", "strip")
            },
            "replace": limit_function(replace),
            "join": limit_function(lambda text, given: join(given, text)),
        },
        Mapping: {
            "get": limit_function(lambda mapping, key, default=None: mapping.get(key, default)),
            "items": limit_function(list_items),
            "keys": limit_function(list_keys),
            "values": limit_function(list_values),
        },
    }
)
"""The methods of values by type and name. The first argument is the value."""
