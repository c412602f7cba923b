"""Configure Jinja2's sandbox: no reachable Python objects, and a budget for every operation.

`template` compiles and evaluates expressions in `SANDBOX`; filters and methods come from `filters`.
"""

import operator
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gpuform.stacks.expressions.filters import FILTERS, METHODS
from gpuform.stacks.expressions.values import (
    ExpressionError,
    as_text,
    count_weight,
    describe_kind,
    limit_function,
    measure_weight,
    require_number,
    take_from_budget,
)

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
