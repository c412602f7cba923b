"""Compute what differs inside a value, once for every view, and lay it out as rows."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from pydantic import BaseModel

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.resource_rules import lifecycle_of
from gpuform.stacks.review.value_text import inline, labelled

_NO_RULES = FieldRules()
_PART = re.compile(r'\["(?:\\"|[^"])*"\]|\[\d+\]|([^.\[]+)')


def inputs_of(type_: str) -> type[BaseModel] | None:
    """The model of what can be declared of a gpuform resource; None for any other type."""
    lifecycle = lifecycle_of(type_)
    return lifecycle.inputs if lifecycle else None


@cache
def rules_at(type_: str, path: str) -> FieldRules:
    """The rules of the property at a path; none where the schema does not know it."""
    model = inputs_of(type_)
    fields = get_field_rules(model) if model else {}
    found = _NO_RULES
    for part in _PART.finditer(path):
        if part[1] is None:
            continue  # a key or an index: the items have the rules of their list
        found = fields.get(part[1], _NO_RULES).inherit_rules(found)
        fields = found.nested_rules
    return found


def by_identity(value: Any, rules: FieldRules) -> Any:
    """The value with each list whose items have a key of their own as a mapping by that key."""
    if isinstance(value, Mapping):
        if rules.is_map:
            return {key: _inner_values(item, rules) for key, item in value.items()}
        return _inner_values(value, rules)
    if not isinstance(value, list | tuple):
        return value
    key = rules.keyed_by
    if key and all(isinstance(item, Mapping) for item in value):
        names = [item.get(key.name) for item in value]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            items = zip(names, value, strict=True)
            return {f'["{name}"]': _inner_values(item, rules) for name, item in items}
    return [_inner_values(item, rules) for item in value]


def _inner_values(value: Any, rules: FieldRules) -> Any:
    if not isinstance(value, Mapping):
        return value
    inner = rules.nested_rules
    return {name: by_identity(item, inner.get(name, _NO_RULES)) for name, item in value.items()}


UNKNOWN = "[known after apply]"

_PLAIN_NAME = re.compile(r"[\w-]+")
_ACTIONS = {
    "dictionary_item_added": Action.ADD,
    "iterable_item_added": Action.ADD,
    "dictionary_item_removed": Action.DELETE,
    "iterable_item_removed": Action.DELETE,
    "values_changed": Action.UPDATE,
    "type_changes": Action.UPDATE,
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One place inside a property: its path from there, and what was and will be."""

    path: str
    action: Action
    before: Any
    after: Any


def values_of(change: PropertyChange) -> tuple[Any, Any]:
    """Before and after in the words of a plan: what is not known yet is said."""
    before, after = _plain(change.before), _plain(change.after)
    return before, UNKNOWN if change.unknown and after is None else after


def differences(change: PropertyChange, type_: str) -> list[Difference]:
    """The places inside the property that change, in order; none where it changes as a whole.

    `type_` is the resource's: its schema says which lists have items with a key of their own.
    """
    before, after = values_of(change)
    if change.action is not Action.UPDATE or not _is_nested(before, after):
        return []
    rules = rules_at(type_, change.path)
    return list(_compared(by_identity(before, rules), by_identity(after, rules)))


def _is_nested(before: Any, after: Any) -> bool:
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return True
    both = (before, after)
    if not all(isinstance(value, list | tuple) for value in both):
        return False
    return any(isinstance(item, Mapping) for value in both for item in value)


def _compared(before: Any, after: Any) -> Iterator[Difference]:
    from deepdiff import DeepDiff  # noqa: PLC0415 - slow, and most plans nest nothing

    found = DeepDiff(
        before,
        after,
        view="tree",
        ignore_nan_inequality=True,
        threshold_to_diff_deeper=0,  # else what has little in common is one change of it all
        verbose_level=2,
    )
    levels = [(level, _ACTIONS[kind]) for kind in _ACTIONS for level in found.get(kind, ())]
    made = []
    for level, action in levels:
        steps = level.path(output_format="list")
        old = None if action is Action.ADD else level.t1
        new = None if action is Action.DELETE else level.t2
        made.append((_order(steps), Difference(_path(steps), action, old, new)))
    yield from (difference for _, difference in sorted(made, key=lambda pair: pair[0]))


def _order(steps: list[Any]) -> list[tuple[bool, int, str]]:
    return [(isinstance(s, str), s if isinstance(s, int) else 0, str(s)) for s in steps]


def _path(steps: list[Any]) -> str:
    path = ""
    for step in steps:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step.startswith('["'):
            path += step
        elif _PLAIN_NAME.fullmatch(step):
            path += f".{step}" if path else step
        else:
            path += f'["{step}"]'
    return path


def _plain(value: Any) -> Any:
    """The value with whole numbers as such, and the mark of what is not known in a plan's words."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return UNKNOWN if value == "[unknown]" else value


FORCES = "# forces replacement"

_MARKS = {Action.ADD: "+", Action.UPDATE: "~", Action.DELETE: "-", Action.KEEP: " "}


@dataclass(frozen=True, slots=True)
class Row:
    """One line. `mark` is + ~ - or a blank; `depth` 1 is inside a property.

    A row that `continues` goes on with the value of the one before.
    """

    mark: str
    text: str
    depth: int = 0
    continues: bool = False


def change_rows(changes: Iterable[PropertyChange], type_: str) -> Iterator[Row]:
    """The rows of a resource's property changes, their values aligned."""
    changes = tuple(changes)
    width = max((len(change.path) for change in changes), default=0) + 1
    for change in changes:
        first, *rest = _rows(change, f"{change.path}:".ljust(width), type_)
        yield Row(first.mark, escape_invisible(first.text + _note(change)), first.depth)
        yield from (replace(row, text=escape_invisible(row.text)) for row in rest)


def _rows(change: PropertyChange, label: str, type_: str) -> Iterator[Row]:
    mark = _MARKS[change.action]
    before, after = values_of(change)
    if change.action is Action.KEEP:
        yield Row(mark, f"{label} stays {inline(before)}")
    elif change.action is Action.ADD:
        yield from _whole(mark, label, after)
    elif change.action is Action.DELETE:
        yield from _whole(mark, label, before)
    elif inner := differences(change, type_):
        yield Row(mark, f"{change.path}:")
        for difference in inner:
            yield from _inner_rows(difference)
    else:
        yield Row(mark, f"{label} {inline(before)} => {inline(after)}")


def _inner_rows(change: Difference) -> Iterator[Row]:
    mark, label = _MARKS[change.action], f"{change.path}:"
    if change.action is Action.ADD:
        yield from _whole(mark, label, change.after, 1)
    elif change.action is Action.DELETE:
        yield from _whole(mark, label, change.before, 1)
    else:
        yield Row(mark, f"{label} {inline(change.before)} => {inline(change.after)}", 1)


def _whole(mark: str, label: str, value: Any, depth: int = 0) -> Iterator[Row]:
    first, *rest = labelled(label, value)
    yield Row(mark, first, depth)
    yield from (Row(mark, line, depth, continues=True) for line in rest)


def _note(change: PropertyChange) -> str:
    if change.forces_replacement:
        return f"  {FORCES}"
    told = note_of(change)
    if change.action is Action.KEEP:
        return f": {told}" if told else ""
    return f"  # {told}" if told else ""


def note_of(change: PropertyChange) -> str:
    """What is to be said beside the values; empty when the values say it all."""
    if change.action is Action.KEEP:
        # "stays" says that already.
        return change.because.removesuffix(": the platform keeps its value")
    is_said = change.unknown and change.because in "[known after apply]"
    return "" if is_said else change.because
