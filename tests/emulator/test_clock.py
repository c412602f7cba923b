"""Test the emulator's clock: appointments are kept in order, whatever moves the clock."""

import threading
from collections.abc import Callable

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


def test_a_waiter_sees_changes_of_objects_that_were_replaced_meanwhile() -> None:
    with Store(None) as store:
        clock = Clock(store, start=1_795_000_000.0)
        clock.longest_skip = 3000.0
        store.put("volume", "v", '{"sizes": [[1795000500, 5]]}')
        copy = store.dump()
        assert clock.wait_until(1_795_000_001.0) == 1_795_000_500.0
        store.put("volume", "v", '{"sizes": [[1795000900, 6]]}')
        assert clock.wait_until(1_795_000_501.0) == 1_795_000_900.0
        store.restore(copy)
        assert clock.wait_until(1_795_000_001.0) == 1_795_000_500.0


@pytest.mark.parametrize(
    ("now", "change", "expected"),
    [
        (1_764_200_000.0, 1_764_200_090.5, 1_764_200_090.5),
        (1_764_200_000.0, 1_764_100_000.0, 1_765_000_000.0),
        # A time that begins with other digits is not found: nothing is known from there on.
        (1_764_999_990.0, 1_765_000_010.0, 1_765_000_000.0),
        (100.0, 190.0, 100.0),
    ],
)
def test_it_is_quiet_until_the_next_known_change(
    now: float, change: float, expected: float
) -> None:
    with Store(None) as store:
        clock = Clock(store, start=now)
        store.put("cluster", "a", f'{{"statuses": [[{change}, "Ready"]]}}')
        assert clock.find_quiet_end() == expected
        store.put("cluster", "b", "{}", gone_at=now + 30)
        assert clock.find_quiet_end() == min(now + 30, expected)


def test_a_store_counts_changes_of_objects_only() -> None:
    with Store(None) as store:

        def has_changed(change: Callable[[], object]) -> bool:
            before = store.change_count
            change()
            return store.change_count != before

        assert has_changed(lambda: store.put("volume", "v", "{}"))
        assert not has_changed(lambda: store.put("volume", "v", "{}"))
        assert has_changed(lambda: store.put("volume", "v", "{}", gone_at=5.0))
        assert not has_changed(lambda: store.remove_expired(4.0))
        assert not has_changed(lambda: store.append_to_log("a request"))
        assert not has_changed(lambda: store.set_setting("now", 3.0))
        assert has_changed(lambda: store.remove_expired(5.0))
        assert not has_changed(lambda: store.remove("volume", "v"))
        assert has_changed(lambda: store.restore(store.dump()))


def test_a_transaction_that_is_undone_undoes_settings() -> None:
    with Store(None) as store:
        store.set_setting("now", 1.0)

        def fail_within_transaction() -> None:
            with store.transaction():
                store.set_setting("now", 2.0)
                raise ValueError

        with pytest.raises(ValueError):
            fail_within_transaction()
        assert store.get_setting("now") == 1.0
