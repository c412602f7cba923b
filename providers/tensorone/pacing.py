"""Keeps the requests of one key under TensorOne's limits (documentation, 'Rate Limits').

Every answer tells the limit, what is left of it and when it is renewed, without saying which limit:
it is taken for that of requests of the same kind. Nothing is sent that would be refused; who waits
for it waits in its own call. Requests sent before anything is known may be refused, with the time
to wait.
"""

import email.utils
import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuform.providers.context import PollSchedule, format_duration, get_current_context
from gpuform.providers.errors import RateLimited
from gpuform.providers.http import retry_after

if TYPE_CHECKING:
    import httpx

READ = "GET"
RENEWED = 60.0
"""Seconds in which the first answer of a new window should tell of it."""


def kind_of(method: str, path: str) -> str:
    """Requests with one limit: reads; creates, other actions, updates and deletes."""
    if method == "POST":
        return "create" if path.endswith("/clusters") else "action"
    return method


@dataclass
class _Window:
    """What may still be sent until it ends, in our own time."""

    limit: int
    left: int
    ends: float


class Pace:
    """The limits of one key as its answers tell them; safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[str, _Window] = {}

    def take(self, request: "httpx.Request") -> "httpx.Request":
        """The request, when it may be sent.

        Raises RateLimited when that would be past the deadline of the call, Cancelled when the run
        is interrupted.
        """
        call = get_current_context()
        kind = kind_of(request.method, request.url.path)
        while pause := self._pause(kind, call.clock.now()):
            remaining = call.remaining()
            told = (
                f"tensorone: the limit of {kind} requests is used up for {format_duration(pause)}"
            )
            if remaining is not None and remaining < pause:
                raise RateLimited(
                    told,
                    method=request.method,
                    path=request.url.path,
                    status=429,
                    hint="wait, give a longer timeout, or use a key of a higher tier",
                )
            call.on_progress(told)
            call.sleep(pause)
        return request

    def learn(self, response: "httpx.Response") -> None:
        """Takes over what an answer tells of the limits."""
        now = get_current_context().clock.now()
        kind = kind_of(response.request.method, response.request.url.path)
        told = _told(response, now)
        if told is None:
            return
        with self._lock:
            known = self._windows.get(kind)
            # Answers overtake each other, and other requests are on their way.
            is_same = known is not None and abs(known.ends - told.ends) < 2
            if known is not None and is_same:
                told.left = min(told.left, known.left)
            self._windows[kind] = told

    def spacing(self, now: float) -> float:
        """How far apart looks should be, in seconds, once half of the reads are used: the rest
        has to last until the window ends."""
        with self._lock:
            window = self._windows.get(READ)
            if window is None or now >= window.ends or window.left * 2 >= window.limit:
                return 0.0
            return (window.ends - now) / max(1, window.left)

    def _pause(self, kind: str, now: float) -> float:
        """Counts one request as sent and gives 0, or gives how long none may be sent."""
        with self._lock:
            window = self._windows.get(kind)
            if window is None:
                return 0.0
            if now >= window.ends:
                window.left, window.ends = window.limit, now + RENEWED
            if window.left <= 0:
                return window.ends - now
            window.left -= 1
            return 0.0


class SparingRhythm(PollSchedule):
    """A beat that all who wait share, and that gets slower when reads run short."""

    SHORTEST = 7.5

    def __init__(self, longest: float, pace: Pace) -> None:
        super().__init__(longest)
        self._pace = pace

    def compute_delay(self, now: float, waited: float = math.inf) -> float:
        """Seconds until the next beat that may be used."""
        pause = super().compute_delay(now, waited)
        spacing = self._pace.spacing(now)
        if spacing <= self._longest or self._first is None:
            return pause
        interval = self._longest * math.ceil(spacing / self._longest)
        left = interval - (now - self._first) % interval
        return left if left > interval / 10 else left + interval


def _told(response: "httpx.Response", now: float) -> _Window | None:
    """The window that an answer tells of; None when it tells nothing."""
    headers = response.headers
    limit, left, reset = (
        _number(headers.get(f"x-ratelimit-{name}")) for name in ("limit", "remaining", "reset")
    )
    if response.status_code == 429:
        wait = retry_after(headers.get("retry-after"))
        ends = None if wait is None else now + wait
        if ends is None and reset is not None:
            ends = now + _seconds_until(reset, headers.get("date"), now)
        return None if ends is None else _Window(limit or 1, 0, ends)
    if limit is None or left is None or reset is None:
        return None
    return _Window(limit, left, now + _seconds_until(reset, headers.get("date"), now))


def _seconds_until(reset: int, date: str | None, now: float) -> float:
    """From the platform's own time, where the answer tells it: clocks differ."""
    try:
        there = email.utils.parsedate_to_datetime(date or "").timestamp()
    except ValueError:
        there = now
    return max(0.0, reset - there)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None
