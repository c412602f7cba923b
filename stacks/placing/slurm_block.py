"""Slurm's `topology.conf` for topology/block: which nodes NVLink joins.

From `man topology.conf` (Slurm 23.11 and newer): BlockName with Nodes, and BlockSizes.
"""

from collections.abc import Iterator

from gpuform.stacks.placing.blocks import block_sizes, blocks_of, required_blocks
from gpuform.stacks.placing.hostlist import checked, compressed
from gpuform.stacks.placing.model import StackTopology
from gpuform.stacks.placing.slurm_tree import names_in_slurm, slurm_name


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
