"""Render Slurm's `topology.conf`, and Slinky's `topology.yaml` with its node annotations.

`formats` calls the `render_` and `build_` functions, and those that describe gaps.

From `man topology.conf` (Slurm 23.11 and newer): BlockName with Nodes, and BlockSizes; SwitchName
with Nodes or with Switches, in short lists.

A block is an NVLink domain over several nodes, such as a rack of GB200. A server whose NVLink ends
inside is not a block.

From `man slurm.conf`, 'NodeName': a range fills its numbers up to the width of the first one. A
rendered list names exactly the nodes that it was built from.

Switches are those in the labels of a cluster's nodes. A fabric is above its switches, or in their
place if none is known. Nodes without switches and fabric are under one switch for their cluster.

From the slurm-operator's page 'Topology': a node's annotation `topology.slinky.slurm.net/spec`
names the switch and the block of the Slurm node that runs there. Slurm's nodes are pods, so the
file names only switches and blocks. `topology.yaml` is of Slurm 25.05 and newer.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.topology_export.manifests import (
    Manifest,
    NodeMetadata,
    OwnedObject,
    build_object_name,
    require_namespace_name,
    require_node_name,
)
from gpuform.stacks.topology_export.model import Node, NoTopology, StackTopology


@dataclass(frozen=True, slots=True)
class SlurmBlock:
    """The nodes of one NVLink domain."""

    name: str
    nodes: tuple[Node, ...]


def list_blocks(topology: StackTopology) -> list[SlurmBlock]:
    """Return every NVLink domain with more than one node, sorted by name."""
    nodes_by_domain: dict[str, list[Node]] = {}
    for node in topology.nodes:
        if node.domain:
            nodes_by_domain.setdefault(node.domain, []).append(node)
    return [
        SlurmBlock(name, tuple(nodes))
        for name, nodes in sorted(nodes_by_domain.items())
        if len(nodes) > 1
    ]


def require_blocks(topology: StackTopology) -> list[SlurmBlock]:
    """Return the blocks of the topology. Raise NoTopology if there is none."""
    blocks = list_blocks(topology)
    if not blocks:
        refresh_advice = ""
        if any(node.labels is None for node in topology.nodes):
            refresh_advice = "run the command with --refresh, which reads the labels of the nodes. "
        raise NoTopology(
            f"no NVLink domain across several nodes found in {topology.title}",
            hint=f"{refresh_advice}NVIDIA's GPU operator labels nodes that share an NVLink "
            "domain with nvidia.com/gpu.clique. For servers with NVLink only inside each "
            "server, use slurm-tree",
        )
    return blocks


def compute_block_sizes(blocks: Sequence[SlurmBlock]) -> list[int]:
    """Return the base size, equal to the smallest block's, and larger sizes for groups of blocks.

    Each is the base times a power of two, up to as many blocks as there are. Slurm plans by the
    first size, and lets jobs ask for groups of the others (`man topology.conf`, 'BlockSizes').
    """
    base = min(len(block.nodes) for block in blocks)
    return [base << power for power in range(len(blocks).bit_length())]


_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9_])?")
_NUMBERED: Final = re.compile(r"(.*?[^0-9])([0-9]{1,9})")
"""A name that ends in a number. Longer numbers stay as text: Slurm reads them as machine words."""
_RESERVED: Final = frozenset({"default", "all"})


def is_slurm_name(name: str) -> bool:
    """Return True if Slurm reads `name` as the name of one node, switch or block.

    DEFAULT and ALL have another meaning in Slurm; commas, brackets, `=`, `#` and blanks separate.
    """
    return _NAME.fullmatch(name) is not None and name.lower() not in _RESERVED


def require_slurm_name(name: str, label: str) -> str:
    """Return `name`, or raise NoTopology for an invalid name of a node, switch or block in Slurm.

    `label` says what it names.
    """
    if not is_slurm_name(name):
        raise NoTopology(
            f"{label} {name!r} is not a valid name in Slurm",
            hint="use at most 64 letters, digits, '-', '_' and '.', and neither DEFAULT nor ALL: "
            "rename it on its platform, or select the other clusters",
        )
    return name


def compress_names(names: Iterable[str]) -> str:
    """Return the names in Slurm's short form, each once, sorted: `gpu[01-03,07],login`."""
    other_names: list[str] = []
    numbered: dict[str, set[tuple[int, int]]] = {}
    for name in sorted(set(names)):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            other_names.append(name)
        else:
            # With the width: node7 and node07 are different names.
            numbers = numbered.setdefault(match[1], set())
            numbers.add((len(match[2]), int(match[2])))
    ranges = [_format_ranges(head, sorted(numbers)) for head, numbers in numbered.items()]
    return ",".join(sorted([*other_names, *ranges]))


