"""What stands in a shape, the same in every format: symbol, name, type and facts; and colours."""

from collections.abc import Iterator, Sequence
from typing import Final

from gpuform.providers.platforms import platforms
from gpuform.schemas.plan import PlanAction
from gpuform.schemas.visible import shortened, visible
from gpuform.stacks.drawing.arranging import Arrow, Item
from gpuform.stacks.review.names import STYLES, SYMBOLS, counted

_LONGEST: Final = 40
_BETWEEN: Final = " \N{MIDDLE DOT} "
NO_NAME: Final = "(no name)"

COLORS: Final = {"add": "#116329", "change": "#7d4e00", "replace": "#a40e26", "remove": "#a40e26"}
"""Those of the review's page."""
FILLS: Final = {"add": "#dafbe1", "change": "#fff8c5", "replace": "#ffebe9", "remove": "#ffebe9"}


def style_of(item: Item) -> str:
    """The review's style of what happens to it: add, change, replace, remove; or ''."""
    style = STYLES.get(SYMBOLS[action], "") if (action := _action(item)) else ""
    return style if style in COLORS else ""


def lines_of(item: Item) -> list[str]:
    """A few short lines, in which nothing is hidden and no fact is cut."""
    return [shortened(visible(line), _LONGEST) for line in _lines(item) if line]


def count_of(arrow: Arrow) -> str:
    """How often, where that is more than once."""
    return f"\N{MULTIPLICATION SIGN}{arrow.count:,}" if arrow.count > 1 else ""


def legend(items: list[Item]) -> list[tuple[str, str, str]]:
    """Style, symbol and word of everything that happens in the drawing."""
    actions = {action for item in items if (action := _action(item)) and style_of(item)}
    return [
        (STYLES[SYMBOLS[action]], SYMBOLS[action], str(action))
        for action in PlanAction
        if action in actions
    ]


def _action(item: Item) -> PlanAction | None:
    return item.things[0].action if item.things else None


def _lines(item: Item) -> Iterator[str]:
    if item.box:
        yield item.box if item.is_stack else _title(item.box)
        yield item.note
        return
    first, last = item.things[0], item.things[-1]
    symbol = f"{SYMBOLS[first.action]} " if first.action and style_of(item) else ""
    if len(item.things) == 1:
        yield f"{symbol}{first.name or NO_NAME}"
        yield first.type
        yield from _wrapped(first.facts)
        return
    yield f"{symbol}{len(item.things):,} \N{MULTIPLICATION SIGN} {first.type}"
    yield f"{_short(first.name)} ... {_short(last.name)}"
    gpus = sum(thing.gpus for thing in item.things)
    if gpus:
        sign = "+" if first.action and gpus > 0 else ""
        yield f"{sign}{counted(gpus, 'GPU')}"


def _title(box: str) -> str:
    """What a box is called: a platform by its title."""
    platform = platforms().get(box)
    return platform.title if platform else "Modules" if box == "modules" else box


def _wrapped(facts: Sequence[str]) -> Iterator[str]:
    """The facts side by side, on as many lines as they need."""
    line = ""
    for fact in facts:
        longer = f"{line}{_BETWEEN}{fact}" if line else fact
        if line and len(longer) > _LONGEST:
            yield line
            longer = fact
        line = longer
    yield line


def _short(name: str) -> str:
    return name if len(name) <= 16 else f"{name[:15]}\N{HORIZONTAL ELLIPSIS}"
