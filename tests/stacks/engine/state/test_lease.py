"""The lock of a bucket: one owner at a time, whatever becomes of processes and clocks."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from bucket_server import KEYS, BucketServer, Fault, proxy, url
from processes.limits import LAST_RESORT
from racing import go, ten

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import Journal
from gpuform.stacks.engine.state.journal import Record
from gpuform.stacks.engine.store import Backend, LockTimeout, StackLock, lease
from gpuform.stacks.engine.store.lease import LeaseLost
from gpuform.stacks.engine.store.lock import LockedError
from gpuform.stacks.engine.store.storage.protocol import ChangedMeanwhile

pytestmark = pytest.mark.slow

SHORT = {**KEYS, "GPUFORM_LEASE_SECONDS": "2"}
LOCK = ".pulumi/gpuform/demo/dev.lock"


@pytest.fixture
def place(bucket_server: BucketServer) -> str:
    return url(bucket_server.bucket(), bucket_server.port)


def locks(place: str) -> list[dict[str, Any]]:
    """What Pulumi sees."""
    storage = Backend.open(place, KEYS).storage
    names = [entry.name for entry in storage.list_entries(".pulumi/locks/organization/demo/dev")]
    return [json.loads(found.data) for name in names if (found := storage.read(name))]


def held(place: str) -> dict[str, Any]:
    found = Backend.open(place, KEYS).storage.read(LOCK)
    assert found is not None
    document: dict[str, Any] = json.loads(found.data)
    return document


def test_it_is_in_pulumis_list_too_while_held(place: str) -> None:
    with Backend.open(place, KEYS).create_lock("demo", "dev"):
        (told,) = locks(place)
        assert told["pid"] == os.getpid()
        assert not held(place)["released"]
        with pytest.raises(LockedError, match=f"pid {os.getpid()}.* by gpuform") as caught:
            Backend.open(place, KEYS).create_lock("demo", "dev").acquire()
        assert "--lock-timeout" in caught.value.hint
        assert len(locks(place)) == 1
    assert locks(place) == []
    assert held(place)["released"]
    with Backend.open(place, KEYS).create_lock("demo", "dev"):
        pass


def test_pulumis_own_lock_is_respected(place: str) -> None:
    storage = Backend.open(place, KEYS).storage
    other = ".pulumi/locks/organization/demo/dev/other.json"
    storage.write(other, b'{"pid":1,"username":"ann","hostname":"elsewhere","timestamp":"x"}')
    with pytest.raises(LockedError, match="ann@elsewhere"):
        Backend.open(place, KEYS).create_lock("demo", "dev").acquire()
    assert held(place)["released"]
    Backend.open(place, KEYS).create_lock("demo", "dev").cancel()
    assert locks(place) == []
    with Backend.open(place, KEYS).create_lock("demo", "dev"):
        pass


def test_a_living_owner_is_not_cancelled(place: str) -> None:
    with Backend.open(place, KEYS).create_lock("demo", "dev"):
        with pytest.raises(LockedError):
            Backend.open(place, KEYS).create_lock("demo", "dev").cancel()
        assert len(locks(place)) == 1


def test_a_living_owner_keeps_it_longer_than_a_silence(place: str) -> None:
    with Backend.open(place, SHORT).create_lock("demo", "dev"):
        while held(place)["beat"] < 5:  # four are a silence
            time.sleep(0.05)
        with pytest.raises(LockedError):
            Backend.open(place, SHORT).create_lock("demo", "dev").acquire()


@pytest.mark.parametrize("skew", [-86400, 86400])
def test_clocks_that_differ_by_a_day_change_nothing(place: str, skew: int, monkeypatch) -> None:
    real = time.time
    with Backend.open(place, SHORT).create_lock("demo", "dev"):
        monkeypatch.setattr(lease.time, "time", lambda: real() + skew)
        with pytest.raises(LockedError):
            Backend.open(place, SHORT).create_lock("demo", "dev").acquire()


@pytest.mark.parametrize("given", ["0", "x", "99999"])
def test_a_time_that_makes_no_sense_is_refused(place: str, given: str) -> None:
    with pytest.raises(EngineError, match="GPUFORM_LEASE_SECONDS"):
        Backend.open(place, {**KEYS, "GPUFORM_LEASE_SECONDS": given}).create_lock("demo", "dev")


def start(text: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", text, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **SHORT},
    )


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_ten_at_once_exactly_one_gets_in(place: str, tmp_path: Path) -> None:
    processes = ten(place, tmp_path, 0, **SHORT)
    go(processes)
    assert sorted(said(process) for process in processes) == ["in"] + ["refused"] * 9
    go(processes)
    codes = [process.wait(timeout=LAST_RESORT) for process in processes]
    for process in processes:
        process.communicate()
    assert sorted(codes) == [0] + [3] * 9
    assert locks(place) == []


def test_of_ten_that_wait_each_gets_in_alone(place: str, tmp_path: Path) -> None:
    processes = ten(place, tmp_path, 100, **SHORT)
    go(processes)
    for process in processes:
        assert process.communicate(timeout=LAST_RESORT)[0] == "in\n"
        assert process.returncode == 0
    assert (tmp_path / "done").read_text() == "x" * 10
    assert locks(place) == []


# An owner that reads, waits to be told, and then writes what is its own no more.
OWNER = """
import sys
from gpuform.stacks.engine.store.backend import Backend
from gpuform.stacks.engine.errors import EngineError
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


