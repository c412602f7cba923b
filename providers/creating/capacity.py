"""What to do while a platform is out of capacity: other attempts, in rounds, for a while."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gpuform.providers.context import ProviderContext, format_duration
from gpuform.providers.errors import ApiError, OutOfCapacity

T = TypeVar("T")

ROUND = 60.0
"""Seconds from one round of attempts to the next."""


def first_with_capacity(
    context: ProviderContext,
    attempts: Sequence[Callable[[], T]],
    patience: float = 0.0,
    names: Sequence[str] = (),
) -> T:
    """The result of the first attempt that is not out of capacity.

    All are tried in turn, again every `ROUND` for `patience` seconds, but not past the call's
    deadline. `names` say what each one tries, where there are several: a log may show any one line
    of a round, so that each line names all. Raises the last OutOfCapacity then, Cancelled when the
    run is interrupted, and at once whatever else an attempt raises.
    """
    until, begin = context.clock.now() + patience, "trying"
    while True:
        for at, attempt in enumerate(attempts):
            if names:
                context.on_progress(_trying(begin, names, at))
            try:
                found = attempt()
            except OutOfCapacity as error:
                last = error
            else:
                if names and at > 0:
                    context.on_progress(f"took {names[at]}{_without(names[:at])}")
                return found
            context.raise_if_cancelled()
        left = min(until - context.clock.now(), context.compute_remaining_seconds() or 0.0)
        if left <= 0:
            raise last
        which = f": {', '.join(names)}" if names else ""
        context.on_progress(f"out of stock{which}; trying again for {format_duration(left)}")
        context.sleep(min(ROUND, left))
        begin = "trying again"


def patience_of(search: Mapping[str, Any] | None) -> float:
    """How long an `on_no_capacity` waits, in seconds."""
    return 60.0 * ((search or {}).get("wait_minutes") or 0)


def none_free(
    error: ApiError, title: str, wanted: Sequence[str], done: str, hint: str, *, is_searched: bool
) -> OutOfCapacity:
    """What a platform has not got, and what to do.

    `wanted` has a text such as `16 H100_SXM GPUs free in us-central-8` for all that was tried.
    `is_searched` says that on_no_capacity is declared.
    """
    more = "" if is_searched else "; on_no_capacity makes gpuform wait, or try alternatives"
    return OutOfCapacity(
        f"{title} has no {' and no '.join(wanted)} now; nothing was {done}",
        method=error.method,
        path=error.path,
        status=error.status,
        code=error.code,
        request_id=error.request_id,
        hint=f"{hint}{more}",
    )


def _trying(begin: str, names: Sequence[str], at: int) -> str:
    if at == 0:
        return f"{begin} {names[0]}, then {', '.join(names[1:])}"
    return f"{begin} {names[at]}{_without(names[:at])}"


def _without(names: Sequence[str]) -> str:
    return f"; out of stock: {', '.join(names)}"
