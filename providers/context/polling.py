"""Waiting for a platform: the one loop behind every create, update and delete."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuform.providers.context.provider_context import ProviderContext
from gpuform.providers.errors import (
    Cancelled,
    ForeignAnswer,
    GpuformError,
    NotReady,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)

T = TypeVar("T")

PASSING = (RateLimited, ServerError, Unreachable, UnknownOutcome)
"""Errors of a look that say nothing of the object: the wait goes on until its deadline.

A ForeignAnswer to the first look is none of them: then the address is wrong.
"""


@dataclass(frozen=True)
class PollResult(Generic[T]):
    """What one probe saw.

    `phase` is the platform's own word. `failed` says why no more waiting helps. Anything that is
    neither done nor failed is pending, so that a status nobody knows is waited out.
    """

    value: T
    phase: str
    is_done: bool = False
    failure: str | None = None


class PollSchedule:
    """A beat that many waiters share, so that one request serves all who look at it.

    The first who waits gives the beat. It comes every `longest` seconds, and for who has not waited
    long at halves of that, quarters and so on: a look is never later than a quarter of the time
    waited, nor sooner than `SHORTEST`. Every beat of the longer kind is one of the shorter, too.
    """

    SHORTEST = 0.4

    def __init__(self, longest: float) -> None:
        self._longest = longest
        self._first: float | None = None

    def compute_delay(self, now: float, waited: float = math.inf) -> float:
        """Seconds until the next beat; one that is all but now counts as heard."""
        if self._first is None:
            self._first = now
        interval = self._longest
        while interval > waited / 4 and interval / 2 >= self.SHORTEST:
            interval /= 2
        left = interval - (now - self._first) % interval
        return left if left > interval / 10 else left + interval


def wait_until_done(
    context: ProviderContext,
    probe: Callable[[], PollResult[T]],
    *,
    label: str,
    interval: float | PollSchedule = 10.0,
    limit: float = math.inf,
) -> T:
    """Probes every `interval` seconds until a look is done, and returns its value.

    The first look is at once, but one at what the call itself has just created waits for the first
    beat of a rhythm: its answer is known. Waits `limit` seconds at most, and never past the call's
    deadline. Tells `call.on_progress` the phase and the time waited whenever the phase changes.
    Raises NotReady when a look failed or the time is over, Cancelled when the run was interrupted,
    both with the last look; of the errors of `probe` those of `PASSING` are waited out, others
    pass.
    """
    started = context.clock.now()
    last: PollResult[T] | None = None
    phase = told = ""
    pause = 0.0
    if isinstance(interval, PollSchedule) and context.just_created:
        pause = interval.compute_delay(started, 0)
    while True:
        try:
            if pause > 0:
                context.sleep(pause)
            context.raise_if_cancelled()
            looked_at = context.clock.now()
            waited = format_duration(looked_at - started)
            seen, phase = _look(probe, is_first=not phase)
            last = seen or last
            if seen is not None and seen.is_done:
                return seen.value
            if seen is not None and seen.failure is not None:
                raise NotReady(f"{label}: {seen.failure}", last=seen.value)
            if phase != told:
                context.on_progress(f"{phase} ({waited})")
                told = phase
            if context.compute_remaining_seconds() == 0 or looked_at - started >= limit:
                reason = f"{label}: not done after {waited}; last seen: {phase}"
                raise NotReady(reason, last=_of(last))
            # Others that wait on the same virtual clock may have moved it this far already.
            if isinstance(interval, PollSchedule):
                pause = interval.compute_delay(looked_at, looked_at - started)
            else:
                pause = interval
            pause -= context.clock.now() - looked_at
        except Cancelled:
            reason = f"{label}: interrupted after {format_duration(context.clock.now() - started)}"
            reason += f"; last seen: {phase}" if phase else ""
            raise Cancelled(reason, last=_of(last)) from None


def wait_until_gone(
    context: ProviderContext,
    probe: Callable[[], PollResult[object] | None],
    *,
    label: str,
    interval: float | PollSchedule = 10.0,
) -> None:
    """Probes until there is nothing to see (None). Raises as `wait_until_done`, and GpuformError.

    `what` names the object in the message when it does not go in time.
    """

    def look() -> PollResult[object]:
        return probe() or PollResult(None, "gone", is_done=True)

    try:
        wait_until_done(context, look, label=label, interval=interval)
    except NotReady as error:
        raise GpuformError(error.reason, hint="run it again to go on waiting") from None


def format_duration(seconds: float) -> str:
    """Seconds as people say them: 45s, 3m20s, 1h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _of(look: PollResult[T] | None) -> T | None:
    return None if look is None else look.value


def _look(
    probe: Callable[[], PollResult[T]], *, is_first: bool
) -> tuple[PollResult[T] | None, str]:
    """A look and its phase; no look, and why, when the platform did not answer."""
    try:
        look = probe()
    except PASSING as error:
        if is_first and isinstance(error, ForeignAnswer):
            raise
        return None, f"no answer: {error.message}"
    return look, look.phase
