"""Test interrupted runs of several stacks, and the processes that remain."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from processes.patient import PROGRAM, wait_until_gone
from support.stacks.workspace import STACKS, Workspace, create_workspace

from gpuform.providers.emulator.server import serve

pytestmark = pytest.mark.slow


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    """Write three stacks, of which the second one takes ten minutes unless interrupted."""
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
    message = ""
    while text not in message:
        line = process.stdout.readline()
        assert line, f"{text!r} never came:\n{message}"
        message += line


def list_locks(workspace: Workspace) -> list[Path]:
    return list((workspace.root / "state/.pulumi/locks").rglob("*.json"))


def get_machine(workspace: Workspace) -> Any:
    """Return the slow resource in the state."""
    resources = workspace.export("training/dev")["resources"]
    return next(resource for resource in resources if resource.get("id") == "m-1")


def list_child_pids(process: "subprocess.Popen[str]") -> list[int]:
    content = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(word) for word in content.split()]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_ends_all_stacks_with_states_and_locks_in_order(
    workspace: Workspace, number: int
) -> None:
    with workspace.start("up", "--all", "--yes") as process:
        read_until(process, "creating")
        process.send_signal(number)
        out, err = process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 1, out + err
    assert "Interrupted" in err
    assert "volumes/dev   done" in out
    assert "training/dev  failed" in out
    assert "told/dev      not started" in out
    assert list_locks(workspace) == []
    assert get_machine(workspace)["initErrors"] == ["interrupted"]


def test_the_second_signal_ends_all_processes_at_once(workspace: Workspace) -> None:
    workspace.edit("training/__main__.py", "Patient()", "Deaf()")
    with workspace.start("up", "--all", "--yes") as process:
        read_until(process, "creating")
        child_pids = list_child_pids(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while "Interrupt again to exit at once" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 8
    wait_until_gone(child_pids)
    assert list_locks(workspace) == []
    # The read of the stack reference may be interrupted too.
    operations = workspace.export("training/dev")["pending_operations"]
    (created,) = [operation for operation in operations if operation["type"] != "reading"]
    assert created["type"] == "creating"
    assert created["resource"]["urn"].endswith("::a")


def test_killing_the_parent_leaves_no_child_process(workspace: Workspace) -> None:
    with workspace.start("up", "--all", "--yes") as process:
        read_until(process, "creating")
        child_pids = list_child_pids(process)
        assert child_pids
        process.kill()
        process.wait()
    wait_until_gone(child_pids)
    assert list_locks(workspace) == []
    assert get_machine(workspace)["initErrors"] == ["interrupted"]


def test_a_killed_child_process_fails_only_its_stack(workspace: Workspace) -> None:
    with workspace.start("up", "--all", "--yes") as process:
        read_until(process, "creating")
        for pid in list_child_pids(process):
            os.kill(pid, signal.SIGKILL)
        out, err = process.communicate(timeout=LAST_RESORT)
        assert process.returncode == 1
    assert "training/dev  failed: its process exited with -9" in out, out + err
    assert "told/dev      not started: training/dev failed" in out
