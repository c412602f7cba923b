"""Test the lock of a bucket with killed and stopped processes and wrong clocks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT
from support.servers.bucket_server import KEYS, BucketServer, Fault, build_bucket_url, serve_proxy
from support.stacks.lock_contenders import release_contenders, start_contenders

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.state import Journal
from gpuform.stacks.engine.state.journal import Record
from gpuform.stacks.engine.store import Backend, LockTimeout, bucket_runs
from gpuform.stacks.engine.store.bucket_runs import LeaseLost
from gpuform.stacks.engine.store.lock import LockedError
from gpuform.stacks.engine.store.storage import ChangedMeanwhile

pytestmark = pytest.mark.slow

SHORT = {**KEYS, "GPUFORM_LEASE_SECONDS": "2"}
LOCK = ".pulumi/gpuform/demo/dev.lock"


@pytest.fixture
def backend_url(bucket_server: BucketServer) -> str:
    return build_bucket_url(bucket_server.create_bucket(), bucket_server.port)


def list_pulumi_locks(backend_url: str) -> list[dict[str, Any]]:
    """Return the lock files in Pulumi's folder."""
    storage = Backend.open(backend_url, KEYS).storage
    names = [entry.name for entry in storage.list_entries(".pulumi/locks/organization/demo/dev")]
    return [json.loads(lock_file.data) for name in names if (lock_file := storage.read(name))]


def read_lease(backend_url: str) -> dict[str, Any]:
    lease_file = Backend.open(backend_url, KEYS).storage.read(LOCK)
    assert lease_file is not None
    document: dict[str, Any] = json.loads(lease_file.data)
    return document


def test_a_held_lock_is_also_a_pulumi_lock_file(backend_url: str) -> None:
    with Backend.open(backend_url, KEYS).create_lock("demo", "dev"):
        (lock,) = list_pulumi_locks(backend_url)
        assert lock["pid"] == os.getpid()
        assert not read_lease(backend_url)["released"]
        with pytest.raises(LockedError, match=f"pid {os.getpid()}.* by gpuform") as caught:
            Backend.open(backend_url, KEYS).create_lock("demo", "dev").acquire()
        assert "--lock-timeout" in caught.value.hint
        assert len(list_pulumi_locks(backend_url)) == 1
    assert list_pulumi_locks(backend_url) == []
    assert read_lease(backend_url)["released"]
    with Backend.open(backend_url, KEYS).create_lock("demo", "dev"):
        pass


def test_a_lock_of_the_pulumi_cli_blocks_gpuform(backend_url: str) -> None:
    storage = Backend.open(backend_url, KEYS).storage
    other = ".pulumi/locks/organization/demo/dev/other.json"
    storage.write(other, b'{"pid":1,"username":"ann","hostname":"elsewhere","timestamp":"x"}')
    with pytest.raises(LockedError, match="ann@elsewhere"):
        Backend.open(backend_url, KEYS).create_lock("demo", "dev").acquire()
    assert read_lease(backend_url)["released"]
    Backend.open(backend_url, KEYS).create_lock("demo", "dev").cancel()
    assert list_pulumi_locks(backend_url) == []
    with Backend.open(backend_url, KEYS).create_lock("demo", "dev"):
        pass


def test_cancel_is_refused_while_the_owner_runs(backend_url: str) -> None:
    with Backend.open(backend_url, KEYS).create_lock("demo", "dev"):
        with pytest.raises(LockedError):
            Backend.open(backend_url, KEYS).create_lock("demo", "dev").cancel()
        assert len(list_pulumi_locks(backend_url)) == 1


def test_a_running_owner_renews_the_lock_again_and_again(
    backend_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket_runs, "_RENEWALS", 600)
    with Backend.open(backend_url, KEYS).create_lock("demo", "dev"):
        while read_lease(backend_url)["beat"] < 5:
            time.sleep(0.05)
        with pytest.raises(LockedError):
            Backend.open(backend_url, KEYS).create_lock("demo", "dev").acquire()