def _format_ranges(head: str, numbers: Sequence[tuple[int, int]]) -> str:
    """Return names of one head in Slurm's short form: `gpu[01-03,07]`, or `gpu01` for one name.

    `numbers` are sorted pairs of width and number.
    """
    ranges = list(_iterate_ranges(numbers))
    is_one = len(numbers) == 1
    return f"{head}{ranges[0]}" if is_one else f"{head}[{','.join(ranges)}]"


def _iterate_ranges(numbers: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield the ranges in a sorted list of widths and numbers, such as `08-11`."""
    begin = last = numbers[0]
    for number in [*numbers[1:], None]:
        next_digits = f"{last[1] + 1:0{begin[0]}d}"
        # A range has the width of its first number: 9 and 10 are none, 09 and 10 are one.
        if number == (len(next_digits), last[1] + 1):
            last = number
            continue
        first = f"{begin[1]:0{begin[0]}d}"
        yield first if begin == last else f"{first}-{last[1]:0{begin[0]}d}"
        if number is not None:
            begin = last = number


REST_SUFFIX: Final = "-rest"
"""The end of the name of a switch for nodes of a fabric whose own switch is not known."""

_VertexKey = tuple[str, str]
"""The kind of a vertex in the tree and its id.

The kind is `fabric`, `cluster`, or a tier's number.
"""


@dataclass(frozen=True, slots=True)
class SlurmSwitch:
    """One switch of a tree, above other `switches` or above `nodes`."""

    name: str
    switches: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()


@dataclass(slots=True)
class _Vertex:
    parent: _VertexKey | None
    children: set[_VertexKey] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)


def build_switches(topology: StackTopology) -> list[SlurmSwitch]:
    """Return every switch of the tree, parents first.

    A fabric is a switch, too, and so is a cluster for nodes without switches and fabric. Raises
    NoTopology if the labels of the nodes make no tree.
    """
    fabrics = {node.fabric_id or node.fabric: node.fabric for node in topology.nodes}
    tree: dict[_VertexKey, _Vertex] = {}
    for node in topology.nodes:
        _insert_node(tree, _list_vertices(node), node)
    display_names = _make_unique(
        {key: _get_display_name(key, fabrics, topology.names) for key in tree}
    )
    switches: list[SlurmSwitch] = []
    roots = [key for key, vertex in tree.items() if vertex.parent is None]
    pending = sorted(roots, key=lambda key: display_names[key])
    # Breadth first, so that the top of the tree comes first in the file.
    while pending:
        key = pending.pop(0)
        children = sorted(tree[key].children, key=lambda child: display_names[child])
        names = [display_names[child] for child in children]
        switches += _build_switch(
            display_names[key], names, tree[key].nodes, _build_rest_name(key, display_names)
        )
        pending += children
    return switches


def list_top_switches(switches: Iterable[SlurmSwitch]) -> list[str]:
    """Return the names of the switches without a parent."""
    all_switches = list(switches)
    lower_names = {name for switch in all_switches for name in switch.switches}
    return [switch.name for switch in all_switches if switch.name not in lower_names]


def map_nodes_to_switches(switches: Iterable[SlurmSwitch]) -> dict[Node, str]:
    """Return the name of the switch directly above each node."""
    return {node: switch.name for switch in switches for node in switch.nodes}


def _list_vertices(node: Node) -> list[_VertexKey]:
    """Return the vertices from the top of the tree to the switch of a node."""
    fabric = node.fabric_id or node.fabric
    tiers = [(f"tier {number}", name) for number, name in enumerate(node.tiers)]
    vertices = [*([("fabric", fabric)] if fabric else []), *reversed(tiers)]
    # Slurm needs every node under a switch.
    return vertices or [("cluster", node.resource)]


def _insert_node(
    tree: dict[_VertexKey, _Vertex], vertices: Sequence[_VertexKey], node: Node
) -> None:
    """Add a node to the tree, with all vertices above.

    Raises NoTopology if a vertex is under another parent already.
    """
    parent: _VertexKey | None = None
    for key in vertices:
        vertex = tree.setdefault(key, _Vertex(parent))
        if vertex.parent != parent:
            both_parents = " and ".join(
                "nothing" if parent_key is None else f"{parent_key[0]} {parent_key[1]}"
                for parent_key in (vertex.parent, parent)
            )
            raise NoTopology(
                f"the labels of the nodes do not form a tree: {key[0]} {key[1]} is under "
                f"{both_parents} (node {node.name})",
                hint="look at the labels of the nodes (`kubectl get nodes --show-labels`), and "
                "write the labels again with the tool that wrote them, such as Topograph",
            )
        if parent is not None:
            tree[parent].children.add(key)
        parent = key
    tree[vertices[-1]].nodes.append(node)


def _get_display_name(
    key: _VertexKey, fabrics: Mapping[str, str], clusters: Mapping[str, str]
) -> str:
    """Return the name of a fabric or cluster in the tree, or the vertex's id if it has no name."""
    kind, id_ = key
    return {"fabric": fabrics, "cluster": clusters}.get(kind, {}).get(id_) or id_


def _make_unique(names: Mapping[_VertexKey, str]) -> dict[_VertexKey, str]:
    """Return unique names: equal ones get a digest of the key, the same in every run."""
    counts = Counter(names.values())
    return {
        key: name if counts[name] == 1 else f"{name}-{_compute_suffix(key)}"
        for key, name in names.items()
    }


def _compute_suffix(key: _VertexKey) -> str:
    """Return 8 hexadecimal digits of the SHA-256 of a vertex's kind and id."""
    return hashlib.sha256("\0".join(key).encode()).hexdigest()[:8]


def _build_rest_name(key: _VertexKey, display_names: Mapping[_VertexKey, str]) -> str:
    """Return the name of the switch for nodes directly under a vertex with other switches."""
    name = f"{display_names[key]}{REST_SUFFIX}"
    return f"{name}-{_compute_suffix(key)}" if name in display_names.values() else name


def _build_switch(
    name: str, children: Sequence[str], nodes: Sequence[Node], rest_name: str
) -> list[SlurmSwitch]:
    """Return the switch of a vertex, and a second one for nodes beside other switches.

    Slurm's switches have either switches or nodes below them.
    """
    if not children:
        return [SlurmSwitch(name, nodes=tuple(nodes))]
    if not nodes:
        return [SlurmSwitch(name, switches=tuple(children))]
    rest = SlurmSwitch(rest_name, nodes=tuple(nodes))
    return [SlurmSwitch(name, switches=(*children, rest.name)), rest]


def render_slurm_tree(topology: StackTopology) -> str:
    """Render `topology.conf` for the plugin topology/tree.

    Raises NoTopology without nodes, for names that Slurm cannot read, for two nodes of one name in
    Slurm, and for labels that make no tree.
    """
    reject_duplicate_names(topology)
    lines = [f"# Switches of {topology.title}, for topology/tree; written by gpuform.\n"]
    for switch in build_switches(topology):
        name = require_slurm_name(switch.name, "switch")
        list_key = "Switches" if switch.switches else "Nodes"
        names = switch.switches or [require_node_slurm_name(node) for node in switch.nodes]
        lines.append(f"SwitchName={name} {list_key}={compress_names(require_slurm_names(names))}\n")
    return "".join(lines)


def describe_tree_gaps(topology: StackTopology) -> Iterator[str]:
    """Yield sentences about unknown switches: above several trees, and of whole clusters.

    Raises NoTopology if the labels make no tree.
    """
    tops = list_top_switches(build_switches(topology))
    if len(tops) > 1:
        yield (
            f"the switches above {', '.join(tops)} are unknown: Slurm runs no job across "
            "several of them"
        )
    clusters_without_switches = {
        node.resource for node in topology.nodes if not (node.fabric or node.tiers)
    }
    for urn in sorted(clusters_without_switches):
        name = topology.names.get(urn, urn)
        yield f"the switches of {name} are unknown: one switch represents the complete cluster"


def require_node_slurm_name(node: Node) -> str:
    """Return the node's name in Slurm, or raise NoTopology for an invalid name."""
    return require_slurm_name(node.name_in_slurm, "node")


def require_slurm_names(names: Iterator[str] | tuple[str, ...] | list[str]) -> list[str]:
    """Return the names of switches or nodes, or raise NoTopology if Slurm cannot read one."""
    return [require_slurm_name(name, "name") for name in names]


def reject_duplicate_names(topology: StackTopology) -> None:
    """Raise NoTopology for a topology without nodes, or with two nodes of one name in Slurm.

    Raises NoTopology also for names that Slurm cannot read.
    """
    first_nodes: dict[str, Node] = {}
    for node in topology.require_nodes():
        other = first_nodes.setdefault(require_node_slurm_name(node), node)
        if other is not node:
            both = " and ".join(
                topology.names.get(duplicate.resource, "") for duplicate in (other, node)
            )
            raise NoTopology(
                f"two nodes have the name {node.name_in_slurm} in Slurm: in {both}",
                hint="select clusters whose nodes have different names",
            )


def render_slurm_block(topology: StackTopology) -> str:
    """Render `topology.conf` for the plugin topology/block, without nodes outside of all blocks.

    Raises NoTopology without a block, for names that Slurm cannot read, and for two nodes of one
    name in Slurm.
    """
    reject_duplicate_names(topology)
    blocks = require_blocks(topology)
    lines = [f"# NVLink domains of {topology.title}, for topology/block; written by gpuform.\n"]
    for block in blocks:
        nodes = compress_names(require_node_slurm_name(node) for node in block.nodes)
        lines.append(f"BlockName={require_slurm_name(block.name, 'block')} Nodes={nodes}\n")
    lines.append(f"BlockSizes={','.join(map(str, compute_block_sizes(blocks)))}\n")
    return "".join(lines)


def describe_block_gaps(topology: StackTopology) -> Iterator[str]:
    """Yield a sentence about nodes outside of all blocks; nothing for a topology without blocks."""
    nodes_in_blocks = {node for block in list_blocks(topology) for node in block.nodes}
    other_nodes = [node.name for node in topology.nodes if node not in nodes_in_blocks]
    # Without any block the format is refused, with a reason of its own.
    if nodes_in_blocks and other_nodes:
        yield (
            f"{len(other_nodes)} nodes share no NVLink domain with other nodes, and are in "
            f"no block, such as {other_nodes[0]}"
        )


SPEC_ANNOTATION: Final = "topology.slinky.slurm.net/spec"
TREE_NAME: Final = "topo-tree"
BLOCK_NAME: Final = "topo-block"
TOPOLOGY_FILE_NAME: Final = "topology.yaml"


def build_slinky_objects(topology: StackTopology, namespace: str) -> list[Manifest]:
    """Return a ConfigMap with `topology.yaml`, and a manifest with an annotation for each node.

    The ConfigMap is for `configFileRefs` of Slinky's controller. Raises NoTopology without nodes,
    for labels that make no tree, and for names that Slurm or Kubernetes cannot have.
    """
    import yaml  # noqa: PLC0415 - slow

    topology.require_nodes()
    switches, blocks = build_switches(topology), list_blocks(topology)
    topology_yaml = yaml.safe_dump(
        list(_iterate_topologies(switches, blocks)), sort_keys=False, width=1000
    )
    name = f"{build_object_name(topology)}-topology"
    namespace_name = require_namespace_name(namespace)
    data = {"data": {TOPOLOGY_FILE_NAME: topology_yaml}}
    config_map = OwnedObject("v1", "ConfigMap", "configmaps", name, data, namespace_name)
    switch_by_node = map_nodes_to_switches(switches)
    block_by_node = {node: block.name for block in blocks for node in block.nodes}
    nodes = [
        NodeMetadata(
            require_node_name(node.name),
            annotations={
                SPEC_ANNOTATION: _format_spec(switch_by_node[node], block_by_node.get(node, ""))
            },
        )
        for node in topology.nodes
    ]
    return [config_map, *nodes]


def _format_spec(switch: str, block: str) -> str:
    """Return the value of a node's spec annotation; an empty `block` is left out."""
    return f"{TREE_NAME}:{switch}" + (f",{BLOCK_NAME}:{block}" if block else "")


def _iterate_topologies(
    switches: list[SlurmSwitch], blocks: list[SlurmBlock]
) -> Iterator[dict[str, Any]]:
    """Yield the entries of `topology.yaml`: the tree, and the blocks if there are any.

    Raises NoTopology for a name that Slurm cannot read.
    """
    yield {
        "topology": TREE_NAME,
        "cluster_default": True,
        "tree": {"switches": [_build_switch_entry(switch) for switch in switches]},
    }
    if blocks:
        names = [{"block": require_slurm_name(block.name, "block")} for block in blocks]
        yield {
            "topology": BLOCK_NAME,
            "cluster_default": False,
            "block": {"block_sizes": compute_block_sizes(blocks), "blocks": names},
        }


def _build_switch_entry(switch: SlurmSwitch) -> dict[str, Any]:
    """Return the entry of a switch in `topology.yaml`; a switch above nodes has no children.

    Raises NoTopology for a name that Slurm cannot read.
    """
    entry = {"switch": require_slurm_name(switch.name, "switch")}
    if switch.switches:
        entry["children"] = compress_names(
            require_slurm_name(name, "switch") for name in switch.switches
        )
    return entry
