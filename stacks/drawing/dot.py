"""A drawing in DOT, the language of Graphviz."""

from collections.abc import Iterator
from typing import Final

from gpuform.schemas.visible import visible
from gpuform.stacks.drawing.arranging import Drawing, Item
from gpuform.stacks.drawing.labels import COLORS, FILLS, count_of, lines_of, style_of

_HEAD: Final = """\
  graph [rankdir=LR, compound=true, labeljust=l, style=rounded, fontname="Helvetica"]
  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="Helvetica"]
  edge [color="#57606a", fontname="Helvetica"]"""


def dot(drawing: Drawing) -> str:
    """The drawing; `dot -Tsvg` draws it."""
    return "\n".join(_lines(drawing)) + "\n"


def _lines(drawing: Drawing) -> Iterator[str]:
    yield f"digraph {_quoted(drawing.title)} {{"
    yield _HEAD
    for box in drawing.boxes:
        yield from _shape(box, "  ")
    for arrow in drawing.arrows:
        count = count_of(arrow)
        said = [f"label={_quoted(count)}"] if count else []
        said += [f"ltail=cluster_{arrow.source.key}"] if arrow.source.children else []
        said += [f"lhead=cluster_{arrow.target.key}"] if arrow.target.children else []
        more = f" [{', '.join(said)}]" if said else ""
        yield f"  {arrow.source.key} -> {arrow.target.key}{more}"
    yield "}"


def _shape(item: Item, indent: str) -> Iterator[str]:
    """A box is a cluster of Graphviz; arrows to it end at a point inside that nobody sees."""
    if not item.children:
        said = [f"label={_label(item)}", *_colors(item)]
        yield f"{indent}{item.key} [{', '.join(said)}]"
        return
    yield f"{indent}subgraph cluster_{item.key} {{"
    yield f"{indent}  graph [{', '.join([f'label={_label(item)}', *_colors(item)])}]"
    if item.is_stack or not item.box:
        yield f'{indent}  {item.key} [shape=point, style=invis, label=""]'
    for child in item.children:
        yield from _shape(child, f"{indent}  ")
    yield f"{indent}}}"


def _colors(item: Item) -> list[str]:
    style = style_of(item)
    if not style:
        return []
    fill = "bgcolor" if item.children else "fillcolor"
    return [f'color="{COLORS[style]}"', f'fontcolor="{COLORS[style]}"', f'{fill}="{FILLS[style]}"']


def _label(item: Item) -> str:
    return '"' + "\\n".join(map(_escaped, lines_of(item))) + '"'


def _quoted(text: str) -> str:
    return f'"{_escaped(visible(text))}"'


def _escaped(text: str) -> str:
    """Graphviz takes backslashes for escapes, and entities of HTML for characters."""
    for sign, escape in (("&", "&amp;"), ("\\", "\\\\"), ('"', '\\"')):
        text = text.replace(sign, escape)
    return text
