"""Certifications from the command line: what fails, what waits, what is tested again."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.emulator.server import environment, serve

Run = Any
PROGRAM = """
import pulumi
from gpuform.providers.together import Certification, Cluster, VolumeClaim

cluster = Cluster("train", cluster_name="train", region="us-central-8", gpu_type="H100_SXM",
                  num_gpus=GPUS, driver_version="CUDA_12_6_560", billing_type="ON_DEMAND")
proof = Certification(
    "fabric", cluster_id=cluster, num_gpus=cluster.num_gpus, name="fabric",
    categories=[{"domain": "communication", "variant": "nccl-all-reduce", "floor": 300,
                 "options": {"testScale": "intra-node"}}])
VolumeClaim("scratch", cluster_id=cluster, name="scratch", storage="50Gi",
            storage_class_name="local-storage-class",
            opts=pulumi.ResourceOptions(depends_on=[proof]))
"""
UNPROVEN = PROGRAM.partition("proof =")[0]
GATES = "gates:\n  proven: {certified: true}\n"
FIGURE = (
    "node train-worker-1: communication/nccl-all-reduce: 250 GB/s is below the floor of 300 GB/s"
)


class World:
    """A stack on an emulator."""

    def __init__(self, run: Run, url: str, project: Path) -> None:
        self.run, self.url, self.project = run, url, project

    def declare(self, program: str = PROGRAM, gpus: int = 16) -> None:
        (self.project / "__main__.py").write_text(program.replace("GPUS", str(gpus)))

    def set(self, **settings: Any) -> None:
        url = f"{self.url}/_emulator/kubernetes/settings"
        httpx.post(url, json=settings, trust_env=False, verify=False).raise_for_status()


@pytest.fixture
def world(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="proofs") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        made = World(dev, server.url, project)
        made.declare()
        yield made


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_node_below_the_floor_fails_the_run_and_what_depends_on_it_is_not_made(
    world: World,
) -> None:
    world.set(slow_nodes={"train-worker-1": 250})
    ran = world.run("up", "--yes", "--skip-preview")
    assert (ran.code, FIGURE in ran.err + ran.out) == (1, True), ran.out + ran.err
    assert "scratch" not in world.run("stack", "export").out
    status = world.run("status")
    assert "1 of 2 nodes proven" in status.out, status.out
    assert "certify again: 1 node that failed (train-worker-1)" in status.out, status.out

    world.set(slow_nodes={})
    ran = world.run("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    assert world.run("preview", "--expect-no-changes").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_more_nodes_are_one_row_that_certifies_again(world: World) -> None:
    assert world.run("up", "--yes", "--skip-preview").code == 0
    world.declare(gpus=24)
    ran = world.run("preview")
    assert ran.out.count("certify again") == 1
    assert "# certify again: 1 new node" in ran.out
    assert world.run("up", "--yes", "--skip-preview").code == 0
    assert "3 of 3 nodes proven" in world.run("status").out
    world.declare(gpus=16)
    ran = world.run("preview")
    assert "certify again" not in ran.out
    assert world.run("up", "--yes", "--skip-preview").code == 0
    assert "2 of 2 nodes proven" in world.run("status").out


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_gate_wants_every_gpu_proven(world: World) -> None:
    (world.project / "gates.yaml").write_text(GATES)
    world.declare(UNPROVEN)
    ran = world.run("preview")
    assert (ran.code, "train: it has GPUs, but no certification" in ran.out) == (5, True), ran.out
    world.declare()
    assert world.run("preview").code == 0
    world.set(slow_nodes={"train-worker-1": 250})
    assert world.run("up", "--yes").code == 1
    again = world.run("preview")
    assert again.code == 0, again.out  # it tests again
    world.declare(gpus=24)
    alone = world.run("preview", "--target", "**train")
    told = "train: certification fabric has not passed, and this plan does not test its nodes"
    assert (alone.code, told in alone.out) == (5, True), alone.out


def test_a_certification_proves_no_cluster_that_it_only_waits_for(world: World) -> None:
    (world.project / "gates.yaml").write_text(GATES)
    other = (
        'other = Cluster("other", cluster_name="other", region="us-central-8", num_gpus=8,\n'
        '    gpu_type="H100_SXM", driver_version="CUDA_12_6_560", billing_type="ON_DEMAND")\n'
    )
    waits = 'name="fabric", opts=pulumi.ResourceOptions(depends_on=[other]),'
    program = PROGRAM.replace("proof =", f"{other}proof =").replace('name="fabric",', waits)
    world.declare(program)
    ran = world.run("preview")
    assert (ran.code, "other: it has GPUs, but no certification" in ran.out) == (5, True), ran.out
    assert "train:" not in ran.out.partition("Gates:")[2]


def test_what_cannot_be_meant_is_told_before_anything_is_made(world: World) -> None:
    wrong = PROGRAM.replace('"floor": 300', '"tolerance": "10%"')
    world.declare(wrong)
    ran = world.run("preview")
    assert ran.code == 1
    assert "categories[0].tolerance" in ran.out + ran.err


def test_the_gate_takes_togethers_own_tests(world: World) -> None:
    (world.project / "gates.yaml").write_text(GATES)
    tested = 'billing_type="ON_DEMAND", acceptance_tests_params={"enabled": True})'
    world.declare(UNPROVEN.replace('billing_type="ON_DEMAND")', tested))
    ran = world.run("up", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert world.run("preview").code == 0
    exported = world.run("stack", "export").out
    assert "acceptance/tests" in exported
