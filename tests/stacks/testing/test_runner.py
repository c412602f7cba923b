"""The processes that play cases side by side."""

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

from gpuform.schemas.cases_file import CaseInputs
from gpuform.stacks.testing import processes
from gpuform.stacks.testing.case_run import CaseRunSpec
from gpuform.stacks.testing.cases import read_cases
from gpuform.stacks.testing.runner import CaseRunner, Status

from .conftest import Written

_PROCESSES = 160


def test_no_process_loses_its_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start in one thread reaps the processes of all: their `join` must not come too late."""
    # Something of the standard library that takes two arguments and ends at once.
    monkeypatch.setattr(processes, "run_case_in_process", operator.is_)
    part = CaseRunSpec(tmp_path, tmp_path, 0, CaseInputs(), has_predecessor=False)

    def told(_number: int) -> str:
        process = processes.CaseProcess(part)
        process.run()
        return process.error

    with ThreadPoolExecutor(8) as threads:
        found = Counter(threads.map(told, range(_PROCESSES)))
    assert found == {"the process of the run exited with 0": _PROCESSES}


HANGS = """\
import os, signal
print("it waits", flush=True)
if fifo := os.environ.get("FIFO"):
    told = os.open(fifo, os.O_WRONLY)
    if os.fork():  # a case may start no program; a copy of its own process is one of its children
        os.write(told, b"begun")
signal.pause()
"""


@pytest.fixture
def hanging(project: Path, written: Written) -> Path:
    """A project whose program does not end."""
    (project / "topology.yaml").unlink()
    (project / "__main__.py").write_text(HANGS)
    written("cases: {hangs: {}, too: {}}")
    return project


def test_a_case_that_does_not_end_is_ended(hanging: Path) -> None:
    results = CaseRunner(1, time_limit_s=0.01).run(read_cases([hanging], Path()))
    assert [each.status for each in results] == [Status.BROKEN, Status.BROKEN]
    assert "the run did not end within 0s of real time" in results[0].error


@pytest.mark.slow
def test_the_command_has_a_limit(hanging: Path) -> None:
    done = run_gpuform(hanging, "test", "-k", "too", "--timeout", "1s")
    assert (done.code, done.stderr) == (1, "")
    assert "broken  demo/too" in done.stdout
    assert "  the run did not end within 1s of real time" in done.stdout


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_temporary_folder_with_too_long_a_path_is_told(hanging: Path, tmp_path: Path) -> None:
    temporary = tmp_path / ("long" * 30)
    temporary.mkdir()
    done = run_gpuform(hanging, "test", TMPDIR=str(temporary))
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
def test_a_signal_ends_all_that_was_begun(
    hanging: Path, tmp_path: Path, number: signal.Signals, to_group: bool
) -> None:
    # Its path is short, as those of sockets have to be.
    temporary = Path(tempfile.mkdtemp(dir="/tmp"))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "gpuform.stacks.cli", "test", "--jobs", "2"]
    process = subprocess.Popen(
        command,
        cwd=hanging,
        env={**os.environ, "TMPDIR": str(temporary), "FIFO": str(fifo)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as begun:
        try:
            heard = b""
            while heard != b"begun" * 2:
                if not select.select([begun], [], [], 60)[0]:
                    process.kill()
                    pytest.fail(f"{heard!r} of the programs is heard: {process.communicate()}")
                heard += begun.read(5)
            (os.killpg if to_group else os.kill)(process.pid, number)
            out, err = process.communicate(timeout=60)
            # The end of the pipe: nobody who has inherited it is left.
            assert select.select([begun], [], [], 60)[0]
            assert begun.read(1) == b""
        finally:
            process.kill()
    left = list(temporary.iterdir())
    shutil.rmtree(temporary)
    if number is signal.SIGKILL:
        return
    assert (process.returncode, out, err.strip()) == (1, "", "error: interrupted")
    assert left == []
