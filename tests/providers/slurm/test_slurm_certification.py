"""Test certifications by batch jobs, in the emulated Slurm of a Together cluster."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.platforms.provider_contexts import change_context
from support.schedulers.emulated_slurm import NODES, SlurmCluster, create_slurm_cluster

from gpuform.providers.context import ProviderContext, get_clock, use_context
from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.operations import Settings
from gpuform.providers.records import FolderRecords, Intents, Verdicts
from gpuform.providers.slurm.batch import BatchQueue
from gpuform.providers.together.certification import CertificationLifecycle
from gpuform.providers.together.client import get_client

SCRIPT = "#!/bin/bash\nsrun all_reduce_perf -b 8G\n"
JOB = {"script": SCRIPT, "result": r"Avg bus bandwidth\s*:\s*([\d.]+)"}
CATEGORY = {"domain": "communication", "variant": "nccl-all-reduce", "floor": 300, "job": JOB}
HOSTS = [f"train-worker-{number}" for number in range(3)]


class CertifiedCluster:
    """One Slurm cluster, and the engine's calls about one certification of it."""

    def __init__(self, cluster: SlurmCluster, tmp_path: Path) -> None:
        self.cluster = cluster
        self.records = FolderRecords(tmp_path / "records")
        self.lifecycle = CertificationLifecycle()

    def call(self) -> ProviderContext:
        call = ProviderContext(urn="urn:fabric", clock=get_clock(environment(self.cluster.url)))
        change_context(call, intents=Intents(self.records))
        return call

    def build_inputs(self, **fields: Any) -> dict[str, Any]:
        named = {"cluster_id": self.cluster.id, "num_gpus": 24, "name": "fabric"}
        return {**named, "categories": [CATEGORY], "folder": "/shared", **fields}

    def create(self, **fields: Any) -> Any:
        with use_context(self.call()):
            return self.lifecycle.create(self.build_inputs(**fields))

    def update(self, made: Any, **fields: Any) -> Any:
        with use_context(self.call()):
            return self.lifecycle.update(made.id, made.outs, self.build_inputs(**fields))

    def set_figures(self, **figures: Any) -> None:
        self.cluster.call_slurm("POST", "/measures", figures)

    def list_job_labels(self) -> list[str]:
        return sorted(job["label"] for job in self.cluster.call_slurm("GET", "/jobs"))


@pytest.fixture
def certified_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[CertifiedCluster]:
    with serve(seed="slurm") as server:
        made = create_slurm_cluster(server)
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        with closing(get_kubernetes_client(made.kubeconfig, "train")):
            yield CertifiedCluster(made, tmp_path)
        get_client(Settings()).close()


def list_certified_nodes(outs: Mapping[str, Any]) -> list[str]:
    return [evidence["node"] for evidence in outs["evidence"]]


def test_each_node_is_measured_by_a_job_of_its_own(certified_cluster: CertifiedCluster) -> None:
    made = certified_cluster.create()
    assert (made.outs["ready"], made.outs["by"]) == (True, "Slurm"), made.outs
    assert list_certified_nodes(made.outs) == HOSTS
    assert [result["nodes"] for result in made.outs["results"]] == [[name] for name in HOSTS]
    assert {result["measured"] for result in made.outs["results"]} == {487.87}
    assert len(certified_cluster.list_job_labels()) == 3
    again = certified_cluster.update(made)
    assert again.outs["run"] == made.outs["run"]


def test_a_slow_node_is_named_and_it_alone_is_tested_again(
    certified_cluster: CertifiedCluster,
) -> None:
    certified_cluster.set_figures(node=NODES[1], figure=250.0)
    made = certified_cluster.create()
    message = (
        "node train-worker-1: communication/nccl-all-reduce: 250 GB/s is below the floor of "
        "300 GB/s"
    )
    assert message in made.outs["not_ready_reason"]
    assert list_certified_nodes(made.outs) == [HOSTS[0], HOSTS[2]]
    [verdict] = Verdicts(certified_cluster.records).list_for(certified_cluster.cluster.id)
    assert [failure["node"] for failure in verdict.failures] == [HOSTS[1]]
    certified_cluster.set_figures(node=NODES[1], figure=480.0)
    repaired = certified_cluster.update(made)
    assert repaired.outs["ready"] is True
    assert len(certified_cluster.list_job_labels()) == 4