@pytest.mark.parametrize("skew", [-86400, 86400])
def test_the_lock_holds_between_clocks_that_differ_by_a_day(
    backend_url: str, skew: int, monkeypatch
) -> None:
    real = time.time
    with Backend.open(backend_url, KEYS).create_lock("demo", "dev"):
        monkeypatch.setattr(bucket_runs.time, "time", lambda: real() + skew)
        with pytest.raises(LockedError):
            Backend.open(backend_url, KEYS).create_lock("demo", "dev").acquire()


@pytest.mark.parametrize("seconds", ["0", "x", "99999"])
def test_an_invalid_lease_time_is_an_error(backend_url: str, seconds: str) -> None:
    with pytest.raises(EngineError, match="GPUFORM_LEASE_SECONDS"):
        Backend.open(backend_url, {**KEYS, "GPUFORM_LEASE_SECONDS": seconds}).create_lock(
            "demo", "dev"
        )


def start_python(program: str, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **SHORT, **environ},
    )


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_ten_concurrent_processes_exactly_one_gets_the_lock(
    backend_url: str, tmp_path: Path
) -> None:
    processes = start_contenders(backend_url, tmp_path, 0, **KEYS)
    release_contenders(processes)
    assert sorted(read_line(process) for process in processes) == ["in"] + ["refused"] * 9
    release_contenders(processes)
    codes = [process.wait(timeout=LAST_RESORT) for process in processes]
    for process in processes:
        process.communicate()
    assert sorted(codes) == [0] + [3] * 9
    assert list_pulumi_locks(backend_url) == []


def test_ten_waiting_processes_get_the_lock_one_after_another(
    backend_url: str, tmp_path: Path
) -> None:
    processes = start_contenders(backend_url, tmp_path, LAST_RESORT, **KEYS)
    release_contenders(processes)
    for process in processes:
        assert process.communicate(timeout=LAST_RESORT)[0] == "in\n"
        assert process.returncode == 0
    assert (tmp_path / "done").read_text() == "x" * 10
    assert list_pulumi_locks(backend_url) == []


# An owner that reads, waits to be told, and then writes what is its own no more.
OWNER = """
import sys
from gpuform.stacks.engine.store.backend import Backend
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.state.journal import Journal, Record

backend = Backend.open(sys.argv[1])
with backend.create_lock("demo", "dev"):
    backend.read("demo", "dev")
    journal = Journal(backend.open_journal("demo", "dev"), "base")
    journal.append([Record("first")])
    print("in", flush=True)
    for attempt in (
        lambda: backend.write("demo", "dev", b'{"by":"owner"}'),
        lambda: journal.append([Record("second")]),
        lambda: backend.write_own("demo", "dev", "secrets-change", b"x"),
        lambda: backend.remove("demo", "dev"),
    ):
        sys.stdin.readline()
        try:
            attempt()
        except EngineError as error:
            print(type(error).__name__, flush=True)
        else:
            print("written", flush=True)
"""


def test_the_lock_of_a_killed_owner_is_taken_over_after_the_lease_time(backend_url: str) -> None:
    owner = start_python(OWNER, backend_url)
    assert read_line(owner) == "in"
    owner.kill()
    owner.communicate()
    notices: list[str] = []
    with Backend.open(backend_url, SHORT).create_lock(
        "demo", "dev", LockTimeout(LAST_RESORT, notices.append)
    ):
        assert [lock["pid"] for lock in list_pulumi_locks(backend_url)] == [os.getpid()]
    assert any("takes over the lock" in notice for notice in notices)


def test_the_lock_of_a_killed_owner_is_kept_during_the_lease_time(backend_url: str) -> None:
    owner = start_python(OWNER, backend_url, GPUFORM_LEASE_SECONDS="3600")
    assert read_line(owner) == "in"
    owner.kill()
    owner.communicate()
    with pytest.raises(LockedError):
        Backend.open(backend_url, SHORT).create_lock("demo", "dev").acquire()


