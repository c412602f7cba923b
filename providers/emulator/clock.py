"""Keep the emulator's time.

It stands still until somebody moves it, or runs, and never goes back; objects progress by values
that change at known times.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from gpuform.providers.emulator.store import Store


class Clock:
    """Virtual time in unix seconds, kept in the store.

    A new store starts at `start`, or at the real time; an old one goes on where it was. `speed` are
    the seconds that pass in one of `real`; with none it stands still.
    """

    def __init__(
        self,
        store: Store,
        *,
        start: float | None = None,
        speed: float = 0.0,
        real: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._speed, self._real = speed, real
        self._seen = real()
        self._appointments: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._keeping = threading.RLock()
        with store.transaction():
            if store.setting("now") is None:
                store.set("now", time.time() if start is None else start)

    def now(self) -> float:
        if not self._speed:
            return self._kept()
        with self._store.transaction():
            real = self._real()
            passed, self._seen = max(0.0, real - self._seen) * self._speed, real
            now = self._kept() + passed
            self._store.set("now", now)
            return now

    def _kept(self) -> float:
        return float(self._store.setting("now") or 0.0)

    def advance(self, seconds: float) -> float:
        """Move on by `seconds` (a negative number moves nothing) and return the new time."""
        with self._keeping:
            if self._appointments:
                return self.until(self.now() + seconds)
            with self._store.transaction():  # other processes may move it, too
                return self._move_to(self.now() + seconds)

    def until(self, moment: float) -> float:
        """Move on to `moment` unless it is past, so that many sleepers move the clock once.

        It stops at each appointment on the way. Nobody else moves it meanwhile.
        """
        with self._keeping:
            while self._appointments and self._appointments[0][0] <= moment:
                due, _, action = heapq.heappop(self._appointments)
                self._move_to(due)
                action()
            return self._move_to(moment)

    def at(self, moment: float, action: Callable[[], None]) -> None:
        """Call `action` when the clock is moved to `moment`, in the thread that moves it.

        Only a clock that others move keeps appointments.
        """
        with self._keeping:
            heapq.heappush(self._appointments, (moment, next(self._count), action))

    def _move_to(self, moment: float) -> float:
        with self._store.transaction():
            moment = max(self.now(), moment)
            self._store.set("now", moment)
            return moment


T = TypeVar("T")

Timeline = list[tuple[float, T]]
"""Pairs of time (unix seconds of the clock) and value, oldest first, at least one."""


def scheduled(stages: Sequence[tuple[T, float]], start: float) -> Timeline[T]:
    """The timeline of stages that begin at `start` and last so many seconds each."""
    timeline: Timeline[T] = []
    for value, seconds in stages:
        timeline.append((start, value))
        start += seconds
    return timeline


def value_at(timeline: Timeline[T], now: float) -> T:
    """The value that holds at `now`; the first one before its time."""
    return until(timeline, now)[-1][1]


def until(timeline: Timeline[T], now: float) -> Timeline[T]:
    """What has happened by `now`: never empty."""
    return [step for step in timeline if step[0] <= now] or timeline[:1]
