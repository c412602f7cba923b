"""What to do while a platform is out of capacity: other attempts, in rounds, for a while."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from gpuform.providers.calls import Call, duration
from gpuform.providers.errors import OutOfCapacity

T = TypeVar("T")

ROUND = 60.0
"""Seconds from one round of attempts to the next."""


def first_with_capacity(
    call: Call, attempts: Sequence[Callable[[], T]], patience: float = 0.0
) -> T:
    """The result of the first attempt that is not out of capacity.

    All are tried in turn, again every `ROUND` for `patience` seconds, but not past the call's
    deadline. Raises the last OutOfCapacity then, Cancelled when the run is interrupted, and at once
    whatever else an attempt raises.
    """
    until = call.clock.now() + patience
    while True:
        for attempt in attempts:
            try:
                return attempt()
            except OutOfCapacity as error:
                last = error
            call.raise_if_cancelled()
        left = min(until - call.clock.now(), call.remaining() or 0.0)
        if left <= 0:
            raise last
        call.on_progress(f"out of stock; trying again for {duration(left)}")
        call.sleep(min(ROUND, left))
