"""Render a drawing in DOT, the language of Graphviz, in Mermaid and in JSON.

Called by `gpuform graph --format dot`, `mermaid` and `json`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from gpuform.providers.platform import platforms
from gpuform.schemas.plan import PlanAction
from gpuform.schemas.safe_text import escape_invisible, format_json, truncate
from gpuform.stacks.graph.arranging import Arrow, Drawing, Shape
from gpuform.stacks.review.value_text import STYLES, SYMBOLS, counted

_MAX_LABEL_LENGTH: Final = 40
_BETWEEN: Final = " \N{MIDDLE DOT} "
NO_NAME: Final = "(no name)"

COLORS: Final = {"add": "#116329", "change": "#7d4e00", "replace": "#a40e26", "remove": "#a40e26"}
"""The colors of the review's HTML page."""
FILLS: Final = {"add": "#dafbe1", "change": "#fff8c5", "replace": "#ffebe9", "remove": "#ffebe9"}


def get_style(item: Shape) -> str:
    """Return the review's style of the shape's action: add, change, replace, remove or ''."""
    style = STYLES.get(SYMBOLS[action], "") if (action := _get_action(item)) else ""
    return style if style in COLORS else ""


def get_label_lines(item: Shape) -> list[str]:
    """Return a few short label lines, with invisible characters escaped and no fact cut."""
    return [
        truncate(escape_invisible(line), _MAX_LABEL_LENGTH)
        for line in _iterate_label_lines(item)
        if line
    ]


def format_count(arrow: Arrow) -> str:
    """Format how many dependencies share the arrow; empty for one."""
    return f"\N{MULTIPLICATION SIGN}{arrow.count:,}" if arrow.count > 1 else ""


def build_legend(items: list[Shape]) -> list[tuple[str, str, str]]:
    """List style, symbol and word of every action in the drawing."""
    actions = {action for item in items if (action := _get_action(item)) and get_style(item)}
    return [
        (STYLES[SYMBOLS[action]], SYMBOLS[action], str(action))
        for action in PlanAction
        if action in actions
    ]


def _get_action(item: Shape) -> PlanAction | None:
    """Return the action of the shape's nodes; None for a box and without a plan."""
    return item.nodes[0].action if item.nodes else None


def _iterate_label_lines(item: Shape) -> Iterator[str]:
    """Yield the lines of a shape's label, uncut; some may be empty.

    A box has title and note; a single node has name, type and facts; merged nodes have their number
    and type, the first and last name, and the sum of their GPUs.
    """
    if item.box:
        yield item.box if item.is_stack else _get_box_title(item.box)
        yield item.note
        return
    first, last = item.nodes[0], item.nodes[-1]
    symbol = f"{SYMBOLS[first.action]} " if first.action and get_style(item) else ""
    if len(item.nodes) == 1:
        yield f"{symbol}{first.name or NO_NAME}"
        yield first.type
        yield from _wrap_facts(first.facts)
        return
    yield f"{symbol}{len(item.nodes):,} \N{MULTIPLICATION SIGN} {first.type}"
    yield f"{_truncate_name(first.name)} ... {_truncate_name(last.name)}"
    # Merged nodes differ in their facts, but their GPUs can be summed.
    gpus = sum(node.gpus for node in item.nodes)
    if gpus:
        sign = "+" if first.action and gpus > 0 else ""
        yield f"{sign}{counted(gpus, 'GPU')}"


def _get_box_title(box: str) -> str:
    """Return the title of a box: a platform's title, or `Modules`."""
    platform = platforms().get(box)
    return platform.title if platform else "Modules" if box == "modules" else box


def _wrap_facts(facts: Sequence[str]) -> Iterator[str]:
    """Yield the facts side by side, on as many lines as needed."""
    line = ""
    for fact in facts:
        longer = f"{line}{_BETWEEN}{fact}" if line else fact
        if line and len(longer) > _MAX_LABEL_LENGTH:
            yield line
            longer = fact
        line = longer
    yield line


