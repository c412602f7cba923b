"""Drawings of several stacks: each a box with its things, and arrows between the boxes."""

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.readers.graph_comparison import compare_formats, create_entry, draw_nodes, names

from gpuform.stacks.graph.arranging import (
    Drawing,
    GraphNode,
    Shape,
    StackPart,
    build_drawing,
    build_multi_stack_drawing,
    build_state_nodes,
)
from gpuform.stacks.graph.drawing import Rectangle, compute_positions, get_label_lines, render_page


@st.composite
def draw_parts(draw: st.DrawFn) -> list[StackPart]:
    """Draw stacks with any dependencies, among them cycles and missing stacks."""
    titles = [f"project-{at}/prod" for at in range(draw(st.integers(0, 5)))]
    others = st.sampled_from([*titles, "gone/prod"])
    return [
        StackPart(
            title,
            draw(draw_nodes()),
            draw(st.lists(others, max_size=4, unique=True)),
            draw(names),
        )
        for title in titles
    ]


def is_inside(inner: Rectangle, outer: Rectangle) -> bool:
    return (
        inner.x >= outer.x
        and inner.y >= outer.y
        and inner.x + inner.width <= outer.x + outer.width
        and inner.y + inner.height <= outer.y + outer.height
    )


def is_apart(one: Rectangle, other: Rectangle) -> bool:
    return (
        one.x + one.width <= other.x
        or other.x + other.width <= one.x
        or one.y + one.height <= other.y
        or other.y + other.height <= one.y
    )


def check_positions(drawing: Drawing) -> None:
    """Check that every shape is on the page, inside its parent, and apart from its siblings."""
    positions, width, height = compute_positions(drawing)
    page_rectangle = Rectangle(0, 0, width, height)
    for box in drawing.boxes:
        assert is_inside(positions[box.key], page_rectangle)
    for siblings in [drawing.boxes, *(shape.children for shape in list_everything(drawing))]:
        for first, other in combinations(siblings, 2):
            assert is_apart(positions[first.key], positions[other.key])
    for shape in list_everything(drawing):
        for child in shape.children:
            assert is_inside(positions[child.key], positions[shape.key])


def list_everything(drawing: Drawing) -> list[Shape]:
    return [*drawing.list_boxes(), *drawing.list_shapes()]


@pytest.mark.slow
@settings(max_examples=40)
@given(draw_parts(), names, st.integers(0, 20))
def test_any_stacks(parts: list[StackPart], title: str, most: int) -> None:
    drawing = build_multi_stack_drawing(title, parts, most)
    compare_formats(drawing)
    check_positions(drawing)
    keys = [shape.key for shape in list_everything(drawing)]
    assert len(keys) == len(set(keys)), "whatever stacks have alike"
    counted = sum(len(item.nodes) for item in drawing.list_shapes())
    assert counted == sum(len(part.nodes) for part in parts), "each once"
    assert [box.box for box in drawing.list_stacks()] == [part.name for part in parts]
    stack_names = {part.name for part in parts}
    between = {(a.source.box, a.target.box) for a in drawing.arrows if a.source.is_stack}
    assert between == {
        (part.name, need)
        for part in parts
        for need in part.dependencies
        if need in stack_names - {part.name}
    }


def build_volumes(count: int) -> list[GraphNode]:
    return build_state_nodes(
        [create_entry("together:SharedVolume", f"data-{at}") for at in range(count)]
    )


def test_stacks_hold_platforms_and_these_their_things() -> None:
    parts = [
        StackPart("network/prod", build_volumes(1)),
        StackPart("clusters/prod", build_volumes(1), ["network/prod"]),
        StackPart("apps/prod", (), ["clusters/prod", "network/prod"], "not created yet"),
    ]
    drawing = build_multi_stack_drawing("all", parts)
    drawn = compare_formats(drawing)
    by_label = {label: key for key, label in drawn.labels.items()}
    assert set(by_label) >= {"network/prod", "clusters/prod", "apps/prod\nnot created yet"}
    network, clusters = by_label["network/prod"], by_label["clusters/prod"]
    apps = by_label["apps/prod\nnot created yet"]
    assert drawn.arrows == {(clusters, network), (apps, clusters), (apps, network)}
    volume = next(k for k, v in drawn.labels.items() if v.startswith("data-0"))
    assert drawn.labels[drawn.inside[volume]] == "Together AI"
    assert drawn.inside[drawn.inside[volume]] == network


def test_a_stack_stands_to_the_left_of_what_it_needs() -> None:
    parts = [
        StackPart("a/prod", build_volumes(2)),
        StackPart("b/prod", build_volumes(1), ["a/prod"]),
    ]
    positions, width, _ = compute_positions(build_multi_stack_drawing("all", parts))
    assert positions["s2"].x == 0
    assert positions["s2"].x + positions["s2"].width < positions["s1"].x
    assert positions["s1"].x + positions["s1"].width == width


def test_the_page_says_it_in_words() -> None:
    parts = [
        StackPart("a/prod", build_volumes(1)),
        StackPart("b/prod", (), ["a/prod"], "not created yet"),
    ]
    page_html = render_page(build_multi_stack_drawing("all", parts))
    assert "1 resource in 2 stacks" in page_html
    rows = [line for line in page_html.splitlines() if line.startswith("<tr class")]
    assert rows[0].startswith('<tr class=""><th scope="row">a/prod</th><td>stack</td>')
    assert "<td>not created yet</td><td></td><td>a/prod</td>" in rows[1]
    assert "<td>a/prod</td><td></td>" in rows[2], "the volume is inside its stack"
    assert "in 1 stack<" in render_page(build_multi_stack_drawing("all", parts[:1]))


def test_like_resources_are_one_shape_where_all_stacks_have_many() -> None:
    parts = [StackPart(f"p{at}/prod", build_volumes(20)) for at in range(30)]
    drawing = build_multi_stack_drawing("all", parts)
    assert len(drawing.list_shapes()) == 30
    assert all(get_label_lines(item)[0].startswith("20 ") for item in drawing.list_shapes())
    assert len(build_multi_stack_drawing("all", parts[:3]).list_shapes()) == 60, (
        "60 are as many as may be"
    )
    assert len(build_multi_stack_drawing("all", parts[:3], 59).list_shapes()) == 3
    assert len(build_multi_stack_drawing("all", parts, 600).list_shapes()) == 600


def test_one_stack_alone_is_drawn_as_ever() -> None:
    alone = build_drawing("all", build_volumes(3))
    (box,) = build_multi_stack_drawing("all", [StackPart("a/prod", build_volumes(3))]).boxes
    assert [get_label_lines(shape) for shape in box.children] == [
        get_label_lines(shape) for shape in alone.boxes
    ]
    assert alone.list_stacks() == []
