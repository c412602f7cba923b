"""A real Slurm reads the exported topology of a stack, also after its nodes have changed."""

import re
from pathlib import Path
from typing import Any

import pytest
from support.schedulers.real_slurm import MISSING_PROGRAMS, Slurm, run_slurm, wait_until
from support.topologies.declarations import SCP_POOL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING_PROGRAMS),
        reason=f"needs a real Slurm (apt install slurm-wlm munge): no {MISSING_PROGRAMS}",
    ),
]

TOPOLOGY = """\
node_pools:
  {name}:
{scp}    image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train
    nodes: {nodes}
  other:
{scp}    image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
    cluster_fabric_name: train-b
    gpu_node_name_prefix: batch
    count: 2
"""
MAIN = "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
KNOWN = (*(f"train-{number:03d}" for number in range(8, 13)), "batch-001", "batch-002")


def read_switches(slurm: Slurm) -> dict[str, set[str]]:
    """Return the nodes of each switch in Slurm, with expanded host lists."""
    output = slurm.run("scontrol", "show", "topology")
    switches = re.findall(r"SwitchName=(\S+) Level=\d+ LinkSpeed=\d+ Nodes=(\S+)", output)
    return {
        switch: {*slurm.run("scontrol", "show", "hostnames", nodes).split()}
        for switch, nodes in switches
    }


def declare_nodes(project: Any, *numbers: int) -> None:
    nodes = ", ".join(f'"{number:03d}": {{}}' for number in numbers)
    (project.directory / "topology.yaml").write_text(
        TOPOLOGY.format(name="train", nodes=f"{{{nodes}}}", scp=SCP_POOL)
    )


def test_slurm_shows_the_switches_of_the_written_topology(project: Any, tmp_path: Path) -> None:
    project.write_program(MAIN)
    declare_nodes(project, 8, 9, 10)
    project.up()
    path = tmp_path / "topology.conf"
    project.run_ok("topology", "--format", "slurm-tree", "--output", str(path))
    batch = {"batch-001", "batch-002"}
    with run_slurm(KNOWN, path.read_text()) as slurm:
        before = {"train-a": {"train-008", "train-009", "train-010"}, "train-b": batch}
        assert read_switches(slurm) == before

        declare_nodes(project, 8, 10, 11, 12)
        project.up()
        written = project.run_ok("topology", "--format", "slurm-tree")
        assert read_switches(slurm) == before, "nobody has told Slurm yet"
        slurm.topology_file.write_text(written.out)
        slurm.run("scontrol", "reconfigure")
        after = {"train-a": {"train-008", "train-010", "train-011", "train-012"}, "train-b": batch}
        wait_until(lambda: read_switches(slurm) == after, "the topology after the replacement")
