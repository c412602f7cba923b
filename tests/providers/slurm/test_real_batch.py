"""Batch jobs in a real Slurm, which really run."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import real_sshd
from fake_clock import FakeClock
from real_slurm import Slurm, running, until

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.errors import GpuformError, UnknownOutcome, Unreachable
from gpuform.providers.slurm import Batch, BatchJobs, exit_code_of, result_of
from gpuform.providers.slurm.processes import LocalCommands, Output, SshCommands
from gpuform.schemas.slurm import SlurmInputs

pytestmark = pytest.mark.slow

PRINTS = "#!/bin/bash\n#SBATCH --time=5 # minutes\necho '# Avg bus bandwidth    : 487.87'\n"
PATTERN = r"Avg bus bandwidth\s*:\s*([\d.]+)"


@pytest.fixture
def folder(slurm: Slurm, tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def jobs(folder: Path) -> BatchJobs:
    return BatchJobs(LocalCommands(), folder=str(folder))


def ended(jobs: BatchJobs, name: str) -> bool:
    return name in (found := jobs.find([name])) and found[name].ended


def test_a_job_on_two_nodes_and_its_figure(jobs: BatchJobs, slurm: Slurm) -> None:
    script = PRINTS + 'echo "$SLURM_JOB_NUM_NODES nodes: it\'s"\n'
    job_id = jobs.submit(Batch("certify-two", script, ["w0", "w2"]))
    until(lambda: ended(jobs, "certify-two"), "an end")
    (run,) = jobs.find(["certify-two", "certify-none"]).values()
    assert (run.job_id, run.state, run.nodes) == (job_id, "COMPLETED", ("w0", "w2"))
    assert run.ok
    assert run.exit_code == "0:0"
    output = jobs.output("certify-two")
    assert result_of(output, PATTERN) == 487.87
    assert "2 nodes: it's" in output
    assert exit_code_of(output) == 0
    assert "TimeLimit=00:05:00" in slurm.run("scontrol", "show", "job", job_id)
    assert "Requeue=0" in slurm.run("scontrol", "show", "job", job_id)


def test_a_job_that_fails_tells_its_exit_code(jobs: BatchJobs) -> None:
    jobs.submit(Batch("certify-bad", PRINTS + "exit 7\n", ["w1"]))
    until(lambda: ended(jobs, "certify-bad"), "an end")
    run = jobs.find(["certify-bad"])["certify-bad"]
    assert (run.state, run.exit_code, run.ok) == ("FAILED", "7:0", False)
    assert exit_code_of(jobs.output("certify-bad")) == 7


def test_a_drained_node_keeps_the_job_waiting_and_tells_why(jobs: BatchJobs, slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=w1", "State=DRAIN", "Reason=fan 3")
    job_id = jobs.submit(Batch("certify-waits", PRINTS, ["w0", "w1"]))
    until(lambda: "UnavailableNodes" in jobs.find(["certify-waits"])["certify-waits"].reason, "why")
    run = jobs.find(["certify-waits"])["certify-waits"]
    assert (run.state, run.nodes, run.ended) == ("PENDING", ("w0", "w1"), False)
    assert run.reason == "ReqNodeNotAvail, UnavailableNodes:w1"
    assert jobs.output("certify-waits") == ""
    jobs.cancel([job_id])
    until(lambda: ended(jobs, "certify-waits"), "an end")
    assert jobs.find(["certify-waits"])["certify-waits"].state == "CANCELLED"
    jobs.cancel([job_id, "77777"])


def test_a_job_waits_for_the_jobs_of_others(jobs: BatchJobs, slurm: Slurm) -> None:
    other = slurm.submit(node="w0")
    until(other.runs, "a running job")
    jobs.submit(Batch("certify-behind", PRINTS, ["w0"]))
    assert jobs.find(["certify-behind"])["certify-behind"].state == "PENDING"
    assert other.runs()
    other.end()
    until(lambda: ended(jobs, "certify-behind"), "an end")


def test_a_running_job_is_found_by_another_run_and_cancelled(jobs: BatchJobs, folder: Path) -> None:
    job_id = jobs.submit(Batch("certify-long", "#!/bin/sh\necho begun\nsleep 1000\n", ["w0"]))
    until(lambda: "begun" in jobs.output("certify-long"), "its first line")
    later = BatchJobs(LocalCommands(), folder=str(folder))
    run = later.find(["certify-long"])["certify-long"]
    assert (run.job_id, run.state, run.exit_code) == (job_id, "RUNNING", "")
    later.cancel([job_id])
    until(lambda: ended(later, "certify-long"), "an end")
    assert exit_code_of(later.output("certify-long")) is None


def test_the_newest_job_of_a_name_counts(jobs: BatchJobs) -> None:
    jobs.submit(Batch("certify-twice", PRINTS + "exit 1\n", ["w0"]))
    until(lambda: ended(jobs, "certify-twice"), "an end")
    newest = jobs.submit(Batch("certify-twice", PRINTS, ["w0"]))
    until(lambda: ended(jobs, "certify-twice"), "an end")
    assert jobs.find(["certify-twice"])["certify-twice"].job_id == newest
    assert exit_code_of(jobs.output("certify-twice")) == 0  # of the newest alone


def test_hostile_names_of_others_hide_nothing(jobs: BatchJobs, slurm: Slurm) -> None:
    ours = jobs.submit(Batch("certify-ours", "#!/bin/sh\nsleep 1000\n", ["w0"]))
    for name in (
        "a\n\x1e99|0|RUNNING|w0|w0|None|certify-ours",
        "certify-ours,x",
        "$(id)",
    ):
        slurm.submit(f"--job-name={name}", node="w1")
    slurm.submit("--job-name=certify-ours", "--array=1-2", node="w2")
    found = jobs.find(["certify-ours"])
    assert [run.job_id for run in found.values()] == [ours]


def test_an_unknown_node_is_refused(jobs: BatchJobs) -> None:
    with pytest.raises(GpuformError, match="Invalid node name specified") as caught:
        jobs.submit(Batch("certify-w9", PRINTS, ["w9"]))
    assert not isinstance(caught.value, UnknownOutcome)
    assert jobs.find(["certify-w9"]) == {}


def test_a_job_gets_nobodys_keys(jobs: BatchJobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOGETHER_API_KEY", "very-secret")
    monkeypatch.setenv("SBATCH_HOLD", "1")
    jobs.submit(Batch("certify-env", "#!/bin/sh\nenv\nprintf 'last line'\n", ["w0"]))
    until(lambda: ended(jobs, "certify-env"), "an end")
    output = jobs.output("certify-env")
    assert "SLURM_JOB_ID" in output
    assert "very-secret" not in output
    assert exit_code_of(output) == 0


def test_a_long_script_and_a_long_output(jobs: BatchJobs) -> None:
    filler = "# it's $HOME `id` ä\n"
    script = "#!/usr/bin/env bash\n" + filler * 1300 + "head -c 400000 /dev/zero | tr '\\0' x\n"
    jobs.submit(Batch("certify-long-text", script, ["w0"]))
    until(lambda: ended(jobs, "certify-long-text"), "an end")
    output = jobs.output("certify-long-text")
    assert len(output) == 256 * 1024
    assert exit_code_of(output) == 0


class Losing:
    """Commands whose sbatch is run, and whose answer is lost."""

    place = "this machine"

    def __init__(self, *, runs_it: bool = True) -> None:
        self._runs_it = runs_it
        self.submitted = 0

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> Output:
        is_lost = command[0] == "sbatch"
        if not is_lost or self._runs_it:
            output = LocalCommands().run(command, is_change=is_change, as_user=as_user)
        if is_lost:
            self.submitted += 1
            raise UnknownOutcome("the connection broke")
        return output


def test_a_lost_answer_never_leads_to_two_jobs(folder: Path, slurm: Slurm) -> None:
    commands = Losing()
    jobs = BatchJobs(commands, folder=str(folder))
    job_id = jobs.submit(Batch("certify-lost", "#!/bin/sh\nsleep 1000\n", ["w0"]))
    assert jobs.find(["certify-lost"])["certify-lost"].job_id == job_id
    assert commands.submitted == 1
    assert slurm.run("squeue", "-h", "--name=certify-lost", "-o", "%i").split() == [job_id]


def test_a_job_that_is_never_seen_is_an_unknown_outcome(folder: Path) -> None:
    jobs = BatchJobs(Losing(runs_it=False), folder=str(folder))
    with (
        use_context(ProviderContext(clock=FakeClock())),
        pytest.raises(UnknownOutcome, match="certify-never was submitted: the connection broke"),
    ):
        jobs.submit(Batch("certify-never", PRINTS, ["w0"]))


def test_a_controller_that_stops_answering(jobs: BatchJobs, slurm: Slurm) -> None:
    slurm.stop("slurmctld")
    try:
        with pytest.raises(Unreachable, match="Unable to contact slurm controller"):
            jobs.find(["certify-two"])
        with use_context(ProviderContext(clock=FakeClock())), pytest.raises(GpuformError):
            jobs.submit(Batch("certify-down", PRINTS, ["w0"]))
    finally:
        slurm.start_controller()
    assert jobs.find(["certify-down"]) == {}


@pytest.fixture(scope="module")
def forgetful(started: Slurm) -> Iterator[Slurm]:
    """A Slurm that forgets what has ended after two seconds."""
    del started
    with running(("w0",), settings="MinJobAge=2\n") as slurm:
        yield slurm


def test_what_slurm_has_forgotten_is_known_by_its_output(
    forgetful: Slurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, forgetful.environment[name])
    jobs = BatchJobs(LocalCommands(), folder=str(tmp_path))
    jobs.submit(Batch("certify-old", PRINTS + "exit 3\n", ["w0"]))
    until(lambda: exit_code_of(jobs.output("certify-old")) is not None, "the end of the output")
    until(lambda: not jobs.find(["certify-old"]), "a Slurm that has forgotten it")
    assert exit_code_of(jobs.output("certify-old")) == 3
    assert result_of(jobs.output("certify-old"), PATTERN) == 487.87


def test_a_script_that_swallows_an_option_is_found_all_the_same(jobs: BatchJobs) -> None:
    script = "#!/bin/sh\n#SBATCH --comment\necho begun\nexit 4"
    job_id = jobs.submit(Batch("certify-odd", script, ["w0"]))
    until(lambda: ended(jobs, "certify-odd"), "an end")
    assert jobs.find(["certify-odd"])["certify-odd"].job_id == job_id
    assert exit_code_of(jobs.output("certify-odd")) == 4


@pytest.mark.skipif(bool(real_sshd.MISSING), reason=f"no {', '.join(real_sshd.MISSING)}")
@pytest.mark.skipif(not os.access("/run", os.W_OK), reason="sshd needs /run/sshd")
def test_a_job_is_submitted_and_read_through_ssh(slurm: Slurm, folder: Path) -> None:
    environment = {name: slurm.environment[name] for name in ("PATH", "SLURM_CONF")}
    with real_sshd.running(environment) as sshd:
        inputs = SlurmInputs(via="ssh", port=sshd.port)
        commands = SshCommands(inputs, options=("-F", str(sshd.configuration)))
        jobs = BatchJobs(commands, folder=str(folder))
        filler = "# it's $HOME `id` 'quoted'\n" * 1100
        jobs.submit(Batch("certify-ssh", PRINTS + filler + "exit 5", ["w1"]))
        until(lambda: ended(jobs, "certify-ssh"), "an end")
        assert jobs.find(["certify-ssh"])["certify-ssh"].exit_code == "5:0"
        assert result_of(jobs.output("certify-ssh"), PATTERN) == 487.87
        assert jobs.output("certify-none") == ""
