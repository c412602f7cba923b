"""A resource's property changes as the cells of a table."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PropertyChange
from gpuform.schemas.visible import shortened, visible
from gpuform.stacks.review.differences import differences, values_of
from gpuform.stacks.review.rows import note_of
from gpuform.stacks.review.value_text import multiline

_LONGEST_VALUE: Final = 4_000


@dataclass(frozen=True, slots=True)
class Cells:
    """One line of the table; a value that is not there is empty."""

    path: str
    action: Action
    before: str
    after: str
    note: str = ""
    forces: bool = False


def change_cells(changes: Iterable[PropertyChange], type_: str) -> Iterator[Cells]:
    """A line for each property, or for each place inside it that changes."""
    for change in changes:
        path, note, forces = change.path, visible(note_of(change)), change.forces_replacement
        inner = differences(change, type_)
        for each in inner:
            where = each.path if each.path.startswith("[") else f".{each.path}"
            before, after = _value(each.before), _value(each.after)
            before = "" if each.action is Action.ADD else before
            after = "" if each.action is Action.DELETE else after
            yield Cells(visible(path + where), each.action, before, after, note, forces)
        if not inner:
            old, new = values_of(change)
            before = "" if change.action is Action.ADD else _value(old)
            after = "" if change.action is Action.DELETE else _value(new)
            yield Cells(visible(path), change.action, before, after, note, forces)


def _value(value: Any) -> str:
    lines = multiline(value).split("\n")
    return shortened("\n".join(map(visible, lines)), _LONGEST_VALUE)
