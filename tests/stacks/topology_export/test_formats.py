"""Test a topology in every format.

GPUFORM_UPDATE_GOLDEN=1 writes the expected texts again.
"""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.definitions.schemas import find_schema_problems

from gpuform.stacks.topology_export.formats import FORMATS, render_inventory
from gpuform.stacks.topology_export.manifests import (
    build_object_name,
    build_owner_label,
    describe_missing_kueue_labels,
    is_label_value,
    list_kueue_levels,
)
from gpuform.stacks.topology_export.model import Node, NoTopology, StackTopology, add_labels
from gpuform.stacks.topology_export.slurm_topology import (
    compute_block_sizes,
    describe_tree_gaps,
    list_blocks,
)

GOLDEN = Path(__file__).parent / "golden"
POOL, OTHER, CLUSTER = "urn:pool", "urn:other", "urn:cluster"
NAMES = {POOL: "pool", OTHER: "other", CLUSTER: "train"}


def build_topology(*nodes: Node, stack: str = "prod") -> StackTopology:
    return StackTopology("gpus", stack, nodes, NAMES)


def create_scp_node(number: int, fabric: str = "train-a", resource: str = POOL) -> Node:
    return Node(
        name=f"train-{number:03d}",
        resource=resource,
        platform="scp",
        region="kr-west1",
        pool="POOL001-krw1a",
        fabric_id=f"id-{fabric}",
        fabric=fabric,
        address=f"192.168.0.{number}",
    )


def create_rack_node(number: int) -> Node:
    """Return a node of a GB200 rack of four, two racks under one leaf, with labels."""
    node = Node(
        name=f"gb-{number}",
        slurm=f"slinky-{number}",
        resource=CLUSTER,
        platform="together",
        region="us-central-8",
    )
    labels = {
        "kubernetes.io/hostname": node.name,
        "topology.kubernetes.io/zone": "us-central-8a",
        "nvidia.com/gpu.clique": f"8f1c-{number // 4}.1",
        "fabric.topograph.run/tier-0": f"leaf{number // 8}",
        "fabric.topograph.run/tier-1": "spine1",
        "fabric.topograph.run/tier-x": "no number",
    }
    return add_labels(node, labels)


POOLS = build_topology(
    *(create_scp_node(number) for number in (1, 2, 3)),
    *(create_scp_node(number, "train-b", OTHER) for number in (7, 8)),
)
ZONES = build_topology(
    *(replace(create_scp_node(number), zone="kr-west1-a") for number in (1, 2)),
    *(
        replace(create_scp_node(number, "train-b", OTHER), zone="kr-west1-b", pool="POOL002-krw1b")
        for number in (7, 8)
    ),
)
RACKS = build_topology(*(create_rack_node(number) for number in range(16)))
LONE = build_topology(
    Node("train-worker-0", CLUSTER, "together"), Node("train-worker-1", CLUSTER, "together")
)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("name", "topology"), [("pools", POOLS), ("zones", ZONES), ("racks", RACKS), ("lone", LONE)]
)
def test_a_text_is_as_expected(form: str, name: str, topology: StackTopology) -> None:
    if form == "slurm-block" and topology is not RACKS:
        with pytest.raises(NoTopology, match="no NVLink domain across several nodes found"):
            FORMATS[form].render_text(topology, "slurm")
        return
    exported = "".join(f"# note: {gap}\n" for gap in FORMATS[form].describe_gaps(topology))
    exported += FORMATS[form].render_text(topology, "slurm")
    path = GOLDEN / f"{form}.{name}.txt"
    if os.environ.get("GPUFORM_UPDATE_GOLDEN") == "1":
        path.write_text(exported, encoding="utf-8")
    assert exported == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("form", sorted({*FORMATS} - {"inventory"}))
def test_a_stack_without_nodes_has_no_topology(form: str) -> None:
    with pytest.raises(NoTopology, match="has no nodes yet"):
        FORMATS[form].render_text(build_topology(), "slurm")


