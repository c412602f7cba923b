"""Keep the emulator's time, and look up values that change at known times.

The clock stands still until somebody moves it (or runs at `speed`), and never goes back. Nothing
runs in the background: operations of the emulated platforms write down timelines, and reading an
object compares its timeline with the clock.
"""

import bisect
import heapq
import itertools
import re
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypeVar

from flask import g, has_app_context

from gpuform.providers.emulator.store import Store


class Clock:
    """The emulator's time in unix seconds, kept in the store.

    Args:
        store: keeps the time; the clock of an old store goes on where it was.
        start: the time of a new store; None is the real time.
        speed: how many seconds pass in one real second; 0 is a clock that only `advance` moves.
        real: a monotonic clock in seconds, for tests of `speed`.
        smallest_wait: by how many seconds `wait_until` moves at least, as if each waiter woke up
            late: with fewer polls, a test that looks at no moment in between is faster.
    """

    def __init__(
        self,
        store: Store,
        *,
        start: float | None = None,
        speed: float = 0.0,
        real: Callable[[], float] = time.monotonic,
        smallest_wait: float = 0.0,
    ) -> None:
        self._store, self.smallest_wait = store, smallest_wait
        self.longest_skip = 0.0
        """By how many seconds `wait_until` moves at most over a time in which nothing happens."""
        self._speed, self._read_real_time = speed, real
        self._last_real_time = real()
        self._scheduled_actions: list[tuple[float, int, Callable[[], None]]] = []
        self._action_numbers = itertools.count()
        self._known_changes: tuple[tuple[int, str], list[float]] | None = None
        self._move_lock = threading.RLock()
        with store.transaction():
            # Several processes may open a new store at once: the first one sets the time.
            if store.get_setting("now") is None:
                store.set_setting("now", time.time() if start is None else start)

    def now(self) -> float:
        """Return the time in unix seconds; with a `speed`, first add the time that has passed.

        Added are the real seconds since the last call of this method, times `speed`; the sum is
        stored. Scheduled actions are not called.
        """
        if not self._speed:
            return self._read_time()
        with self._store.transaction():
            real = self._read_real_time()
            # Real clocks are read by several processes that share a store; none may take time back.
            passed, self._last_real_time = max(0.0, real - self._last_real_time) * self._speed, real
            now = self._read_time() + passed
            self._store.set_setting("now", now)
            return now

    def _read_time(self) -> float:
        """Return the stored time in unix seconds; 0 for a new store."""
        return float(self._store.get_setting("now") or 0.0)

    def advance(self, seconds: float) -> float:
        """Move the clock forward by `seconds` and return the new time; never move it back.

        Scheduled actions on the way are called as by `advance_to`.
        """
        with self._move_lock:
            if self._scheduled_actions:
                return self.advance_to(self.now() + seconds)
            with self._store.transaction():  # other processes may move it, too
                return self._move_to(self.now() + seconds)

    def advance_to(self, moment: float) -> float:
        """Move the clock forward to `moment` (unix seconds) and return the new time.

        A moment in the past changes nothing, so that many sleepers that wait for one time move the
        clock once. Scheduled actions on the way are called first, each with the clock at the
        action's own time; no other thread moves the clock meanwhile.
        """
        with self._move_lock:
            while self._scheduled_actions and self._scheduled_actions[0][0] <= moment:
                # The clock stands at the action's own time while it runs, and an action may
                # schedule others.
                due, _, action = heapq.heappop(self._scheduled_actions)
                self._move_to(due)
                action()
            return self._move_to(moment)

    def wait_until(self, moment: float) -> float:
        """Move the clock forward for a client that waits until `moment`, and return the new time.

        Moves to `moment` (unix seconds), or further if it is less than `smallest_wait` away. With
        `longest_skip`, moves further up to the next moment at which an object changes, as far as
        that is known: the polls until then would see nothing new. A moment in the past changes
        nothing. Scheduled actions are called as by `advance_to`.
        """
        with self._move_lock:
            now = self.now()
            if now < moment:
                change = (self._find_next_change(now) if self.longest_skip else None) or now
                quiet_until = min(change, now + self.longest_skip)
                moment = max(moment, now + self.smallest_wait, quiet_until)
            return self.advance_to(moment)

    def find_quiet_end(self) -> float:
        """Return the time until which no object is removed, and no object's timeline goes on.

        That holds as long as nobody changes an object. The present time means: nothing is known.
        """
        now = self.now()
        # Only times of ten digits are looked for.
        if not 10**9 <= now < 10**10:
            return now
        # Later times begin with other digits.
        end_of_known = float((int(now) // 10**6 + 1) * 10**6)
        removal, change = self._store.find_next_removal(), self._find_next_change(now)
        return min(moment for moment in (removal, change, end_of_known) if moment is not None)

    def _find_next_change(self, now: float) -> float | None:
        """Return the earliest time after `now` in the objects' timelines, or None without one."""
        # Bodies keep times as unix seconds. Times that begin with other digits are days away.
        first_digits = str(int(now))[:4]
        key = self._store.change_count, first_digits
        if self._known_changes is None or self._known_changes[0] != key:
            bodies = self._store.list_bodies()
            times = {moment for body in bodies for moment in _find_times(body, first_digits)}
            self._known_changes = key, sorted(times)
        times_in_order = self._known_changes[1]
        index = bisect.bisect_right(times_in_order, now)
        return times_in_order[index] if index < len(times_in_order) else None

    def schedule(self, moment: float, action: Callable[[], None]) -> None:
        """Schedule `action` for `moment`: the thread that moves the clock there calls `action`.

        Only `advance` and `advance_to` call actions, not the time that passes by itself at a
        `speed`.
        """
        with self._move_lock:
            # The number keeps actions of one moment in their order; functions cannot be compared.
            heapq.heappush(self._scheduled_actions, (moment, next(self._action_numbers), action))

    def cancel_scheduled(self) -> None:
        """Forget all scheduled actions that have not been called."""
        with self._move_lock:
            self._scheduled_actions.clear()

    def _move_to(self, moment: float) -> float:
        """Store the later of now and `moment` (unix seconds) as the time, and return it."""
        with self._store.transaction():
            # Somebody else may have moved the clock further since the caller looked.
            moment = max(self.now(), moment)
            self._store.set_setting("now", moment)
            return moment


@lru_cache(maxsize=4096)
def _find_times(body: str, first_digits: str) -> list[float]:
    """Return the times in a body that have ten digits and begin with these four of them."""
    # Kept by body: a change of one object changes no other body.
    return [float(digits) for digits in re.findall(rf"\b{first_digits}\d{{6}}(?:\.\d+)?\b", body)]


T = TypeVar("T")

Timeline = list[tuple[float, T]]
"""Pairs of time (unix seconds of the clock) and value, oldest first, at least one."""


def schedule_stages(stages: Sequence[tuple[T, float]], start: float) -> Timeline[T]:
    """Return the timeline of consecutive `stages` from `start`: values, and seconds each lasts.

    The last value stays, whatever its seconds. In a request with the fault `slow`, each stage lasts
    longer by the factor of the fault.
    """
    factor = g.get("slowness", 1.0) if has_app_context() else 1.0
    timeline: Timeline[T] = []
    for value, seconds in stages:
        timeline.append((start, value))
        start += seconds * factor
    return timeline


def get_value_at(timeline: Timeline[T], now: float) -> T:
    """Return the value of `timeline` at the time `now`; before the first step, the first value."""
    return select_past_steps(timeline, now)[-1][1]


def select_past_steps(timeline: Timeline[T], now: float) -> Timeline[T]:
    """Return the steps of `timeline` that have begun at `now`; the first step in any case."""
    return [step for step in timeline if step[0] <= now] or timeline[:1]


def format_timestamp(moment: float) -> str:
    """Return unix seconds as most documents write times: in UTC, in whole seconds."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
