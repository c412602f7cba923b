"""Test batch jobs that run in a real Slurm."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.clocks.fake_clock import FakeClock
from support.schedulers import real_sshd
from support.schedulers.real_slurm import Slurm, run_slurm, wait_until

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.errors import GpuformError, UnknownOutcome, Unreachable
from gpuform.providers.slurm.batch import BatchJob, BatchQueue, parse_exit_code
from gpuform.providers.slurm.processes import CommandOutput, LocalCommandRunner, SshCommandRunner
from gpuform.providers.slurm.results import search_result
from gpuform.schemas.policies.drain import SlurmInputs

pytestmark = pytest.mark.slow

PRINTS = "#!/bin/bash\n#SBATCH --time=5 # minutes\necho '# Avg bus bandwidth    : 487.87'\n"
PATTERN = r"Avg bus bandwidth\s*:\s*([\d.]+)"


@pytest.fixture
def folder(slurm: Slurm, tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def jobs(folder: Path) -> BatchQueue:
    return BatchQueue(LocalCommandRunner(), folder=str(folder))


def has_job_ended(jobs: BatchQueue, name: str) -> bool:
    return name in (found_jobs := jobs.find_jobs([name])) and found_jobs[name].has_ended


def test_a_job_on_two_nodes_reports_its_figure(jobs: BatchQueue, slurm: Slurm) -> None:
    script = PRINTS + 'echo "$SLURM_JOB_NUM_NODES nodes: it\'s"\n'
    job_id = jobs.submit(BatchJob("certify-two", script, ["w0", "w2"]))
    wait_until(lambda: has_job_ended(jobs, "certify-two"), "an end")
    (run,) = jobs.find_jobs(["certify-two", "certify-none"]).values()
    assert (run.job_id, run.state, run.nodes) == (job_id, "COMPLETED", ("w0", "w2"))
    assert run.has_succeeded
    assert run.exit_code == "0:0"
    output = jobs.read_output("certify-two")
    assert search_result(output, PATTERN) == 487.87
    assert "2 nodes: it's" in output
    assert parse_exit_code(output) == 0
    assert "TimeLimit=00:05:00" in slurm.run("scontrol", "show", "job", job_id)
    assert "Requeue=0" in slurm.run("scontrol", "show", "job", job_id)


def test_a_failed_job_reports_its_exit_code(jobs: BatchQueue) -> None:
    jobs.submit(BatchJob("certify-bad", PRINTS + "exit 7\n", ["w1"]))
    wait_until(lambda: has_job_ended(jobs, "certify-bad"), "an end")
    run = jobs.find_jobs(["certify-bad"])["certify-bad"]
    assert (run.state, run.exit_code, run.has_succeeded) == ("FAILED", "7:0", False)
    assert parse_exit_code(jobs.read_output("certify-bad")) == 7


def test_a_job_on_a_drained_node_waits_and_reports_the_reason(
    jobs: BatchQueue, slurm: Slurm
) -> None:
    slurm.run("scontrol", "update", "NodeName=w1", "State=DRAIN", "Reason=fan 3")
    job_id = jobs.submit(BatchJob("certify-waits", PRINTS, ["w0", "w1"]))
    wait_until(
        lambda: "UnavailableNodes" in jobs.find_jobs(["certify-waits"])["certify-waits"].reason,
        "why",
    )
    run = jobs.find_jobs(["certify-waits"])["certify-waits"]
    assert (run.state, run.nodes, run.has_ended) == ("PENDING", ("w0", "w1"), False)
    assert run.reason == "ReqNodeNotAvail, UnavailableNodes:w1"
    assert jobs.read_output("certify-waits") == ""
    jobs.cancel([job_id])
    wait_until(lambda: has_job_ended(jobs, "certify-waits"), "an end")
    assert jobs.find_jobs(["certify-waits"])["certify-waits"].state == "CANCELLED"
    jobs.cancel([job_id, "77777"])


def test_a_job_waits_for_the_jobs_of_others(jobs: BatchQueue, slurm: Slurm) -> None:
    other = slurm.submit(node="w0")
    wait_until(other.is_running, "a running job")
    jobs.submit(BatchJob("certify-behind", PRINTS, ["w0"]))
    assert jobs.find_jobs(["certify-behind"])["certify-behind"].state == "PENDING"
    assert other.is_running()
    other.end()
    wait_until(lambda: has_job_ended(jobs, "certify-behind"), "an end")


def test_a_running_job_is_found_by_another_run_and_cancelled(
    jobs: BatchQueue, folder: Path
) -> None:
    job_id = jobs.submit(BatchJob("certify-long", "#!/bin/sh\necho begun\nsleep 1000\n", ["w0"]))
    wait_until(lambda: "begun" in jobs.read_output("certify-long"), "its first line")
    later = BatchQueue(LocalCommandRunner(), folder=str(folder))
    run = later.find_jobs(["certify-long"])["certify-long"]
    assert (run.job_id, run.state, run.exit_code) == (job_id, "RUNNING", "")
    later.cancel([job_id])
    wait_until(lambda: has_job_ended(later, "certify-long"), "an end")
    assert parse_exit_code(later.read_output("certify-long")) is None


def test_the_newest_job_of_a_name_counts(jobs: BatchQueue) -> None:
    jobs.submit(BatchJob("certify-twice", PRINTS + "exit 1\n", ["w0"]))
    wait_until(lambda: has_job_ended(jobs, "certify-twice"), "an end")
    newest = jobs.submit(BatchJob("certify-twice", PRINTS, ["w0"]))
    wait_until(lambda: has_job_ended(jobs, "certify-twice"), "an end")
    assert jobs.find_jobs(["certify-twice"])["certify-twice"].job_id == newest
    assert parse_exit_code(jobs.read_output("certify-twice")) == 0  # of the newest alone


def test_jobs_of_others_with_hostile_names_hide_no_job(jobs: BatchQueue, slurm: Slurm) -> None:
    ours = jobs.submit(BatchJob("certify-ours", "#!/bin/sh\nsleep 1000\n", ["w0"]))
    for name in (
        "a\n\x1e99|0|RUNNING|w0|w0|None|certify-ours",
        "certify-ours,x",
        "$(id)",
    ):
        slurm.submit(f"--job-name={name}", node="w1")
    slurm.submit("--job-name=certify-ours", "--array=1-2", node="w2")
    found_jobs = jobs.find_jobs(["certify-ours"])
    assert [run.job_id for run in found_jobs.values()] == [ours]


def test_an_unknown_node_is_refused(jobs: BatchQueue) -> None:
    with pytest.raises(GpuformError, match="Invalid node name specified") as caught:
        jobs.submit(BatchJob("certify-w9", PRINTS, ["w9"]))
    assert not isinstance(caught.value, UnknownOutcome)
    assert jobs.find_jobs(["certify-w9"]) == {}


def test_a_job_gets_no_credentials_of_the_environment(
    jobs: BatchQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOGETHER_API_KEY", "very-secret")
    monkeypatch.setenv("SBATCH_HOLD", "1")
    jobs.submit(BatchJob("certify-env", "#!/bin/sh\nenv\nprintf 'last line'\n", ["w0"]))
    wait_until(lambda: has_job_ended(jobs, "certify-env"), "an end")
    output = jobs.read_output("certify-env")
    assert "SLURM_JOB_ID" in output
    assert "very-secret" not in output
    assert parse_exit_code(output) == 0


def test_a_long_script_runs_and_its_long_output_is_read(jobs: BatchQueue) -> None:
    filler = "# it's $HOME `id` ä\n"
    script = "#!/usr/bin/env bash\n" + filler * 1300 + "head -c 400000 /dev/zero | tr '\\0' x\n"
    jobs.submit(BatchJob("certify-long-text", script, ["w0"]))
    wait_until(lambda: has_job_ended(jobs, "certify-long-text"), "an end")
    output = jobs.read_output("certify-long-text")
    assert len(output) == 256 * 1024
    assert parse_exit_code(output) == 0


class LossyCommandRunner:
    """Runs commands on this machine, and loses the answer of sbatch."""

    label = "this machine"

    def __init__(self, *, runs_it: bool = True) -> None:
        self._runs_it = runs_it
        self.submitted = 0

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        is_lost = command[0] == "sbatch"
        if not is_lost or self._runs_it:
            output = LocalCommandRunner().run(command, is_change=is_change, as_user=as_user)
        if is_lost:
            self.submitted += 1
            raise UnknownOutcome("the connection broke")
        return output


def test_a_lost_answer_never_leads_to_two_jobs(folder: Path, slurm: Slurm) -> None:
    commands = LossyCommandRunner()
    jobs = BatchQueue(commands, folder=str(folder))
    job_id = jobs.submit(BatchJob("certify-lost", "#!/bin/sh\nsleep 1000\n", ["w0"]))
    assert jobs.find_jobs(["certify-lost"])["certify-lost"].job_id == job_id
    assert commands.submitted == 1
    assert slurm.run("squeue", "-h", "--name=certify-lost", "-o", "%i").split() == [job_id]


def test_a_submitted_job_that_is_never_listed_has_an_unknown_outcome(folder: Path) -> None:
    jobs = BatchQueue(LossyCommandRunner(runs_it=False), folder=str(folder))
    with (
        use_context(ProviderContext(clock=FakeClock())),
        pytest.raises(
            UnknownOutcome,
            match="job certify-never: the result of its submission is unknown: the connection",
        ),
    ):
        jobs.submit(BatchJob("certify-never", PRINTS, ["w0"]))


def test_a_controller_that_stops_answering_is_an_error(jobs: BatchQueue, slurm: Slurm) -> None:
    slurm.stop("slurmctld")
    try:
        with pytest.raises(Unreachable, match="Unable to contact slurm controller"):
            jobs.find_jobs(["certify-two"])
        with use_context(ProviderContext(clock=FakeClock())), pytest.raises(GpuformError):
            jobs.submit(BatchJob("certify-down", PRINTS, ["w0"]))
    finally:
        slurm.start_controller()
    assert jobs.find_jobs(["certify-down"]) == {}


@pytest.fixture(scope="module")
def forgetful(started: Slurm) -> Iterator[Slurm]:
    """Start a Slurm that forgets ended jobs after two seconds."""
    del started
    with run_slurm(("w0",), settings="MinJobAge=2\n") as slurm:
        yield slurm


def test_a_forgotten_job_is_found_by_its_output(
    forgetful: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, forgetful.environment[name])
    jobs = BatchQueue(LocalCommandRunner(), folder=str(tmp_path))
    jobs.submit(BatchJob("certify-old", PRINTS + "exit 3\n", ["w0"]))
    wait_until(
        lambda: parse_exit_code(jobs.read_output("certify-old")) is not None,
        "the end of the output",
    )
    wait_until(lambda: not jobs.find_jobs(["certify-old"]), "a Slurm that has forgotten it")
    assert parse_exit_code(jobs.read_output("certify-old")) == 3
    assert search_result(jobs.read_output("certify-old"), PATTERN) == 487.87


def test_a_job_is_found_even_if_its_script_swallows_an_option(jobs: BatchQueue) -> None:
    script = "#!/bin/sh\n#SBATCH --comment\necho begun\nexit 4"
    job_id = jobs.submit(BatchJob("certify-odd", script, ["w0"]))
    wait_until(lambda: has_job_ended(jobs, "certify-odd"), "an end")
    assert jobs.find_jobs(["certify-odd"])["certify-odd"].job_id == job_id
    assert parse_exit_code(jobs.read_output("certify-odd")) == 4


@pytest.mark.skipif(
    bool(real_sshd.MISSING_PROGRAMS), reason=f"no {', '.join(real_sshd.MISSING_PROGRAMS)}"
)
@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="sshd needs /run/sshd")
def test_a_job_is_submitted_and_read_through_ssh(slurm: Slurm, folder: Path) -> None:
    environment = {name: slurm.environment[name] for name in ("PATH", "SLURM_CONF")}
    with real_sshd.run_sshd(environment) as sshd:
        inputs = SlurmInputs(via="ssh", port=sshd.port)
        commands = SshCommandRunner(inputs, options=("-F", str(sshd.configuration)))
        jobs = BatchQueue(commands, folder=str(folder))
        filler = "# it's $HOME `id` 'quoted'\n" * 1100
        jobs.submit(BatchJob("certify-ssh", PRINTS + filler + "exit 5", ["w1"]))
        wait_until(lambda: has_job_ended(jobs, "certify-ssh"), "an end")
        assert jobs.find_jobs(["certify-ssh"])["certify-ssh"].exit_code == "5:0"
        assert search_result(jobs.read_output("certify-ssh"), PATTERN) == 487.87
        assert jobs.read_output("certify-none") == ""
