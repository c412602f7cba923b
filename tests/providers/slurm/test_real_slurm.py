"""Test the scheduler against a real Slurm, whose jobs run."""

import pytest
from support.schedulers.real_slurm import Slurm, wait_until

from gpuform.providers.draining import ScheduledNode, Scheduler
from gpuform.providers.errors import GpuformError, Unreachable
from gpuform.providers.slurm.parsing import expand_hostlist
from gpuform.providers.slurm.scheduler import create_slurm_scheduler
from gpuform.schemas.policies.drain import SlurmInputs

pytestmark = pytest.mark.slow

MARK = "scale-down of training/dev"


@pytest.fixture
def scheduler(slurm: Slurm) -> Scheduler:
    return create_slurm_scheduler(SlurmInputs(via="local"))


HERE = ("127.0.0.1", "localhost")
"""The address and the host name that `real_slurm` gives each node."""


def find_node(scheduler: Scheduler, name: str) -> ScheduledNode:
    return next(node for node in scheduler.list_nodes() if node.name == name)


def list_job_ids(scheduler: Scheduler, name: str) -> list[str]:
    return [job.id for job in find_node(scheduler, name).jobs]


def test_idle_nodes_have_no_jobs(scheduler: Scheduler, slurm: Slurm) -> None:
    assert list(scheduler.list_nodes()) == [
        ScheduledNode(name, addresses=HERE) for name in slurm.nodes
    ]


def test_a_drain_lets_the_job_run_to_its_end(scheduler: Scheduler, slurm: Slurm) -> None:
    job = slurm.submit("--job-name=big | red\n7|w2|x|y", "--nodes=2", node="w0")
    wait_until(job.is_running, "a running job")
    scheduler.cordon(["w0"], MARK)

    looked = find_node(scheduler, "w0")
    assert looked.is_cordoned
    assert looked.owner_label == MARK
    assert [(node_job.id, node_job.name) for node_job in looked.jobs] == [
        (job.id, "big | red 7|w2|x|y")
    ]
    assert sum(bool(listed_node.jobs) for listed_node in scheduler.list_nodes()) == 2
    waiting = slurm.submit(node="w0")
    assert job.is_running()
    job.end()
    wait_until(lambda: not find_node(scheduler, "w0").jobs, "a node without jobs")
    assert slurm.has_job(waiting.id, "PENDING")


def test_cordoning_again_changes_nothing(scheduler: Scheduler, slurm: Slurm) -> None:
    scheduler.cordon(["w0", "w1"], MARK)
    scheduler.cordon(["w0"], "another")
    assert find_node(scheduler, "w0").owner_label == MARK
    scheduler.uncordon(["w0"], "another")
    assert find_node(scheduler, "w0").is_cordoned
    scheduler.uncordon(["w0", "w1", "long-gone"], MARK)
    wait_until(lambda: slurm.get_state("w0") == slurm.get_state("w1") == "IDLE", "nodes in service")
    assert slurm.get_reason("w0") == ""


