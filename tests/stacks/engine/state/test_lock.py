"""Test the stack lock of a folder.

Pulumi's lock files, and the kernel's lock between gpuform processes.
"""

import errno
import json
import os
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from support.stacks.file_locks import create_file_lock
from support.stacks.lock_contenders import release_contenders, start_contenders

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import KernelLock, LockAttempt
from gpuform.stacks.engine.store import Backend, LockTimeout, storage
from gpuform.stacks.engine.store.lock import LockedError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".pulumi" / "locks" / "organization" / "demo" / "dev"


@pytest.fixture
def own(tmp_path: Path) -> Path:
    return tmp_path / ".pulumi" / "gpuform" / "demo" / "dev.lock"


class ScriptedClock:
    """A clock that calls the next of the given functions at each sleep."""

    def __init__(self, *happens: Any) -> None:
        self.slept: list[float] = []
        self._happens = list(happens)

    def now(self) -> float:
        return 0.0

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        self.slept.append(seconds)
        if self._happens:
            self._happens.pop(0)()


@pytest.fixture
def dead_pid() -> int:
    """Return the process id of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(timeout=LAST_RESORT)
    return process.pid


def refuse_locks(*_: Any) -> None:
    """Fail as `flock` fails on a file system without locks."""
    raise OSError(errno.ENOLCK, "No locks available")


def get_backend_url(folder: Path) -> str:
    """Return the URL of the lock folder's backend."""
    return f"file://{folder.parents[4]}"


