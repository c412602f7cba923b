"""Test when the state is written, and failed writes."""

import threading

import pytest
from processes.limits import LAST_RESORT

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.state import WritePacing
from gpuform.stacks.engine.state.journal_log import StateWriter


class Disk:
    """A disk that counts writes; each write waits at the gate, and fails while `error` is set."""

    def __init__(self) -> None:
        self.writes = 0
        self.gate = threading.Event()
        self.begun = threading.Event()
        self.error: Exception | None = None

    def write(self) -> None:
        self.begun.set()
        assert self.gate.wait(LAST_RESORT)
        if self.error is not None:
            raise self.error
        self.writes += 1


@pytest.fixture
def disk() -> Disk:
    return Disk()


def _create_null_log() -> None:
    """Return a log that stores nothing."""


def start_thread(work, *arguments) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def test_waiting_threads_share_one_write(disk):
    writer = StateWriter(_create_null_log, disk.write)
    writer.request_write()
    assert disk.begun.wait(LAST_RESORT)
    waiting = [start_thread(writer.wait_durable, writer.request_write()) for _ in range(20)]
    disk.gate.set()
    for thread in waiting:
        thread.join(LAST_RESORT)
        assert not thread.is_alive()
    assert disk.writes == 2
    writer.close()
    assert disk.writes == 2


def test_an_unchanged_state_is_not_written(disk):
    StateWriter(_create_null_log, disk.write).close()
    assert disk.writes == 0


def test_a_failed_write_raises_in_waiting_threads_and_is_retried_at_the_end(disk):
    disk.gate.set()
    disk.error = EngineError("no space left")
    writer = StateWriter(_create_null_log, disk.write)
    with pytest.raises(EngineError, match="no space left"):
        writer.wait_durable(writer.request_write())
    with pytest.raises(EngineError, match="no space left"):
        writer.check()
    disk.error = None
    writer.close()
    assert disk.writes == 1


def test_a_final_state_that_cannot_be_written_fails_the_run(disk):
    disk.gate.set()
    disk.error = RuntimeError("odd value")
    writer = StateWriter(_create_null_log, disk.write)
    writer.request_write()
    with pytest.raises(EngineError, match="RuntimeError: odd value"):
        writer.close()


def test_writes_are_spaced_unless_all_threads_wait(disk):
    disk.gate.set()
    writer = StateWriter(
        _create_null_log, disk.write, WritePacing(checkpoint_spacing_factor=1e9)
    )  # the next write would come in years
    with writer.track_work():
        for _ in range(3):
            writer.wait_durable(writer.request_write())
        assert disk.writes == 3
        with writer.track_work():
            waiting = start_thread(writer.wait_durable, writer.request_write())
            waiting.join(0.02)
            assert waiting.is_alive(), "other work goes on, which may want a write as well"
        waiting.join(LAST_RESORT)
        assert not waiting.is_alive()
    writer.close()
    assert disk.writes == 4
