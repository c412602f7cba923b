"""Commands that are forked from the warm process do what commands in new interpreters do."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from processes.commands import build_path_with_gpuform, run_gpuform, run_new_process
from processes.warm import measure_commands, start_warm_process
from support.processor_time import measure_processor_time


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (folder / "topology.yaml").write_text("clusters: 7\n")
    return folder


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("command", ["validate", "validate --json", "nope", "stack --help", ""])
def test_code_and_output_are_those_of_a_new_interpreter(project: Path, command: str) -> None:
    arguments = command.split()
    assert run_gpuform(project, *arguments) == run_new_process(project, *arguments)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_command_has_the_environment_of_its_caller(project: Path) -> None:
    variables = {"PULUMI_HOME": f"{project}/home", "PULUMI_BACKEND_URL": f"file://{project}"}
    created = run_gpuform(project, "stack", "init", "dev", PULUMI_CONFIG_PASSPHRASE="", **variables)
    assert created.code == 0, created.stderr
    assert (project / ".pulumi/stacks/demo/dev.json").exists()


def test_a_script_has_it_on_its_path(project: Path) -> None:
    (project / "sub").mkdir()
    done = subprocess.run(
        [
            "bash",
            "-c",
            "cd sub; gpuform -C .. validate | cat; gpuform -C .. validate 2>&1; exit $?",
        ],
        cwd=project,
        env=os.environ | {"PATH": build_path_with_gpuform()},
        capture_output=True,
        text=True,
        check=False,
    )
    result = run_gpuform(project / "sub", "-C", "..", "validate")
    assert done.stdout == result.stdout + result.stdout + result.stderr
    assert done.stderr == result.stderr
    assert done.returncode == result.code != 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_command(project: Path, number: signal.Signals) -> None:
    command = [start_warm_process().folder / "gpuform", "emulator", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=project, text=True) as process:
        assert process.stdout is not None
        assert "127.0.0.1" in process.stdout.readline()
        process.send_signal(number)
        process.stdout.read()  # ends when neither the client nor the command can write any more


def test_the_processor_time_of_commands_counts(project: Path) -> None:
    of_commands, of_all = measure_commands(), measure_processor_time()
    start_warm_process().run(["validate"], project, os.environ)
    used = measure_commands() - of_commands
    assert measure_processor_time() - of_all >= used > 0
