"""One property's change as lines: `num_gpus: 16 => 24`."""

from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PropertyChange
from gpuform.stacks.review.paint import Paint
from gpuform.stacks.review.value_text import inline, labelled

UNKNOWN = "[known after apply]"
FORCES = "# forces replacement"

_SYMBOLS = {Action.ADD: "+", Action.UPDATE: "~", Action.DELETE: "-", Action.KEEP: " "}
_STYLES = {"+": "add", "~": "change", "-": "remove", " ": "dim"}


def change_lines(
    changes: tuple[PropertyChange, ...], action: PlanAction, paint: Paint
) -> Iterator[str]:
    """The lines of a resource's property changes, their values aligned.

    In a new resource everything is new, so that its properties need no symbol.
    """
    width = max((len(change.path) for change in changes), default=0) + 1
    for change in changes:
        symbol = "" if action is PlanAction.CREATE else _SYMBOLS[change.action]
        label = f"{change.path}:".ljust(width)
        lines = list(_lines(change, label, symbol))
        lines[0] += _note(change)
        for line in lines:
            yield paint(_STYLES.get(symbol, ""), line)


def _lines(change: PropertyChange, label: str, symbol: str) -> Iterator[str]:
    lead = f"{symbol} {label}" if symbol else label
    before, after = change.before, _known(change.after)
    if change.unknown and after is None:
        after = UNKNOWN
    if change.action is Action.KEEP:
        yield f"{lead} stays {inline(before)}"
    elif change.action is Action.ADD:
        yield from labelled(lead, after)
    elif change.action is Action.DELETE:
        yield from labelled(lead, before)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        yield f"{symbol} {change.path}:"
        yield from (f"    {line}" for line in _differences(before, after))
    else:
        yield f"{lead} {inline(before)} => {inline(after)}"


def _known(value: Any) -> Any:
    """The value with the mark of what is not known in the words of a plan."""
    if isinstance(value, Mapping):
        return {key: _known(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_known(item) for item in value]
    return UNKNOWN if value == "[unknown]" else value


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if key not in after:
            yield from labelled(f"- {key}:", old)
        elif key not in before:
            yield from labelled(f"+ {key}:", new)
        elif isinstance(old, Mapping) and isinstance(new, Mapping) and old != new:
            yield f"~ {key}:"
            yield from (f"    {line}" for line in _differences(old, new))
        elif old != new:
            yield f"~ {key}: {inline(old)} => {inline(new)}"


def _note(change: PropertyChange) -> str:
    if change.forces_replacement:
        return f"  {FORCES}"
    if change.action is Action.KEEP:
        # "stays" says already that the platform keeps its value.
        return f": {change.because.partition(':')[0]}" if change.because else ""
    is_said = not change.because or (change.unknown and change.because in UNKNOWN)
    return "" if is_said else f"  # {change.because}"
