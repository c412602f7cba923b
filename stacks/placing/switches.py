"""The tree of switches over nodes, as far as it is known.

Switches are those that a cluster's labels name. A fabric stands above its switches, or for them
where none is known. Nodes of which neither is known are under one switch for their cluster.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuform.stacks.placing.model import Node, NoTopology, StackTopology

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
