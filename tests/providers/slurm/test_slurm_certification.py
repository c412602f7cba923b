"""Test certifications by batch jobs, in the emulated Slurm of a Together cluster."""

from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.schedulers.emulated_slurm import NODES, SlurmCluster, create_slurm_cluster

from gpuform.providers.context import ProviderContext, get_clock, use_context
from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.operations import Settings
from gpuform.providers.records import FolderRecords, Intents, Verdicts
from gpuform.providers.slurm import BatchQueue
from gpuform.providers.together.certification import CertificationLifecycle
from gpuform.providers.together.client import get_client

SCRIPT = "#!/bin/bash\nsrun all_reduce_perf -b 8G\n"
JOB = {"script": SCRIPT, "result": r"Avg bus bandwidth\s*:\s*([\d.]+)"}
CATEGORY = {"domain": "communication", "variant": "nccl-all-reduce", "floor": 300, "job": JOB}
HOSTS = [f"train-worker-{number}" for number in range(3)]


class World:
    """One Slurm cluster, and the engine's calls about one certification of it."""

    def __init__(self, cluster: SlurmCluster, tmp_path: Path) -> None:
        self.cluster = cluster
        self.records = FolderRecords(tmp_path / "records")
        self.lifecycle = CertificationLifecycle()

    def call(self) -> ProviderContext:
        call = ProviderContext(urn="urn:fabric", clock=get_clock(environment(self.cluster.url)))
        call.intents = Intents(self.records)
        return call

    def declared(self, **fields: Any) -> dict[str, Any]:
        named = {"cluster_id": self.cluster.id, "num_gpus": 24, "name": "fabric"}
        return {**named, "categories": [CATEGORY], "folder": "/shared", **fields}

    def create(self, **fields: Any) -> Any:
        with use_context(self.call()):
            return self.lifecycle.create(self.declared(**fields))

    def update(self, made: Any, **fields: Any) -> Any:
        with use_context(self.call()):
            return self.lifecycle.update(made.id, made.outs, self.declared(**fields))

    def measure(self, **wanted: Any) -> None:
        self.cluster.call_slurm("POST", "/measures", wanted)

    def jobs(self) -> list[str]:
        return sorted(each["label"] for each in self.cluster.call_slurm("GET", "/jobs"))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[World]:
    with serve(seed="slurm") as server:
        made = create_slurm_cluster(server)
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        with closing(get_kubernetes_client(made.kubeconfig, "train")):
            yield World(made, tmp_path)
        get_client(Settings()).close()


def proven(outs: Mapping[str, Any]) -> list[str]:
    return [each["node"] for each in outs["evidence"]]


def test_each_node_is_measured_by_a_job_of_its_own(world: World) -> None:
    made = world.create()
    assert (made.outs["ready"], made.outs["by"]) == (True, "Slurm"), made.outs
    assert proven(made.outs) == HOSTS
    assert [result["nodes"] for result in made.outs["results"]] == [[name] for name in HOSTS]
    assert {result["measured"] for result in made.outs["results"]} == {487.87}
    assert len(world.jobs()) == 3
    again = world.update(made)
    assert again.outs["run"] == made.outs["run"]


def test_a_slow_node_is_named_and_it_alone_is_tested_again(world: World) -> None:
    world.measure(node=NODES[1], figure=250.0)
    made = world.create()
    told = (
        "node train-worker-1: communication/nccl-all-reduce: 250 GB/s is below the floor of "
        "300 GB/s"
    )
    assert told in made.outs["not_ready_reason"]
    assert proven(made.outs) == [HOSTS[0], HOSTS[2]]
    [verdict] = Verdicts(world.records).list_for_cluster(world.cluster.id)
    assert [failure["node"] for failure in verdict.failures] == [HOSTS[1]]
    world.measure(node=NODES[1], figure=480.0)
    mended = world.update(made)
    assert mended.outs["ready"] is True
    assert len(world.jobs()) == 4


