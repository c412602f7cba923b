"""Write a drawing in DOT, the language of Graphviz, and in Mermaid."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gpuform.providers.platform import platforms
from gpuform.schemas.plan import PlanAction
from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.graph.arranging import Arrow, Drawing, Item
from gpuform.stacks.review.value_text import STYLES, SYMBOLS, counted

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
    return [truncate(escape_invisible(line), _LONGEST) for line in _label_lines(item) if line]


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


def _label_lines(item: Item) -> Iterator[str]:
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


_HEAD: Final = """\
  graph [rankdir=LR, compound=true, labeljust=l, style=rounded, fontname="Helvetica"]
  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="Helvetica"]
  edge [color="#57606a", fontname="Helvetica"]"""


def dot(drawing: Drawing) -> str:
    """The drawing; `dot -Tsvg` draws it."""
    return "\n".join(_dot_lines(drawing)) + "\n"


def _dot_lines(drawing: Drawing) -> Iterator[str]:
    yield f"digraph {_quoted(drawing.title)} {{"
    yield _HEAD
    for box in drawing.boxes:
        yield from _dot_shape(box, "  ")
    for arrow in drawing.arrows:
        count = count_of(arrow)
        said = [f"label={_quoted(count)}"] if count else []
        said += [f"ltail=cluster_{arrow.source.key}"] if arrow.source.children else []
        said += [f"lhead=cluster_{arrow.target.key}"] if arrow.target.children else []
        more = f" [{', '.join(said)}]" if said else ""
        yield f"  {arrow.source.key} -> {arrow.target.key}{more}"
    yield "}"


def _dot_shape(item: Item, indent: str) -> Iterator[str]:
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
        yield from _dot_shape(child, f"{indent}  ")
    yield f"{indent}}}"


def _colors(item: Item) -> list[str]:
    style = style_of(item)
    if not style:
        return []
    fill = "bgcolor" if item.children else "fillcolor"
    return [f'color="{COLORS[style]}"', f'fontcolor="{COLORS[style]}"', f'{fill}="{FILLS[style]}"']


def _label(item: Item) -> str:
    return '"' + "\\n".join(map(_escape_dot, lines_of(item))) + '"'


def _quoted(text: str) -> str:
    return f'"{_escape_dot(escape_invisible(text))}"'


def _escape_dot(text: str) -> str:
    """Graphviz takes backslashes for escapes, and entities of HTML for characters."""
    for sign, escape in (("&", "&amp;"), ("\\", "\\\\"), ('"', '\\"')):
        text = text.replace(sign, escape)
    return text


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
    return "\n".join(_mermaid_lines(drawing)) + "\n"


def fits(text: str, drawing: Drawing) -> bool:
    """Whether Mermaid with its own settings draws it."""
    return len(text) <= LONGEST and len(drawing.arrows) <= MOST_ARROWS


def _mermaid_lines(drawing: Drawing) -> Iterator[str]:
    yield f"%% {_escape_mermaid(escape_invisible(drawing.title))}"
    yield "flowchart LR"
    for box in drawing.boxes:
        yield from _mermaid_shape(box, "  ")
    for arrow in drawing.arrows:
        count = count_of(arrow)
        label = f'|"{_escape_mermaid(count)}"|' if count else ""
        yield f"  {arrow.source.key} -->{label} {arrow.target.key}"
    styles: dict[str, list[str]] = {}
    for item in drawing.items():
        if style := style_of(item):
            styles.setdefault(style, []).append(item.key)
    for style, keys in styles.items():
        color = COLORS[style]
        yield f"  classDef {style} fill:{FILLS[style]},stroke:{color},color:{color}"
        yield f"  class {','.join(keys)} {style}"


def _mermaid_shape(item: Item, indent: str) -> Iterator[str]:
    label = "<br/>".join(map(_escape_mermaid, lines_of(item)))
    if not item.children:
        yield f'{indent}{item.key}["{label}"]'
        return
    yield f'{indent}subgraph {item.key}["{label}"]'
    for child in item.children:
        yield from _mermaid_shape(child, f"{indent}  ")
    yield f"{indent}end"


def _escape_mermaid(text: str) -> str:
    """With Mermaid's own entities, by number, for all that could mean something to it."""
    text = _ICON.sub("\N{RATIO}", text.translate(_LIKE))
    return _SPECIAL.sub(lambda found: f"#{ord(found[0])};", text)