def test_an_owner_resumed_after_a_takeover_writes_nothing(backend_url: str) -> None:
    Backend.open(backend_url, KEYS).write("demo", "dev", b'{"by":"nobody"}')
    owner = start_python(OWNER, backend_url)
    assert read_line(owner) == "in"
    owner.send_signal(signal.SIGSTOP)
    backend = Backend.open(backend_url, SHORT)
    with backend.create_lock("demo", "dev", LockTimeout(LAST_RESORT)):
        assert backend.read("demo", "dev") == b'{"by":"nobody"}'
        own = Journal(backend.open_journal("demo", "dev"), "base")
        assert b"first" in own.log.read()
        own.log.remove()
        backend.write("demo", "dev", b'{"by":"successor"}')
        owner.send_signal(signal.SIGCONT)
        for _ in range(4):
            release_contenders([owner])
            assert read_line(owner) == "LeaseLost"
        assert owner.wait(timeout=LAST_RESORT) == 0
        owner.communicate()
        assert own.log.read() == b""
        assert not read_lease(backend_url)["released"], (
            "the owner must not release its successor's lock"
        )
        assert len(list_pulumi_locks(backend_url)) == 1
        own.append([Record("third")])
        backend.write("demo", "dev", b'{"by":"successor","n":2}')
    assert Backend.open(backend_url, KEYS).read("demo", "dev") == b'{"by":"successor","n":2}'


def test_a_checkpoint_write_that_began_before_a_takeover_is_rejected(backend_url: str) -> None:
    """No check of the lease can be atomic with the write: the ETag rejects the late write."""
    ours, theirs = Backend.open(backend_url, KEYS), Backend.open(backend_url, KEYS)
    ours.write("demo", "dev", b'{"n":1}')
    theirs.read("demo", "dev")
    theirs.write("demo", "dev", b'{"n":2}')
    with pytest.raises(ChangedMeanwhile):
        ours.write("demo", "dev", b'{"n":3}')


@pytest.fixture
def advance_clocks(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Stop the clocks by which leases of this process get old, and return what moves them."""
    seconds = [0.0]

    def advance(by: float) -> None:
        seconds[0] += by

    monkeypatch.setattr(bucket_runs, "_read_clocks", lambda: (seconds[0], seconds[0]))
    return advance


def test_an_owner_without_network_fails_its_lock_check_until_the_network_is_back(
    bucket_server: BucketServer, advance_clocks: Callable[[float], None]
) -> None:
    with serve_proxy(bucket_server) as front:
        backend_url = build_bucket_url(bucket_server.create_bucket(), front.port)
        backend = Backend.open(backend_url, {**KEYS, "AWS_MAX_ATTEMPTS": "1"})
        lock = backend.create_lock("demo", "dev")
        lock.acquire()
        front.rule = lambda _request: Fault(503, "SlowDown")
        lock.check()
        advance_clocks(40)
        with pytest.raises(EngineError, match="SlowDown"):
            lock.check()
        front.stop_faults()
        lock.check()
        lock.release()


@pytest.mark.parametrize("header", ["if-match", "if-none-match"])
def test_a_bucket_without_conditional_writes_is_rejected(
    bucket_server: BucketServer, header: str
) -> None:
    with serve_proxy(bucket_server) as front:
        front.dropped_headers = (header,)
        backend = Backend.open(build_bucket_url(bucket_server.create_bucket(), front.port), KEYS)
        with pytest.raises(EngineError, match="does not support both"):
            backend.create_lock("demo", "dev").acquire()


def test_the_lock_is_released_at_interpreter_exit(backend_url: str) -> None:
    program = (
        "import sys\n"
        "from gpuform.stacks.engine.store.backend import Backend\n"
        "Backend.open(sys.argv[1]).create_lock('demo', 'dev').acquire()\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, backend_url],
        check=True,
        timeout=LAST_RESORT,
        env={**os.environ, **SHORT},
    )
    assert list_pulumi_locks(backend_url) == []
    assert read_lease(backend_url)["released"]


def test_an_owner_whose_lease_was_overwritten_gets_an_error(
    backend_url: str, advance_clocks: Callable[[float], None]
) -> None:
    lock = Backend.open(backend_url, KEYS).create_lock("demo", "dev")
    lock.acquire()
    storage = Backend.open(backend_url, KEYS).storage
    storage.write(LOCK, b'{"seconds": 60, "username": "another"}')
    advance_clocks(40)
    with pytest.raises(LeaseLost, match="another process took it"):
        lock.check()
    lock.release()
    assert read_lease(backend_url)["username"] == "another"
