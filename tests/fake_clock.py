"""A clock that stands still until a test or a sleeper moves it."""

import threading


class FakeClock:
    """The platform's clock, moved by the test."""

    is_platforms = True

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float, cancelled: threading.Event) -> None:
        self.time += seconds
