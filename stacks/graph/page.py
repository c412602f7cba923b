"""Render a drawing as one HTML page with an SVG and a table, without scripts or external files.

Called by `gpuform graph --format html`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import Any, Final

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from gpuform.schemas.safe_text import escape_invisible, truncate
from gpuform.stacks.graph.arranging import Arrow, Drawing, Shape
from gpuform.stacks.graph.diagrams import build_legend, format_count, get_label_lines, get_style

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
    """Render the drawing as an HTML page."""
    positions, width, height = compute_positions(drawing)
    items = drawing.list_shapes()
    count = sum(node.is_resource for node in drawing.nodes)
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("gpuform.stacks.graph"), PackageLoader("gpuform.stacks.review")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["line"] = _format_line
    return environment.get_template("graph.html.j2").render(
        title=drawing.title,
        summary=_format_summary(count, len(drawing.list_stacks())),
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
        "style": get_style(item) or _get_box_kind(item),
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


def _get_box_kind(item: Shape) -> str:
    """Return `stack` or `platform` for a box, and an empty text for any other shape."""
    return "stack" if item.is_stack else "platform" if item.box else ""


def _format_summary(resources: int, stacks: int) -> str:
    """Format the number of resources, and the number of stacks unless it is 0."""
    suffix = f" in {stacks:,} {'stack' if stacks == 1 else 'stacks'}" if stacks else ""
    return f"{resources:,} {'resource' if resources == 1 else 'resources'}{suffix}"


def _format_line(text: str) -> str:
    """Return the text with invisible characters escaped, cut to `_LONGEST` characters."""
    return truncate(escape_invisible(text), _LONGEST)
