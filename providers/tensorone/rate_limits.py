"""Keep the requests of one API key below TensorOne's limits (documentation, 'Rate Limits').

The client calls `RateLimits` before each request and after each answer. Every answer reports a
limit, what remains of it and when it is renewed, but not which limit: gpuform takes it for the
limit of requests of one kind. No request is sent that the platform would refuse; a caller waits in
its own operation instead. Requests before the first answer may be refused with a time to wait.
"""

import email.utils
import math
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuform.providers.context import PollSchedule, format_duration, get_current_context
from gpuform.providers.errors import RateLimited
from gpuform.providers.http import parse_retry_after

if TYPE_CHECKING:
    import httpx

READ_KIND = "GET"
RENEWAL_GRACE_S = 60.0
"""Seconds in which the first answer of a new window should report that window."""


def get_request_kind(method: str, path: str) -> str:
    """Return `create`, `action`, or the method of any other request: each kind has a limit."""
    if method == "POST":
        return "create" if path.endswith("/clusters") else "action"
    return method


@dataclass
class _LimitWindow:
    """The requests that may still be sent until a window ends, in our own time."""

    limit: int
    remaining: int
    ends_at: float


class RateLimits:
    """The limits of one key as answers report them; safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._windows: dict[str, _LimitWindow] = {}

    def wait_for_turn(self, request: "httpx.Request") -> "httpx.Request":
        """Wait until the limits allow the request, count the request as sent, and return it.

        Raises:
            RateLimited: the wait would pass the deadline of the operation.
            Cancelled: the run was interrupted.
        """
        context = get_current_context()
        kind = get_request_kind(request.method, request.url.path)
        # several waiters may wake at one moment: each has to reserve a request of its own
        while pause := self._reserve_request(kind, context.clock.now()):
            remaining = context.compute_remaining_seconds()
            message = (
                f"tensorone: the limit of {kind} requests is reached; waiting "
                f"{format_duration(pause)}"
            )
            if remaining is not None and remaining < pause:
                raise RateLimited(
                    message,
                    method=request.method,
                    path=request.url.path,
                    status=429,
                    hint="wait, declare a longer timeout, or use a key of a higher tier",
                )
            context.on_progress(message)
            context.sleep(pause)
        return request

    def record_answer(self, response: "httpx.Response") -> None:
        """Record the limit that an answer reports for its kind of request, if any.

        Answers overtake each other: of one window, the smallest remaining number counts.
        """
        now = get_current_context().clock.now()
        kind = get_request_kind(response.request.method, response.request.url.path)
        reported_window = _parse_window(response, now)
        if reported_window is None:
            return
        with self._lock:
            known_window = self._windows.get(kind)
            # Answers overtake each other, and other requests are on their way.
            is_same_window = (
                known_window is not None and abs(known_window.ends_at - reported_window.ends_at) < 2
            )
            if known_window is not None and is_same_window:
                reported_window.remaining = min(reported_window.remaining, known_window.remaining)
            self._windows[kind] = reported_window

    def compute_read_spacing(self, now: float) -> float:
        """Return the seconds to keep between two polls for the remaining reads to last; or 0.

        Polls are spaced once half of the reads are used: the rest has to last until the window
        ends.
        """
        with self._lock:
            window = self._windows.get(READ_KIND)
            if window is None or now >= window.ends_at or window.remaining * 2 >= window.limit:
                return 0.0
            return (window.ends_at - now) / max(1, window.remaining)

    def _reserve_request(self, kind: str, now: float) -> float:
        """Count one request against the rate limit and return 0, or return the seconds to wait."""
        with self._lock:
            window = self._windows.get(kind)
            if window is None:
                return 0.0
            if now >= window.ends_at:
                # the new window is not known before its first answer: the limit is taken to be as
                # before
                window.remaining, window.ends_at = window.limit, now + RENEWAL_GRACE_S
            if window.remaining <= 0:
                return window.ends_at - now
            window.remaining -= 1
            return 0.0


class RateLimitedPollSchedule(PollSchedule):
    """A shared poll schedule whose interval grows when reads run short."""

    SHORTEST = 7.5

    def __init__(self, longest_interval: float, rate_limits: RateLimits) -> None:
        super().__init__(longest_interval, self.SHORTEST)
        self._rate_limits = rate_limits

    def compute_delay(self, now: float, waited: float = math.inf) -> float:
        """Return the seconds until the next shared poll, at an interval within the rate limits.

        The interval is a multiple of the longest one while reads run short.
        """
        pause = super().compute_delay(now, waited)
        spacing = self._rate_limits.compute_read_spacing(now)
        if spacing <= self._longest_interval or self._started_at is None:
            return pause
        # a multiple of the shared interval, so that waiters still meet at one request
        interval = self._longest_interval * math.ceil(spacing / self._longest_interval)
        remaining_s = interval - (now - self._started_at) % interval
        # a poll that would be due right now is skipped: the request for it is being sent already
        return remaining_s if remaining_s > interval / 10 else remaining_s + interval


def _parse_window(response: "httpx.Response", now: float) -> _LimitWindow | None:
    """Return the limit window reported by an answer, or None.

    A refusal (429) gives a window without remaining requests.
    """
    headers = response.headers
    limit, remaining, reset = (
        _parse_number(headers.get(f"x-ratelimit-{name}"))
        for name in ("limit", "remaining", "reset")
    )
    if response.status_code == 429:
        retry_after_s = parse_retry_after(headers.get("retry-after"))
        ends_at = None if retry_after_s is None else now + retry_after_s
        if ends_at is None and reset is not None:
            ends_at = now + _compute_seconds_until(reset, headers.get("date"), now)
        # the limit is not in a refusal, but the time to wait is: nothing may be sent until then
        return None if ends_at is None else _LimitWindow(limit or 1, 0, ends_at)
    if limit is None or remaining is None or reset is None:
        return None
    return _LimitWindow(
        limit, remaining, now + _compute_seconds_until(reset, headers.get("date"), now)
    )


def _compute_seconds_until(reset_at: int, date_header: str | None, now: float) -> float:
    """Return the seconds until `reset_at`, by the platform's clock if the answer has a date.

    The two clocks may differ. `reset_at` and `now` are in Unix seconds; without a readable date
    `now` is the time.
    """
    try:
        platform_now = email.utils.parsedate_to_datetime(date_header or "").timestamp()
    except ValueError:
        platform_now = now
    return max(0.0, reset_at - platform_now)


def _parse_number(header_value: str | None) -> int | None:
    """Parse a header of ASCII digits; None for any other text."""
    return (
        int(header_value)
        if header_value is not None and header_value.isascii() and header_value.isdigit()
        else None
    )
