"""Nodes that a repair or a rollout brings back are certified in the same run, as its plan says."""

import json
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

from tests.stacks.cli.test_partial_certifications import ALL_NODES, CERTIFICATION
from tests.stacks.cli.test_repair import TRAIN, call_emulator, propose
from tests.stacks.cli.test_repair_by_recreating import fail_servers
from tests.stacks.cli.test_scp_idle import pool

__all__ = ["pool"]  # the fixture

PROGRAM = "from gpuform.stacks import run\n\nrun('topology.yaml')\n"
TOGETHER_CERTIFICATION = """
certifications:
  fabric:
    platform: together
    cluster: "{{ clusters.train }}"
    num_gpus: "{{ clusters.train.num_gpus }}"
    name: fabric
    categories:
      - domain: communication
        variant: nccl-all-reduce
        options: {testScale: intra-node}
        floor: 300
"""
OTHER_IMAGE = "IMAGE-4mQzWvT9hLxRbYc2NfKpJd"
ROW = 'evidence: "2 nodes proven" => "all nodes proven"  # certify again: 1 repaired node'


@pytest.fixture
def certified_cluster(planned_project: PlannedProject) -> PlannedProject:
    """Create a cluster of two certified nodes, the second of which has a proposed repair."""
    (planned_project.project / "__main__.py").write_text(PROGRAM)
    (planned_project.project / "topology.yaml").write_text(
        TRAIN.replace("GPUS", "16") + "    repair: {max_unhealthy: 1}\n" + TOGETHER_CERTIFICATION
    )
    ran = planned_project.run("up", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert planned_project.run("preview", "--expect-no-changes").code == 0
    propose(planned_project)
    return planned_project


def get_certification(planned_project: PlannedProject) -> dict[str, Any]:
    """Return the stored outputs of the certification."""
    exported = json.loads(planned_project.run("stack", "export").out)
    (outputs,) = (
        resource["outputs"]
        for resource in exported["deployment"]["resources"]
        if resource["type"].endswith(":Certification")
    )
    return dict(outputs)


def list_tested_nodes(planned_project: PlannedProject) -> list[list[str]]:
    return [result["nodes"] for result in get_certification(planned_project)["results"]]


def expect_nothing_to_do(planned_project: PlannedProject) -> None:
    empty = planned_project.run("preview", "--refresh", "--expect-no-changes")
    assert (empty.code, empty.err) == (0, ""), empty.out
    assert planned_project.run("repair", "--dry-run").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_saved_plan_of_up_repairs_a_node_and_certifies_it(
    certified_cluster: PlannedProject,
) -> None:
    certified_cluster.save_plan("--refresh")
    assert ROW in certified_cluster.run("preview", "--refresh").out
    done = certified_cluster.apply_plan()
    assert done.code == 0, done.out + done.err
    assert list_tested_nodes(certified_cluster) == [["train-worker-2"]]
    expect_nothing_to_do(certified_cluster)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_saved_plan_of_repair_certifies_the_repaired_node(
    certified_cluster: PlannedProject,
) -> None:
    due = certified_cluster.run("repair", "--dry-run", "--save-plan", "plan.json")
    assert (due.code, ROW in due.out) == (3, True), due.out
    done = certified_cluster.run("repair", "--plan", "plan.json", "--yes")
    assert done.code == 0, done.out + done.err
    assert list_tested_nodes(certified_cluster) == [["train-worker-2"]]
    expect_nothing_to_do(certified_cluster)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_restarted_node_that_fails_its_test_fails_the_repair(
    certified_cluster: PlannedProject,
) -> None:
    call_emulator(certified_cluster, "kubernetes/settings", {"slow_nodes": {"train-worker-0": 250}})
    ran = certified_cluster.run("repair", "train-worker-0", "--mode", "REBOOT_VM", "--yes")
    assert (ran.code, "250 GB/s is below the floor" in ran.out + ran.err) == (1, True), ran.out
    assert list_tested_nodes(certified_cluster) == [["train-worker-0"]]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_nodes_of_a_pool_are_certified_by_the_repair_and_the_rollout_that_recreate_them(
    pool: tuple[PlannedProject, str],
) -> None:
    planned_project, _ = pool
    topology = planned_project.project / "topology.yaml"
    declared = topology.read_text().replace(
        "idle: {below: 5%, for: 30m}", "repair: {max_unhealthy: 1}\n    rollout: {}"
    ) + CERTIFICATION.replace("NODES", ALL_NODES)
    topology.write_text(declared)
    ran = planned_project.run("up", "--yes")
    assert ran.code == 0, ran.out + ran.err

    fail_servers(planned_project)
    due = planned_project.run("repair", "--dry-run", "--save-plan", "plan.json")
    assert (due.code, ROW in due.out) == (3, True), due.out
    done = planned_project.run("repair", "--plan", "plan.json", "--yes")
    assert done.code == 0, done.out + done.err
    assert list_tested_nodes(planned_project) == [["train-worker-1"]]
    expect_nothing_to_do(planned_project)

    topology.write_text(declared.replace("IMAGE-7XFMaJpLsapKvskFMjCtmm", OTHER_IMAGE))
    planned_project.save_plan()
    rolled_out = planned_project.apply_plan()
    assert rolled_out.code == 0, rolled_out.out + rolled_out.err
    assert list_tested_nodes(planned_project) == [["train-worker-0"], ["train-worker-1"]]
    expect_nothing_to_do(planned_project)
