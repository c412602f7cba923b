"""How much one evaluation may do: everything that it makes is weighed.

A weight counts characters, numbers, list items and entries. Nothing is made whose weight has not
been found small enough before, or that is not at most a few times as heavy as what it is made of.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from itertools import islice
from types import GeneratorType
from typing import Any, Final

from gpuform.stacks.expressions.errors import ExpressionError

MOST: Final = 2_000_000
"""What one evaluation may weigh in all."""
_HEAVIEST: Final = 1_000_000
"""What one value may weigh."""
_CALL: Final = 10
_BITS: Final = 64

_left: ContextVar[int] = ContextVar("left", default=MOST)


@contextmanager
def budget() -> Iterator[None]:
    """For one evaluation."""
    token = _left.set(MOST)
    try:
        yield
    finally:
        _left.reset(token)


def spend(amount: int) -> None:
    """Before something of this weight is made, or after; ExpressionError when it is too much."""
    left = _left.get() - amount
    if amount > _HEAVIEST or left < 0:
        raise ExpressionError("the expression does too much", "use smaller numbers, lists or texts")
    _left.set(left)


def weighed(value: Any) -> Any:
    """The value, its weight spent."""
    spend(weight(value))
    return value


def bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with what it takes and gives weighed, and what comes piece by piece whole."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)  # with the marks by which Jinja passes the environment
    def weighing(*args: Any, **kwargs: Any) -> Any:
        for given in (*args[first:], *kwargs.values()):
            spend(weight(given))
        result = function(*args, **kwargs)
        if isinstance(result, GeneratorType):
            result = list(islice(result, MOST))
        spend(_CALL)
        return weighed(result)

    return weighing


def weight(value: Any) -> int:
    """The weight of a value, counted no further than what is too heavy."""
    total, rest = 0, [value]
    while rest and total <= _HEAVIEST:
        each = rest.pop()
        total += 1
        if isinstance(each, str):
            total += len(each)
        elif isinstance(each, int):
            total += each.bit_length() // _BITS
        elif isinstance(each, Mapping):
            total += sum(map(len, filter(_is_text, each)))
            rest.extend(each.values())
        elif isinstance(each, list | tuple | set | range):
            if len(each) > _HEAVIEST:
                return len(each)
            rest.extend(each)
    return total


def _is_text(key: object) -> bool:
    return isinstance(key, str)
