"""Test batch jobs in the emulated Slurm, through exec in its controller's pod."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
import yaml
from support.clocks.fake_clock import FakeClock
from support.schedulers.emulated_slurm import NODES, SlurmCluster, create_slurm_cluster

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.emulator.server import serve
from gpuform.providers.errors import UnknownOutcome, Unreachable
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.slurm.batch import BatchJob, BatchQueue, parse_exit_code, parse_job_nodes
from gpuform.providers.slurm.processes import CommandOutput, PodCommandRunner
from gpuform.providers.slurm.results import search_result
from gpuform.schemas.policies.drain import SlurmInputs

SCRIPT = "#!/bin/bash\n#SBATCH --gpus-per-node=8 --time=10\nsrun all_reduce_perf -b 8G | tail -5\n"
PATTERN = r"Avg bus bandwidth\s*:\s*(?P<value>[\d.]+)"


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    with serve(seed="slurm") as server:
        made = create_slurm_cluster(server)
        with closing(get_kubernetes_client(made.kubeconfig, "train")):
            yield made


@pytest.fixture
def jobs(cluster: SlurmCluster) -> BatchQueue:
    return BatchQueue(
        PodCommandRunner(SlurmInputs(), cluster.kubeconfig, "train"), folder="/shared"
    )


def set_measures(cluster: SlurmCluster, **measures: object) -> None:
    cluster.call_slurm("POST", "/measures", measures)


def test_a_job_runs_by_the_clock_and_prints_a_figure(
    cluster: SlurmCluster, jobs: BatchQueue
) -> None:
    job_id = jobs.submit(BatchJob("certify", SCRIPT, NODES[:2]))
    run = jobs.find_jobs(["certify", "other"])["certify"]
    assert (run.job_id, run.state, run.nodes, run.has_ended) == (
        job_id,
        "RUNNING",
        NODES[:2],
        False,
    )
    assert jobs.read_output("certify") == ""
    cluster.advance(60)
    assert jobs.find_jobs(["certify"])["certify"].state == "COMPLETING"
    cluster.advance(6)
    run = jobs.find_jobs(["certify"])["certify"]
    assert (run.state, run.exit_code, run.has_succeeded) == ("COMPLETED", "0:0", True)
    last = f"gpuform: exit code 0 on {NODES[0]},{NODES[1]}\n"
    assert jobs.read_output("certify") == f"# Avg bus bandwidth    : 487.87\n{last}"
    assert parse_job_nodes(jobs.read_output("certify")) == NODES[:2]
    assert search_result(jobs.read_output("certify"), PATTERN) == 487.87


def test_commands_reach_a_server_whose_certificate_has_the_declared_name(
    cluster: SlurmCluster,
) -> None:
    # The certificate has 127.0.0.1 and localhost.
    kubeconfig = yaml.safe_load(cluster.kubeconfig.replace("127.0.0.1", "127.1"))
    kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = "localhost"
    kubeconfig_text = yaml.safe_dump(kubeconfig)
    with closing(get_kubernetes_client(kubeconfig_text, "train")):
        assert (
            PodCommandRunner(SlurmInputs(), kubeconfig_text, "train").run(["id", "-u"]).stdout
            == "0\n"
        )


def test_the_slowest_node_decides_the_result(cluster: SlurmCluster, jobs: BatchQueue) -> None:
    set_measures(cluster, figure=400.0, runs_for=5)
    set_measures(cluster, node=NODES[1], figure=312.5, runs_for=5)
    for name, nodes in (("without", NODES[::2]), ("with", NODES)):
        jobs.submit(BatchJob(name, SCRIPT, nodes))
        cluster.advance(30)
        assert jobs.find_jobs([name])[name].has_succeeded
    assert search_result(jobs.read_output("without"), PATTERN) == 400
    assert search_result(jobs.read_output("with"), PATTERN) == 312.5


def test_a_job_fails_on_a_broken_node(cluster: SlurmCluster, jobs: BatchQueue) -> None:
    set_measures(cluster, node=NODES[2], exit_code=3, text="NCCL failure")
    jobs.submit(BatchJob("certify", SCRIPT, NODES))
    cluster.advance(70)
    run = jobs.find_jobs(["certify"])["certify"]
    assert (run.state, run.reason, run.exit_code) == ("FAILED", "NonZeroExitCode", "3:0")
    assert parse_exit_code(jobs.read_output("certify")) == 3


def test_a_forgotten_job_is_known_by_its_output(cluster: SlurmCluster, jobs: BatchQueue) -> None:
    jobs.submit(BatchJob("certify", SCRIPT, NODES))
    cluster.advance(600)
    assert jobs.find_jobs(["certify"]) == {}
    assert parse_exit_code(jobs.read_output("certify")) == 0


def test_a_job_on_a_drained_node_waits_and_shows_the_reason(
    cluster: SlurmCluster, jobs: BatchQueue
) -> None:
    cluster.run_command("scontrol", "update", f"NodeName={NODES[1]}", "State=DRAIN", "Reason=fan 3")
    job_id = jobs.submit(BatchJob("certify", SCRIPT, NODES))
    run = jobs.find_jobs(["certify"])["certify"]
    assert (run.state, run.nodes) == ("PENDING", NODES)
    assert run.reason == f"ReqNodeNotAvail, UnavailableNodes:{NODES[1]}"
    jobs.cancel([job_id])
    assert jobs.find_jobs(["certify"])["certify"].state == "CANCELLED"
    assert jobs.read_output("certify") == ""


def test_jobs_of_others_are_waited_for_and_never_taken_for_ours(
    cluster: SlurmCluster, jobs: BatchQueue
) -> None:
    other = cluster.submit(name="certify", user="ada", nodes=NODES[:1], runs_for=50)
    assert jobs.find_jobs(["certify"]) == {}
    jobs.submit(BatchJob("certify", SCRIPT, NODES))
    assert jobs.find_jobs(["certify"])["certify"].state == "PENDING"
    assert cluster.get_job_states()[other] == "RUNNING"
    cluster.advance(56)
    assert jobs.find_jobs(["certify"])["certify"].state == "RUNNING"


class Losing:
    """The pod's commands, with an answer to sbatch that gets lost on its way back."""

    def __init__(self, cluster: SlurmCluster) -> None:
        self._pod = PodCommandRunner(SlurmInputs(), cluster.kubeconfig, "train")
        self.place = self._pod.label

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        output = self._pod.run(command, is_change=is_change, as_user=as_user)
        if command[0] == "sbatch":
            raise UnknownOutcome("the connection broke")
        return output


