"""Test that the emulated Slurm answers like a real one: the same commands, words and codes."""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT
from support.schedulers.emulated_slurm import NODES, SlurmCluster, create_slurm_cluster
from support.schedulers.real_slurm import MISSING_PROGRAMS, Slurm, run_slurm, wait_until

from gpuform.providers.emulator.server import serve
from gpuform.providers.slurm.parsing import (
    LIST_JOBS_COMMAND,
    LIST_NODES_COMMAND,
    build_batch_jobs_command,
    build_exit_codes_command,
    build_running_jobs_command,
)

RECORDED = Path(__file__).parents[2] / "providers" / "slurm" / "recorded"

Run = Callable[..., tuple[str, str, int]]

REFUSED = {
    "an unknown node": ("scontrol", "update", "NodeName=w9", "State=DRAIN", "Reason=x"),
    "one of two is unknown": ("scontrol", "update", "NodeName=w9,{0}", "State=DRAIN", "Reason=x"),
    "no reason": ("scontrol", "update", "NodeName={0}", "State=DRAIN"),
    "nothing to resume": ("scontrol", "update", "NodeName={0}", "State=RESUME"),
    "nothing to undrain": ("scontrol", "update", "NodeName={0}", "State=UNDRAIN"),
    "an unknown setting": ("scontrol", "update", "NodeName={0}", "Color=red"),
    "an unknown job to requeue": ("scontrol", "requeue", "77"),
    "an unknown node to show": ("scontrol", "show", "node", "w9"),
    "jobs of an unknown node": ("squeue", "--noheader", "--nodelist=w9"),
    "an unknown job to cancel": ("scancel", "77"),
    "no job to cancel": ("scancel", "x"),
    "a job on an unknown node": ("sbatch", "--parsable", "--nodelist=w9", "--wrap=true"),
    "no file": ("env", "LC_ALL=C", "tail", "-c", "9", "--", "no/such.out"),
    "no jobs of a name": build_batch_jobs_command(["x"]),
    "no jobs": LIST_JOBS_COMMAND,
    "no jobs to end": build_running_jobs_command(["{0}"]),
    "an empty queue": ("squeue",),
}


@pytest.fixture
def emulated() -> Iterator[SlurmCluster]:
    with serve(seed="slurm") as server:
        yield create_slurm_cluster(server)


@pytest.fixture(scope="module")
def started() -> Iterator[Slurm]:
    if MISSING_PROGRAMS:
        pytest.skip(
            f"needs a real Slurm (apt install slurm-wlm munge): no {', '.join(MISSING_PROGRAMS)}"
        )
    with run_slurm() as slurm:
        yield slurm


@pytest.fixture
def real(started: Slurm) -> Iterator[Slurm]:
    yield started
    started.reset()


def run_really(slurm: Slurm) -> Run:
    def run(*command: str) -> tuple[str, str, int]:
        finished = subprocess.run(
            command,
            env=slurm.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=LAST_RESORT,
        )
        return finished.stdout, finished.stderr, finished.returncode

    return run


def describe_shape(text: str) -> list[str]:
    """Return the output of `scontrol show node` without values: the keys of each line."""
    return [" ".join(re.findall(r"(?:^| +)(\w+)=", line)) for line in text.splitlines()]


def test_nodes_have_the_lines_of_recorded_ones(emulated: SlurmCluster) -> None:
    emulated.run_command("scontrol", "update", f"NodeName={NODES[0]}", "State=DRAIN", "Reason=x")
    recorded = describe_shape((RECORDED / "nodes.txt").read_text())
    printed = describe_shape(emulated.run_command(*LIST_NODES_COMMAND)[0])
    assert printed[: printed.index("")] == recorded[: recorded.index("")]
    assert printed[-2:] == ["ExtSensorsJoules ExtSensorsWatts ExtSensorsTemp", ""]


@pytest.mark.slow
@pytest.mark.parametrize("action", REFUSED)
def test_refusals_are_those_of_a_real_slurm(
    real: Slurm, emulated: SlurmCluster, action: str
) -> None:
    real_answer = run_really(real)(*(word.format(real.nodes[0]) for word in REFUSED[action]))
    assert emulated.run_command(*(word.format(NODES[0]) for word in REFUSED[action])) == real_answer


