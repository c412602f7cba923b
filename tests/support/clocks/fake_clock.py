"""A clock that stands still until a test or a sleeper moves it."""

import threading
from dataclasses import dataclass


@dataclass
class FakeClock:
    """The platform's clock, or this machine's, moved by the test."""

    time: float = 1000.0
    is_platforms: bool = True

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        self.time += seconds
