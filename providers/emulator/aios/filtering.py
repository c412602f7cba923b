"""MongoDB's filters, as far as the registry's users need them: does a document match?"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from gpuform.providers.emulator.aios.errors import failed

Json = Any

_NUMBER = re.compile(r"\d+")


class Nothing:
    """The type of NOTHING: there is no such field."""


NOTHING = Nothing()


def is_match(document: Json, wanted: Json) -> bool:
    """Raises ApiError for what is no filter."""
    if not isinstance(wanted, dict):
        raise failed("the match filter must be an expression in an object")
    return all(_holds(document, name, condition) for name, condition in wanted.items())


def value_matches(value: Json, condition: Json) -> bool:
    """Whether one value, not a field of a document, meets a condition: for `$pull`."""
    return _meets([value], condition)


def is_operators(condition: Json) -> bool:
    return isinstance(condition, dict) and any(name.startswith("$") for name in condition)


def equal(one: Json, other: Json) -> bool:
    """As MongoDB compares: 1 is 1.0, and no truth value is a number."""
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(equal(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _holds(document: Json, name: str, condition: Json) -> bool:
    if name in ("$and", "$or", "$nor"):
        if not isinstance(condition, list) or not condition:
            raise failed(f"{name} must be a nonempty array")
        results = [is_match(document, part) for part in condition]
        return {"$and": all(results), "$or": any(results), "$nor": not any(results)}[name]
    if name.startswith("$"):
        raise failed(f"unknown top level operator: {name}")
    return _meets(list(_reached(document, name.split("."))), condition)


def _meets(values: list[Json], condition: Json) -> bool:
    """Whether the values that a path leads to meet a condition."""
    if not is_operators(condition):
        return _has(values, condition)
    return all(_applied(values, operator, operand) for operator, operand in condition.items())


def _applied(values: list[Json], operator: str, operand: Json) -> bool:
    negated = {"$ne": "$eq", "$nin": "$in"}.get(operator)
    if negated:
        return not _applied(values, negated, operand)
    if operator == "$not":
        if not is_operators(operand):
            raise failed("$not needs a regex or a document")
        return not _meets(values, operand)
    if operator == "$eq":
        return _has(values, operand)
    if operator == "$exists":
        return bool(operand) == any(value is not NOTHING for value in values)
    if operator in ("$in", "$all"):
        if not isinstance(operand, list):
            raise failed(f"{operator} needs an array")
        found = [_has(values, each) for each in operand]
        return any(found) if operator == "$in" else bool(found) and all(found)
    if operator not in _ORDERS:
        raise failed(f"unknown operator: {operator}")
    return any(_compared(value, operand, _ORDERS[operator]) for value in _each(values))


def _has(values: list[Json], wanted: Json) -> bool:
    return any(
        equal(value, wanted) or (wanted is None and value is NOTHING) for value in _each(values)
    )


def _each(values: list[Json]) -> Iterator[Json]:
    """Arrays count as a whole and by their elements."""
    for value in values:
        yield value
        if isinstance(value, list):
            yield from value


def _compared(one: Json, other: Json, holds: Callable[[Any, Any], bool]) -> bool:
    """Only values of one type have an order."""
    kinds = {_kind(one), _kind(other)}
    return len(kinds) == 1 and kinds <= {"number", "text"} and holds(one, other)


def _kind(value: Json) -> str:
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def _reached(document: Json, path: list[str]) -> Iterator[Json]:
    """Where a dotted path leads, through all elements of the arrays on its way."""
    if not path:
        yield document
        return
    name, rest = path[0], path[1:]
    if isinstance(document, dict):
        if name in document:
            yield from _reached(document[name], rest)
        else:
            yield NOTHING
    elif isinstance(document, list):
        if _NUMBER.fullmatch(name) and int(name) < len(document):
            yield from _reached(document[int(name)], rest)
        for element in document:
            if isinstance(element, dict):
                yield from _reached(element, path)
    else:
        yield NOTHING


_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda one, other: one > other,
    "$gte": lambda one, other: one >= other,
    "$lt": lambda one, other: one < other,
    "$lte": lambda one, other: one <= other,
}
