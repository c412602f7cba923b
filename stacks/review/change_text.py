"""One resource's property changes as lines: `num_gpus: 16 => 24`."""

from collections.abc import Iterator

from gpuform.schemas.plan import PlanAction, PropertyChange
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


def _line(row: Row, bare: bool) -> str:
    indent = "    " * row.depth
    if bare:
        return indent + row.text
    return indent + (row.text if row.continues else f"{row.mark} {row.text}")
