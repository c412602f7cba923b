"""Poll a platform until an object is ready or gone, and try alternatives while capacity is missing.

Lifecycles call `wait_until_done` and `wait_until_gone` with a probe that asks a client.
`create_once` and SCP's node pools call `try_until_capacity`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from gpuform.providers.context.provider_context import ProviderContext
from gpuform.providers.errors import (
    ApiError,
    Cancelled,
    ForeignAnswer,
    GpuformError,
    NotReady,
    NotShown,
    OutOfCapacity,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.records import PROPAGATION_TIME_S

T = TypeVar("T")

TRANSIENT_ERRORS = (RateLimited, ServerError, Unreachable, UnknownOutcome)
"""Errors of a probe that prove nothing about the object: the wait continues until its deadline.

A ForeignAnswer to the first probe is none of them: then the address is wrong.
"""


@dataclass(frozen=True)
class PollResult(Generic[T]):
    """The result of one probe.

    A result that is neither done nor failed is pending, so that an unknown status is waited out.

    Args:
        value: the object as observed.
        phase: the platform's own word for the state of the object.
        is_done: the wait can end.
        failure: why more waiting cannot help; None while it can.
    """

    value: T
    phase: str
    is_done: bool = False
    failure: str | None = None


class PollSchedule:
    """Common poll times of many waiters, so one request serves all of them.

    The first waiter starts the schedule. Polls are every `longest_interval` seconds, and for a
    waiter that has not waited long at halves, quarters and so on of that interval: a poll is never
    later than a quarter of the time waited, and intervals are never shorter than
    `shortest_interval`. Every poll of the longer interval is also one of the shorter interval.
    """

    SHORTEST = 0.4

    def __init__(self, longest_interval: float, shortest_interval: float = SHORTEST) -> None:
        self._longest_interval = longest_interval
        self._shortest_interval = shortest_interval
        self._started_at: float | None = None

    def compute_delay(self, now: float, waited: float = math.inf) -> float:
        """Return the seconds until the next poll in the schedule shared by all waiting calls.

        The first call starts the schedule at `now`. A poll that is due almost now counts as done.

        Args:
            now: Unix time in seconds.
            waited: for how many seconds the caller has waited. The interval grows with this time.
        """
        if self._started_at is None:
            self._started_at = now
        interval = self._longest_interval
        while interval > waited / 4 and interval / 2 >= self._shortest_interval:
            interval /= 2
        remaining = interval - (now - self._started_at) % interval
        # A waiter that wakes up a little early would otherwise poll twice in a row.
        return remaining if remaining > interval / 10 else remaining + interval


def wait_until_done(
    context: ProviderContext,
    probe: Callable[[], PollResult[T]],
    *,
    label: str,
    interval: float | PollSchedule = 10.0,
    limit: float = math.inf,
) -> T:
    """Probe every `interval` seconds until a result is done, and return the result's value.

    The first probe is sent at once. Only for an object that this call has just created, a poll
    schedule delays the first probe to its next poll. Reports each new phase with the time waited to
    `context.on_progress`.

    Args:
        context: its deadline ends the wait.
        probe: asks the platform. `TRANSIENT_ERRORS` are waited out, except for a ForeignAnswer to
            the first probe, and NotShown, except as `_Prober` says; all other errors pass.
        label: names the object in messages.
        interval: seconds, or a common schedule.
        limit: the longest wait in seconds.

    Raises:
        NotReady: a result has failed or the time is over; has the last value.
        NotShown: the object stays missing.
        Cancelled: the run was interrupted; has the last value.
    """
    started = context.clock.now()
    prober = _Prober(context, probe)
    phase = reported_phase = ""
    pause = 0.0
    if isinstance(interval, PollSchedule) and context.progress.just_created:
        # A new object is not ready at once: its first poll joins those of the other waiters.
        pause = interval.compute_delay(started, 0)
    while True:
        try:
            if pause > 0:
                context.sleep(pause)
            context.raise_if_cancelled()
            probed_at = context.clock.now()
            waited = format_duration(probed_at - started)
            result, phase = prober.probe_once(is_first=not phase)
            if result is not None and result.is_done:
                return result.value
            if result is not None and result.failure is not None:
                raise NotReady(f"{label}: {result.failure}", last=result.value)
            # One line for each phase: a wait of an hour must not fill the log.
            if phase != reported_phase:
                context.on_progress(f"{phase} ({waited})")
                reported_phase = phase
            if context.compute_remaining_seconds() == 0 or probed_at - started >= limit:
                reason = f"{label}: not done after {waited}; last seen: {phase}"
                raise NotReady(reason, last=prober.last_value)
            # Others that wait on the same virtual clock may have moved it this far already.
            if isinstance(interval, PollSchedule):
                pause = interval.compute_delay(probed_at, probed_at - started)
            else:
                pause = interval
            pause -= context.clock.now() - probed_at
        # The last observed value must not be lost: the caller stores it.
        except Cancelled:
            reason = f"{label}: interrupted after {format_duration(context.clock.now() - started)}"
            reason += f"; last seen: {phase}" if phase else ""
            raise Cancelled(reason, last=prober.last_value) from None


def wait_until_gone(
    context: ProviderContext,
    probe: Callable[[], PollResult[object] | None],
    *,
    label: str,
    interval: float | PollSchedule = 10.0,
) -> None:
    """Probe every `interval` seconds until the object is gone: the probe returns None.

    Raises:
        GpuformError: the object is still there at the deadline, or a probe's result has failed;
            `label` names the object.
        Cancelled: the run was interrupted; names the object, too.
    """

    def probe_for_absence() -> PollResult[object]:
        return probe() or PollResult(None, "gone", is_done=True)

    try:
        wait_until_done(context, probe_for_absence, label=label, interval=interval)
    except Cancelled:
        raise
    except NotReady as error:
        raise GpuformError(error.reason, hint="run the command again to continue to wait") from None


def format_duration(seconds: float) -> str:
    """Return seconds in short form: 45s, 3m20s, 1h05m."""
    total_seconds = round(seconds)
    if total_seconds < 60:
        return f"{total_seconds}s"
    if total_seconds < 3600:
        return f"{total_seconds // 60}m{total_seconds % 60:02d}s"
    return f"{total_seconds // 3600}h{total_seconds % 3600 // 60:02d}m"


class _Prober(Generic[T]):
    """Probes on behalf of one wait; `last_value` is the object as last observed, or None."""

    def __init__(self, context: ProviderContext, probe: Callable[[], PollResult[T]]) -> None:
        self._context = context
        self._probe = probe
        self._missed_at: float | None = None
        self.last_value: T | None = None

    def probe_once(self, *, is_first: bool) -> tuple[PollResult[T] | None, str]:
        """Return the result of one probe and the phase to show; without a result, None and why.

        A transient error gives no result, and neither does an object that the platform does not
        show. A ForeignAnswer to the first probe and all other errors pass. NotShown passes when the
        object has been missing for the propagation time, at the deadline, and for an object that
        this call has just created and nobody has shown yet: for such an object the caller searches.
        """
        probed_at = self._context.clock.now()
        try:
            result = self._probe()
        except TRANSIENT_ERRORS as error:
            # Before any answer of the platform, a foreign one means a wrong address: waiting would
            # be in vain.
            if is_first and isinstance(error, ForeignAnswer):
                raise
            return None, f"no answer: {error.message}"
        except NotShown:
            # A replica that lags behind hides an object that another replica shows.
            self._missed_at = probed_at if self._missed_at is None else self._missed_at
            if (
                (self.last_value is None and self._context.progress.just_created)
                or probed_at - self._missed_at >= PROPAGATION_TIME_S
                or self._context.compute_remaining_seconds() == 0
            ):
                raise
            return None, "not shown by the platform"
        self._missed_at, self.last_value = None, result.value
        return result, result.phase


CAPACITY_ROUND_S = 60.0
"""Seconds from one round of attempts to the next."""


def try_until_capacity(
    context: ProviderContext,
    attempts: Sequence[Callable[[], T]],
    capacity_wait_s: float = 0.0,
    names: Sequence[str] = (),
) -> T:
    """Return the result of the first attempt with enough capacity.

    All attempts are tried in turn, again every `CAPACITY_ROUND_S` seconds for `capacity_wait_s`
    seconds, but not past the deadline of the context; only once without a deadline. Each progress
    message names all alternatives, because a log may show any single line of a round.

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
        context.sleep(min(CAPACITY_ROUND_S, remaining))
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
    """Return the error with the missing capacity and a hint.

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
    """Return the end of a progress message: the names of attempts without capacity."""
    return f"; out of capacity: {', '.join(names)}"
