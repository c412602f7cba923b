"""Test certifications from the command line: failures, waits, and repeated tests."""

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


class CertifiedProject:
    """A project with a cluster and a certification, on an emulator."""

    def __init__(self, run: Run, url: str, project: Path) -> None:
        self.run, self.url, self.project = run, url, project

    def declare(self, program: str = PROGRAM, gpus: int = 16) -> None:
        (self.project / "__main__.py").write_text(program.replace("GPUS", str(gpus)))

    def set_kubernetes(self, **settings: Any) -> None:
        url = f"{self.url}/_emulator/kubernetes/settings"
        httpx.post(url, json=settings, trust_env=False, verify=False).raise_for_status()


@pytest.fixture
def certified_project(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="proofs") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        made = CertifiedProject(dev, server.url, project)
        made.declare()
        yield made


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_node_below_the_floor_fails_the_run_and_dependents_are_not_created(
    certified_project: CertifiedProject,
) -> None:
    certified_project.set_kubernetes(slow_nodes={"train-worker-1": 250})
    ran = certified_project.run("up", "--yes", "--skip-preview")
    assert (ran.code, FIGURE in ran.err + ran.out) == (1, True), ran.out + ran.err
    assert "scratch" not in certified_project.run("stack", "export").out
    status = certified_project.run("status")
    assert "1 of 2 nodes proven" in status.out, status.out
    assert "certify again: 1 node that failed (train-worker-1)" in status.out, status.out

    certified_project.set_kubernetes(slow_nodes={})
    ran = certified_project.run("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    assert certified_project.run("preview", "--expect-no-changes").code == 0


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_added_nodes_plan_one_row_that_certifies_again(certified_project: CertifiedProject) -> None:
    assert certified_project.run("up", "--yes", "--skip-preview").code == 0
    certified_project.declare(gpus=24)
    ran = certified_project.run("preview")
    assert ran.out.count("certify again") == 1
    assert "# certify again: 1 new node" in ran.out
    assert certified_project.run("up", "--yes", "--skip-preview").code == 0
    assert "3 of 3 nodes proven" in certified_project.run("status").out
    certified_project.declare(gpus=16)
    ran = certified_project.run("preview")
    assert "certify again" not in ran.out
    assert certified_project.run("up", "--yes", "--skip-preview").code == 0
    assert "2 of 2 nodes proven" in certified_project.run("status").out


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_certified_gate_requires_a_certification_of_every_gpu(
    certified_project: CertifiedProject,
) -> None:
    (certified_project.project / "gates.yaml").write_text(GATES)
    certified_project.declare(UNPROVEN)
    ran = certified_project.run("preview")
    assert (ran.code, "train: it has GPUs, but no certification" in ran.out) == (5, True), ran.out
    certified_project.declare()
    assert certified_project.run("preview").code == 0
    certified_project.set_kubernetes(slow_nodes={"train-worker-1": 250})
    assert certified_project.run("up", "--yes").code == 1
    again = certified_project.run("preview")
    assert again.code == 0, again.out  # it tests again
    certified_project.declare(gpus=24)
    alone = certified_project.run("preview", "--target", "**train")
    message = "train: certification fabric has not passed, and this plan does not test its nodes"
    assert (alone.code, message in alone.out) == (5, True), alone.out


def test_a_certification_does_not_cover_a_cluster_it_only_depends_on(
    certified_project: CertifiedProject,
) -> None:
    (certified_project.project / "gates.yaml").write_text(GATES)
    other = (
        'other = Cluster("other", cluster_name="other", region="us-central-8", num_gpus=8,\n'
        '    gpu_type="H100_SXM", driver_version="CUDA_12_6_560", billing_type="ON_DEMAND")\n'
    )
    waits = 'name="fabric", opts=pulumi.ResourceOptions(depends_on=[other]),'
    program = PROGRAM.replace("proof =", f"{other}proof =").replace('name="fabric",', waits)
    certified_project.declare(program)
    ran = certified_project.run("preview")
    assert (ran.code, "other: it has GPUs, but no certification" in ran.out) == (5, True), ran.out
    assert "train:" not in ran.out.partition("Gates:")[2]


def test_an_invalid_tolerance_fails_the_preview(certified_project: CertifiedProject) -> None:
    wrong = PROGRAM.replace('"floor": 300', '"tolerance": "10%"')
    certified_project.declare(wrong)
    ran = certified_project.run("preview")
    assert ran.code == 1
    assert "categories[0].tolerance" in ran.out + ran.err


def test_the_certified_gate_accepts_acceptance_tests_of_together(
    certified_project: CertifiedProject,
) -> None:
    (certified_project.project / "gates.yaml").write_text(GATES)
    tested = 'billing_type="ON_DEMAND", acceptance_tests_params={"enabled": True})'
    certified_project.declare(UNPROVEN.replace('billing_type="ON_DEMAND")', tested))
    ran = certified_project.run("up", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert certified_project.run("preview").code == 0
    exported = certified_project.run("stack", "export").out
    assert "acceptance/tests" in exported