def test_a_lost_answer_never_leads_to_two_jobs(cluster: SlurmCluster) -> None:
    jobs = BatchQueue(Losing(cluster))
    with use_context(ProviderContext(clock=FakeClock())):
        job_id = jobs.submit(BatchJob("certify", SCRIPT, NODES[:1]))
    assert jobs.find_jobs(["certify"])["certify"].job_id == job_id
    assert len(cluster.call_slurm("GET", "/jobs")) == 1


def test_a_job_that_is_not_seen_is_never_submitted_again(
    cluster: SlurmCluster, jobs: BatchQueue
) -> None:
    cluster.call_emulator("POST", "/faults", {"path": "/exec", "status": 503})
    with (
        use_context(ProviderContext(clock=FakeClock())),
        pytest.raises(UnknownOutcome, match="the result of its submission is unknown"),
    ):
        jobs.submit(BatchJob("certify", SCRIPT, NODES[:1]))
    assert cluster.call_slurm("GET", "/jobs") == []


def test_a_silent_controller_is_an_error(cluster: SlurmCluster, jobs: BatchQueue) -> None:
    cluster.call_slurm("POST", "/controller", {"is_answering": False})
    with pytest.raises(Unreachable):
        jobs.find_jobs(["certify"])
    with pytest.raises(Unreachable):
        jobs.submit(BatchJob("certify", SCRIPT, NODES))
    assert jobs.read_output("certify") == ""


def test_the_longest_script_fits(cluster: SlurmCluster, jobs: BatchQueue) -> None:
    jobs.submit(BatchJob("certify", "#!/bin/sh\n" + "echo 1234567890123456789\n" * 1300, NODES))
    cluster.advance(70)
    assert jobs.find_jobs(["certify"])["certify"].has_succeeded
