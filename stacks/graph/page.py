"""Write a drawing as one page of HTML: nothing to load, no script, and everything in words, too."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.graph.arranging import Arrow, Drawing, Item
from gpuform.stacks.graph.diagrams import count_of, legend, lines_of, style_of

LINE: Final = 17
"""Height of a line of text."""
PAD: Final = 10
_LETTER: Final = 7.3
"""Width of a letter of the page's font, which is monospaced."""
_BETWEEN: Final = 56
_BESIDE: Final = 14
_ROW: Final = 8
"""Shapes above each other, at most, before a second column begins."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """A shape's place, from the upper left corner, in pixels."""

    x: float
    y: float
    width: float
    height: float

    def moved(self, x: float, y: float) -> "Rectangle":
        return Rectangle(self.x + x, self.y + y, self.width, self.height)


Places = dict[str, Rectangle]
"""By the key of the shape."""


def lay_out(drawing: Drawing) -> tuple[Places, float, float]:
    """The places of all shapes, and the width and height of it all."""
    needs = _lifted(drawing)
    inner = {box.key: _placed(box, needs) for box in drawing.boxes}
    # Platforms stand below each other; a stack stands to the left of what it needs.
    columns = _columns(list(inner), needs) if drawing.stacks() else [list(inner)]
    places: Places = {}
    x = width = height = 0.0
    for column in columns:
        y = 0.0
        for outer in column:
            places.update({key: at.moved(x, y) for key, at in inner[outer].items()})
            y += inner[outer][outer].height + _BESIDE
        width = x + max((inner[outer][outer].width for outer in column), default=0.0)
        x, height = width + _BETWEEN, max(height, y - _BESIDE)
    return places, width, height


Needs = Mapping[str, Mapping[str, None]]
"""Which shapes of its own box a shape needs, in order."""


def _lifted(drawing: Drawing) -> Needs:
    """What is inside of a shape counts as the shape itself."""
    way: dict[str, list[str]] = {}
    waiting: list[tuple[Item, list[str]]] = [(box, []) for box in drawing.boxes]
    while waiting:
        item, above = waiting.pop()
        way[item.key] = [*above, item.key]
        waiting += [(child, way[item.key]) for child in item.children]
    found: dict[str, dict[str, None]] = {}
    for arrow in drawing.arrows:
        pairs = zip(way[arrow.source.key], way[arrow.target.key], strict=False)
        parted = next(((one, other) for one, other in pairs if one != other), None)
        if parted:
            found.setdefault(parted[0], {})[parted[1]] = None
    return found


def _placed(item: Item, needs: Needs) -> Places:
    """The places of a shape, which is at 0, 0, and of all that is in it."""
    lines = lines_of(item)
    wide = max(len(line) for line in lines) * _LETTER + 2 * PAD
    tall = float(len(lines) * LINE + 2 * PAD - 4)
    if not item.children:
        return {item.key: Rectangle(0, 0, wide, tall)}
    inner = {child.key: _placed(child, needs) for child in item.children}
    sizes = {key: places[key] for key, places in inner.items()}
    places: Places = {}
    x, bottom = float(PAD), tall
    for column in _columns(list(sizes), needs):
        y = tall
        for key in column:
            places.update({each: at.moved(x, y) for each, at in inner[key].items()})
            y += sizes[key].height + _BESIDE
        x += max(sizes[key].width for key in column) + _BETWEEN
        bottom = max(bottom, y - _BESIDE)
    width = max(wide, x - _BETWEEN + PAD)
    return {item.key: Rectangle(0, 0, width, bottom + PAD), **places}


def _columns(keys: Sequence[str], needs: Needs) -> list[list[str]]:
    """What nobody needs is on the left, what it needs to the right of it; long columns are cut."""
    level = dict.fromkeys(keys, 0)
    users = Counter(other for key in keys for other in needs.get(key, ()))
    ready = [key for key in keys if not users[key]]
    # Boxes can need each other, though no two things do: these stay where they are.
    while ready:
        key = ready.pop()
        for other in needs.get(key, ()):
            level[other] = max(level[other], level[key] + 1)
            users[other] -= 1
            ready += [other] if not users[other] else []
    found: list[list[str]] = []
    for each in sorted(set(level.values())):
        column = [key for key in keys if level[key] == each]
        height = max(_ROW, ceil(sqrt(len(column))))
        found += [column[at : at + height] for at in range(0, len(column), height)]
    return found


