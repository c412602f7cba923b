"""One resource's property changes as lines: `num_gpus: 16 => 24`."""

from collections.abc import Iterable, Iterator

from gpuform.schemas.plan import OutputChange, PlanAction, PropertyChange
from gpuform.stacks.review.facts import as_property
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.rows import Row, change_rows

_STYLES = {"+": "add", "~": "change", "-": "remove", " ": "dim"}


def change_lines(
    changes: tuple[PropertyChange, ...], action: PlanAction, type_: str, paint: Paint
) -> Iterator[str]:
    """The lines of a resource's property changes, their values aligned.

    In a new resource everything is new, so that its properties need no symbol.
    """
    bare = action is PlanAction.CREATE
    for row in change_rows(changes, type_):
        yield paint("" if bare else _STYLES[row.mark], _line(row, bare))


def output_changes_lines(changes: Iterable[OutputChange], paint: Paint) -> Iterator[str]:
    """`Outputs:` with those that change, each marked; nothing when none does."""
    properties = tuple(map(as_property, changes))
    if properties:
        yield paint("bold", "Outputs:")
        lines = change_lines(properties, PlanAction.UPDATE, "", paint)
        yield from (f"  {line}" for line in lines)


def _line(row: Row, bare: bool) -> str:
    indent = "    " * row.depth
    if bare:
        return indent + row.text
    return indent + (row.text if row.continues else f"{row.mark} {row.text}")
