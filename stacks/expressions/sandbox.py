"""Jinja2's sandbox with nothing to reach, and with a budget."""

import operator
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from gpuform.stacks.expressions.budget import ExpressionError, bounded, spend, weighed, weight
from gpuform.stacks.expressions.filters import FILTERS, METHODS
from gpuform.stacks.expressions.values import as_text, kind_of, number

_MOST_BITS: Final = 4096
_MISSING: Final = 10
CONCATENATED: Final = "concatenated"
WEIGHED: Final = "weighed"
"""The names of what stands for operators that Jinja2 does not let a sandbox intercept."""


class Function:
    """Something that an expression may call: it gets and returns plain values."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = bounded(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _range(*bounds: int) -> list[int]:
    numbers = range(*bounds)
    spend(len(numbers))
    return list(numbers)


def _times(left: Any, right: Any) -> Any:
    if isinstance(right, int) and isinstance(left, str | list | tuple):
        spend(weight(left) * max(right, 1))
    elif isinstance(left, int) and isinstance(right, str | list | tuple):
        spend(weight(right) * max(left, 1))
    return left * right


def _power(base: Any, exponent: Any) -> Any:
    whole = isinstance(base, int) and isinstance(exponent, int)
    if whole and base.bit_length() * abs(exponent) > _MOST_BITS:
        raise ExpressionError("the power is too large a number")
    return base**exponent


def _modulo(left: Any, right: Any) -> Any:
    if isinstance(left, str):
        raise ExpressionError("% formats no text here", "put texts together with ~")
    return left % right


def concatenated(*parts: Any) -> str:
    """The operator ~."""
    texts = [as_text(part) for part in parts]
    spend(sum(map(len, texts)))
    return "".join(texts)


class Sandbox(ImmutableSandboxedEnvironment):
    """Attributes are the entries of objects and a few methods; calls are those of `Function`s."""

    intercepted_binops = frozenset(["+", "-", "*", "/", "//", "**", "%"])
    default_binop_table = {  # noqa: RUF012 - Jinja's own form
        "+": lambda left, right: weighed(left + right),
        "-": operator.sub,
        "*": _times,
        "/": operator.truediv,
        "//": operator.floordiv,
        "**": _power,
        "%": _modulo,
    }

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, optimized=False, keep_trailing_newline=True)
        self.filters = dict(FILTERS)
        tests: Mapping[str, Any] = self.tests
        self.tests = {name: bounded(test) for name, test in tests.items()}
        self.globals = {
            "range": Function(_range),
            CONCATENATED: Function(concatenated),
            WEIGHED: Function(lambda value: value),
        }

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        for kind, methods in METHODS.items():
            if isinstance(obj, kind) and attribute in methods:
                return Function(partial(methods[attribute], obj))
        return self._missing(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        spend(1)
        if isinstance(obj, Mapping | list | tuple | str):
            try:
                return obj[argument]
            except (TypeError, LookupError):
                return self._missing(obj, argument)
        return self._missing(obj, argument)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        if isinstance(obj, Undefined):
            str(obj)  # raises what is undefined
        if not isinstance(obj, Function):
            raise ExpressionError(f"a {kind_of(obj)} cannot be called")
        return obj(*args, **kwargs)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:  # noqa: ARG002
        result = self.binop_table[operator](left, right)
        return result if isinstance(result, str | list | tuple) else number(result)

    def _missing(self, obj: Any, name: Any) -> Undefined:
        spend(_MISSING + weight(name))
        if isinstance(obj, Undefined):
            return obj
        if isinstance(obj, Mapping):
            known = ", ".join(map(str, islice(obj, 20))) or "nothing"
            hint = f"there is no {name!r}: there is {known}"
        elif isinstance(obj, list | tuple | str) and isinstance(name, int):
            hint = f"there is no item {name!r}: it has {len(obj)}"
        else:
            hint = f"a {kind_of(obj)} has no {name!r}"
        return self.undefined(hint=hint)


SANDBOX: Final = Sandbox()
"""The one environment: it keeps nothing of what it evaluates."""