def test_an_nvlink_domain_of_one_server_is_no_block() -> None:
    alone = build_topology(
        *(add_labels(create_scp_node(n), {"nvidia.com/gpu.clique": f"c.{n}"}) for n in (1, 2))
    )
    assert list_blocks(alone) == []
    with pytest.raises(NoTopology, match="no NVLink domain across several"):
        FORMATS["slurm-block"].render_text(alone, "slurm")


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [([8], [8]), ([8, 8], [8, 16]), ([8, 9, 9], [8, 16]), ([2] * 8, [2, 4, 8, 16])],
)
def test_block_sizes_double_from_the_smallest_block(sizes: list[int], expected: list[int]) -> None:
    nodes = [
        replace(Node(f"n{block}-{number}", POOL), domain=f"d{block}")
        for block, size in enumerate(sizes)
        for number in range(size)
    ]
    assert compute_block_sizes(list_blocks(build_topology(*nodes))) == expected


def test_nodes_without_a_switch_beside_others_get_a_leaf_of_their_own() -> None:
    labelled_node = add_labels(create_scp_node(1), {"network.topology.nvidia.com/leaf": "leaf1"})
    rendered = FORMATS["slurm-tree"].render_text(
        build_topology(labelled_node, create_scp_node(2)), "slurm"
    )
    assert rendered.splitlines()[1:] == [
        "SwitchName=train-a Switches=leaf1,train-a-rest",
        "SwitchName=train-a-rest Nodes=train-002",
        "SwitchName=leaf1 Nodes=train-001",
    ]


def test_that_leaf_takes_the_name_of_no_other_switch() -> None:
    named = {"network.topology.nvidia.com/leaf": "train-a-rest"}
    rendered = FORMATS["slurm-tree"].render_text(
        build_topology(add_labels(create_scp_node(1), named), create_scp_node(2)), "slurm"
    )
    names = [line.split()[0] for line in rendered.splitlines()[1:]]
    assert len({*names}) == len(names) == 3


def test_labels_that_make_no_tree_are_refused() -> None:
    def place_under(number: int, spine: str) -> Node:
        labels = {"fabric.topograph.run/tier-0": "leaf", "fabric.topograph.run/tier-1": spine}
        return add_labels(Node(f"n{number}", CLUSTER), labels)

    with pytest.raises(NoTopology, match="tier 0 leaf is under tier 1 a and tier 1 b"):
        FORMATS["slurm-tree"].render_text(
            build_topology(place_under(1, "a"), place_under(2, "b")), "slurm"
        )


def test_a_switch_that_is_called_like_a_fabric_is_another_one() -> None:
    both = build_topology(
        *(
            add_labels(create_scp_node(n), {"fabric.topograph.run/tier-0": "train-a"})
            for n in (1, 2)
        )
    )
    first, second = FORMATS["slurm-tree"].render_text(both, "slurm").splitlines()[1:]
    assert first.split()[1].removeprefix("Switches=") == second.split()[0].split("=")[1]
    assert first.split()[0] != second.split()[0]


def test_what_is_above_no_switch_is_told() -> None:
    assert "the switches above train-a, train-b are unknown" in " ".join(describe_tree_gaps(POOLS))
    assert list(describe_tree_gaps(build_topology(create_scp_node(1)))) == []


@pytest.mark.parametrize("name", ["a,b", "n[1-2]", "n 1", "n\nSwitchName=x"])
@pytest.mark.parametrize("form", ["slurm-tree", "topograph", "slinky"])
def test_a_name_that_would_say_something_else_is_refused(form: str, name: str) -> None:
    with pytest.raises(NoTopology, match=r"is not a valid name"):
        FORMATS[form].render_text(build_topology(replace(create_scp_node(1), name=name)), "slurm")


@pytest.mark.parametrize("field", ["fabric", "fabric_id", "pool", "region"])
def test_what_is_no_value_of_a_label_is_left_out_and_told(field: str) -> None:
    odd = build_topology(replace(create_scp_node(1), **{field: "two words"}))
    rendered = FORMATS["kubernetes-labels"].render_text(odd, "slurm")
    assert "two words" not in rendered
    assert "'two words' is not a valid label" in " ".join(
        FORMATS["kubernetes-labels"].describe_gaps(odd)
    )


