"""Drawings of any stacks, read back in every format."""

import re
from xml.etree import ElementTree as ET

from hypothesis import strategies as st
from support.readers.graph_text import Drawn, read_dot, read_mermaid
from support.strategies.plan_strategies import ODD_TEXTS

from gpuform.schemas.plan import PlanAction
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.graph.arranging import (
    MAX_SHAPES,
    Drawing,
    GraphNode,
    build_drawing,
    build_state_nodes,
)
from gpuform.stacks.graph.drawing import get_label_lines, render_dot, render_mermaid, render_page

STACK = "urn:pulumi:dev::demo::pulumi:pulumi:Stack::demo-dev"


def create_entry(kind: str, name: str, *needs: ResourceState, **values: object) -> ResourceState:
    type_ = f"pulumi-python:dynamic/gpuform.{kind}"
    return ResourceState(
        f"urn:pulumi:dev::demo::{type_}::{name}",
        custom=True,
        type=type_,
        parent=STACK,
        inputs=dict(values),
        outputs={"ready": True, **values},
        dependencies=[need.urn for need in needs],
    )


def build_state_drawing(*entries: ResourceState, most: int = MAX_SHAPES) -> Drawing:
    return build_drawing("demo/dev", build_state_nodes(entries), most)


def compare_formats(drawing: Drawing) -> Drawn:
    """Compare the drawing in all formats, and return the parsed drawing."""
    drawn = read_dot(render_dot(drawing))
    other = read_mermaid(render_mermaid(drawing))
    assert other.arrows == drawn.arrows
    assert other.inside == drawn.inside
    likes = str.maketrans({"\N{FULLWIDTH DOLLAR SIGN}": "$"})
    assert {k: v.translate(likes) for k, v in other.labels.items()} == {
        k: v.replace("\N{SET MINUS}", "\\").replace("\N{RATIO}", ":").translate(likes)
        for k, v in drawn.labels.items()
    }
    shapes = [*drawing.list_boxes(), *drawing.list_shapes()]
    assert drawn.labels == {shape.key: "\n".join(get_label_lines(shape)) for shape in shapes}
    _check_page(render_page(drawing), len(shapes), len(drawing.arrows))
    return drawn


def _check_page(text: str, shapes: int, arrows: int) -> None:
    assert "<script" not in text.lower()
    assert not re.search(r"(src|href)=(?!\"?#)", re.sub(r">[^<]*<", "><", text))
    match = re.search(r"<svg.*</svg>", text, re.DOTALL)
    if match is None:
        assert shapes == 0
        return
    svg = ET.fromstring(match[0])
    assert len(svg.findall("g")) == shapes
    assert len(svg.findall("path")) == arrows


names = (
    st.sampled_from(ODD_TEXTS) | st.text(max_size=20) | st.text('"\\&#;`<>{}[]|%\n$:-', max_size=9)
)


@st.composite
def draw_nodes(draw: st.DrawFn) -> list[GraphNode]:
    """Draw nodes with any parents and dependencies."""
    count = draw(st.integers(0, 12))
    keys = [f"urn:pulumi:dev::demo::t::{at}" for at in range(count)]
    others = st.sampled_from(["", "gone", *keys])
    return [
        GraphNode(
            key=key,
            type=draw(st.sampled_from(["together:Cluster", "scp:NodePool", "x:y:Z"]) | names),
            name=draw(names),
            facts=tuple(draw(st.lists(names, max_size=2))),
            gpus=draw(st.integers(-100, 100)),
            parent=draw(others),
            dependencies=frozenset(draw(st.lists(others, max_size=3))),
            action=draw(st.none() | st.sampled_from(PlanAction)),
        )
        for key in keys
    ]
