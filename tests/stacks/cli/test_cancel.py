"""`gpuform cancel` and `--lock-timeout`, with real processes that hold locks."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT

Run = Any

LOCKS = ".pulumi/locks/organization/demo/dev"

# Holds the stack's lock until its stdin ends.
HOLDER = """
import sys
from gpuform.stacks.engine.store.backend import Backend
with Backend.open("file://.", {}).create_lock("demo", "dev"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def lock_holder(dev: Run, project: Path) -> Any:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def write_lock(project: Path, **fields: Any) -> Path:
    path = project / LOCKS / "left.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"pid": 2**22 + 1, "username": "ann", "hostname": "elsewhere", **fields}
    path.write_text(json.dumps(content))
    return path


def test_cancel_removes_a_lock_that_the_pulumi_cli_left(dev: Run, project: Path) -> None:
    path = write_lock(project, hostname=socket.gethostname(), timestamp="2026-11-21T03:28:17.2Z")
    locked = dev("destroy", "--yes", "--skip-preview")
    assert locked.code == 1
    assert "ann@" in locked.err
    assert "that process no longer runs" in locked.err
    assert "gpuform cancel" in locked.err
    ran = dev("cancel", "--yes")
    assert ran.code == 0
    assert "ann@" in ran.out
    assert not path.exists()
    assert dev("destroy", "--yes", "--skip-preview").code == 0
    assert dev("cancel", "dev").out == "Stack dev is not locked.\n"


def test_cancel_asks_before_removing_a_lock(dev: Run, project: Path, terminal: None) -> None:
    path = write_lock(project)
    assert dev("cancel", answers="no\n").code == 1
    assert path.exists()
    assert dev("cancel", answers="yes\n").code == 0
    assert not path.exists()


def test_cancel_without_a_terminal_requires_yes(dev: Run, project: Path) -> None:
    path = write_lock(project)
    ran = dev("cancel")
    assert ran.code == 1
    assert "add --yes" in ran.err
    assert path.exists()
    assert dev("cancel", "prod", "--yes").code == 6


def test_cancel_keeps_the_lock_of_a_running_process(
    dev: Run, project: Path, lock_holder: subprocess.Popen[str]
) -> None:
    ran = dev("cancel", "--yes")
    assert ran.code == 1
    assert f"pid {lock_holder.pid}" in ran.err
    (path,) = (project / LOCKS).iterdir()
    path.unlink()
    assert "another gpuform process" in dev("cancel", "--yes").err


def test_a_locked_stack_names_the_running_process(
    dev: Run, lock_holder: subprocess.Popen[str]
) -> None:
    ran = dev("up", "--yes")
    assert ran.code == 1
    assert f"(pid {lock_holder.pid}) by gpuform" in ran.err
    assert "--lock-timeout" in ran.err


def test_a_command_with_lock_timeout_waits_for_the_lock(
    dev: Run, lock_holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = []

    def sleep(_self: object, seconds: float, _cancelled: object) -> None:
        slept.append(seconds)
        lock_holder.communicate("")

    monkeypatch.setattr("gpuform.providers.context.run_context.SystemClock.sleep", sleep)
    ran = dev("destroy", "--yes", "--skip-preview", "--lock-timeout", "10m")
    assert ran.code == 0
    assert slept[0] == 0.05
    assert f"(pid {lock_holder.pid})" in ran.err
    assert "waiting for it" in ran.err


def test_the_lock_of_a_killed_command_is_taken_over(
    dev: Run, project: Path, lock_holder: subprocess.Popen[str]
) -> None:
    os.kill(lock_holder.pid, signal.SIGKILL)
    lock_holder.wait(timeout=LAST_RESORT)
    assert len(list((project / LOCKS).iterdir())) == 1
    ran = dev("destroy", "--yes", "--skip-preview")
    assert ran.code == 0
    assert f"(pid {lock_holder.pid}) by gpuform" in ran.err
    assert "takes over the lock" in ran.err
    assert list((project / LOCKS).iterdir()) == []


def test_an_invalid_lock_timeout_is_a_usage_error(dev: Run) -> None:
    ran = dev("up", "--lock-timeout", "soon")
    assert ran.code == 2
    assert "30s, 45m or 1h30m" in ran.err


@pytest.mark.slow
def test_ten_updates_of_one_stack_run_one_after_the_other(dev: Run, project: Path) -> None:
    """The program fails if two of its runs overlap."""
    (project / "__main__.py").write_text(
        "import os, pulumi\n"
        "os.close(os.open('inside', os.O_CREAT | os.O_EXCL))\n"
        "pulumi.export('a', 1)\n"
        "os.unlink('inside')\n"
    )
    up = ["up", "--yes", "--skip-preview", "--lock-timeout", "25m"]
    command = [sys.executable, "-m", "gpuform.stacks.cli", *up]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(10)
    ]
    outputs = [process.communicate(timeout=LAST_RESORT)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * 10, outputs
    assert len(dev("stack", "history", "--json", "--page-size", "20").json) == 10
    assert len(dev("state", "list", "--json").json["resources"]) == 1
    assert list((project / LOCKS).iterdir()) == []
