"""Write Slurm's `topology.conf`, and Slinky's `topology.yaml` with its node annotations.

From `man topology.conf` (Slurm 23.11 and newer): BlockName with Nodes, and BlockSizes.

From `man topology.conf`: SwitchName with Nodes or with Switches, in short lists.

A block is an NVLink domain over several nodes, such as a rack of GB200. A server whose NVLink ends
inside it is no block.

From `man slurm.conf`, 'NodeName': a range fills its numbers up to the width of the first one. A
list made here names exactly the nodes that it was made of.

Switches are those that a cluster's labels name. A fabric stands above its switches, or for them
where none is known. Nodes of which neither is known are under one switch for their cluster.

From the slurm-operator's page 'Topology': a node's annotation `topology.slinky.slurm.net/spec` says
which switch and which block the Slurm node is under that runs there. Slurm's nodes are pods, so the
file names switches and blocks alone. `topology.yaml` is of Slurm 25.05 and newer.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.topology_export.manifests import (
    Manifest,
    NodeMetadata,
    WholeObject,
    checked_namespace,
    checked_node,
    object_name,
)
from gpuform.stacks.topology_export.model import Node, NoTopology, StackTopology


@dataclass(frozen=True, slots=True)
class Block:
    """The nodes of one NVLink domain."""

    name: str
    nodes: tuple[Node, ...]


def blocks_of(topology: StackTopology) -> list[Block]:
    """Every domain with more than one node, by name."""
    found: dict[str, list[Node]] = {}
    for node in topology.nodes:
        if node.domain:
            found.setdefault(node.domain, []).append(node)
    return [Block(name, tuple(nodes)) for name, nodes in sorted(found.items()) if len(nodes) > 1]


def required_blocks(topology: StackTopology) -> list[Block]:
    """The same. Raises NoTopology where there is none."""
    blocks = blocks_of(topology)
    if not blocks:
        unasked = any(node.labels is None for node in topology.nodes)
        how = "--refresh reads the labels of the nodes; if they have none: " if unasked else ""
        raise NoTopology(
            f"no NVLink domain over several nodes is known in {topology.title}",
            hint=f"{how}nodes that NVLink joins bear the label nvidia.com/gpu.clique of NVIDIA's "
            "GPU operator. Servers with NVLink inside alone make no blocks: use slurm-tree",
        )
    return blocks


def block_sizes(blocks: Sequence[Block]) -> list[int]:
    """The base size and its doublings: the smallest block, up to what as many blocks hold.

    Slurm plans by the first, and lets jobs ask for whole groups of the others
    (`man topology.conf`, 'BlockSizes'); each is the base times a power of two.
    """
    base = min(len(block.nodes) for block in blocks)
    return [base << power for power in range(len(blocks).bit_length())]


_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9_])?")
_NUMBERED: Final = re.compile(r"(.*?[^0-9])([0-9]{1,9})")
"""Longer numbers stand as they are: Slurm reads them as numbers of a machine word."""
_RESERVED: Final = frozenset({"default", "all"})


def is_slurm_name(text: str) -> bool:
    """Whether Slurm takes it for the name of one node, switch or block.

    DEFAULT and ALL mean something else there; commas, brackets, `=`, `#` and blanks divide.
    """
    return _NAME.fullmatch(text) is not None and text.lower() not in _RESERVED


def checked(text: str, what: str) -> str:
    """The text. Raises NoTopology when Slurm would read it as something else."""
    if not is_slurm_name(text):
        raise NoTopology(
            f"{what} {text!r} is no name that Slurm takes",
            hint="a name has letters, digits, '-', '_' and '.', at most 64 of them, and is neither "
            "DEFAULT nor ALL: rename it on its platform, or name the other clusters",
        )
    return text


def compressed(names: Iterable[str]) -> str:
    """The names, each once, in Slurm's short form and in a fixed order."""
    plain: list[str] = []
    numbered: dict[str, set[tuple[int, int]]] = {}
    for name in sorted(set(names)):
        found = _NUMBERED.fullmatch(name)
        if found is None:
            plain.append(name)
        else:
            numbers = numbered.setdefault(found[1], set())
            numbers.add((len(found[2]), int(found[2])))
    parts = [*plain, *(_bracketed(head, sorted(found)) for head, found in numbered.items())]
    return ",".join(sorted(parts))


def _bracketed(head: str, numbers: Sequence[tuple[int, int]]) -> str:
    ranges = list(_ranges(numbers))
    is_one = len(numbers) == 1
    return f"{head}{ranges[0]}" if is_one else f"{head}[{','.join(ranges)}]"


def _ranges(numbers: Sequence[tuple[int, int]]) -> Iterator[str]:
    begin = last = numbers[0]
    for each in [*numbers[1:], None]:
        after = f"{last[1] + 1:0{begin[0]}d}"
        if each == (len(after), last[1] + 1):
            last = each
            continue
        first = f"{begin[1]:0{begin[0]}d}"
        yield first if begin == last else f"{first}-{last[1]:0{begin[0]}d}"
        if each is not None:
            begin = last = each


