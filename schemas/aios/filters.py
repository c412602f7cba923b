"""Check whether a record matches a Mongo filter, to verify the answer of a query.

Called by the AIOS lookups. A registry may answer a filter that it did not understand with every
record it has. Only the operators here can be checked; a filter with another one is refused.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuform.schemas.models import Problem

Filter = Mapping[str, Any]

_MISSING: Final = object()


def find_filter_problems(filter_: Any, path: str = "filter") -> Iterator[Problem]:
    """Yield a problem for each unknown or malformed operator of a Mongo filter.

    Also one if the filter, or a filter inside `$and`, `$or` or `$nor`, is no object.
    """
    if not isinstance(filter_, Mapping):
        yield Problem(path, "must be an object of fields and conditions")
        return
    for name, condition in filter_.items():
        inner_path = f"{path}.{name}"
        if name in _LOGICAL:
            if not isinstance(condition, list | tuple) or not condition:
                yield Problem(inner_path, "must be a list of at least one filter")
                continue
            for index, part in enumerate(condition):
                yield from find_filter_problems(part, f"{inner_path}[{index}]")
        elif name.startswith("$"):
            yield Problem(inner_path, f"is not known: use one of {', '.join(_LOGICAL)}")
        elif _is_operator_object(condition):
            yield from _find_operator_problems(condition, inner_path)


def matches_filter(document: Any, filter_: Filter) -> bool:
    """Return True if a record matches a filter without problems (see `find_filter_problems`)."""
    for name, condition in filter_.items():
        if name in _LOGICAL:
            if not _LOGICAL[name](matches_filter(document, part) for part in condition):
                return False
        elif not _matches_field(document, name, condition):
            return False
    return True


def _find_operator_problems(condition: Filter, path: str) -> Iterator[Problem]:
    """Yield a problem for each operator of one field's condition that is unknown or malformed.

    `path` is the path of the condition in the declared filter, for messages.
    """
    for name, value in condition.items():
        inner_path = f"{path}.{name}"
        if name == "$not":
            if _is_operator_object(value):
                yield from _find_operator_problems(value, inner_path)
            else:
                yield Problem(inner_path, "must be an object of operators, such as {$gt: 5}")
        elif name in ("$in", "$nin", "$all"):
            if not isinstance(value, list | tuple):
                yield Problem(inner_path, "must be a list of values")
        elif name not in _COMPARISONS and name not in ("$exists", "$ne"):
            operators = ", ".join(("$not", "$ne", "$in", "$nin", "$all", "$exists", *_COMPARISONS))
            yield Problem(inner_path, f"is not known: use one of {operators}")


def _matches_field(document: Any, path: str, condition: Any) -> bool:
    """Return True if the document's values at a dotted path match the filter's condition.

    A condition is an object of operators (`{$gt: 5}`), or a value to equal.
    """
    values = list(_find_values(document, path.split(".")))
    if not _is_operator_object(condition):
        return _has_equal(values, condition)
    return all(_matches_mongo_operator(values, name, value) for name, value in condition.items())


def _matches_mongo_operator(values: Sequence[Any], operator: str, operand: Any) -> bool:
    """Return True if a field's values satisfy one of Mongo's operators (`$gt`, `$in`, `$not` ...).

    A comparison or `$in` needs one matching value. `$ne`, `$nin` and `$not` need that none matches,
    `$all` that each item of `operand` does. `$exists` needs a value, or none if `operand` is false.
    """
    if operator == "$not":
        return not all(
            _matches_mongo_operator(values, name, inner_operand)
            for name, inner_operand in operand.items()
        )
    if operator == "$exists":
        return any(item is not _MISSING for item in values) is bool(operand)
    if operator == "$ne":
        return not _has_equal(values, operand)
    if operator in ("$in", "$nin"):
        return any(_has_equal(values, item) for item in operand) is (operator == "$in")
    if operator == "$all":
        # `$all` of nothing matches no record in Mongo
        return bool(operand) and all(_has_equal(values, item) for item in operand)
    return any(_COMPARISONS[operator](item, operand) for item in _flatten(values))


def _has_equal(values: Sequence[Any], operand: Any) -> bool:
    """Return True if one of the values, or an item of a list value, equals `operand`.

    As in Mongo, null equals a missing field, too.
    """
    # Mongo's null matches a missing field, too
    if operand is None:
        return any(item is None or item is _MISSING for item in _flatten(values))
    return any(_is_equal(item, operand) for item in _flatten(values))


def _flatten(values: Sequence[Any]) -> Iterator[Any]:
    """Yield the values, and the items of list values."""
    for value in values:
        yield value
        if isinstance(value, list):
            yield from value


def _find_values(document: Any, path: Sequence[str]) -> Iterator[Any]:
    """Yield the values of a document at a dotted path, as Mongo finds them.

    A list on the way stands for each of its items; `_MISSING` for a document without a value.
    """
    if not path:
        yield document
    elif isinstance(document, Mapping):
        yield from _find_values(document[path[0]], path[1:]) if path[0] in document else [_MISSING]
    elif isinstance(document, list):
        # a number in a path may be an index, and at the same time a key of an item
        if path[0].isdigit() and int(path[0]) < len(document):
            yield from _find_values(document[int(path[0])], path[1:])
        for item in document:
            if isinstance(item, Mapping):
                yield from _find_values(item, path)
    else:
        yield _MISSING


def _is_equal(left: Any, right: Any) -> bool:
    """Return True if two JSON values are equal; unlike in Python, true is not 1."""
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _require_same_type(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    """Return ``compare`` restricted to pairs of numbers and pairs of texts.

    Mongo orders no mixed types.
    """

    # a boolean is an int in Python, but no number in Mongo
    def compare_values(left: Any, right: Any) -> bool:
        numbers = all(
            isinstance(operand, int | float) and not isinstance(operand, bool)
            for operand in (left, right)
        )
        texts = isinstance(left, str) and isinstance(right, str)
        return (numbers or texts) and compare(left, right)

    return compare_values


def _is_operator_object(condition: Any) -> bool:
    """Return True if a condition is an object of Mongo operators, such as `{$gt: 5}`."""
    return isinstance(condition, Mapping) and any(key.startswith("$") for key in condition)


_LOGICAL: Final[Mapping[str, Callable[[Iterator[bool]], bool]]] = {
    "$and": all,
    "$or": any,
    "$nor": lambda results: not any(results),
}
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "$eq": lambda one, other: _is_equal(one, other) or (other is None and one is _MISSING),
    "$gt": _require_same_type(lambda one, other: one > other),
    "$gte": _require_same_type(lambda one, other: one >= other),
    "$lt": _require_same_type(lambda one, other: one < other),
    "$lte": _require_same_type(lambda one, other: one <= other),
}
