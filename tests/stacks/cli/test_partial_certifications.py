"""A gate on pools of SCP of which a certification tests a part."""

import pytest
from support.stacks.planned_project import PlannedProject

from tests.stacks.cli.test_scp_idle import pool

__all__ = ["pool"]  # the fixture

CERTIFICATION = """
certifications:
  fabric:
    platform: scp
    name: fabric
    node_ids: NODES
    region_id: kr-west1
    kubernetes: {kubeconfig: kubeconfig}
    categories:
      - domain: communication
        variant: nccl-all-reduce
        options: {testScale: intra-node}
        floor: 300
"""
ONE_NODE = '["{{ node_pools.pool.node_ids[0] }}"]'
ALL_NODES = '"{{ node_pools.pool.node_ids }}"'


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_certified_gate_stops_a_pool_with_an_uncertified_node(
    pool: tuple[PlannedProject, str],
) -> None:
    planned_project, _ = pool
    topology = planned_project.project / "topology.yaml"
    declared = topology.read_text()
    (planned_project.project / "gates.yaml").write_text("gates:\n  proven: {certified: true}\n")
    topology.write_text(declared + CERTIFICATION.replace("NODES", ONE_NODE))
    ran = planned_project.run("preview")
    assert ran.code == 5, ran.out + ran.err
    assert "pool: no certification covers 1 of its 2 nodes" in ran.out, ran.out

    topology.write_text(declared + CERTIFICATION.replace("NODES", ALL_NODES))
    ran = planned_project.run("up", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert planned_project.run("preview", "--expect-no-changes").code == 0