REST: Final = "-rest"
"""Ends the name of a switch for nodes of a fabric whose own switch is not known."""

_Key = tuple[str, str]
"""What stands at a place of the tree, and its id: `fabric`, `cluster`, or a tier's number."""


@dataclass(frozen=True, slots=True)
class Switch:
    """One of them: over other `switches`, or over `nodes`."""

    name: str
    switches: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()


@dataclass(slots=True)
class _Vertex:
    above: _Key | None
    below: set[_Key] = field(default_factory=set)
    nodes: list[Node] = field(default_factory=list)


def switches_of(topology: StackTopology) -> list[Switch]:
    """Every switch, those above first. Raises NoTopology where labels make no tree."""
    fabrics = {node.fabric_id or node.fabric: node.fabric for node in topology.nodes}
    tree: dict[_Key, _Vertex] = {}
    for node in topology.nodes:
        _put(tree, _way(node), node)
    shown = _unique({key: _shown(key, fabrics, topology.names) for key in tree})
    found: list[Switch] = []
    roots = [key for key, vertex in tree.items() if vertex.above is None]
    waiting = sorted(roots, key=lambda key: shown[key])
    while waiting:
        key = waiting.pop(0)
        below = sorted(tree[key].below, key=lambda each: shown[each])
        names = [shown[each] for each in below]
        found += _written(shown[key], names, tree[key].nodes, _rest(key, shown))
        waiting += below
    return found


def apart(switches: Iterable[Switch]) -> list[str]:
    """The names of the switches above which nothing is known."""
    all_ = list(switches)
    below = {name for each in all_ for name in each.switches}
    return [each.name for each in all_ if each.name not in below]


def switch_of_each(switches: Iterable[Switch]) -> dict[Node, str]:
    """The name of the switch that each node is under."""
    return {node: switch.name for switch in switches for node in switch.nodes}


def _way(node: Node) -> list[_Key]:
    """From the top of the tree to the switch of a node."""
    fabric = node.fabric_id or node.fabric
    tiers = [(f"tier {number}", name) for number, name in enumerate(node.tiers)]
    way = [*([("fabric", fabric)] if fabric else []), *reversed(tiers)]
    return way or [("cluster", node.resource)]


def _put(tree: dict[_Key, _Vertex], way: Sequence[_Key], node: Node) -> None:
    above: _Key | None = None
    for key in way:
        vertex = tree.setdefault(key, _Vertex(above))
        if vertex.above != above:
            others = " and ".join(
                "nothing" if each is None else f"{each[0]} {each[1]}"
                for each in (vertex.above, above)
            )
            raise NoTopology(
                f"the labels of the nodes make no tree: {key[0]} {key[1]} is under {others} "
                f"(node {node.name})",
                hint="look at the labels of both (`kubectl get nodes --show-labels`); who wrote "
                "them, such as Topograph, has to write them anew",
            )
        if above is not None:
            tree[above].below.add(key)
        above = key
    tree[way[-1]].nodes.append(node)


def _shown(key: _Key, fabrics: Mapping[str, str], clusters: Mapping[str, str]) -> str:
    kind, id_ = key
    return {"fabric": fabrics, "cluster": clusters}.get(kind, {}).get(id_) or id_


def _unique(names: Mapping[_Key, str]) -> dict[_Key, str]:
    """Where several have one name, each gets a mark of its own: the same in every run."""
    counts: dict[str, int] = {}
    for name in names.values():
        counts[name] = counts.get(name, 0) + 1
    return {
        key: name if counts[name] == 1 else f"{name}-{_mark(key)}" for key, name in names.items()
    }


def _mark(key: _Key) -> str:
    return hashlib.sha256("\0".join(key).encode()).hexdigest()[:8]


def _rest(key: _Key, shown: Mapping[_Key, str]) -> str:
    """The name of the switch for the other nodes under one, which no other has."""
    name = f"{shown[key]}{REST}"
    return f"{name}-{_mark(key)}" if name in shown.values() else name


def _written(
    name: str, below: Sequence[str], nodes: Sequence[Node], rest_name: str
) -> list[Switch]:
    """Slurm's switches have either switches or nodes below them."""
    if not below:
        return [Switch(name, nodes=tuple(nodes))]
    if not nodes:
        return [Switch(name, switches=tuple(below))]
    rest = Switch(rest_name, nodes=tuple(nodes))
    return [Switch(name, switches=(*below, rest.name)), rest]