def _truncate_name(name: str) -> str:
    """Return the name, cut to 16 characters with an ellipsis at the end if longer."""
    return name if len(name) <= 16 else f"{name[:15]}\N{HORIZONTAL ELLIPSIS}"


_HEAD: Final = """\
  graph [rankdir=LR, compound=true, labeljust=l, style=rounded, fontname="Helvetica"]
  node [shape=box, style="rounded,filled", fillcolor="#ffffff", fontname="Helvetica"]
  edge [color="#57606a", fontname="Helvetica"]"""


def render_dot(drawing: Drawing) -> str:
    """Render the drawing in DOT, for `dot -Tsvg`."""
    return "\n".join(_render_dot_lines(drawing)) + "\n"


def _render_dot_lines(drawing: Drawing) -> Iterator[str]:
    """Yield the lines of a DOT graph: the head, the boxes with their contents, then the arrows."""
    yield f"digraph {_quote_dot(drawing.title)} {{"
    yield _HEAD
    for box in drawing.boxes:
        yield from _render_dot_shape(box, "  ")
    for arrow in drawing.arrows:
        count = format_count(arrow)
        attributes = [f"label={_quote_dot(count)}"] if count else []
        # With `compound=true`, Graphviz cuts the arrow at the border of the cluster.
        attributes += [f"ltail=cluster_{arrow.source.key}"] if arrow.source.children else []
        attributes += [f"lhead=cluster_{arrow.target.key}"] if arrow.target.children else []
        more = f" [{', '.join(attributes)}]" if attributes else ""
        yield f"  {arrow.source.key} -> {arrow.target.key}{more}"
    yield "}"


def _render_dot_shape(item: Shape, indent: str) -> Iterator[str]:
    """Yield the lines of a shape in DOT; a shape with contents is a cluster.

    A cluster has an invisible point where arrows end, unless the shape is a platform.
    """
    if not item.children:
        attributes = [f"label={_format_label(item)}", *_list_color_attributes(item)]
        yield f"{indent}{item.key} [{', '.join(attributes)}]"
        return
    yield f"{indent}subgraph cluster_{item.key} {{"
    attributes = [f"label={_format_label(item)}", *_list_color_attributes(item)]
    yield f"{indent}  graph [{', '.join(attributes)}]"
    # Arrows end at nodes, so a cluster needs a point; no arrow ends at a platform.
    if item.is_stack or not item.box:
        yield f'{indent}  {item.key} [shape=point, style=invis, label=""]'
    for child in item.children:
        yield from _render_dot_shape(child, f"{indent}  ")
    yield f"{indent}}}"


def _list_color_attributes(item: Shape) -> list[str]:
    """Return the DOT attributes for the colors of the shape's action; empty without a change."""
    style = get_style(item)
    if not style:
        return []
    fill = "bgcolor" if item.children else "fillcolor"
    return [f'color="{COLORS[style]}"', f'fontcolor="{COLORS[style]}"', f'{fill}="{FILLS[style]}"']


def _format_label(item: Shape) -> str:
    """Return the label lines of a shape as one quoted DOT string."""
    return '"' + "\\n".join(map(_escape_dot, get_label_lines(item))) + '"'


def _quote_dot(text: str) -> str:
    """Return the text as a quoted DOT string, with invisible characters escaped."""
    return f'"{_escape_dot(escape_invisible(text))}"'


def _escape_dot(escaped: str) -> str:
    """Escape `text` for DOT, which reads backslash escapes and HTML entities."""
    # The ampersand first: its own entity has one.
    for sign, escape in (("&", "&amp;"), ("\\", "\\\\"), ('"', '\\"')):
        escaped = escaped.replace(sign, escape)
    return escaped


MAX_MERMAID_ARROWS: Final = 500
"""Mermaid refuses more arrows, and texts of more than MAX_MERMAID_LENGTH characters."""
MAX_MERMAID_LENGTH: Final = 50_000

