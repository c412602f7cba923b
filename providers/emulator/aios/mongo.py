"""Match documents by MongoDB's filters and change them by MongoDB's updates, as far as the
registry's users need them.
"""

import copy
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gpuform.providers.emulator.routing import Refusal


class ApiError(Refusal):
    """Answered as `{"error": message}` with this status."""


def failed(message: str) -> ApiError:
    """500: the registry has no other status for what MongoDB or Mongoose refuses."""
    return ApiError(500, message)


def not_found() -> ApiError:
    return ApiError(404, "Cluster not found")


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


Document = dict[str, Any]
Update = dict[str, dict[str, Any]]


class _Missing:
    """The type of MISSING: there is no such field yet."""


MISSING = _Missing()


def updated(document: Document, update: Update) -> Document:
    """The document after an update of operators. Raises ApiError and changes nothing."""
    for operator, fields in update.items():
        if operator not in _OPERATORS:
            raise failed(f"Unknown modifier: {operator}")
        if not isinstance(fields, dict):
            raise failed(f"Modifiers operate on fields: {operator} has none")
    _refuse_conflicts([path for fields in update.values() for path in fields])
    result = copy.deepcopy(document)
    for operator, fields in update.items():
        for path, operand in fields.items():
            _OPERATORS[operator](result, path, operand)
    return result


def _refuse_conflicts(paths: list[str]) -> None:
    """No path may be changed twice, nor together with a part of it."""
    for at, one in enumerate(paths):
        for other in paths[at + 1 :]:
            short, long = sorted((one, other), key=len)
            if f"{long}.".startswith(f"{short}."):
                raise failed(f"Updating the path '{long}' would create a conflict at '{short}'")


def _put(
    change: Callable[[Json, Json, str], Json], document: Document, path: str, operand: Json
) -> None:
    """Changes one field; the objects that lead to it are made where they are missing."""
    *way, last = path.split(".")
    holder: Json = document
    for name in way:
        found = _get(holder, name)
        if found is MISSING:
            found = {}
            _store(holder, name, found, path)
        holder = found
    if not isinstance(holder, dict | list):
        raise failed(f"Cannot create field '{last}' in element of '{path}'")
    _store(holder, last, change(_get(holder, last), operand, path), path)


def _get(holder: Json, name: str) -> Json:
    if isinstance(holder, list):
        at = int(name) if _NUMBER.fullmatch(name) else len(holder)
        return holder[at] if at < len(holder) else MISSING
    return holder.get(name, MISSING) if isinstance(holder, dict) else MISSING


def _store(holder: Json, name: str, value: Json, path: str) -> None:
    if isinstance(holder, dict):
        holder[name] = value
    elif isinstance(holder, list) and _NUMBER.fullmatch(name):
        holder.extend([None] * (int(name) + 1 - len(holder)))
        holder[int(name)] = value
    else:
        raise failed(f"Cannot create field '{name}' in element of '{path}'")


def _unset(document: Document, path: str, _operand: Json) -> None:
    """An element of an array becomes null; what is not there is no error."""
    holder, last, found = _look(document, path)
    if found is MISSING:
        return
    if isinstance(holder, list):
        holder[int(last)] = None
    else:
        del holder[last]


def _pull(document: Document, path: str, operand: Json) -> None:
    """Where there is no array nothing is pulled, and none is made."""
    holder, last, found = _look(document, path)
    if found is not MISSING:
        items = _array(found, path, "$pull")
        _store(holder, last, [each for each in items if not _is_pulled(each, operand)], path)


def _look(document: Document, path: str) -> tuple[Json, str, Json]:
    """What holds the field, the field's name there, and its value or MISSING."""
    *way, last = path.split(".")
    holder: Json = document
    for name in way:
        holder = _get(holder, name)
    return holder, last, _get(holder, last)


def _set(_old: Json, operand: Json, _path: str) -> Json:
    return copy.deepcopy(operand)


def _inc(old: Json, operand: Json, path: str) -> Json:
    old = 0 if old is MISSING else old
    for value in (old, operand):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise failed(f"Cannot apply $inc to a value of non-numeric type at '{path}'")
    return old + operand


def _push(old: Json, operand: Json, path: str) -> Json:
    return [*_array(old, path, "$push"), *copy.deepcopy(_items(operand, "$push"))]


def _add_to_set(old: Json, operand: Json, path: str) -> Json:
    found = list(_array(old, path, "$addToSet"))
    for item in _items(operand, "$addToSet"):
        if not any(equal(item, each) for each in found):
            found.append(copy.deepcopy(item))
    return found


def _is_pulled(item: Json, operand: Json) -> bool:
    """A condition on the element itself, or a filter of elements that are objects."""
    if isinstance(operand, dict) and not is_operators(operand):
        return isinstance(item, dict) and is_match(item, operand)
    return value_matches(item, operand)


def _array(old: Json, path: str, operator: str) -> list[Json]:
    if old is MISSING:
        return []
    if not isinstance(old, list):
        raise failed(f"Cannot apply {operator} to a non-array value at '{path}'")
    return old


def _items(operand: Json, operator: str) -> list[Json]:
    """One item, or those of `$each`."""
    if not is_operators(operand):
        return [operand]
    if set(operand) != {"$each"} or not isinstance(operand["$each"], list):
        raise failed(f"Unrecognized clause in {operator}")
    items: list[Json] = operand["$each"]
    return items


_OPERATORS: dict[str, Callable[[Document, str, Json], None]] = {
    "$set": partial(_put, _set),
    "$unset": _unset,
    "$inc": partial(_put, _inc),
    "$push": partial(_put, _push),
    "$addToSet": partial(_put, _add_to_set),
    "$pull": _pull,
}
