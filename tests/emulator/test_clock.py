"""Test the emulator's clock: appointments are kept in order, whatever moves the clock."""

import threading

import pytest

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.store import Store


@pytest.fixture
def clock() -> Clock:
    return Clock(Store(None), start=100.0)


def test_a_scheduled_action_runs_at_its_time(clock: Clock) -> None:
    calls: list[tuple[str, float]] = []
    clock.schedule(150.0, lambda: calls.append(("second", clock.now())))
    clock.schedule(120.0, lambda: calls.append(("first", clock.now())))
    clock.schedule(500.0, lambda: calls.append(("never", clock.now())))
    clock.advance(10)
    assert calls == []
    clock.advance_to(300.0)
    assert calls == [("first", 120.0), ("second", 150.0)]
    assert clock.now() == 300.0


def test_a_scheduled_action_can_schedule_another_one(clock: Clock) -> None:
    calls: list[float] = []
    clock.schedule(110.0, lambda: clock.schedule(115.0, lambda: calls.append(clock.now())))
    clock.advance(100)
    assert calls == [115.0]
    assert clock.now() == 200.0


def test_a_scheduled_action_runs_once(clock: Clock) -> None:
    calls: list[float] = []
    clock.schedule(150.0, lambda: calls.append(clock.now()))
    movers = [threading.Thread(target=clock.advance_to, args=(200.0,)) for _ in range(8)]
    for mover in movers:
        mover.start()
    for mover in movers:
        mover.join()
    assert calls == [150.0]
