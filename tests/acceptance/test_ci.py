"""Runs in a CI job: no questions, a plain log with groups, and exit codes for every ending."""

import os
import pty
import signal
import subprocess
import time
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


def run_on_terminal(project: Any, *arguments: str, **environ: str) -> tuple[int, str]:
    """Run a command whose streams are a terminal; return the exit code and the output."""
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
    output = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not data:
            break
        output += data
    os.close(ours)
    return process.wait(timeout=LAST_RESORT), output.decode()


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        (("up",), "add --yes (the preview is shown first) or --skip-preview"),
        (("destroy",), "add --yes"),
        (("stack", "rm", "dev"), "add --yes"),
        (("config", "set", "gpus"), "write the value after the key, or to stdin"),
        (
            ("stack", "change-secrets-provider", "passphrase"),
            "Set GPUFORM_NEW_PASSPHRASE to the new passphrase",
        ),
    ],
)
@pytest.mark.slow
def test_a_job_with_a_terminal_is_asked_no_question(
    project: Any, command: tuple[str, ...], remedy: str
) -> None:
    project.declare(CLUSTER)
    code, output = run_on_terminal(project, *command, **GITHUB)
    assert code == 1, output
    assert remedy in output
    assert "\x1b" not in output


def test_a_missing_passphrase_is_an_error_with_the_variables_to_set(project: Any) -> None:
    del project.environ["PULUMI_CONFIG_PASSPHRASE"]
    project.declare(CLUSTER)
    code, output = run_on_terminal(project, "preview", **GITHUB)
    assert code == 1
    assert "PULUMI_CONFIG_PASSPHRASE_FILE" in output


def test_the_log_of_a_job_has_no_colors_and_can_be_folded(project: Any) -> None:
    project.declare(CLUSTER)
    code, output = run_on_terminal(project, "up", "--yes", **GITHUB)
    assert code == 0, output
    assert "\x1b" not in output
    lines = output.replace("\r\n", "\n").splitlines()
    assert lines[0] == "Previewing update (dev, emulated):"
    first, last = lines.index("::group::Updating (dev, emulated)"), lines.index("::endgroup::")
    folded = lines[first + 1 : last]
    assert folded[-1].startswith("+  train  together:Cluster  created in 20m")
    assert 3 < len(folded) < 12
    assert "    + 1 created" in lines[last:]
    assert "ada on" in project.run_ok("stack", "history").out


def test_a_cancelled_job_records_what_it_created(project: Any) -> None:
    begun = project.directory / "begun"
    program = PROGRAM.replace("PROVIDER", "Patient")
    announcement = f"open({str(begun)!r}, 'w').close()"
    project.write_program(program.replace('print("in create", flush=True)', announcement))
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
        while not begun.exists():
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=LAST_RESORT)
    assert process.returncode == failures.FAILED
    assert "Interrupted: gpuform starts" in output
    group, rest = output.split("::endgroup::")
    assert "creating failed" in group
    assert "The update was interrupted." in rest
    assert project.get_resource("a")["id"] == "m-1"
    assert "failed" in project.run_ok("stack", "history").out


class TestExitCodes:
    """The exit codes on the page of exit codes."""

    def test_each_exit_code_on_the_page_occurs(self, project: Any) -> None:
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
