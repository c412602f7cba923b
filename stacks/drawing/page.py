"""A drawing as one page of HTML: nothing to load and no script, and all of it in words, too."""

from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from gpuform.schemas.visible import shortened, visible
from gpuform.stacks.drawing.arranging import Drawing, Item
from gpuform.stacks.drawing.labels import count_of, legend, lines_of, style_of
from gpuform.stacks.drawing.layout import LINE, PAD, curve_of, lay_out

_LONGEST: Final = 200
_MOST_NAMES: Final = 20


def page(drawing: Drawing) -> str:
    """The page."""
    places, width, height = lay_out(drawing)
    items = drawing.items()
    count = sum(thing.is_resource for thing in drawing.things)
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("gpuform.stacks.drawing"), PackageLoader("gpuform.stacks.review")]
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
    return shortened(visible(text), _LONGEST)
