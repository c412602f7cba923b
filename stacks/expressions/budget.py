"""Limit what evaluating one expression may cost, and describe its errors.

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

_LONGEST: Final = 500


class ExpressionError(Exception):
    """`str` says what is wrong; `hint` what to do.

    `tells_values` marks a text that may show what the expression was evaluated with. `where` is the
    part of the text that it is about, as it is written, if that is known.
    """

    def __init__(
        self, message: str, hint: str = "", *, tells_values: bool = False, where: str = ""
    ) -> None:
        super().__init__(_shortened(message))
        self.hint = _shortened(hint)
        self.tells_values = tells_values
        self.where = where


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


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