def test_a_killed_owner_is_followed_after_a_silence(place: str) -> None:
    owner = start(OWNER, place)
    assert said(owner) == "in"
    owner.kill()
    owner.communicate()
    told: list[str] = []
    with pytest.raises(LockedError):
        Backend.open(place, SHORT).create_lock("demo", "dev").acquire()
    with Backend.open(place, SHORT).create_lock("demo", "dev", LockTimeout(60, told.append)):
        assert [each["pid"] for each in locks(place)] == [os.getpid()]
    assert any("takes it over" in text for text in told)


def test_an_owner_that_was_stopped_does_not_write_over_its_successor(place: str) -> None:
    Backend.open(place, KEYS).write("demo", "dev", b'{"by":"nobody"}')
    owner = start(OWNER, place)
    assert said(owner) == "in"
    owner.send_signal(signal.SIGSTOP)
    backend = Backend.open(place, SHORT)
    with backend.create_lock("demo", "dev", LockTimeout(60)):
        assert backend.read("demo", "dev") == b'{"by":"nobody"}'
        own = Journal(backend.open_journal("demo", "dev"), "base")
        assert b"first" in own.log.read()
        own.log.remove()
        backend.write("demo", "dev", b'{"by":"successor"}')
        owner.send_signal(signal.SIGCONT)
        for _ in range(4):
            go([owner])
            assert said(owner) == "LeaseLost"
        assert owner.wait(timeout=LAST_RESORT) == 0
        owner.communicate()
        assert own.log.read() == b""
        assert not held(place)["released"], "the owner must not release its successor's lock"
        assert len(locks(place)) == 1
        own.append([Record("third")])
        backend.write("demo", "dev", b'{"by":"successor","n":2}')
    assert Backend.open(place, KEYS).read("demo", "dev") == b'{"by":"successor","n":2}'


def test_a_write_that_was_on_its_way_while_the_owner_changed_is_refused(place: str) -> None:
    """Nobody can stop between the look at the lease and the write: the ETag tells even then."""
    ours, theirs = Backend.open(place, KEYS), Backend.open(place, KEYS)
    ours.write("demo", "dev", b'{"n":1}')
    theirs.read("demo", "dev")
    theirs.write("demo", "dev", b'{"n":2}')
    with pytest.raises(ChangedMeanwhile):
        ours.write("demo", "dev", b'{"n":3}')


def check_until_refused(lock: StackLock) -> None:
    """Looks until the lease's own thread has noticed."""
    while True:
        lock.check()
        time.sleep(0.05)


def test_an_owner_without_a_network_is_not_sure_any_more(bucket_server: BucketServer) -> None:
    with proxy(bucket_server) as front:
        place = url(bucket_server.bucket(), front.port)
        backend = Backend.open(place, {**SHORT, "AWS_MAX_ATTEMPTS": "1"})
        lock = backend.create_lock("demo", "dev")
        lock.acquire()
        front.rule = lambda _request: Fault(503, "SlowDown")
        lock.check()
        with pytest.raises(EngineError, match="SlowDown"):
            check_until_refused(lock)
        front.heal()
        lock.check()
        lock.release()


@pytest.mark.parametrize("header", ["if-match", "if-none-match"])
def test_a_store_without_conditions_is_refused(bucket_server: BucketServer, header: str) -> None:
    with proxy(bucket_server) as front:
        front.forgets = (header,)
        backend = Backend.open(url(bucket_server.bucket(), front.port), KEYS)
        with pytest.raises(EngineError, match="does not support both"):
            backend.create_lock("demo", "dev").acquire()


def test_it_is_released_when_the_interpreter_ends(place: str) -> None:
    program = (
        "import sys\n"
        "from gpuform.stacks.engine.store.backend import Backend\n"
        "Backend.open(sys.argv[1]).create_lock('demo', 'dev').acquire()\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, place],
        check=True,
        timeout=LAST_RESORT,
        env={**os.environ, **SHORT},
    )
    assert locks(place) == []
    assert held(place)["released"]


def test_one_that_was_taken_away_is_told(place: str) -> None:
    lock = Backend.open(place, SHORT).create_lock("demo", "dev")
    lock.acquire()
    storage = Backend.open(place, KEYS).storage
    storage.write(LOCK, b'{"seconds": 60, "username": "another"}')
    with pytest.raises(LeaseLost, match="another process took it"):
        check_until_refused(lock)
    lock.release()
    assert held(place)["username"] == "another"
