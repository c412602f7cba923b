"""Try alternatives, in rounds, while a platform is out of capacity.

`create_once` and SCP's node pools call this module.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gpuform.providers.context import ProviderContext, format_duration
from gpuform.providers.errors import ApiError, OutOfCapacity

T = TypeVar("T")

ROUND = 60.0
"""Seconds from one round of attempts to the next."""


def try_until_capacity(
    context: ProviderContext,
    attempts: Sequence[Callable[[], T]],
    capacity_wait_s: float = 0.0,
    names: Sequence[str] = (),
) -> T:
    """Return the result of the first attempt that is not out of capacity.

    All attempts are tried in turn, again every `ROUND` seconds for `capacity_wait_s` seconds, but
    not past the deadline of the context; only once without a deadline. Each progress message names
    all alternatives, because a log may show any single line of a round.

    Args:
        context: its deadline and cancellation end the attempts.
        attempts: functions that create the object.
        capacity_wait_s: seconds to repeat the attempts.
        names: what each attempt tries, if there are several.

    Raises:
        OutOfCapacity: the last one, when the time is over.
        Cancelled: the run was interrupted.
        Exception: any other error of an attempt, at once.
    """
    until, verb = context.clock.now() + capacity_wait_s, "trying"
    while True:
        for at, attempt in enumerate(attempts):
            if names:
                context.on_progress(_describe_attempt(verb, names, at))
            try:
                result = attempt()
            except OutOfCapacity as error:
                last_error = error
            else:
                if names and at > 0:
                    context.on_progress(f"using {names[at]}{_describe_exhausted(names[:at])}")
                return result
            # An interrupted run must not create anything more.
            context.raise_if_cancelled()
        # Without a deadline there is no second round.
        remaining = min(until - context.clock.now(), context.compute_remaining_seconds() or 0.0)
        if remaining <= 0:
            raise last_error
        alternatives = f": {', '.join(names)}" if names else ""
        context.on_progress(
            f"out of capacity{alternatives}; trying again for {format_duration(remaining)}"
        )
        context.sleep(min(ROUND, remaining))
        verb = "trying again"


def parse_wait_seconds(search: Mapping[str, Any] | None) -> float:
    """Return how many seconds a declared `on_no_capacity` waits for capacity; 0 without one."""
    return 60.0 * ((search or {}).get("wait_minutes") or 0)


def build_capacity_error(
    error: ApiError,
    title: str,
    missing_capacity: Sequence[str],
    undone_action: str,
    hint: str,
    *,
    is_searched: bool,
) -> OutOfCapacity:
    """Return the error that names the missing capacity, with a hint.

    Args:
        error: the platform's own error.
        title: the platform's name.
        missing_capacity: a text such as `16 H100_SXM GPUs free in us-central-8` for all that was
            tried.
        undone_action: the action that was not done, such as `created`.
        hint: what to do.
        is_searched: on_no_capacity is declared; otherwise the hint also proposes on_no_capacity.
    """
    more = "" if is_searched else "; to wait or to try alternatives, declare on_no_capacity"
    return OutOfCapacity(
        f"{title} is out of capacity: it has no {' and no '.join(missing_capacity)} now; nothing "
        f"was {undone_action}",
        method=error.method,
        path=error.path,
        status=error.status,
        code=error.code,
        request_id=error.request_id,
        hint=f"{hint}{more}",
    )


def _describe_attempt(begin: str, names: Sequence[str], at: int) -> str:
    """Return the progress text of attempt `at`, with the names of the other attempts.

    `begin` is the start of the text; `names` say which GPU type and region each attempt tries.
    """
    if at == 0:
        return f"{begin} {names[0]}, then {', '.join(names[1:])}"
    return f"{begin} {names[at]}{_describe_exhausted(names[:at])}"


def _describe_exhausted(names: Sequence[str]) -> str:
    """Return the end of a progress text with the names of attempts that found no capacity."""
    return f"; out of capacity: {', '.join(names)}"
