"""The stack lock: Pulumi's list-write-list."""

import json
import os
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpuform.stacks.engine import lock as lock_module
from gpuform.stacks.engine.backend import Backend
from gpuform.stacks.engine.lock import LockedError, StackLock


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".pulumi" / "locks" / "organization" / "demo" / "dev"


def test_it_is_a_file_while_held_and_says_by_whom(tmp_path: Path, folder: Path) -> None:
    with Backend.open(f"file://{tmp_path}", {}).lock("demo", "dev"):
        (path,) = folder.iterdir()
        content = json.loads(path.read_text())
        assert path.suffix == ".json"
        assert set(content) == {"pid", "username", "hostname", "timestamp"}
        assert content["pid"] == os.getpid()
        assert content["hostname"] == socket.gethostname()
    assert list(folder.iterdir()) == []


def test_a_second_one_is_refused_with_all_that_is_known(folder: Path) -> None:
    with StackLock(folder):
        with pytest.raises(LockedError) as caught, StackLock(folder):
            pytest.fail("locked twice")
        (path,) = folder.iterdir()
        assert str(path) in str(caught.value)
        assert f"pid {os.getpid()}" in str(caught.value)
        assert socket.gethostname() in str(caught.value)
        assert "0:00:0" in str(caught.value)
        assert "pulumi cancel" in caught.value.hint
    with StackLock(folder):
        pass


def test_it_is_released_when_the_work_fails(folder: Path) -> None:
    with pytest.raises(ValueError, match="work"), StackLock(folder):
        raise ValueError("work")
    assert list(folder.iterdir()) == []


def test_one_that_appears_while_locking_wins(folder: Path, monkeypatch) -> None:
    def both(path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.with_name("other.json").write_bytes(data)

    monkeypatch.setattr(lock_module, "replace_file", both)
    with pytest.raises(LockedError, match=r"other\.json"):
        StackLock(folder).acquire()
    assert [path.name for path in folder.iterdir()] == ["other.json"]


def test_it_is_released_when_the_interpreter_ends(folder: Path) -> None:
    program = (
        "import pathlib, sys\n"
        "from gpuform.stacks.engine.lock import StackLock\n"
        "StackLock(pathlib.Path(sys.argv[1])).acquire()\n"
        "assert list(pathlib.Path(sys.argv[1]).iterdir())\n"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=60)
    assert list(folder.iterdir()) == []


def test_the_lock_of_a_dead_process_is_told_apart(folder: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    folder.mkdir(parents=True)
    since = datetime.now(UTC) - timedelta(hours=2, seconds=5)
    (folder / "left.json").write_text(
        json.dumps(
            {
                "pid": int(dead.stdout),
                "username": "ann",
                "hostname": socket.gethostname(),
                "timestamp": since.strftime("%Y-%m-%dT%H:%M:%S.123456789Z"),
            }
        )
    )
    with pytest.raises(LockedError, match=r"ann@.*, 2:00:\d\d ago; this process no longer runs"):
        StackLock(folder).acquire()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("not json", "not a readable lock"),
        ("{}", "does not say by whom"),
        ("[1]", "does not say by whom"),
        (
            '{"pid": 1, "username": "bob", "hostname": "elsewhere", "timestamp": "x"}',
            "bob@elsewhere",
        ),
        ('{"username": "eve", "timestamp": "2026-11-21T03:28:17"}', "eve@None"),
    ],
)
def test_other_locks_count_too(folder: Path, content: str, said: str) -> None:
    folder.mkdir(parents=True)
    (folder / "other.json").write_text(content)
    with pytest.raises(LockedError, match=said):
        StackLock(folder).acquire()
    assert [path.name for path in folder.iterdir()] == ["other.json"]


def test_attrs_files_of_the_cli_are_no_locks(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "gone.json.attrs").write_text("{}")
    with StackLock(folder):
        pass
