"""What differs inside a value: computed here once, shown by every view."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange
from gpuform.stacks.review.identity import by_identity, rules_at

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
