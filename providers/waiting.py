"""Waiting for a platform: the one loop behind every create, update and delete."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuform.providers.call import Call
from gpuform.providers.errors import (
    Cancelled,
    GpuformError,
    NotReady,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)

T = TypeVar("T")

PASSING = (RateLimited, ServerError, Unreachable, UnknownOutcome)
"""Errors of a look that say nothing of the object: the wait goes on until its deadline."""


@dataclass(frozen=True)
class Look(Generic[T]):
    """What one probe saw.

    `phase` is the platform's own word. `failed` says why no more waiting helps. Anything that is
    neither done nor failed is pending, so that a status nobody knows is waited out.
    """

    value: T
    phase: str
    done: bool = False
    failed: str | None = None


def wait_until(
    call: Call,
    probe: Callable[[], Look[T]],
    *,
    what: str,
    interval: float = 10.0,
    limit: float = math.inf,
) -> T:
    """Probes every `interval` seconds until a look is done, and returns its value.

    Waits `limit` seconds at most, and never past the call's deadline. Tells `call.on_progress` the
    phase and the time waited whenever the phase changes. Raises NotReady when a look failed or the
    time is over, Cancelled when the run was interrupted, both with the last look; of the errors of
    `probe` those of `PASSING` are waited out, others pass.
    """
    started = call.clock.now()
    last: Look[T] | None = None
    phase = told = ""
    while True:
        looked_at = call.clock.now()
        waited = duration(looked_at - started)
        try:
            seen, phase = _look(probe)
            last = seen or last
            if seen is not None and seen.done:
                return seen.value
            if seen is not None and seen.failed is not None:
                raise NotReady(f"{what}: {seen.failed}", last=seen.value)
            if phase != told:
                call.on_progress(f"{phase} ({waited})")
                told = phase
            if call.remaining() == 0 or looked_at - started >= limit:
                reason = f"{what}: not done after {waited}; last seen: {phase}"
                raise NotReady(reason, last=_of(last))
            # Others that wait on the same virtual clock may have moved it this far already.
            pause = looked_at + interval - call.clock.now()
            if pause > 0:
                call.sleep(pause)
            call.raise_if_cancelled()
        except Cancelled:
            reason = f"{what}: interrupted after {waited}"
            reason += f"; last seen: {phase}" if phase else ""
            raise Cancelled(reason, last=_of(last)) from None


def wait_until_gone(
    call: Call, probe: Callable[[], Look[object] | None], *, what: str, interval: float = 10.0
) -> None:
    """Probes until there is nothing to see (None). Raises as `wait_until`, and GpuformError.

    `what` names the object in the message when it does not go in time.
    """

    def look() -> Look[object]:
        return probe() or Look(None, "gone", done=True)

    try:
        wait_until(call, look, what=what, interval=interval)
    except NotReady as error:
        raise GpuformError(error.reason, hint="run it again to go on waiting") from None


def duration(seconds: float) -> str:
    """Seconds as people say them: 45s, 3m20s, 1h05m."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"


def _of(look: Look[T] | None) -> T | None:
    return None if look is None else look.value


def _look(probe: Callable[[], Look[T]]) -> tuple[Look[T] | None, str]:
    """A look and its phase; no look, and why, when the platform did not answer."""
    try:
        look = probe()
    except PASSING as error:
        return None, f"no answer: {error.message}"
    return look, look.phase
