"""Limit the cost of evaluating one expression, and define the error of expressions.

The weight of a value counts its characters, numbers, list items and entries. The sandbox spends the
weight of a value before it creates the value, or creates a value at most a few times as heavy as
its operands.
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
    """An error of an expression: `str` says what is wrong, `hint` what to do.

    `tells_values` is True if the message may show values that the expression was evaluated with.
    `where` is the wrong part of the source text, empty if unknown.
    """

    def __init__(
        self, message: str, hint: str = "", *, tells_values: bool = False, where: str = ""
    ) -> None:
        super().__init__(_truncate_text(message))
        self.hint = _truncate_text(hint)
        self.tells_values = tells_values
        self.where = where


def _truncate_text(text: str) -> str:
    """Return the text, cut after `_LONGEST` characters and marked with `...` if longer."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


MOST: Final = 2_000_000
"""The maximum weight of everything that one evaluation creates."""
_HEAVIEST: Final = 1_000_000
"""The maximum weight of one value."""
_CALL: Final = 10
_BITS: Final = 64

_remaining_budget: ContextVar[int] = ContextVar("left", default=MOST)


@contextmanager
def limit_evaluation() -> Iterator[None]:
    """Set a full budget of `MOST` for the evaluation inside the context."""
    token = _remaining_budget.set(MOST)
    try:
        yield
    finally:
        _remaining_budget.reset(token)


def take_from_budget(amount: int) -> None:
    """Take `amount` from the budget of the running evaluation.

    Raises:
        ExpressionError: one value is too heavy, or the evaluation has spent its budget.
    """
    remaining_weight = _remaining_budget.get() - amount
    if amount > _HEAVIEST or remaining_weight < 0:
        raise ExpressionError(
            "the expression takes too many steps, or its result is too large",
            "use smaller numbers, lists or strings",
        )
    _remaining_budget.set(remaining_weight)


def count_weight(value: Any) -> Any:
    """Take the weight of `value` from the budget, and return `value`.

    Raises:
        ExpressionError: the value is too heavy, or the budget is spent.
    """
    take_from_budget(measure_weight(value))
    return value


def limit_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap `function` to take the weight of its arguments and its result from the budget.

    A generator's items are collected into a list, so that they are counted too.
    """
    # Jinja2 passes its environment first, which costs the user nothing.
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)  # with the marks by which Jinja passes the environment
    def call_within_budget(*args: Any, **kwargs: Any) -> Any:
        for argument in (*args[first:], *kwargs.values()):
            take_from_budget(measure_weight(argument))
        result = function(*args, **kwargs)
        if isinstance(result, GeneratorType):
            # A generator can be endless.
            result = list(islice(result, MOST))
        take_from_budget(_CALL)
        return count_weight(result)

    return call_within_budget


def measure_weight(value: Any) -> int:
    """Return the weight of a value, or a number above the limit if the value is too heavy."""
    total, pending_parts = 0, [value]
    # Stop at the limit: counting a huge value would itself cost too much.
    while pending_parts and total <= _HEAVIEST:
        part = pending_parts.pop()
        total += 1
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, int):
            total += part.bit_length() // _BITS
        elif isinstance(part, Mapping):
            total += sum(map(len, filter(_is_text, part)))
            pending_parts.extend(part.values())
        elif isinstance(part, list | tuple | set | range):
            if len(part) > _HEAVIEST:
                return len(part)
            pending_parts.extend(part)
    return total


def _is_text(key: object) -> bool:
    return isinstance(key, str)
