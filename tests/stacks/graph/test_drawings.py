"""Drawings of any stack are valid in every format, deterministic, and show no secret."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.readers.graph_comparison import (
    STACK,
    build_state_drawing,
    compare_formats,
    create_entry,
    draw_nodes,
    names,
)
from support.readers.graph_text import Drawn
from support.strategies.plan_strategies import plans

from gpuform.providers.values import Secret
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.graph.arranging import MAX_SHAPES, GraphNode, build_drawing, build_plan_nodes
from gpuform.stacks.graph.drawing import is_within_limits, render_dot, render_mermaid, render_page


@pytest.mark.slow
@settings(max_examples=40)
@given(draw_nodes(), names, st.integers(0, 15), st.randoms(use_true_random=False))
def test_any_drawing(things: list[GraphNode], title: str, most: int, chance: random.Random) -> None:
    drawing = build_drawing(title, things, most)
    compare_formats(drawing)
    assert sum(len(item.nodes) for item in drawing.list_shapes()) == len(things), "each once"
    mixed = list(things)
    chance.shuffle(mixed)
    again = build_drawing(title, mixed, most)
    assert [render_dot(again), render_mermaid(again), render_page(again)] == [
        render_dot(drawing),
        render_mermaid(drawing),
        render_page(drawing),
    ]


@pytest.mark.slow
@settings(max_examples=40)
@given(plans())
def test_any_plan(plan: Plan) -> None:
    compare_formats(build_drawing(plan.project, build_plan_nodes(plan)))


def test_clusters_hold_their_nodes_and_volumes_stand_beside() -> None:
    volume = create_entry("together:SharedVolume", "data")
    train = create_entry("together:Cluster", "train", volume, region="us-central-8", num_gpus=16)
    west = create_entry("aios:Cluster", "west")
    node = create_entry("aios:GpuNode", "node-1", west)
    drawn = compare_formats(build_state_drawing(train, volume, west, node))
    by_name = {label.split("\n")[0]: key for key, label in drawn.labels.items()}
    assert drawn.inside[by_name["node-1"]] == by_name["west"]
    assert drawn.inside[by_name["data"]] == drawn.inside[by_name["train"]] == by_name["Together AI"]
    assert drawn.arrows == {(by_name["train"], by_name["data"])}
    assert drawn.labels[by_name["train"]].endswith("us-central-8 \N{MIDDLE DOT} 16 GPUs")


def list_fabric_labels(drawn: Drawn) -> list[str]:
    return [label for label in drawn.labels.values() if "scp:Fabric" in label]


def test_pools_of_one_fabric_share_it_declared_or_not() -> None:
    pools = [
        create_entry("scp:NodePool", f"pool-{n}", cluster_fabric_name="train-a") for n in (1, 2)
    ]
    alone = compare_formats(build_state_drawing(*pools))
    assert [label for label in alone.labels.values() if "scp:Fabric" in label] == [
        "train-a\nscp:Fabric"
    ]
    assert len(alone.arrows) == 2
    fabric = create_entry("scp:Fabric", "net", cluster_fabric_name="train-a")
    declared = compare_formats(build_state_drawing(*pools, fabric))
    assert [label for label in declared.labels.values() if "scp:Fabric" in label] == [
        "net\nscp:Fabric"
    ]
    assert len(declared.arrows) == 2


def test_components_hold_their_children() -> None:
    part = ResourceState("urn:pulumi:dev::demo::my:Part::p", custom=False, type="my:Part")
    inner = create_entry("together:Cluster", "train")
    inner.parent = part.urn
    drawn = compare_formats(build_state_drawing(part, inner))
    assert drawn.inside["n1"] == "n2" or drawn.inside["n2"] == "n1"


def test_old_objects_and_the_engines_own_entries_are_not_drawn() -> None:
    old = create_entry("together:Cluster", "train")
    old.delete = True
    root = ResourceState(STACK, custom=False, type="pulumi:pulumi:Stack")
    assert build_state_drawing(old, root).list_shapes() == []


@pytest.mark.slow
def test_a_large_stack_is_a_few_shapes_with_counts() -> None:
    volumes = [create_entry("together:SharedVolume", f"data-{n}") for n in range(2000)]
    clusters = [
        create_entry("together:Cluster", f"train-{n}", volume, num_gpus=8)
        for n, volume in enumerate(volumes)
    ]
    records = [create_entry("aios:Cluster", f"site-{n}") for n in range(3)]
    nodes = [create_entry("aios:GpuNode", f"node-{n}", records[n % 3]) for n in range(6000)]
    drawing = build_state_drawing(*volumes, *clusters, *records, *nodes)
    drawn = compare_formats(drawing)
    labels = sorted(drawn.labels.values())
    assert (
        "2,000 \N{MULTIPLICATION SIGN} together:Cluster\ntrain-0 ... train-1999\n16,000 GPUs"
        in labels
    )
    assert (
        sum(label.startswith("2,000 \N{MULTIPLICATION SIGN} aios:GpuNode") for label in labels) == 3
    )
    assert "site-0\naios:Cluster" in labels, "a few are told apart"
    assert len(drawing.list_shapes()) <= MAX_SHAPES
    assert is_within_limits(render_mermaid(drawing), drawing)
    assert "\N{MULTIPLICATION SIGN}2,000" in render_dot(drawing)


def test_parts_of_one_cluster_go_first() -> None:
    records = [create_entry("aios:Cluster", f"site-{n}") for n in range(20)]
    nodes = [create_entry("aios:GpuNode", f"node-{n}", records[n % 20]) for n in range(100)]
    labels = compare_formats(build_state_drawing(*records, *nodes)).labels.values()
    assert sum(label.startswith("5 \N{MULTIPLICATION SIGN} aios:GpuNode") for label in labels) == 20


@pytest.mark.slow
def test_components_of_any_depth() -> None:
    parts = [
        ResourceState(f"urn:pulumi:dev::demo::my:Part::{n}", custom=False, type="my:Part")
        for n in range(2000)
    ]
    for part, outer in zip(parts[1:], parts, strict=False):
        part.parent = outer.urn
    drawing = build_state_drawing(*parts, most=5000)
    assert len(drawing.list_shapes()) == 2000
    assert render_dot(drawing).count("subgraph") < 2010
    assert render_page(drawing)


CREATED = {"action": PlanAction.CREATE, "reason": PlanReason.NEW}


def test_a_plan_is_drawn_in_the_colours_and_symbols_of_a_review() -> None:
    remaining, gone = (
        create_entry("together:SharedVolume", "data"),
        create_entry("together:Cluster", "old", num_gpus=8),
    )
    new = create_entry("together:Cluster", "new", remaining)
    changes = [
        ResourceChange(
            urn=new.urn, type=new.type, name="new", dependencies=(remaining.urn,), gpus_added=16,
            changes=(PropertyChange(path="region", action="add", after="us-central-8"),), **CREATED
        ),
        ResourceChange(
            urn=remaining.urn, type=remaining.type, name="data", action=PlanAction.SAME,
            reason=PlanReason.UNCHANGED,
        ),
        ResourceChange(
            urn=gone.urn, type=gone.type, name="old", action=PlanAction.DELETE,
            reason=PlanReason.NOT_IN_PROGRAM, gpus_removed=8,
        ),
    ]  # fmt: skip
    drawing = build_drawing(
        "demo/dev", build_plan_nodes(Plan.from_changes("demo", "dev", changes), [remaining, gone])
    )
    drawn = compare_formats(drawing)
    by_name = {label.split("\n")[0]: key for key, label in drawn.labels.items()}
    assert set(by_name) == {"Together AI", "+ new", "data", "- old"}
    assert drawn.arrows == {(by_name["+ new"], by_name["data"])}
    assert "us-central-8 \N{MIDDLE DOT} +16 GPUs" in drawn.labels[by_name["+ new"]]
    assert "8 GPUs" in drawn.labels[by_name["- old"]], "what goes, as it was"
    assert render_dot(drawing).count('color="#116329"') == 2
    assert f"class {by_name['- old']} remove" in render_mermaid(drawing)
    assert '<span class="remove">- delete</span>' in render_page(drawing)


@pytest.mark.parametrize("write", [render_dot, render_mermaid, render_page])
def test_no_secret_is_shown(write: object) -> None:
    values = {name: Secret("hunter2") for name in ("region", "gpu_type", "cluster_fabric_name")}
    cluster = create_entry("together:Cluster", "train", num_gpus=Secret(16), **values)
    pool = create_entry("scp:NodePool", "pool", **values)
    rendered = write(build_state_drawing(cluster, pool))  # type: ignore[operator]
    assert "hunter2" not in rendered
    assert "[secret]" not in rendered
