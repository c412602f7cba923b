"""A drawing in Mermaid, which forges and wikis show in Markdown."""

import re
from collections.abc import Iterator
from typing import Final

from gpuform.schemas.visible import visible
from gpuform.stacks.drawing.arranging import Drawing, Item
from gpuform.stacks.drawing.labels import COLORS, FILLS, count_of, lines_of, style_of

MOST_ARROWS: Final = 500
"""Mermaid refuses more than that, and texts of more than LONGEST characters."""
LONGEST: Final = 50_000

_SPECIAL: Final = re.compile(
    r"(?<![A-Za-z0-9])[:_-]|[:_-](?![A-Za-z0-9])|^ | $|(?<= ) |[^A-Za-z0-9 :_-]"
)
"""All but words and what joins them: Mermaid reads a label as Markdown."""
_LIKE: Final = str.maketrans({"\\": "\N{SET MINUS}", "$": "\N{FULLWIDTH DOLLAR SIGN}"})
"""What looks alike and means nothing: line breaks and formulas are found behind entities, too."""
_ICON: Final = re.compile(r":(?=fa-)")


def mermaid(drawing: Drawing) -> str:
    """The drawing, as a flowchart."""
    return "\n".join(_lines(drawing)) + "\n"


def fits(text: str, drawing: Drawing) -> bool:
    """Whether Mermaid with its own settings draws it."""
    return len(text) <= LONGEST and len(drawing.arrows) <= MOST_ARROWS


def _lines(drawing: Drawing) -> Iterator[str]:
    yield f"%% {_escaped(visible(drawing.title))}"
    yield "flowchart LR"
    for box in drawing.boxes:
        yield from _shape(box, "  ")
    for arrow in drawing.arrows:
        count = count_of(arrow)
        label = f'|"{_escaped(count)}"|' if count else ""
        yield f"  {arrow.source.key} -->{label} {arrow.target.key}"
    styles: dict[str, list[str]] = {}
    for item in drawing.items():
        if style := style_of(item):
            styles.setdefault(style, []).append(item.key)
    for style, keys in styles.items():
        color = COLORS[style]
        yield f"  classDef {style} fill:{FILLS[style]},stroke:{color},color:{color}"
        yield f"  class {','.join(keys)} {style}"


def _shape(item: Item, indent: str) -> Iterator[str]:
    label = "<br/>".join(map(_escaped, lines_of(item)))
    if not item.children:
        yield f'{indent}{item.key}["{label}"]'
        return
    yield f'{indent}subgraph {item.key}["{label}"]'
    for child in item.children:
        yield from _shape(child, f"{indent}  ")
    yield f"{indent}end"


def _escaped(text: str) -> str:
    """With Mermaid's own entities, by number, for all that could mean something to it."""
    text = _ICON.sub("\N{RATIO}", text.translate(_LIKE))
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