def write_stale_lock(folder: Path, **fields: Any) -> Path:
    """Write a lock file of a process on this machine, 2 hours and 5 seconds old."""
    since = datetime.now(UTC) - timedelta(hours=2, seconds=5)
    content = {
        "pid": 1,
        "username": "ann",
        "hostname": socket.gethostname(),
        "timestamp": since.strftime("%Y-%m-%dT%H:%M:%S.123456789Z"),
        **fields,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "left.json"
    path.write_text(json.dumps(content))
    return path


def test_a_held_lock_is_a_file_that_names_its_owner(
    tmp_path: Path, folder: Path, own: Path
) -> None:
    with Backend.open(f"file://{tmp_path}", {}).create_lock("demo", "dev"):
        (path,) = folder.iterdir()
        content = json.loads(path.read_text())
        assert path.suffix == ".json"
        assert set(content) == {"pid", "username", "hostname", "timestamp", "engine"}
        assert content["pid"] == os.getpid()
        assert content["hostname"] == socket.gethostname()
        assert own.exists()
    assert list(folder.iterdir()) == []
    assert list(own.parent.iterdir()) == []


def test_a_second_lock_is_refused_with_the_owner_and_the_file(folder: Path, own: Path) -> None:
    with create_file_lock(folder, own):
        with pytest.raises(LockedError) as caught, create_file_lock(folder, own):
            pytest.fail("locked twice")
        (path,) = folder.iterdir()
        assert str(path) in str(caught.value)
        assert f"pid {os.getpid()}" in str(caught.value)
        assert socket.gethostname() in str(caught.value)
        assert "by gpuform, 0:" in str(caught.value)
        assert "--lock-timeout" in caught.value.hint
    with create_file_lock(folder, own):
        pass


def test_the_lock_holds_after_pulumi_cancel_removed_its_file(folder: Path, own: Path) -> None:
    with create_file_lock(folder, own):
        (path,) = folder.iterdir()
        path.unlink()
        with pytest.raises(LockedError, match="another gpuform process on this machine"):
            create_file_lock(folder, own).acquire()


def test_the_lock_is_released_after_an_exception(folder: Path, own: Path) -> None:
    with pytest.raises(ValueError, match="work"), create_file_lock(folder, own):
        raise ValueError("work")
    assert list(folder.iterdir()) == []


def test_a_lock_file_that_cannot_be_deleted_keeps_no_other_lock_of_the_process(
    folder: Path, own: Path
) -> None:
    with create_file_lock(folder, own):
        (path,) = folder.iterdir()
        path.unlink()
        (path / "not empty").mkdir(parents=True)
    with create_file_lock(folder.with_name("another"), own):
        pass


def test_a_lock_file_that_appears_during_acquire_wins(folder: Path, own: Path, monkeypatch) -> None:
    def both(path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.with_name("other.json").write_bytes(data)

    monkeypatch.setattr(storage, "replace_file", both)
    with pytest.raises(LockedError, match=r"other\.json"):
        create_file_lock(folder, own).acquire()
    assert [path.name for path in folder.iterdir()] == ["other.json"]
    assert not own.exists()


def test_the_lock_is_released_at_interpreter_exit(folder: Path, own: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from gpuform.stacks.engine.store.backend import Backend\n"
        "Backend.open(sys.argv[3], {}).create_lock('demo', 'dev').acquire()\n"
        "assert list(pathlib.Path(sys.argv[1]).iterdir())\n"
    )
    command = [sys.executable, "-c", program, str(folder), str(own), get_backend_url(folder)]
    subprocess.run(command, check=True, timeout=LAST_RESORT)
    assert list(folder.iterdir()) == []


def test_a_forked_child_does_not_release_the_lock(folder: Path, own: Path) -> None:
    program = (
        "import os, pathlib, sys\n"
        "from gpuform.stacks.engine.store.backend import Backend\n"
        "folder, own = map(pathlib.Path, sys.argv[1:3])\n"
        "with Backend.open(sys.argv[3], {}).create_lock('demo', 'dev') as lock:\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        lock.release()\n"
        "        sys.exit()\n"
        "    os.waitpid(child, 0)\n"
        "    assert own.exists() and len(list(folder.iterdir())) == 1\n"
        "assert not own.exists() and not list(folder.iterdir())\n"
    )
    command = [sys.executable, "-c", program, str(folder), str(own), get_backend_url(folder)]
    subprocess.run(command, check=True, timeout=LAST_RESORT)


class TestStaleLocks:
    def test_a_stale_lock_of_gpuform_is_taken_over(
        self, folder: Path, own: Path, dead_pid: int
    ) -> None:
        stale_lock = write_stale_lock(folder, pid=dead_pid, engine="gpuform")
        notices: list[str] = []
        with create_file_lock(folder, own, LockTimeout(report=notices.append)):
            assert not stale_lock.exists()
        (notice,) = notices
        assert "takes over the lock" in notice
        assert f"ann@{socket.gethostname()} (pid {dead_pid}) by gpuform, 2:" in notice

    def test_the_lock_of_a_killed_process_is_taken_over(self, folder: Path, own: Path) -> None:
        program = (
            "import os, pathlib, sys\n"
            "from gpuform.stacks.engine.store.backend import Backend\n"
            "Backend.open(sys.argv[3], {}).create_lock('demo', 'dev').acquire()\n"
            "os.kill(os.getpid(), 9)\n"
        )
        command = [sys.executable, "-c", program, str(folder), str(own), get_backend_url(folder)]
        assert subprocess.run(command, check=False, timeout=LAST_RESORT).returncode == -9
        assert own.exists()
        assert len(list(folder.iterdir())) == 1
        with create_file_lock(folder, own):
            assert len(list(folder.iterdir())) == 1

    @pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux shows zombies")
    def test_the_lock_of_a_zombie_is_taken_over(self, folder: Path, own: Path) -> None:
        """A container without an init process keeps killed processes until it ends."""
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            write_stale_lock(folder, pid=process.pid, engine="gpuform")
            with create_file_lock(folder, own):
                assert len(list(folder.iterdir())) == 1

    def test_a_stale_lock_with_the_current_process_id_is_taken_over(
        self, folder: Path, own: Path
    ) -> None:
        write_stale_lock(folder, pid=os.getpid(), engine="gpuform")
        with create_file_lock(folder, own):
            assert len(list(folder.iterdir())) == 1

    @pytest.mark.parametrize(
        ("fields", "expected_message"),
        [
            ({}, r"2:\d\d:\d\d ago; that process no longer runs"),  # the Pulumi CLI's
            ({"engine": "gpuform", "hostname": "elsewhere"}, r"ann@elsewhere .* by gpuform, 2:"),
        ],
    )
    def test_stale_locks_of_pulumi_and_of_other_machines_are_reported_and_kept(
        self, folder: Path, own: Path, dead_pid: int, fields: dict[str, str], expected_message: str
    ) -> None:
        stale_lock = write_stale_lock(folder, pid=dead_pid, **fields)
        with pytest.raises(LockedError, match=expected_message) as caught:
            create_file_lock(folder, own).acquire()
        assert stale_lock.exists()
        assert "gpuform cancel" in caught.value.hint

    def test_a_lock_whose_process_runs_is_kept(self, folder: Path, own: Path) -> None:
        stale_lock = write_stale_lock(folder, pid=os.getppid(), engine="gpuform")
        with pytest.raises(LockedError):
            create_file_lock(folder, own).acquire()
        assert stale_lock.exists()

    def test_no_lock_is_taken_over_on_a_file_system_without_flock(
        self, folder: Path, own: Path, dead_pid: int, monkeypatch
    ) -> None:
        monkeypatch.setattr("fcntl.flock", refuse_locks)
        stale_lock = write_stale_lock(folder, pid=dead_pid, engine="gpuform")
        with pytest.raises(LockedError, match="no longer runs"):
            create_file_lock(folder, own).acquire()
        stale_lock.unlink()
        with create_file_lock(folder, own), pytest.raises(LockedError, match=f"pid {os.getpid()}"):
            create_file_lock(folder, own).acquire()


class TestWaiting:
    def test_a_waiting_process_gets_the_lock_when_it_is_released(
        self, folder: Path, own: Path
    ) -> None:
        holder = create_file_lock(folder, own)
        holder.acquire()
        clock, notices = ScriptedClock(lambda: None, holder.release), []
        with create_file_lock(folder, own, LockTimeout(600, notices.append, clock)):
            assert len(list(folder.iterdir())) == 1
        assert len(clock.slept) == 2
        (notice,) = notices
        assert f"pid {os.getpid()}" in notice

    def test_waiting_ends_with_an_error_at_the_lock_timeout(self, folder: Path, own: Path) -> None:
        clock, notices = ScriptedClock(), []
        with create_file_lock(folder, own), pytest.raises(LockedError):
            create_file_lock(folder, own, LockTimeout(10, notices.append, clock)).acquire()
        assert sum(clock.slept) == pytest.approx(10)
        assert len(clock.slept) < 20
        assert len(notices) == 1

    def test_waiting_covers_locks_of_the_pulumi_cli(self, folder: Path, own: Path) -> None:
        stale_lock = write_stale_lock(folder, pid=os.getppid())
        clock = ScriptedClock(stale_lock.unlink)
        with create_file_lock(folder, own, LockTimeout(5, clock=clock)):
            assert len(clock.slept) == 1

    def test_without_a_lock_timeout_acquire_fails_at_once(self, folder: Path, own: Path) -> None:
        clock = ScriptedClock()
        with create_file_lock(folder, own), pytest.raises(LockedError):
            create_file_lock(folder, own, LockTimeout(clock=clock)).acquire()
        assert clock.slept == []


class TestCancel:
    def test_cancel_removes_all_lock_files(self, folder: Path, own: Path) -> None:
        write_stale_lock(folder)
        (folder / "broken.json").write_text("")
        (folder / ".cut-off.json.tmp").write_text("")
        lock = create_file_lock(folder, own)
        assert [Path(holder.where).name for holder in lock.list_holders()] == [
            "broken.json",
            "left.json",
        ]
        lock.cancel()
        assert list(folder.iterdir()) == []
        assert not own.exists()
        lock.cancel()

    def test_cancel_is_refused_while_a_gpuform_process_holds_the_lock(
        self, folder: Path, own: Path
    ) -> None:
        with create_file_lock(folder, own):
            with pytest.raises(LockedError, match=f"pid {os.getpid()}") as caught:
                create_file_lock(folder, own).cancel()
            assert len(list(folder.iterdir())) == 1
        assert "end it" in caught.value.hint

    def test_cancel_is_refused_for_a_running_process_without_flock(
        self, folder: Path, own: Path, monkeypatch
    ) -> None:
        monkeypatch.setattr("fcntl.flock", refuse_locks)
        with create_file_lock(folder, own), pytest.raises(LockedError):
            create_file_lock(folder, own).cancel()


@pytest.mark.parametrize(
    ("content", "expected_message"),
    [
        ("not json", "not a readable lock"),
        ("{}", "owner is unknown"),
        ("[1]", "owner is unknown"),
        (
            '{"pid": 1, "username": "bob", "hostname": "elsewhere", "timestamp": "x"}',
            "bob@elsewhere",
        ),
        ('{"username": "eve", "timestamp": "2026-11-21T03:28:17"}', r"eve@\?"),
        ('{"pid": "1", "username": "kim", "hostname": 5}', r"kim@5 \(pid \?\)"),
        ('{"pid": 99999999999999999999, "username": "max"}', "max@"),
    ],
)
def test_an_unreadable_or_foreign_lock_file_blocks_gpuform(
    folder: Path, own: Path, content: str, expected_message: str
) -> None:
    folder.mkdir(parents=True)
    (folder / "other.json").write_text(content)
    with pytest.raises(LockedError, match=expected_message):
        create_file_lock(folder, own).acquire()
    assert [path.name for path in folder.iterdir()] == ["other.json"]


def test_attrs_files_of_the_pulumi_cli_are_ignored(folder: Path, own: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "gone.json.attrs").write_text("{}")
    with create_file_lock(folder, own):
        pass


def test_an_unwritable_lock_folder_is_an_error_with_its_path(
    folder: Path, own: Path, monkeypatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", read_only)
        with pytest.raises(EngineError, match=f"{own} cannot be written: Read-only"):
            create_file_lock(folder, own).acquire()
    with monkeypatch.context() as patch:
        patch.setattr(storage, "replace_file", read_only)
        with pytest.raises(EngineError, match=r"\.json cannot be written: Read-only"):
            create_file_lock(folder, own).acquire()
    with create_file_lock(folder, own):
        pass


def test_the_kernel_lock_is_retried_when_its_file_was_removed_meanwhile(
    own: Path, monkeypatch
) -> None:
    """The last owner removes the file between open and flock: the lock must be on a new file."""
    first = KernelLock(own)
    assert first.take() is LockAttempt.TAKEN
    import fcntl

    flock, tries = fcntl.flock, []

    def late(handle: int, operation: int) -> None:
        if operation != fcntl.LOCK_UN:
            tries.append(handle)
            if len(tries) == 1:
                first.release()
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    second = KernelLock(own)
    assert second.take() is LockAttempt.TAKEN
    assert len(tries) == 2
    assert own.exists()
    assert KernelLock(own).take() is LockAttempt.HELD
    second.release()
    assert not own.exists()
    second.release()


@pytest.mark.slow
def test_of_ten_concurrent_processes_exactly_one_gets_the_lock(
    folder: Path, own: Path, tmp_path: Path
) -> None:
    processes = start_contenders(get_backend_url(folder), tmp_path, 0)
    release_contenders(processes)
    answers = [process.stdout.readline() for process in processes if process.stdout]
    assert sorted(answers) == ["in\n"] + ["refused\n"] * 9
    release_contenders(processes)
    codes = [process.wait(timeout=LAST_RESORT) for process in processes]
    for process in processes:
        process.communicate()
    assert sorted(codes) == [0] + [3] * 9
    assert list(folder.iterdir()) == []
    assert list(own.parent.iterdir()) == []


@pytest.mark.slow
def test_ten_waiting_processes_get_the_lock_one_after_another(
    folder: Path, own: Path, tmp_path: Path
) -> None:
    processes = start_contenders(get_backend_url(folder), tmp_path, LAST_RESORT)
    release_contenders(processes)
    for process in processes:
        assert process.communicate(timeout=LAST_RESORT)[0] == "in\n"
        assert process.returncode == 0
    assert (tmp_path / "done").read_text() == "x" * 10
    assert list(folder.iterdir()) == []
    assert list(own.parent.iterdir()) == []
