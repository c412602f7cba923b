"""Test certifications by batch jobs that run in a real Slurm."""

from pathlib import Path
from typing import Any

import pytest
from support.schedulers.real_slurm import Slurm

from gpuform.providers.certifying import CertifiableNode, CertificationRequest, CertificationRunner
from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import NotReady
from gpuform.providers.records import BatchRecords, FolderRecords
from gpuform.providers.slurm.batch import BatchQueue
from gpuform.providers.slurm.processes import LocalCommandRunner
from gpuform.providers.slurm.results import SlurmTester
from gpuform.schemas.policies.certification import CategoryInputs

pytestmark = pytest.mark.slow

NODES = ["w0", "w1", "w2"]
SCRIPT = """#!/bin/bash
case "$SLURM_JOB_NODELIST" in
    w1) echo "# Avg bus bandwidth    : 250" ;;
    *) echo "# Avg bus bandwidth    : 487.87" ;;
esac
"""
CATEGORY = CategoryInputs.model_validate(
    {
        "domain": "communication",
        "variant": "nccl-all-reduce",
        "floor": 300,
        "tolerance": "10%",
        "job": {"script": SCRIPT, "result": r"Avg bus bandwidth\s*:\s*([\d.]+)"},
    }
)


@pytest.fixture
def certifying(slurm: Slurm, tmp_path: Path) -> Any:
    def made(
        known: Any = None, limit: float = 60.0, nodes: list[str] = NODES
    ) -> CertificationRunner:
        tester = SlurmTester(
            BatchQueue(LocalCommandRunner(), folder=str(tmp_path)),
            BatchRecords(FolderRecords(tmp_path / "records")),
            "default/fabric",
            "fabric",
            [CATEGORY],
            {f"host-{name}": name for name in NODES},
        )
        certification_request = CertificationRequest(
            label="fabric",
            categories=[CATEGORY],
            tests_all_nodes=False,
            timeout_s=limit,
            declared_count=1,
        )
        machines = [CertifiableNode(f"host-{name}", f"machine-{name}") for name in nodes]
        call = ProviderContext(stored_properties=known or {})
        return CertificationRunner(
            call, tester, certification_request, lambda: machines, call.clock.now
        )

    return made


def test_the_slow_node_is_named_with_its_figure(certifying: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("gpuform.providers.certifying.runs.POLL_INTERVAL_S", 0.5)
    outputs = certifying().certify()
    assert outputs.not_ready_reason == (
        "node host-w1: communication/nccl-all-reduce: 250 GB/s is below the floor of 300 GB/s "
        "less 10%"
    )
    assert [result.node for result in outputs.evidence] == ["host-w0", "host-w2"]
    assert {result.measured for result in outputs.results} == {250.0, 487.87}


def test_a_drained_node_is_waited_for_and_its_job_is_found_again(
    certifying: Any, slurm: Slurm, monkeypatch: Any
) -> None:
    monkeypatch.setattr("gpuform.providers.certifying.runs.POLL_INTERVAL_S", 0.5)
    slurm.run("scontrol", "update", "NodeName=w2", "State=DRAIN", "Reason=disk")
    with pytest.raises(NotReady, match="1 of 2 jobs have ended"):
        certifying(limit=6.0, nodes=["w0", "w2"]).certify()
    queued = slurm.run("squeue", "--noheader", "--format=%i %T").split()
    slurm.run("scontrol", "update", "NodeName=w2", "State=RESUME")
    outputs = certifying(nodes=["w0", "w2"]).certify()
    assert outputs.ready is True
    assert queued[1] == "PENDING"
