"""Provide a clock for many threads that wait for each other: no thread is ever late."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from processes.limits import LAST_RESORT


@dataclass
class LockstepClock:
    """Time that moves on when all `active` threads sleep, to the first moment that one waits for.

    `move` is called with the new time, to move another clock along.
    """

    is_platforms = True
    time: float
    active: int
    move: Callable[[float], None]
    _wakes: list[float] = field(default_factory=list)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        if seconds <= 0:
            return
        with self._changed:
            wake = self.time + seconds
            self._wakes.append(wake)
            self._advance()
            assert self._changed.wait_for(lambda: self.time >= wake, LAST_RESORT)

    def remove_thread(self) -> None:
        with self._changed:
            self.active -= 1
            self._advance()

    def _advance(self) -> None:
        if self._wakes and len(self._wakes) == self.active:
            self.time = min(self._wakes)
            self.move(self.time)
            self._wakes = [wake for wake in self._wakes if wake > self.time]
            self._changed.notify_all()
