"""Configure Jinja2's sandbox: its filters and methods, and a budget for every operation.

`template` compiles and evaluates expressions in `SANDBOX`, which reaches no Python objects. Each
operation that could create a large value spends its weight first. Jinja2's own filters are used
where they fit. `int` and `float` reject text that is not a number instead of returning 0; there are
no random values, no formatting to a width and no regular expressions. The filters' parameter names,
and their own names in Python's argument errors, are visible to users.
"""

import base64
import json
import operator
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any, Final

from jinja2 import Environment, StrictUndefined, Undefined, pass_environment
from jinja2 import filters as jinja
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gpuform.stacks.expressions.values import (
    ExpressionError,
    as_text,
    count_weight,
    describe_kind,
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


_MOST_BITS: Final = 4096
_MISSING: Final = 10
CONCATENATED: Final = "concatenated"
WEIGHED: Final = "weighed"
"""The names of the functions that replace operators a Jinja2 sandbox cannot intercept."""


class Function:
    """A function that an expression may call with plain values and that returns a plain value."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = limit_function(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _create_range(*bounds: int) -> list[int]:
    """Return a range as a list, with the length taken from the budget."""
    numbers = range(*bounds)
    take_from_budget(len(numbers))
    return list(numbers)


def _calculate_product(left: Any, right: Any) -> Any:
    """Multiply two values; the weight of a repeated text or list is taken from the budget first."""
    if isinstance(right, int) and isinstance(left, str | list | tuple):
        take_from_budget(measure_weight(left) * max(right, 1))
    elif isinstance(left, int) and isinstance(right, str | list | tuple):
        take_from_budget(measure_weight(right) * max(left, 1))
    return left * right


def _raise_to_power(base: Any, exponent: Any) -> Any:
    """Compute a power. Raises ExpressionError for an integer of too many bits."""
    is_integer_power = isinstance(base, int) and isinstance(exponent, int)
    # A short expression such as 9**9**9 would otherwise take unbounded time.
    if is_integer_power and base.bit_length() * abs(exponent) > _MOST_BITS:
        raise ExpressionError("the result of the power is too large")
    return base**exponent


def _calculate_remainder(left: Any, right: Any) -> Any:
    """Calculate a remainder. Raises ExpressionError for a text, which Python would format."""
    if isinstance(left, str):
        raise ExpressionError("% does not format strings", "join strings with ~")
    return left % right


def concatenate_texts(*parts: Any) -> str:
    """Join values as text: the operator `~`.

    Raises ExpressionError for null, and if the text exceeds the evaluation's budget.
    """
    texts = [as_text(part) for part in parts]
    take_from_budget(sum(map(len, texts)))
    return "".join(texts)


class Sandbox(ImmutableSandboxedEnvironment):
    """A Jinja2 environment that reads object entries and a few methods, and calls `Function`s."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])
    default_binop_table = {  # noqa: RUF012 - Jinja's own form
        "+": lambda left, right: count_weight(left + right),
        "-": operator.sub,
        "*": _calculate_product,
        "/": operator.truediv,
        "//": operator.floordiv,
        "**": _raise_to_power,
        "%": _calculate_remainder,
    }

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, optimized=False, keep_trailing_newline=True)
        self.filters = dict(FILTERS)
        tests: Mapping[str, Any] = self.tests
        self.tests = {name: limit_function(test) for name, test in tests.items()}
        self.globals = {
            "range": Function(_create_range),
            CONCATENATED: Function(concatenate_texts),
            WEIGHED: Function(lambda value: value),
        }

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a member of an object, else an allowed method, else an undefined value."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        # Attributes of Python objects are out of reach: expressions see only these methods.
        for kind, methods in METHODS.items():
            if isinstance(obj, kind) and attribute in methods:
                return Function(partial(methods[attribute], obj))
        return self._create_undefined(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item of an object, list or text, or an undefined value."""
        take_from_budget(1)
        if isinstance(obj, Mapping | list | tuple | str):
            try:
                return obj[argument]
            except (TypeError, LookupError):
                return self._create_undefined(obj, argument)
        return self._create_undefined(obj, argument)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        """Call a function of expressions.

        Raises ExpressionError for another value, and Jinja2's UndefinedError for an undefined one.
        """
        if isinstance(obj, Undefined):
            str(obj)  # raises what is undefined
        if not isinstance(obj, Function):
            raise ExpressionError(f"a {describe_kind(obj)} cannot be called")
        return obj(*args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002
        """Apply an operator.

        Raises ExpressionError for a number that is too large or not finite.
        """
        result = self.binop_table[operator](left, right)
        return result if isinstance(result, str | list | tuple) else require_number(result)

    def _create_undefined(self, obj: Any, name: Any) -> Undefined:
        """Create an undefined value with a hint about `obj`; return `obj` if itself undefined."""
        take_from_budget(_MISSING + measure_weight(name))
        # The first missing name is the one to report.
        if isinstance(obj, Undefined):
            return obj
        if isinstance(obj, Mapping):
            existing_names = ", ".join(map(str, islice(obj, 20))) or "nothing"
            hint = f"the object has no {name!r}: it has {existing_names}"
        elif isinstance(obj, list | tuple | str) and isinstance(name, int):
            hint = f"the value has no item {name!r}: it has {len(obj)}"
        else:
            hint = f"a {describe_kind(obj)} has no {name!r}"
        return self.undefined(hint=hint)


SANDBOX: Final = Sandbox()
"""The only environment. It keeps nothing of the expressions that it evaluates."""