def test_a_node_drained_by_somebody_else_stays_drained(scheduler: Scheduler, slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=w1", "State=DRAIN", "Reason=fan 3 is loud")
    scheduler.cordon(["w0", "w1"], MARK)
    assert slurm.get_reason("w1") == "fan 3 is loud"
    assert find_node(scheduler, "w1").is_cordoned
    assert find_node(scheduler, "w1").owner_label is None
    scheduler.uncordon(["w0", "w1"], MARK)
    assert "DRAIN" in slurm.get_state("w1")
    assert "DRAIN" not in slurm.get_state("w0")


def test_a_node_marked_as_failed_by_somebody_stays_failed(
    scheduler: Scheduler, slurm: Slurm
) -> None:
    slurm.run("scontrol", "update", "NodeName=w1", "State=FAIL", "Reason=gpu 3")
    scheduler.cordon(["w1"], MARK)
    assert find_node(scheduler, "w1") == ScheduledNode(
        "w1", is_cordoned=True, is_failed=True, addresses=HERE
    )
    scheduler.uncordon(["w1"], MARK)
    assert slurm.get_state("w1") == "IDLE+FAIL"
    assert slurm.get_reason("w1") == "gpu 3"


def test_a_node_that_was_down_stays_down(scheduler: Scheduler, slurm: Slurm) -> None:
    slurm.stop("w2")
    slurm.run("scontrol", "update", "NodeName=w2", "State=DOWN", "Reason=bad DIMM")
    assert find_node(scheduler, "w2").is_failed
    scheduler.cordon(["w2"], MARK)
    assert find_node(scheduler, "w2").owner_label == MARK
    scheduler.uncordon(["w2"], MARK)
    assert slurm.get_state("w2").startswith("DOWN")
    assert "DRAIN" not in slurm.get_state("w2")
    assert slurm.get_reason("w2") == "bad DIMM"
    slurm.start_node("w2")


def test_an_unknown_node_is_an_error_before_any_drain(scheduler: Scheduler, slurm: Slurm) -> None:
    with pytest.raises(GpuformError, match="has no node w9"):
        scheduler.cordon(["w0", "w9"], MARK)
    assert slurm.get_state("w0") == "IDLE"


def test_an_eviction_requeues_jobs_that_allow_it_and_cancels_the_others(
    scheduler: Scheduler, slurm: Slurm
) -> None:
    batch, fixed = slurm.submit(node="w0"), slurm.submit("--no-requeue", node="w0")
    elsewhere = slurm.submit(node="w1")
    for job in (batch, fixed, elsewhere):
        wait_until(job.is_running, "a running job")
    scheduler.cordon(["w0"], MARK)
    scheduler.evict(["w0"])
    wait_until(lambda: not find_node(scheduler, "w0").jobs, "a node without jobs")
    assert slurm.has_job(batch.id, "PENDING")
    assert slurm.has_job(fixed.id, "CANCELLED")
    assert elsewhere.is_running()
    assert not batch.has_ended()
    assert not fixed.has_ended()
    scheduler.evict(["w0"])  # nothing is left to do


def test_a_task_of_an_array_is_evicted_alone(scheduler: Scheduler, slurm: Slurm) -> None:
    array = slurm.submit("--array=0-5")
    tasks = [f"{array.id}_{index}" for index in range(6)]
    wait_until(lambda: all(slurm.has_job(task, "RUNNING") for task in tasks), "six tasks")
    on_w0 = list_job_ids(scheduler, "w0")
    assert len(on_w0) == 2
    scheduler.cordon(["w0"], MARK)
    scheduler.evict(["w0"])
    wait_until(lambda: not list_job_ids(scheduler, "w0"), "a node without jobs")
    others = [task for task in tasks if task not in on_w0]
    assert all(slurm.has_job(task, "PENDING") for task in on_w0)
    assert all(slurm.has_job(task, "RUNNING") for task in others)


def test_a_heterogeneous_job_counts_as_one_job(scheduler: Scheduler, slurm: Slurm) -> None:
    job = slurm.submit("--nodelist=w0", ":", "--nodelist=w1")
    wait_until(lambda: list_job_ids(scheduler, "w1") == [f"{job.id}+1"], "the second part")
    scheduler.cordon(["w1"], MARK)
    scheduler.evict(["w1"])
    wait_until(lambda: not any(node.jobs for node in scheduler.list_nodes()), "nodes without jobs")
    assert slurm.has_job(f"{job.id}+0", "PENDING")


def test_a_suspended_job_is_still_on_its_node(scheduler: Scheduler, slurm: Slurm) -> None:
    job = slurm.submit(node="w0")
    wait_until(job.is_running, "a running job")
    slurm.run("scontrol", "suspend", job.id)
    assert list_job_ids(scheduler, "w0") == [job.id]


def test_a_completing_job_is_still_on_its_node(scheduler: Scheduler, slurm: Slurm) -> None:
    slurm.stop("w0")  # so that nobody says that the job is gone
    job = slurm.submit(node="w0")
    wait_until(lambda: slurm.has_job(job.id, "RUNNING", "CONFIGURING"), "a job without its node")
    slurm.run("scancel", job.id)
    wait_until(lambda: slurm.has_job(job.id, "COMPLETING"), "a job that completes")
    assert list_job_ids(scheduler, "w0") == [job.id]
    scheduler.cordon(["w0"], MARK)
    scheduler.evict(["w0"])
    assert list_job_ids(scheduler, "w0") == [job.id]
    slurm.start("w0", "slurmd", "-D", "-N", "w0")
    wait_until(lambda: not list_job_ids(scheduler, "w0"), "a node without jobs")


def test_a_controller_that_stops_answering_is_an_error(scheduler: Scheduler, slurm: Slurm) -> None:
    job = slurm.submit(node="w0")
    wait_until(job.is_running, "a running job")
    scheduler.cordon(["w0"], MARK)
    slurm.stop("slurmctld")
    try:
        with pytest.raises(Unreachable, match="Unable to contact slurm controller"):
            scheduler.list_nodes()
    finally:
        slurm.start_controller()
    wait_until(lambda: job.id in list_job_ids(scheduler, "w0"), "the job again")
    assert find_node(scheduler, "w0").owner_label == MARK
    job.end()


@pytest.mark.parametrize(
    "hostlist", ["w[0-2,7]", "w[008-011]", "a,gpu-[1-2],b[3]", "r[1-2]n[03-4]"]
)
def test_hostlists_are_expanded_as_by_scontrol(slurm: Slurm, hostlist: str) -> None:
    assert expand_hostlist(hostlist) == slurm.run("scontrol", "show", "hostnames", hostlist).split()
