"""Match documents by MongoDB's filters and change documents by MongoDB's updates.

`records` and `routes` call this module, which has the part of MongoDB that users of the registry
need. What is not emulated is an error.
"""

import copy
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gpuform.providers.emulator.routing import Refusal


class AiosApiError(Refusal):
    """Raised where the registry refuses: answered as `{"error": message}` with this status."""


def make_server_error(message: str) -> AiosApiError:
    """Return the 500 `Refusal` for a request that MongoDB or Mongoose refuses.

    The registry has no other status for refusals.
    """
    return AiosApiError(500, message)


def make_not_found() -> AiosApiError:
    """Return the 404 `Refusal` for a cluster without a record in the registry."""
    return AiosApiError(404, "Cluster not found")


Json = Any

_NUMBER = re.compile(r"\d+")


class Nothing:
    """The type of NOTHING, which stands for a field that a document does not have."""


NOTHING = Nothing()


def matches_filter(document: Json, query: Json) -> bool:
    """Return whether a document matches a filter; an empty filter matches every document.

    Raises `Refusal` 500 for a malformed filter or an operator that is not emulated.
    """
    if not isinstance(query, dict):
        raise make_server_error("the match filter must be an expression in an object")
    return all(_meets_clause(document, name, condition) for name, condition in query.items())


def matches_condition(value: Json, condition: Json) -> bool:
    """Return whether one item of an array meets the condition of a `$pull`.

    Raises `Refusal` 500 for an unknown operator.
    """
    return _meets_condition([value], condition)


def has_operators(condition: Json) -> bool:
    """Return whether a condition is an object with MongoDB's operators such as `$gt`."""
    return isinstance(condition, dict) and any(name.startswith("$") for name in condition)


def is_equal(first: Json, second: Json) -> bool:
    """Return whether values are equal as in MongoDB: 1 is 1.0, and no truth value is a number.

    Objects are equal only with their members in the same order.
    """
    if isinstance(first, dict) and isinstance(second, dict):
        return list(first) == list(second) and all(
            is_equal(first[name], second[name]) for name in first
        )
    if isinstance(first, list) and isinstance(second, list):
        return len(first) == len(second) and all(map(is_equal, first, second))
    return isinstance(first, bool) is isinstance(second, bool) and bool(first == second)


def _meets_clause(document: Json, name: str, condition: Json) -> bool:
    """Return whether a document meets one member of a filter: a field or `$and`, `$or`, `$nor`.

    Raises `Refusal` 500 for any other operator in place of the field, and for an empty list.
    """
    if name in ("$and", "$or", "$nor"):
        if not isinstance(condition, list) or not condition:
            raise make_server_error(f"{name} must be a nonempty array")
        results = [matches_filter(document, part) for part in condition]
        return {"$and": all(results), "$or": any(results), "$nor": not any(results)}[name]
    if name.startswith("$"):
        raise make_server_error(f"unknown top level operator: {name}")
    return _meets_condition(list(_resolve_path(document, name.split("."))), condition)


def _meets_condition(values: list[Json], condition: Json) -> bool:
    """Return whether the values found at a filter's dotted path meet all of the path's condition.

    `condition` is a plain value, which one of `values` has to equal, or an object of operators.
    """
    if not has_operators(condition):
        return _has_value(values, condition)
    return all(
        _apply_operator(values, operator, operand) for operator, operand in condition.items()
    )


def _apply_operator(values: list[Json], operator: str, operand: Json) -> bool:
    """Return whether the values found at a path meet one operator of MongoDB, such as `$gt: 3`.

    `$eq`, `$in` and comparisons are met by one value, or one element of an array; `$ne` and `$nin`
    need all of them to differ. Raises `Refusal` 500 for an operator that is not emulated, and for
    a malformed operand.
    """
    # By negation: `$ne` and `$nin` hold for a field only if no element of its array is equal.
    negated = {"$ne": "$eq", "$nin": "$in"}.get(operator)
    if negated:
        return not _apply_operator(values, negated, operand)
    if operator == "$not":
        if not has_operators(operand):
            raise make_server_error("$not needs a regex or a document")
        return not _meets_condition(values, operand)
    if operator == "$eq":
        return _has_value(values, operand)
    if operator == "$exists":
        return bool(operand) == any(value is not NOTHING for value in values)
    if operator in ("$in", "$all"):
        if not isinstance(operand, list):
            raise make_server_error(f"{operator} needs an array")
        results = [_has_value(values, item) for item in operand]
        return any(results) if operator == "$in" else bool(results) and all(results)
    if operator not in _ORDERS:
        raise make_server_error(f"unknown operator: {operator}")
    return any(_compare(value, operand, _ORDERS[operator]) for value in _flatten(values))


