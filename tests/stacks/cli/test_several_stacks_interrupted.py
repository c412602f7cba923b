"""A run of several stacks that is interrupted, and what is left of it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from processes.patient import PROGRAM
from support.stacks.workspace import STACKS, Workspace, create_workspace

from gpuform.providers.emulator.server import serve

pytestmark = pytest.mark.slow


@pytest.fixture
def estate(tmp_path: Path) -> Iterator[Workspace]:
    """The middle one of three stacks takes ten minutes of our time, unless it is told to end."""
    with serve(seed="interrupted") as server:
        made = create_workspace(tmp_path / "fleet", server.url, {"GPUFORM_CLOCK": ""}, {})
        (made.root / "volumes/topology.yaml").write_text('outputs: {volume_id: "1", region: "2"}\n')
        (made.root / "training/topology.yaml").unlink()
        program = PROGRAM.replace("PROVIDER", "Patient") + "\nimport pulumi\n"
        program += 'pulumi.StackReference("organization/volumes/dev")\n'
        program += "for name in ('cluster_id', 'region', 'kubeconfig'):\n"
        program += "    pulumi.export(name, name)\n"
        (made.root / "training/__main__.py").write_text(program)
        (made.root / "stacks.yaml").write_text(STACKS)
        yield made


def read_until(process: "subprocess.Popen[str]", text: str) -> None:
    assert process.stdout is not None
    seen = ""
    while text not in seen:
        line = process.stdout.readline()
        assert line, f"{text!r} never came:\n{seen}"
        seen += line


def locks(estate: Workspace) -> list[Path]:
    return list((estate.root / "state/.pulumi/locks").rglob("*.json"))


def machine(estate: Workspace) -> Any:
    """What the state has of what takes so long."""
    resources = estate.export("training/dev")["resources"]
    return next(each for each in resources if each.get("id") == "m-1")


def children(process: "subprocess.Popen[str]") -> list[int]:
    found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(each) for each in found.split()]


def wait_until_gone(pids: list[int]) -> None:
    """Each is waited for by what it holds: its place in /proc."""
    for pid in pids:
        while Path(f"/proc/{pid}/stat").exists() and " Z " not in _stat(pid):
            os.sched_yield()


def _stat(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return " Z "


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_all_in_good_order(estate: Workspace, number: int) -> None:
    with estate.start("up", "--all", "--yes") as process:
        read_until(process, "creating")
        process.send_signal(number)
        out, err = process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 1, out + err
    assert "Interrupted" in err
    assert "volumes/dev   done" in out
    assert "training/dev  failed" in out
    assert "told/dev      not started" in out
    assert locks(estate) == []
    assert machine(estate)["initErrors"] == ["interrupted"]


def test_the_second_signal_leaves_at_once(estate: Workspace) -> None:
    estate.edit("training/__main__.py", "Patient()", "Deaf()")
    with estate.start("up", "--all", "--yes") as process:
        read_until(process, "creating")
        left = children(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Interrupt again to exit at once" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 8
    wait_until_gone(left)
    assert locks(estate) == []
    (operation,) = estate.export("training/dev")["pending_operations"]
    assert operation["type"] == "creating"


def test_a_run_that_is_killed_alone_leaves_no_process_behind(estate: Workspace) -> None:
    with estate.start("up", "--all", "--yes") as process:
        read_until(process, "creating")
        left = children(process)
        assert left
        process.kill()
        process.wait()
    wait_until_gone(left)
    assert locks(estate) == []
    assert machine(estate)["initErrors"] == ["interrupted"]


def test_a_process_that_is_killed_fails_its_stack_alone(estate: Workspace) -> None:
    with estate.start("up", "--all", "--yes") as process:
        read_until(process, "creating")
        for pid in children(process):
            os.kill(pid, signal.SIGKILL)
        out, err = process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 1
    assert "training/dev  failed: its process exited with -9" in out, out + err
    assert "told/dev      not started: training/dev has failed" in out
