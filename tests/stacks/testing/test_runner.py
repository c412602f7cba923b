"""The processes that run cases in parallel."""

import operator
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from processes.commands import run_gpuform
from processes.limits import LAST_RESORT

from gpuform.schemas.cases_file import CaseInputs
from gpuform.stacks.testing import processes
from gpuform.stacks.testing.case_run import CaseRunSpec
from gpuform.stacks.testing.cases import read_cases
from gpuform.stacks.testing.runner import CaseRunner, CaseStatus

from .conftest import WriteCases

_PROCESSES = 160


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_no_process_loses_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start in one thread reaps the ended processes of all threads, before a late `join`."""
    # Something of the standard library that takes two arguments and ends at once.
    monkeypatch.setattr(processes, "run_case_in_process", operator.is_)
    spec = CaseRunSpec(tmp_path, tmp_path, 0, CaseInputs(), has_predecessor=False)

    def run_process(_number: int) -> str:
        process = processes.CaseProcess(spec)
        process.run()
        return process.error

    with ThreadPoolExecutor(8) as threads:
        errors = Counter(threads.map(run_process, range(_PROCESSES)))
    assert errors == {"the process of the run exited with 0": _PROCESSES}


HANGING_PROGRAM = """\
import os, signal
print("it waits", flush=True)
if fifo := os.environ.get("FIFO"):
    told = os.open(fifo, os.O_WRONLY)
    if os.fork():  # a case may start no program; a copy of its own process is one of its children
        os.write(told, b"begun")
signal.pause()
"""


@pytest.fixture
def hanging_project(project: Path, write_cases: WriteCases) -> Path:
    """Return the folder of a project whose program does not end."""
    (project / "topology.yaml").unlink()
    (project / "__main__.py").write_text(HANGING_PROGRAM)
    write_cases("cases: {hangs: {}, too: {}}")
    return project


def test_a_case_over_its_time_limit_is_killed_and_broken(hanging_project: Path) -> None:
    results = CaseRunner(1, time_limit_s=0.01).run(read_cases([hanging_project], Path()))
    assert [result.status for result in results] == [CaseStatus.BROKEN, CaseStatus.BROKEN]
    assert "the run did not end within 0s of real time" in results[0].error


@pytest.mark.slow
def test_the_command_has_a_time_limit(hanging_project: Path) -> None:
    done = run_gpuform(hanging_project, "test", "-k", "too", "--timeout", "1s")
    assert (done.code, done.stderr) == (1, "")
    assert "broken  demo/too" in done.stdout
    assert "  the run did not end within 1s of real time" in done.stdout


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_temporary_folder_with_too_long_a_path_is_an_error(
    hanging_project: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / ("long" * 30)
    temporary.mkdir()
    done = run_gpuform(hanging_project, "test", TMPDIR=str(temporary))
    assert (done.code, done.stdout) == (1, "")
    assert "set TMPDIR to a writable folder with a short path" in done.stderr
    assert "internal error" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "to_group"),
    [
        (signal.SIGINT, True),
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGTERM, True),
        (signal.SIGHUP, True),
        (signal.SIGKILL, False),
    ],
)
def test_a_signal_ends_all_processes_and_removes_their_files(
    hanging_project: Path, tmp_path: Path, number: signal.Signals, to_group: bool
) -> None:
    # Its path is short, as those of sockets have to be.
    temporary = Path(tempfile.mkdtemp(dir="/tmp"))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "gpuform.stacks.cli", "test", "--jobs", "2"]
    process = subprocess.Popen(
        command,
        cwd=hanging_project,
        env={**os.environ, "TMPDIR": str(temporary), "FIFO": str(fifo)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as fifo_reader:
        try:
            received = b""
            while received != b"begun" * 2:
                if not select.select([fifo_reader], [], [], LAST_RESORT)[0]:
                    process.kill()
                    pytest.fail(f"{received!r} of the programs is heard: {process.communicate()}")
                received += fifo_reader.read(5)
            (os.killpg if to_group else os.kill)(process.pid, number)
            out, err = process.communicate(timeout=LAST_RESORT)
            # The end of the pipe: nobody who has inherited it is left.
            assert select.select([fifo_reader], [], [], LAST_RESORT)[0]
            assert fifo_reader.read(1) == b""
        finally:
            process.kill()
    remaining_files = list(temporary.iterdir())
    shutil.rmtree(temporary)
    if number is signal.SIGKILL:
        return
    assert (process.returncode, out, err.strip()) == (1, "", "error: interrupted")
    assert remaining_files == []
