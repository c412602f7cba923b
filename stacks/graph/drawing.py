"""Render a drawing in DOT, in Mermaid, in JSON, and as an HTML page with an SVG and a table.

`gpuform graph` calls one function for each `--format`. DOT is the language of Graphviz; the HTML
page has no scripts and no external files.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

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
    """Return the short label lines of a drawn shape, with invisible characters escaped."""
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
    """Render a drawing of resources in DOT, for `dot -Tsvg`."""
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
    label = "\\n".join(map(_escape_dot, get_label_lines(item)))
    attributes = ", ".join([f'label="{label}"', *_list_color_attributes(item)])
    if not item.children:
        yield f"{indent}{item.key} [{attributes}]"
        return
    yield f"{indent}subgraph cluster_{item.key} {{"
    yield f"{indent}  graph [{attributes}]"
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


def _quote_dot(text: str) -> str:
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
    """Render a drawing of resources as a Mermaid flowchart."""
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


LINE: Final = 17
"""Height of a line of text, in pixels."""
PAD: Final = 10
_LETTER_WIDTH: Final = 7.3
"""Width of a letter of the page's monospaced font, in pixels."""
_COLUMN_GAP: Final = 56
_ROW_GAP: Final = 14
_MAX_COLUMN_LENGTH: Final = 8
"""Shapes above each other, at most, before a second column begins."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """Hold the rectangle of a shape, from the upper left corner, in pixels."""

    x: float
    y: float
    width: float
    height: float

    def move(self, x: float, y: float) -> "Rectangle":
        """Return a new rectangle of the same size, moved by `x` and `y` pixels."""
        return Rectangle(self.x + x, self.y + y, self.width, self.height)


Positions = dict[str, Rectangle]
"""Rectangles by the key of the shape."""


def compute_positions(drawing: Drawing) -> tuple[Positions, float, float]:
    """Return the rectangles of all shapes, and width and height of the drawing in pixels."""
    dependencies = find_sibling_dependencies(drawing)
    inner = {box.key: _place_shape(box, dependencies) for box in drawing.boxes}
    # Platforms stand below each other; a stack stands to the left of what it needs.
    columns = _split_columns(list(inner), dependencies) if drawing.list_stacks() else [list(inner)]
    positions: Positions = {}
    x = width = height = 0.0
    for column in columns:
        y = 0.0
        for outer in column:
            positions.update({key: rectangle.move(x, y) for key, rectangle in inner[outer].items()})
            y += inner[outer][outer].height + _ROW_GAP
        width = x + max((inner[outer][outer].width for outer in column), default=0.0)
        x, height = width + _COLUMN_GAP, max(height, y - _ROW_GAP)
    return positions, width, height


SiblingDependencies = Mapping[str, Mapping[str, None]]
"""The dependencies of a shape inside its own box, in order."""


def find_sibling_dependencies(drawing: Drawing) -> SiblingDependencies:
    """Return the dependencies between siblings.

    A dependency of contents counts for the container.
    """
    paths: dict[str, list[str]] = {}
    waiting: list[tuple[Shape, list[str]]] = [(box, []) for box in drawing.boxes]
    while waiting:
        item, ancestors = waiting.pop()
        paths[item.key] = [*ancestors, item.key]
        waiting += [(child, paths[item.key]) for child in item.children]
    dependencies: dict[str, dict[str, None]] = {}
    for arrow in drawing.arrows:
        # Where both paths differ first, their shapes are siblings.
        pairs = zip(paths[arrow.source.key], paths[arrow.target.key], strict=False)
        siblings = next(((source, target) for source, target in pairs if source != target), None)
        if siblings:
            dependencies.setdefault(siblings[0], {})[siblings[1]] = None
    return dependencies


def _place_shape(item: Shape, dependencies: SiblingDependencies) -> Positions:
    """Return the rectangles of a shape at 0, 0, and of everything inside."""
    lines = get_label_lines(item)
    label_width = max(len(line) for line in lines) * _LETTER_WIDTH + 2 * PAD
    label_height = float(len(lines) * LINE + 2 * PAD - 4)
    if not item.children:
        return {item.key: Rectangle(0, 0, label_width, label_height)}
    inner = {child.key: _place_shape(child, dependencies) for child in item.children}
    sizes = {key: positions[key] for key, positions in inner.items()}
    positions: Positions = {}
    x, bottom = float(PAD), label_height
    for column in _split_columns(list(sizes), dependencies):
        y = label_height
        for key in column:
            positions.update(
                {inner_key: rectangle.move(x, y) for inner_key, rectangle in inner[key].items()}
            )
            y += sizes[key].height + _ROW_GAP
        x += max(sizes[key].width for key in column) + _COLUMN_GAP
        bottom = max(bottom, y - _ROW_GAP)
    width = max(label_width, x - _COLUMN_GAP + PAD)
    return {item.key: Rectangle(0, 0, width, bottom + PAD), **positions}


def _split_columns(keys: Sequence[str], dependencies: SiblingDependencies) -> list[list[str]]:
    """Split shapes into columns, with dependants on the left. Long columns are cut."""
    level = dict.fromkeys(keys, 0)
    users = Counter(dependency for key in keys for dependency in dependencies.get(key, ()))
    ready = [key for key in keys if not users[key]]
    # Boxes can need each other, though no two things do: these stay where they are.
    while ready:
        key = ready.pop()
        for dependency in dependencies.get(key, ()):
            level[dependency] = max(level[dependency], level[key] + 1)
            users[dependency] -= 1
            ready += [dependency] if not users[dependency] else []
    columns: list[list[str]] = []
    for column_level in sorted(set(level.values())):
        column = [key for key in keys if level[key] == column_level]
        # Many shapes become about as many columns as rows.
        height = max(_MAX_COLUMN_LENGTH, ceil(sqrt(len(column))))
        columns += [column[at : at + height] for at in range(0, len(column), height)]
    return columns


@dataclass(frozen=True, slots=True)
class Curve:
    """Hold the SVG path of an arrow, and its middle."""

    path: str
    x: float
    y: float


def build_curve(arrow: Arrow, positions: Positions) -> Curve:
    """Build an arrow's curve from side to side; for shapes above each other, from edge to edge."""
    source, target = positions[arrow.source.key], positions[arrow.target.key]
    beside = source.x + source.width <= target.x or target.x + target.width <= source.x
    if beside:
        start_x, end_x = (source.x + source.width, target.x) if source.x < target.x else (
            source.x, target.x + target.width)  # fmt: skip
        start_y, end_y = source.y + source.height / 2, target.y + target.height / 2
    else:
        start_y, end_y = (source.y + source.height, target.y) if source.y < target.y else (
            source.y, target.y + target.height)  # fmt: skip
        start_x, end_x = source.x + source.width / 2, target.x + target.width / 2
    x, y = (start_x + end_x) / 2, (start_y + end_y) / 2
    bends = (x, start_y, x, end_y) if beside else (start_x, y, end_x, y)
    points = " ".join(f"{point:.0f}" for point in (*bends, end_x, end_y))
    return Curve(f"M{start_x:.0f} {start_y:.0f}C{points}", round(x), round(y))