@pytest.mark.parametrize("namespace", ["", "../x y", "Slurm", "a.b", "a\n"])
def test_what_is_no_namespace_is_refused(namespace: str) -> None:
    with pytest.raises(NoTopology, match="not a valid name of a Kubernetes namespace"):
        FORMATS["slinky"].render_text(POOLS, namespace)


def test_two_nodes_of_one_name_are_refused() -> None:
    twice = build_topology(create_scp_node(1), create_scp_node(1, "train-b", OTHER))
    for form in ("slurm-tree", "topograph", "inventory"):
        with pytest.raises(NoTopology, match="two nodes have the name train-001"):
            FORMATS[form].render_text(twice, "slurm")


def test_only_labels_that_all_nodes_have_are_levels_of_kueue() -> None:
    assert list_kueue_levels(RACKS) == [
        "fabric.topograph.run/tier-1",
        "fabric.topograph.run/tier-0",
        "nvidia.com/gpu.clique",
        "kubernetes.io/hostname",
    ]
    bare = add_labels(Node("gb-99", CLUSTER), {"kubernetes.io/hostname": "gb-99"})
    assert list_kueue_levels(build_topology(*RACKS.nodes, bare)) == ["kubernetes.io/hostname"]
    assert "17 nodes do not have the labels" in " ".join(
        describe_missing_kueue_labels(build_topology(*RACKS.nodes, bare))
    )


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
@pytest.mark.parametrize("topology", [LONE, POOLS, RACKS], ids=["lone", "pools", "racks"])
def test_kueue_objects_are_valid_by_the_definitions_of_kueue(
    topology: StackTopology, version: str
) -> None:
    rendered = FORMATS["kueue"].render_text(topology, "slurm")
    for document in yaml.safe_load_all(rendered.replace("/v1beta2", f"/{version}")):
        assert document["apiVersion"] == f"kueue.x-k8s.io/{version}"
        assert find_schema_problems(document) == []


def test_ansible_evaluates_nothing_that_a_platform_tells() -> None:
    odd = build_topology(
        replace(create_scp_node(1), fabric="{{ lookup('pipe', 'id') }}", fabric_id="{% x %}")
    )
    rendered = render_inventory(odd)
    assert "{{" not in rendered
    assert "{%" not in rendered


def test_groups_that_would_be_written_alike_stay_apart() -> None:
    both = build_topology(create_scp_node(1, "a-b"), create_scp_node(2, "a.b"))
    groups: dict[str, Any] = yaml.safe_load(render_inventory(both))["all"]["children"]
    hosts_by_group = {
        name: sorted(group["hosts"]) for name, group in groups.items() if "fabric" in name
    }
    assert sorted(hosts_by_group.values()) == [["train-001"], ["train-002"]]


@given(st.text(min_size=1, max_size=120), st.text(min_size=1, max_size=120))
def test_every_stack_has_a_mark_and_a_name_that_kubernetes_takes(project: str, stack: str) -> None:
    topology = StackTopology(project, stack, (), {})
    assert is_label_value(build_owner_label(topology))
    name = build_object_name(topology)
    assert name == name.lower()
    assert is_label_value(name)
    assert "." not in name


def test_a_zone_is_no_level_of_kueue_while_a_node_has_none() -> None:
    first, *others = ZONES.nodes
    assert "gpuform.dev/zone" in list_kueue_levels(ZONES)
    mixed = build_topology(replace(first, zone=""), *others)
    assert "gpuform.dev/zone" not in list_kueue_levels(mixed)


def test_kubernetes_own_label_of_a_zone_is_not_repeated() -> None:
    labelled = add_labels(create_scp_node(1), {"topology.kubernetes.io/zone": "kr-west1-a"})
    assert labelled.zone == "kr-west1-a"
    assert "gpuform.dev/zone" not in FORMATS["kubernetes-labels"].render_text(
        build_topology(labelled), ""
    )
