"""MongoDB's updates, as far as the registry's users need them: what becomes of a document."""

import copy
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from gpuform.providers.emulator.aios.errors import failed
from gpuform.providers.emulator.aios.filtering import (
    equal,
    is_match,
    is_operators,
    value_matches,
)

Json = Any
Document = dict[str, Any]
Update = dict[str, dict[str, Any]]

_NUMBER = re.compile(r"\d+")


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