def _has_value(values: list[Json], expected: Json) -> bool:
    """Return whether a value, or an element of an array value, equals `expected`.

    None also matches a missing field.
    """
    return any(
        # null matches a missing field, too, as in MongoDB.
        is_equal(value, expected) or (expected is None and value is NOTHING)
        for value in _flatten(values)
    )


def _flatten(values: list[Json]) -> Iterator[Json]:
    """Yield each value, and after an array its elements, too, one level deep."""
    for value in values:
        yield value
        # One level alone, as in MongoDB.
        if isinstance(value, list):
            yield from value


def _compare(first: Json, second: Json, holds: Callable[[Any, Any], bool]) -> bool:
    """Return whether `holds` is true of two numbers or of two texts; False for other types."""
    kinds = {_get_kind(first), _get_kind(second)}
    return len(kinds) == 1 and kinds <= {"number", "text"} and holds(first, second)


def _get_kind(value: Json) -> str:
    """Return the type used for comparisons: `flag`, `number`, `text` or `other`."""
    if isinstance(value, bool):
        return "flag"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else "other"


def _resolve_path(document: Json, path: list[str]) -> Iterator[Json]:
    """Yield the values at the end of a dotted path, through all elements of arrays.

    A number in the path is also an index of an array. Yields NOTHING where an object on the way
    lacks the member or a plain value is in the way; yields no value at all for an array without
    such an element or any objects.
    """
    if not path:
        yield document
        return
    name, rest = path[0], path[1:]
    if isinstance(document, dict):
        if name in document:
            yield from _resolve_path(document[name], rest)
        else:
            yield NOTHING
    elif isinstance(document, list):
        if _NUMBER.fullmatch(name) and int(name) < len(document):
            yield from _resolve_path(document[int(name)], rest)
        for element in document:
            if isinstance(element, dict):
                yield from _resolve_path(element, path)
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
    """The type of MISSING, which stands for a field that does not exist yet."""


MISSING = _Missing()


def apply_update(document: Document, update: Update) -> Document:
    """Return a changed copy of the document, after an update of operators such as `$set`.

    Raises `Refusal` 500 for an operator that is not emulated, for paths in conflict and for
    operands that do not fit.
    """
    for operator, fields in update.items():
        if operator not in _OPERATORS:
            raise make_server_error(f"Unknown modifier: {operator}")
        if not isinstance(fields, dict):
            raise make_server_error(f"Modifiers operate on fields: {operator} has none")
    _refuse_conflicts([path for fields in update.values() for path in fields])
    # A copy, so that an operator that fails leaves the document as it was.
    result = copy.deepcopy(document)
    for operator, fields in update.items():
        for path, operand in fields.items():
            _OPERATORS[operator](result, path, operand)
    return result


def _refuse_conflicts(paths: list[str]) -> None:
    """Raise `Refusal` 500 if a path is changed twice, or together with a part of the path."""
    for at, path in enumerate(paths):
        for other in paths[at + 1 :]:
            short, long = sorted((path, other), key=len)
            if f"{long}.".startswith(f"{short}."):
                raise make_server_error(
                    f"Updating the path '{long}' would create a conflict at '{short}'"
                )


def _change_field(
    change: Callable[[Json, Json, str], Json], document: Document, path: str, operand: Json
) -> None:
    """Set the field at a dotted path of `document`, in place, to `change(old, operand, path)`.

    Creates missing parents; `old` is MISSING for a missing field. Raises `Refusal` 500 where a
    parent is a plain value.
    """
    *parent_names, last = path.split(".")
    parent: Json = document
    for name in parent_names:
        child = _get_child(parent, name)
        if child is MISSING:
            child = {}
            _set_child(parent, name, child, path)
        parent = child
    if not isinstance(parent, dict | list):
        raise make_server_error(f"Cannot create field '{last}' in element of '{path}'")
    _set_child(parent, last, change(_get_child(parent, last), operand, path), path)


def _get_child(parent: Json, name: str) -> Json:
    """Return the member `name` of an object or the element `name` of an array, or MISSING."""
    if isinstance(parent, list):
        index = int(name) if _NUMBER.fullmatch(name) else len(parent)
        return parent[index] if index < len(parent) else MISSING
    return parent.get(name, MISSING) if isinstance(parent, dict) else MISSING