def test_a_job_that_fails_or_prints_nothing_certifies_and_blames_no_node(
    certified_cluster: CertifiedCluster,
) -> None:
    certified_cluster.set_figures(node=NODES[0], exit_code=3, text="NCCL failure")
    certified_cluster.set_figures(node=NODES[2], text="no figure at all")
    made = certified_cluster.create()
    assert list_certified_nodes(made.outs) == [HOSTS[1]]
    assert [failure["is_alone"] for failure in made.outs["failures"]] == [False, False]
    assert Verdicts(certified_cluster.records).list_for(certified_cluster.cluster.id) == []


def test_one_job_over_all_nodes_certifies_them(certified_cluster: CertifiedCluster) -> None:
    certified_cluster.set_figures(node=NODES[1], figure=250.0)
    made = certified_cluster.create(categories=[{**CATEGORY, "job": {**JOB, "nodes": "all"}}])
    assert "(measured over 3 nodes together)" in made.outs["not_ready_reason"]
    assert (list_certified_nodes(made.outs), len(certified_cluster.list_job_labels())) == ([], 1)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_nodes_with_jobs_are_waited_for_and_no_job_ends(
    certified_cluster: CertifiedCluster,
) -> None:
    theirs = certified_cluster.cluster.submit(name="train", nodes=[NODES[0]], runs_for=1800)
    made = certified_cluster.create()
    assert made.outs["ready"] is True
    assert certified_cluster.cluster.get_job_states()[theirs] == "COMPLETED"


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("lost", range(4))
def test_a_killed_run_sends_no_job_twice(
    certified_cluster: CertifiedCluster, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """Kill the run after its n-th job: the next run sends the other jobs and waits for all."""
    sent: list[str] = []
    submit = BatchQueue.submit

    def count_job(jobs: BatchQueue, batch: Any) -> str:
        if len(sent) == lost:
            raise Killed
        sent.append(batch.name)
        return submit(jobs, batch)

    monkeypatch.setattr(BatchQueue, "submit", count_job)
    if lost < 3:
        with pytest.raises(Killed):
            certified_cluster.create()
        monkeypatch.setattr(BatchQueue, "submit", submit)
    made = certified_cluster.create()
    assert made.outs["ready"] is True
    assert len(certified_cluster.list_job_labels()) == 3


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_forgotten_job_is_judged_by_its_output(certified_cluster: CertifiedCluster) -> None:
    """The run was killed while waiting, and Slurm keeps ended jobs for minutes only."""
    made = certified_cluster.create()
    certified_cluster.cluster.advance(7200)
    lost = {**made.outs, "evidence": [], "run": None}
    with use_context(certified_cluster.call()):
        again = certified_cluster.lifecycle.update(made.id, lost, certified_cluster.build_inputs())
    assert list_certified_nodes(again.outs) == HOSTS
    assert again.outs["run"] == made.outs["run"]


def test_deleting_a_certification_cancels_its_waiting_jobs(
    certified_cluster: CertifiedCluster,
) -> None:
    theirs = certified_cluster.cluster.submit(name="train", nodes=[*NODES], runs_for=100_000)
    made = certified_cluster.create(wait_minutes=5)
    assert made.outs["ready"] is False
    with use_context(certified_cluster.call()):
        certified_cluster.lifecycle.delete(made.id, made.outs)
    states = certified_cluster.cluster.get_job_states()
    assert states.pop(theirs) == "RUNNING"
    assert {*states.values()} <= {"CANCELLED"}


def test_commands_in_a_pod_need_a_folder_that_nodes_share(
    certified_cluster: CertifiedCluster,
) -> None:
    with pytest.raises(GpuformError, match="folder"):
        certified_cluster.create(folder=None)


def test_jobs_of_a_test_that_is_no_longer_declared_are_cancelled(
    certified_cluster: CertifiedCluster,
) -> None:
    """Such jobs would run beside those of the next run, unknown to any stack."""
    other = {**CATEGORY, "variant": "nccl-all-gather"}
    theirs = certified_cluster.cluster.submit(name="train", nodes=[NODES[0]], runs_for=36_000)
    made = certified_cluster.create(categories=[CATEGORY, other], wait_minutes=1)
    assert made.outs["ready"] is False
    assert len(certified_cluster.list_job_labels()) == 7
    certified_cluster.update(made, wait_minutes=1)
    states = certified_cluster.cluster.get_job_states()
    going = [state for state in states.values() if state in {"PENDING", "RUNNING"}]
    assert (states[theirs], len(going)) == ("RUNNING", 1 + 3)
