"""Slurm's `topology.conf` for topology/tree: which nodes are under which switch.

From `man topology.conf`: SwitchName with Nodes or with Switches, in short lists.
"""

from collections.abc import Iterator

from gpuform.stacks.placing.hostlist import checked, compressed
from gpuform.stacks.placing.model import Node, NoTopology, StackTopology
from gpuform.stacks.placing.switches import apart, switches_of


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