def test_a_job_that_fails_or_prints_nothing_proves_nothing_and_blames_nobody(world: World) -> None:
    world.measure(node=NODES[0], exit_code=3, text="NCCL failure")
    world.measure(node=NODES[2], text="no figure at all")
    made = world.create()
    assert proven(made.outs) == [HOSTS[1]]
    assert [failure["is_alone"] for failure in made.outs["failures"]] == [False, False]
    assert Verdicts(world.records).list_for_cluster(world.cluster.id) == []


def test_one_job_over_all_nodes(world: World) -> None:
    world.measure(node=NODES[1], figure=250.0)
    made = world.create(categories=[{**CATEGORY, "job": {**JOB, "nodes": "all"}}])
    assert "(measured over 3 nodes together)" in made.outs["not_ready_reason"]
    assert (proven(made.outs), len(world.jobs())) == ([], 1)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_nodes_with_jobs_are_waited_for_and_no_job_ends(world: World) -> None:
    theirs = world.cluster.submit(name="train", nodes=[NODES[0]], runs_for=1800)
    made = world.create()
    assert made.outs["ready"] is True
    assert world.cluster.get_job_states()[theirs] == "COMPLETED"


class Killed(BaseException):
    """The process ends here."""


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("lost", range(4))
def test_a_killed_run_sends_no_job_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """Killed after its n-th job was sent: the next run sends the others, and waits for all."""
    sent: list[str] = []
    submit = BatchQueue.submit

    def counted(jobs: BatchQueue, batch: Any) -> str:
        if len(sent) == lost:
            raise Killed
        sent.append(batch.name)
        return submit(jobs, batch)

    monkeypatch.setattr(BatchQueue, "submit", counted)
    if lost < 3:
        with pytest.raises(Killed):
            world.create()
        monkeypatch.setattr(BatchQueue, "submit", submit)
    made = world.create()
    assert made.outs["ready"] is True
    assert len(world.jobs()) == 3


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_forgotten_job_is_judged_by_its_output(world: World) -> None:
    """The run was killed while it waited, and Slurm keeps ended jobs for minutes alone."""
    made = world.create()
    world.cluster.advance(7200)
    lost = {**made.outs, "evidence": [], "run": None}
    with use_context(world.call()):
        again = world.lifecycle.update(made.id, lost, world.declared())
    assert proven(again.outs) == HOSTS
    assert again.outs["run"] == made.outs["run"]


def test_deleting_a_certification_cancels_its_waiting_jobs(world: World) -> None:
    theirs = world.cluster.submit(name="train", nodes=[*NODES], runs_for=100_000)
    made = world.create(wait_minutes=5)
    assert made.outs["ready"] is False
    with use_context(world.call()):
        world.lifecycle.delete(made.id, made.outs)
    states = world.cluster.get_job_states()
    assert states.pop(theirs) == "RUNNING"
    assert {*states.values()} <= {"CANCELLED"}


def test_commands_in_a_pod_need_a_folder_that_nodes_share(world: World) -> None:
    with pytest.raises(GpuformError, match="folder"):
        world.create(folder=None)


def test_jobs_of_a_test_that_is_not_declared_any_more_are_cancelled(world: World) -> None:
    """They would run beside those of the next run, and nobody would know them."""
    other = {**CATEGORY, "variant": "nccl-all-gather"}
    theirs = world.cluster.submit(name="train", nodes=[NODES[0]], runs_for=36_000)
    made = world.create(categories=[CATEGORY, other], wait_minutes=1)
    assert made.outs["ready"] is False
    assert len(world.jobs()) == 7
    world.update(made, wait_minutes=1)
    states = world.cluster.get_job_states()
    going = [state for state in states.values() if state in {"PENDING", "RUNNING"}]
    assert (states[theirs], len(going)) == ("RUNNING", 1 + 3)