def test_the_end_of_a_jobs_output_is_printed_like_gnu_tail(
    emulated: SlurmCluster, tmp_path: Path
) -> None:
    lines = [f"line {number} 0" for number in range(12)]
    script = "\n".join(f'echo "line {number} $code"' for number in range(12))
    emulated.run_command("sbatch", "--output=job.out", f"--wrap={script}")
    emulated.advance(3600)
    (tmp_path / "job.out").write_text(emulated.run_command("tail", "-n", "99", "job.out")[0])
    assert (tmp_path / "job.out").read_text().splitlines()[-12:] == lines
    for options in ([], ["-n", "3"], ["-c", "9"], ["-c", "0"], ["-n", "0", "--"]):
        command = ["tail", *options, "job.out"]
        finished = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=LAST_RESORT
        )
        assert emulated.run_command(*command) == (finished.stdout, "", finished.returncode)
    for refused in (["-x", "job.out"], ["-n", "many", "job.out"], ["none.out"]):
        _, message, code = emulated.run_command("tail", *refused)
        assert (message.startswith("tail: "), code) == (True, 1)
    assert emulated.run_command("tail") == ("", "", 0)


def play_scene(
    run: Run, names: tuple[str, ...], settled: Callable[[str, str], None]
) -> list[object]:
    """Play jobs, a drain, a requeue and a resume, and return all observations."""
    observations: list[object] = []

    def record_views(*command: str) -> None:
        out, err, code = run(*command)
        for index, name in enumerate(names):
            out = out.replace(name, f"NODE{index}")
        observations.append((out, err, code))

    def read_states() -> None:
        output = run("scontrol", "show", "node")[0]
        observations.append(re.findall(r" State=(\S+)| Reason=(.*) \[", output))

    batch_options = ("--output=/dev/null", "--wrap=sleep 1000")
    record_views(
        "sbatch", "--job-name=a|b", f"--nodelist={names[0]}", "--exclusive", *batch_options
    )
    settled("1", "RUNNING")
    record_views(
        "sbatch",
        "--array=0-1",
        f"--nodelist={names[1]}",
        "--no-requeue",
        "--exclusive",
        *batch_options,
    )
    settled("2_0", "RUNNING")
    record_views(*LIST_JOBS_COMMAND)
    record_views("squeue", "--noheader", "--format=%i %P %u %t %D %N")
    record_views(*build_running_jobs_command(list(names)))
    record_views(*build_batch_jobs_command(["a|b", "none"]))
    record_views(*build_exit_codes_command(["a|b", "none"]))
    read_states()
    drained = f"NodeName={names[0]},{names[1]}"
    record_views("scontrol", "update", drained, "State=DRAIN", "Reason=gpuform: a 'b' State=IDLE")
    read_states()
    record_views("scontrol", "requeue", "2_0")
    record_views("scontrol", "requeue", "1,77")
    settled("1", "PENDING")
    record_views("scontrol", "requeue", "1")
    record_views("scancel", "2_0")
    settled("2_0", "CANCELLED")
    record_views("squeue", "--noheader", "--format=%i %t %N")
    read_states()
    record_views("scontrol", "update", f"NodeName={names[1]}", "State=UNDRAIN")
    settled("2_1", "RUNNING")
    record_views(*LIST_JOBS_COMMAND)
    record_views("scancel", "1", "2")
    settled("2_1", "CANCELLED")
    return observations


@pytest.mark.slow
def test_jobs_and_drains_look_like_a_real_slurms(real: Slurm, emulated: SlurmCluster) -> None:
    def emulated_settled(label: str, state: str) -> None:
        emulated.advance(6)
        assert emulated.get_job_states()[label] == state

    really = play_scene(
        run_really(real),
        real.nodes,
        lambda label, state: wait_until(lambda: real.has_job(label, state), f"{label} {state}"),
    )
    for emulated_observation, was in zip(
        play_scene(emulated.run_command, NODES, emulated_settled), really, strict=True
    ):
        assert emulated_observation == was