def slurm_tree(topology: StackTopology) -> str:
    """The file. Raises NoTopology for names that Slurm cannot read, or without nodes."""
    names_in_slurm(topology)
    lines = [f"# Switches of {topology.title}, for topology/tree; written by gpuform.\n"]
    for each in switches_of(topology):
        name = checked(each.name, "switch")
        below = "Switches" if each.switches else "Nodes"
        names = each.switches or [slurm_name(node) for node in each.nodes]
        lines.append(f"SwitchName={name} {below}={compressed(checked_all(names))}\n")
    return "".join(lines)


def tree_unknown(topology: StackTopology) -> Iterator[str]:
    """What the file cannot tell."""
    tops = apart(switches_of(topology))
    if len(tops) > 1:
        yield (f"nothing is known above {', '.join(tops)}: Slurm runs no job over several of them")
    alone = {node.resource for node in topology.nodes if not (node.fabric or node.tiers)}
    for urn in sorted(alone):
        name = topology.names.get(urn, urn)
        yield f"no switch over nodes of {name} is known: one for the whole cluster stands for them"


def slurm_name(node: Node) -> str:
    """The name that Slurm has for a node, checked."""
    return checked(node.name_in_slurm, "node")


def checked_all(names: Iterator[str] | tuple[str, ...] | list[str]) -> list[str]:
    """Names of switches or nodes, each checked."""
    return [checked(name, "name") for name in names]


def names_in_slurm(topology: StackTopology) -> None:
    """Raises NoTopology where there is no node, or two have one name."""
    if not topology.nodes:
        raise NoTopology(f"{topology.title} has no nodes yet", hint="make them: `gpuform up`")
    seen: dict[str, Node] = {}
    for node in topology.nodes:
        other = seen.setdefault(slurm_name(node), node)
        if other is not node:
            both = " and ".join(topology.names.get(each.resource, "") for each in (other, node))
            raise NoTopology(
                f"two nodes are called {node.name_in_slurm}: of {both}",
                hint="a Slurm has each name once: name the clusters of one Slurm",
            )


def slurm_block(topology: StackTopology) -> str:
    """The file. Raises NoTopology without a block, and for names that Slurm cannot read."""
    names_in_slurm(topology)
    blocks = required_blocks(topology)
    lines = [f"# NVLink domains of {topology.title}, for topology/block; written by gpuform.\n"]
    for each in blocks:
        nodes = compressed(slurm_name(node) for node in each.nodes)
        lines.append(f"BlockName={checked(each.name, 'block')} Nodes={nodes}\n")
    lines.append(f"BlockSizes={','.join(map(str, block_sizes(blocks)))}\n")
    return "".join(lines)


def block_unknown(topology: StackTopology) -> Iterator[str]:
    """What the file cannot tell."""
    there = {node for block in blocks_of(topology) for node in block.nodes}
    left = [node.name for node in topology.nodes if node not in there]
    if there and left:
        yield f"{len(left)} nodes are in no NVLink domain with others, and in no block: {left[0]}"


SPEC: Final = "topology.slinky.slurm.net/spec"
TREE: Final = "topo-tree"
BLOCK: Final = "topo-block"
FILE: Final = "topology.yaml"


def slinky(topology: StackTopology, namespace: str) -> list[Manifest]:
    """A ConfigMap with the file, for `configFileRefs` of Slinky's controller, and the nodes."""
    import yaml  # noqa: PLC0415 - slow

    if not topology.nodes:
        raise NoTopology(f"{topology.title} has no nodes yet", hint="make them: `gpuform up`")
    switches, blocks = switches_of(topology), blocks_of(topology)
    text = yaml.safe_dump(list(_topologies(switches, blocks)), sort_keys=False, width=1000)
    name = f"{object_name(topology)}-topology"
    place = checked_namespace(namespace)
    held = WholeObject("v1", "ConfigMap", "configmaps", name, {"data": {FILE: text}}, place)
    under = switch_of_each(switches)
    block = {node: each.name for each in blocks for node in each.nodes}
    nodes = [
        NodeMetadata(
            checked_node(node.name),
            annotations={SPEC: _spec(under[node], block.get(node, ""))},
        )
        for node in topology.nodes
    ]
    return [held, *nodes]


def _spec(switch: str, block: str) -> str:
    return f"{TREE}:{switch}" + (f",{BLOCK}:{block}" if block else "")


def _topologies(switches: list[Switch], blocks: list[Block]) -> Iterator[dict[str, Any]]:
    yield {
        "topology": TREE,
        "cluster_default": True,
        "tree": {"switches": [_switch(each) for each in switches]},
    }
    if blocks:
        names = [{"block": checked(each.name, "block")} for each in blocks]
        yield {
            "topology": BLOCK,
            "cluster_default": False,
            "block": {"block_sizes": block_sizes(blocks), "blocks": names},
        }


def _switch(switch: Switch) -> dict[str, Any]:
    found = {"switch": checked(switch.name, "switch")}
    if switch.switches:
        found["children"] = compressed(checked(name, "switch") for name in switch.switches)
    return found
