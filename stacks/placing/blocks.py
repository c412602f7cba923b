"""Blocks of nodes that NVLink joins, for schedulers that place by them.

A block is an NVLink domain over several nodes, such as a rack of GB200. A server whose NVLink ends
inside it is no block.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuform.stacks.placing.model import Node, NoTopology, StackTopology


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
