"""Whether a record passes a Mongo filter: to check what a query answered.

A registry may answer a filter that it did not understand with every record it has. Only operators
that are known here can be checked; others are refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.models import Problem

Filter = Mapping[str, Any]

_MISSING: Final = object()


def filter_problems(wanted: Any, path: str = "filter") -> Iterator[Problem]:
    """What of a filter cannot be checked."""
    if not isinstance(wanted, Mapping):
        yield Problem(path, "must be an object of fields and conditions")
        return
    for name, condition in wanted.items():
        here = f"{path}.{name}"
        if name in _LOGIC:
            if not isinstance(condition, list | tuple) or not condition:
                yield Problem(here, "must be a list of at least one filter")
                continue
            for at, part in enumerate(condition):
                yield from filter_problems(part, f"{here}[{at}]")
        elif name.startswith("$"):
            yield Problem(here, f"is not known: use one of {', '.join(_LOGIC)}")
        elif _is_operators(condition):
            yield from _operator_problems(condition, here)


def matches(document: Any, wanted: Filter) -> bool:
    """Whether a record passes. The filter has no problems."""
    for name, condition in wanted.items():
        if name in _LOGIC:
            if not _LOGIC[name](matches(document, part) for part in condition):
                return False
        elif not _field_passes(document, name, condition):
            return False
    return True


def _operator_problems(condition: Filter, path: str) -> Iterator[Problem]:
    for name, value in condition.items():
        here = f"{path}.{name}"
        if name == "$not":
            if _is_operators(value):
                yield from _operator_problems(value, here)
            else:
                yield Problem(here, "must be an object of operators, such as {$gt: 5}")
        elif name in ("$in", "$nin", "$all"):
            if not isinstance(value, list | tuple):
                yield Problem(here, "must be a list of values")
        elif name not in _ANY and name not in ("$exists", "$ne"):
            known = ", ".join(("$not", "$ne", "$in", "$nin", "$all", "$exists", *_ANY))
            yield Problem(here, f"is not known: use one of {known}")


def _field_passes(document: Any, path: str, condition: Any) -> bool:
    found = list(_values(document, path.split(".")))
    if not _is_operators(condition):
        return _equals(found, condition)
    return all(_passes(found, name, value) for name, value in condition.items())


def _passes(found: Sequence[Any], operator: str, value: Any) -> bool:
    """What several values are found for passes if one of them does; negations if none."""
    if operator == "$not":
        return not all(_passes(found, name, each) for name, each in value.items())
    if operator == "$exists":
        return any(each is not _MISSING for each in found) is bool(value)
    if operator == "$ne":
        return not _equals(found, value)
    if operator in ("$in", "$nin"):
        return any(_equals(found, each) for each in value) is (operator == "$in")
    if operator == "$all":
        return bool(value) and all(_equals(found, each) for each in value)
    return any(_ANY[operator](each, value) for each in _spread(found))


def _equals(found: Sequence[Any], value: Any) -> bool:
    if value is None:
        return any(each is None or each is _MISSING for each in _spread(found))
    return any(_same(each, value) for each in _spread(found))


def _spread(found: Sequence[Any]) -> Iterator[Any]:
    """The values, and the items of those that are lists."""
    for each in found:
        yield each
        if isinstance(each, list):
            yield from each


def _values(document: Any, path: Sequence[str]) -> Iterator[Any]:
    """What a dotted path leads to, through every item of lists on its way; _MISSING at its ends."""
    if not path:
        yield document
    elif isinstance(document, Mapping):
        yield from _values(document[path[0]], path[1:]) if path[0] in document else [_MISSING]
    elif isinstance(document, list):
        if path[0].isdigit() and int(path[0]) < len(document):
            yield from _values(document[int(path[0])], path[1:])
        for item in document:
            if isinstance(item, Mapping):
                yield from _values(item, path)
    else:
        yield _MISSING


def _same(one: Any, other: Any) -> bool:
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Values of one type alone have an order: numbers, and texts."""

    def passes(one: Any, other: Any) -> bool:
        numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (one, other))
        texts = isinstance(one, str) and isinstance(other, str)
        return (numbers or texts) and compare(one, other)

    return passes


def _is_operators(condition: Any) -> bool:
    return isinstance(condition, Mapping) and any(key.startswith("$") for key in condition)


_LOGIC: Final[Mapping[str, Callable[[Iterator[bool]], bool]]] = {
    "$and": all,
    "$or": any,
    "$nor": lambda results: not any(results),
}
_ANY: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$eq": lambda one, other: _same(one, other) or (other is None and one is _MISSING),
    "$gt": _ordered(lambda one, other: one > other),
    "$gte": _ordered(lambda one, other: one >= other),
    "$lt": _ordered(lambda one, other: one < other),
    "$lte": _ordered(lambda one, other: one <= other),
}
