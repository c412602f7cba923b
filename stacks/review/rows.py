"""A resource's property changes as rows, which each view draws in its own way."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange
from gpuform.schemas.visible import visible
from gpuform.stacks.review.differences import Difference, differences, values_of
from gpuform.stacks.review.value_text import inline, labelled

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
        yield Row(first.mark, visible(first.text + _note(change)), first.depth)
        yield from (replace(row, text=visible(row.text)) for row in rest)


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
            yield from _inner(difference)
    else:
        yield Row(mark, f"{label} {inline(before)} => {inline(after)}")


def _inner(change: Difference) -> Iterator[Row]:
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
