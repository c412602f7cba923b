"""In a CI job: nothing is asked, the log is plain and folds, and exit codes tell how it ended."""

import os
import pty
import signal
import subprocess
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from processes.patient import GPUFORM, PROGRAM

from gpuform.stacks.cli import failures

pytestmark = pytest.mark.slow

GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_ACTOR": "ada", "GITHUB_RUN_NUMBER": "42"}
CLUSTER = {
    "cluster_name": "training",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "driver_version": "CUDA_12_6_560",
    "billing_type": "ON_DEMAND",
}


def on_a_terminal(project: Any, *arguments: str, **environ: str) -> tuple[int, str]:
    """The exit code of a command whose streams are a terminal, and what it showed there."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*GPUFORM, *arguments],
        cwd=project.directory,
        env=project.environ | environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        seen += data
    os.close(ours)
    return process.wait(timeout=LAST_RESORT), seen.decode()


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (("up",), "add --yes (the preview is shown first) or --skip-preview"),
        (("destroy",), "add --yes"),
        (("stack", "rm", "dev"), "add --yes"),
        (("config", "set", "gpus"), "write the value after the key, or to stdin"),
        (
            ("stack", "change-secrets-provider", "passphrase"),
            "Set GPUFORM_NEW_PASSPHRASE to it",
        ),
    ],
)
@pytest.mark.slow
def test_nothing_is_asked_on_a_terminal_of_a_job(
    project: Any, command: tuple[str, ...], remedy: str
) -> None:
    project.declare(CLUSTER)
    code, told = on_a_terminal(project, *command, **GITHUB)
    assert code == 1, told
    assert remedy in told
    assert "\x1b" not in told


def test_a_missing_passphrase_is_told(project: Any) -> None:
    del project.environ["PULUMI_CONFIG_PASSPHRASE"]
    project.declare(CLUSTER)
    code, told = on_a_terminal(project, "preview", **GITHUB)
    assert code == 1
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" in told


def test_the_log_is_plain_and_folds(project: Any) -> None:
    project.declare(CLUSTER)
    code, told = on_a_terminal(project, "up", "--yes", **GITHUB)
    assert code == 0, told
    assert "\x1b" not in told
    lines = told.replace("\r\n", "\n").splitlines()
    assert lines[0] == "Previewing update (dev, emulated):"
    first, last = lines.index("::group::Updating (dev, emulated)"), lines.index("::endgroup::")
    folded = lines[first + 1 : last]
    assert folded[-1].startswith("+  train  together:Cluster  created in 20m")
    assert 3 < len(folded) < 12
    assert "    + 1 created" in lines[last:]
    assert "ada on" in project.ok("stack", "history").out


def test_a_job_that_is_cancelled(project: Any) -> None:
    begun = project.directory / "begun"
    os.mkfifo(begun)
    program = PROGRAM.replace("PROVIDER", "Patient")
    told_by = f"open({str(begun)!r}, 'w').close()"
    project.program(program.replace('print("in create", flush=True)', told_by))
    del project.environ["GPUFORM_CLOCK"]  # waiting takes real time, until it is interrupted
    process = subprocess.Popen(
        [*GPUFORM, "up", "--yes", "--skip-preview"],
        cwd=project.directory,
        env=project.environ | GITHUB,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with process:
        begun.read_text()  # comes back once the create has begun
        process.send_signal(signal.SIGTERM)
        told, _ = process.communicate(timeout=LAST_RESORT)
    assert process.returncode == failures.FAILED
    assert "Interrupted: gpuform starts" in told
    group, rest = told.split("::endgroup::")
    assert "creating failed" in group
    assert "The update was interrupted." in rest
    assert project.resource("a")["id"] == "m-1"
    assert "failed" in project.ok("stack", "history").out


class TestExitCodes:
    """What the page of exit codes says."""

    def test_each(self, project: Any) -> None:
        project.declare(CLUSTER)
        assert project.run("preview").code == failures.SUCCESS
        assert project.run("preview", "--expect-no-changes").code == failures.UNEXPECTED_CHANGES
        assert project.run("preview", "--stack", "prod").code == failures.STACK_NOT_FOUND
        assert project.run("preview", "--no-such-flag").code == failures.BAD_FLAGS
        assert project.run("up").code == failures.FAILED
        assert project.run("preview", "--save-plan", "plan.json").code == failures.SUCCESS
        reviewed = project.run("review", "plan.json", "--detailed-exitcode")
        assert reviewed.code == failures.BAD_FLAGS == 2
        assert project.run("doctor", PULUMI_CONFIG_PASSPHRASE="wrong").code == failures.FAILED