_LONGEST: Final = 200
_MOST_NAMES: Final = 20


def render_page(drawing: Drawing) -> str:
    """Render a drawing of resources as a self-contained HTML page."""
    positions, width, height = compute_positions(drawing)
    items = drawing.list_shapes()
    summary = counted(sum(node.is_resource for node in drawing.nodes), "resource")
    if stacks := drawing.list_stacks():
        summary += f" in {counted(len(stacks), 'stack')}"
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("gpuform.stacks.graph"), PackageLoader("gpuform.stacks.review")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = lambda text: truncate(escape_invisible(text), _LONGEST)
    return environment.get_template("graph.html.j2").render(
        title=drawing.title,
        summary=summary,
        shapes=[
            (positions[item.key], _build_shape(item)) for item in [*drawing.list_boxes(), *items]
        ],
        arrows=[(build_curve(arrow, positions), format_count(arrow)) for arrow in drawing.arrows],
        rows=_build_rows(drawing, items),
        legend=build_legend(items),
        width=round(width + 2),
        height=round(height + 2),
        line=LINE,
        pad=PAD,
    )


def _build_shape(item: Shape) -> dict[str, Any]:
    """Build the label lines, the style and the tooltip of a shape for the page's template.

    The tooltip has the names of at most `_MOST_NAMES` nodes, and the number of further ones.
    """
    names = [node.name for node in item.nodes[:_MOST_NAMES]]
    more = len(item.nodes) - len(names)
    return {
        "lines": get_label_lines(item),
        "style": get_style(item) or ("stack" if item.is_stack else "platform" if item.box else ""),
        "tip": ", ".join([*names, f"and {more:,} more"] if more else names),
    }


def _build_rows(drawing: Drawing, items: list[Shape]) -> list[dict[str, Any]]:
    """Build the table rows: each shape in words, with its dependencies."""
    dependencies: dict[str, list[str]] = {}
    for arrow in drawing.arrows:
        dependencies.setdefault(arrow.source.key, []).append(get_label_lines(arrow.target)[0])
    stacks = [
        {"lines": [*get_label_lines(box)[:1], "stack", box.note], "style": "", "inside": "",
         "needs": ", ".join(dependencies.get(box.key, ()))}
        for box in drawing.list_stacks()
    ]  # fmt: skip
    containers = _map_containers(drawing)
    return stacks + [
        {
            "lines": (get_label_lines(item) + [""] * 2)[:3],
            "style": get_style(item),
            "inside": containers.get(item.key, ""),
            "needs": ", ".join(dependencies.get(item.key, ())),
        }
        for item in items
    ]


def _map_containers(drawing: Drawing) -> dict[str, str]:
    """Return the name of the shape or stack around each shape. Platforms are skipped."""
    containers: dict[str, str] = {}
    for item in [*drawing.list_boxes(), *drawing.list_shapes()]:
        is_platform = bool(item.box) and not item.is_stack
        name = containers.get(item.key, "") if is_platform else get_label_lines(item)[0]
        containers |= {child.key: name for child in item.children}
    return containers