_SPECIAL: Final = re.compile(
    r"(?<![A-Za-z0-9])[:_-]|[:_-](?![A-Za-z0-9])|^ | $|(?<= ) |[^A-Za-z0-9 :_-]"
)
"""Everything but words and their joints: Mermaid reads a label as Markdown."""
_LOOKALIKES: Final = str.maketrans({"\\": "\N{SET MINUS}", "$": "\N{FULLWIDTH DOLLAR SIGN}"})
"""Lookalikes for signs that Mermaid interprets even behind entities: line breaks, formulas."""
_ICON: Final = re.compile(r":(?=fa-)")


def render_mermaid(drawing: Drawing) -> str:
    """Render the drawing as a Mermaid flowchart."""
    return "\n".join(_render_mermaid_lines(drawing)) + "\n"


def is_within_limits(text: str, drawing: Drawing) -> bool:
    """Return True if Mermaid's default limits allow the text and the arrows."""
    return len(text) <= MAX_MERMAID_LENGTH and len(drawing.arrows) <= MAX_MERMAID_ARROWS


def _render_mermaid_lines(drawing: Drawing) -> Iterator[str]:
    """Yield the lines of a Mermaid flowchart: title as a comment, boxes, arrows, then colors."""
    yield f"%% {_escape_mermaid(escape_invisible(drawing.title))}"
    yield "flowchart LR"
    for box in drawing.boxes:
        yield from _render_mermaid_shape(box, "  ")
    for arrow in drawing.arrows:
        count = format_count(arrow)
        label = f'|"{_escape_mermaid(count)}"|' if count else ""
        yield f"  {arrow.source.key} -->{label} {arrow.target.key}"
    styles: dict[str, list[str]] = {}
    for item in drawing.list_shapes():
        if style := get_style(item):
            styles.setdefault(style, []).append(item.key)
    for style, keys in styles.items():
        color = COLORS[style]
        yield f"  classDef {style} fill:{FILLS[style]},stroke:{color},color:{color}"
        yield f"  class {','.join(keys)} {style}"


def _render_mermaid_shape(item: Shape, indent: str) -> Iterator[str]:
    """Yield the lines of a shape in Mermaid; a shape with contents is a subgraph."""
    label = "<br/>".join(map(_escape_mermaid, get_label_lines(item)))
    if not item.children:
        yield f'{indent}{item.key}["{label}"]'
        return
    yield f'{indent}subgraph {item.key}["{label}"]'
    for child in item.children:
        yield from _render_mermaid_shape(child, f"{indent}  ")
    yield f"{indent}end"


def _escape_mermaid(escaped: str) -> str:
    """Escape `text` with Mermaid's numeric entities."""
    escaped = _ICON.sub("\N{RATIO}", escaped.translate(_LOOKALIKES))
    return _SPECIAL.sub(lambda match: f"#{ord(match[0])};", escaped)


def render_json(drawing: Drawing) -> str:
    """Render every node with its dependencies as JSON, and the dependencies between stacks.

    `stacks` is empty in a drawing of one stack. Nodes are not merged.
    """
    stacks = drawing.list_stacks()
    dependencies = {
        stack.key: sorted(arrow.target.box for arrow in drawing.arrows if arrow.source is stack)
        for stack in stacks
    }
    document = {
        "title": drawing.title,
        "stacks": [
            {"name": stack.box, "note": stack.note, "dependencies": dependencies[stack.key]}
            for stack in stacks
        ],
        "nodes": [
            {
                "key": node.key,
                "type": node.type,
                "name": node.name,
                "facts": list(node.facts),
                "gpus": node.gpus,
                "parent": node.parent or None,
                "dependencies": sorted(node.dependencies),
                "action": None if node.action is None else str(node.action),
            }
            for node in drawing.nodes
        ],
    }
    return format_json(document, indent=2) + "\n"
