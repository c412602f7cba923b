"""How long things take by the platform's clock: an emulator's where there is one."""

import threading
import time

from gpuform.providers.calls import Clock, SystemClock
from gpuform.providers.errors import GpuformError


class Stopwatch:
    """Measures named stretches of time, in seconds, on one clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._starts: dict[object, float] = {}

    @property
    def is_real(self) -> bool:
        """Whether the clock is this machine's."""
        return isinstance(self._clock, SystemClock)

    def synchronise(self) -> None:
        """Brings a clock that others move up to date; one that does not answer is given up."""
        try:
            self._clock.sleep(0, threading.Event())
        except GpuformError:
            self._clock = SystemClock()

    def start(self, what: object) -> None:
        """Begins a stretch."""
        self._starts[what] = self._now()

    def elapsed(self, what: object) -> float:
        """The seconds since the stretch began; 0 when it never did."""
        return max(0.0, self._now() - self._starts.get(what, self._now()))

    def _now(self) -> float:
        try:
            return self._clock.now()
        except GpuformError:
            return time.time()