@dataclass(frozen=True, slots=True)
class Curve:
    """An arrow's way, as SVG has it, and its middle."""

    path: str
    x: float
    y: float


def curve_of(arrow: Arrow, places: Places) -> Curve:
    """From the side of one shape to the side of the other; above each other, from edge to edge."""
    one, other = places[arrow.source.key], places[arrow.target.key]
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    if beside:
        start_x, end_x = (one.x + one.width, other.x) if one.x < other.x else (
            one.x, other.x + other.width)  # fmt: skip
        start_y, end_y = one.y + one.height / 2, other.y + other.height / 2
    else:
        start_y, end_y = (one.y + one.height, other.y) if one.y < other.y else (
            one.y, other.y + other.height)  # fmt: skip
        start_x, end_x = one.x + one.width / 2, other.x + other.width / 2
    x, y = (start_x + end_x) / 2, (start_y + end_y) / 2
    bends = (x, start_y, x, end_y) if beside else (start_x, y, end_x, y)
    way = " ".join(f"{at:.0f}" for at in (*bends, end_x, end_y))
    return Curve(f"M{start_x:.0f} {start_y:.0f}C{way}", round(x), round(y))


_LONGEST: Final = 200
_MOST_NAMES: Final = 20


def page(drawing: Drawing) -> str:
    """The page."""
    places, width, height = lay_out(drawing)
    items = drawing.items()
    count = sum(thing.is_resource for thing in drawing.things)
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("gpuform.stacks.graph"), PackageLoader("gpuform.stacks.review")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = _line
    return environment.get_template("graph.html.j2").render(
        title=drawing.title,
        summary=_summary(count, len(drawing.stacks())),
        shapes=[(places[item.key], _shape(item)) for item in [*drawing.every_box(), *items]],
        arrows=[(curve_of(arrow, places), count_of(arrow)) for arrow in drawing.arrows],
        rows=_rows(drawing, items),
        legend=legend(items),
        width=round(width + 2),
        height=round(height + 2),
        line=LINE,
        pad=PAD,
    )


def _shape(item: Item) -> dict[str, Any]:
    names = [thing.name for thing in item.things[:_MOST_NAMES]]
    more = len(item.things) - len(names)
    return {
        "lines": lines_of(item),
        "style": style_of(item) or _kind(item),
        "tip": ", ".join([*names, f"and {more:,} more"] if more else names),
    }


def _rows(drawing: Drawing, items: list[Item]) -> list[dict[str, Any]]:
    """Each shape in words: what it is, and what it needs."""
    needs: dict[str, list[str]] = {}
    for arrow in drawing.arrows:
        needs.setdefault(arrow.source.key, []).append(lines_of(arrow.target)[0])
    stacks = [
        {"lines": [*lines_of(box)[:1], "stack", box.note], "style": "", "inside": "",
         "needs": ", ".join(needs.get(box.key, ()))}
        for box in drawing.stacks()
    ]  # fmt: skip
    inside = _holders(drawing)
    return stacks + [
        {
            "lines": (lines_of(item) + [""] * 2)[:3],
            "style": style_of(item),
            "inside": inside.get(item.key, ""),
            "needs": ", ".join(needs.get(item.key, ())),
        }
        for item in items
    ]


def _holders(drawing: Drawing) -> dict[str, str]:
    """What each shape is in, by name: another shape, or its stack; platforms are passed over."""
    found: dict[str, str] = {}
    for item in [*drawing.every_box(), *drawing.items()]:
        is_platform = bool(item.box) and not item.is_stack
        name = found.get(item.key, "") if is_platform else lines_of(item)[0]
        found |= {child.key: name for child in item.children}
    return found


def _kind(item: Item) -> str:
    return "stack" if item.is_stack else "platform" if item.box else ""


def _summary(resources: int, stacks: int) -> str:
    of = f" in {stacks:,} {'stack' if stacks == 1 else 'stacks'}" if stacks else ""
    return f"{resources:,} {'resource' if resources == 1 else 'resources'}{of}"


def _line(text: str) -> str:
    return truncate(escape_invisible(text), _LONGEST)