def _set_child(parent: Json, name: str, value: Json, path: str) -> None:
    """Set a member of an object or an element of an array, in place; `path` is for the error.

    An index beyond the end fills the gap with null. Raises `Refusal` 500 for any other parent, and
    for an element without a number.
    """
    if isinstance(parent, dict):
        parent[name] = value
    elif isinstance(parent, list) and _NUMBER.fullmatch(name):
        # MongoDB fills the gap before a new element with null.
        parent.extend([None] * (int(name) + 1 - len(parent)))
        parent[int(name)] = value
    else:
        raise make_server_error(f"Cannot create field '{name}' in element of '{path}'")


def _unset_field(document: Document, path: str, _operand: Json) -> None:
    """Remove a field of `document` in place; an array's element becomes null instead.

    A missing field is no error.
    """
    parent, last, value = _find_field(document, path)
    if value is MISSING:
        return
    if isinstance(parent, list):
        parent[int(last)] = None
    else:
        del parent[last]


def _pull_items(document: Document, path: str, operand: Json) -> None:
    """Remove the items of an array that meet `operand`, in place; a missing field stays missing.

    Raises `Refusal` 500 for a field other than an array.
    """
    parent, last, value = _find_field(document, path)
    if value is not MISSING:
        items = _require_array(value, path, "$pull")
        _set_child(parent, last, [item for item in items if not _should_pull(item, operand)], path)


def _find_field(document: Document, path: str) -> tuple[Json, str, Json]:
    """Return a field's parent object or array, the name there, and the value or MISSING."""
    *parent_names, last = path.split(".")
    parent: Json = document
    for name in parent_names:
        parent = _get_child(parent, name)
    return parent, last, _get_child(parent, last)


def _set_value(_old: Json, operand: Json, _path: str) -> Json:
    """Return a copy of the operand as a field's new value, for `$set`."""
    return copy.deepcopy(operand)


def _increment(old: Json, operand: Json, path: str) -> Json:
    """Return the sum of a field's number and the operand, for `$inc`.

    A missing field counts as 0. Raises `Refusal` 500 if the field or the operand is no number.
    """
    old = 0 if old is MISSING else old
    for value in (old, operand):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise make_server_error(f"Cannot apply $inc to a value of non-numeric type at '{path}'")
    return old + operand


def _push_items(old: Json, operand: Json, path: str) -> Json:
    """Return a field's array with the operand's items appended, for `$push`.

    A missing field counts as []. Raises `Refusal` 500 for a field other than an array.
    """
    return [*_require_array(old, path, "$push"), *copy.deepcopy(_list_items(operand, "$push"))]


def _add_to_set(old: Json, operand: Json, path: str) -> Json:
    """Return a field's array with the operand's items not yet in the array, for `$addToSet`.

    A missing field counts as []. Raises `Refusal` 500 for a field other than an array.
    """
    items = list(_require_array(old, path, "$addToSet"))
    for item in _list_items(operand, "$addToSet"):
        if not any(is_equal(item, present_item) for present_item in items):
            items.append(copy.deepcopy(item))
    return items


def _should_pull(item: Json, operand: Json) -> bool:
    """Return whether `$pull` removes an item.

    An object without operators is a filter, which only object items can match. An object of
    operators is a condition on the item itself, and any other operand has to be equal to the item.
    """
    if isinstance(operand, dict) and not has_operators(operand):
        return isinstance(item, dict) and matches_filter(item, operand)
    return matches_condition(item, operand)


def _require_array(old: Json, path: str, operator: str) -> list[Json]:
    """Return a field's array, or [] for a missing field.

    Raises `Refusal` 500 for another value.
    """
    if old is MISSING:
        return []
    if not isinstance(old, list):
        raise make_server_error(f"Cannot apply {operator} to a non-array value at '{path}'")
    return old


def _list_items(operand: Json, operator: str) -> list[Json]:
    """Return the items to add by `$push` or `$addToSet`: the items of `$each`, else the operand.

    Raises `Refusal` 500 for any other operator in the operand.
    """
    if not has_operators(operand):
        return [operand]
    # `$position`, `$slice` and `$sort` are not emulated.
    if set(operand) != {"$each"} or not isinstance(operand["$each"], list):
        raise make_server_error(f"Unrecognized clause in {operator}")
    items: list[Json] = operand["$each"]
    return items


_OPERATORS: dict[str, Callable[[Document, str, Json], None]] = {
    "$set": partial(_change_field, _set_value),
    "$unset": _unset_field,
    "$inc": partial(_change_field, _increment),
    "$push": partial(_change_field, _push_items),
    "$addToSet": partial(_change_field, _add_to_set),
    "$pull": _pull_items,
}
