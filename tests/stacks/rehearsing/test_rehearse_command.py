"""`gpuform rehearse` of a change on the emulator, from the command line."""

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes.commands import Result, run_gpuform
from processes.limits import LAST_RESORT
from processes.patient import read_until, start_gpuform

EXAMPLE = Path(__file__).parents[3] / "examples/11-rehearsed-change"

pytestmark = pytest.mark.slow


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a copy of the example with its cluster, and a new driver declared."""
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns(".*", "tests"))
    for arguments in (
        ("stack", "init", "dev", "--emulate"),
        ("up", "--emulate", "--yes"),
        ("config", "set", "driver", "CUDA_12_6_560"),
    ):
        result = run(folder, *arguments)
        assert result.code == 0, result.stderr
    return folder


def run(folder: Path, *arguments: str) -> Result:
    return run_gpuform(
        folder, *arguments, PULUMI_CONFIG_PASSPHRASE="", PULUMI_HOME=str(folder.parent / "home")
    )


def read_files(project: Path) -> dict[str, bytes]:
    """Return the files of the project and of its state; the emulator logs what a preview asks."""
    files = [path for path in project.rglob("*") if path.is_file()]
    return {str(path): path.read_bytes() for path in files if ".gpuform" not in path.parts}


def list_outcomes(result: Result) -> dict[str, Any]:
    assert result.code == 0, result.stderr
    outcomes = json.loads(result.stdout)["outcomes"]
    return {outcome["hazard"]["kind"]: outcome for outcome in outcomes}


def test_the_number_of_processes_does_not_change_the_result(project: Path) -> None:
    files = read_files(project)
    arguments = ("rehearse", "--emulate", "--hazards", "slow-platform,no-capacity", "--json")

    alone = run(project, *arguments, "--jobs", "1")
    side_by_side = run(project, *arguments, "--jobs", "2")

    assert alone.stdout == side_by_side.stdout
    outcomes = list_outcomes(alone)
    usual, worst, slow = (outcomes[name] for name in ("none", "no-capacity", "slow-platform"))
    assert (usual["lost_gpus"], usual["is_mended"]) == (16, True)
    assert (worst["lost_gpus"], worst["lost_for_s"]) == (16, None)
    assert slow["lost_for_s"] > 2 * usual["lost_for_s"]
    assert [advice["declaration"] for advice in worst["advice"]] == [
        "rollout: {strategy: replace_cluster}"
    ]
    # Neither the project nor its state has changed.
    assert read_files(project) == files


def list_processes(folder: Path) -> list[str]:
    """Return the processes that have the folder in their environment."""
    found = []
    for file in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = file.read_bytes()
        except OSError:
            # The process has ended, or is somebody else's.
            continue
        if str(folder).encode() in variables:
            found.append(file.parent.name)
    return found


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Yield an empty folder whose path is short enough for the sockets of processes."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux has /proc")
def test_ctrl_c_ends_a_rehearsal_without_a_process_or_a_folder_left(
    project: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    variables = {
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_HOME": str(project.parent / "home"),
        "TMPDIR": str(temporary),
    }
    with start_gpuform("rehearse", "--emulate", "--hazards", "killed", **variables) as process:
        read_until(process, "rehearsed ")
        folders = list(temporary.glob("gpuform-rehearse-*"))
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=LAST_RESORT)

    assert folders
    assert process.returncode == 1
    assert "error: interrupted" in output
    assert "Traceback" not in output
    assert list(temporary.iterdir()) == []
    # The fork server ends when it notices that its parent has ended.
    deadline = time.monotonic() + LAST_RESORT
    while (left := list_processes(temporary)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []


def test_unknown_hazards_are_refused_with_the_known_ones(project: Path) -> None:
    result = run(project, "rehearse", "--hazards", "no-capacity,earthquake")
    assert result.code == 2
    assert "unknown hazard earthquake; known: none, no-capacity" in result.stderr
