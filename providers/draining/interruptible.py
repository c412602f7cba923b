"""Run a blocking request so that an interrupted run still ends in time.

Draining and certifying call it around each request to a scheduler, which may never answer.
"""

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Final, TypeVar

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import Cancelled

T = TypeVar("T")

ANSWER_GRACE_S: Final = 1.0
"""Seconds that a request may still take after the run was interrupted."""

UNDO_GRACE_S: Final = 3.0
"""Seconds for a request that undoes something, and so is sent after the interruption."""

_CHECK_INTERVAL_S: Final = 0.05


def call_interruptibly(
    context: ProviderContext, request: Callable[[], T], *, grace_s: float | None = None
) -> T:
    """Return the result of `request`, or raise the error of `request`, unless interrupted.

    Args:
        context: has the cancellation of the run.
        request: the blocking call. A thread of its own runs it.
        grace_s: seconds that `request` may still take after an interruption; None:
            `ANSWER_GRACE_S`.

    Raises:
        Cancelled: the grace period has passed. The thread continues, and its answer is dropped.
    """
    grace_s = ANSWER_GRACE_S if grace_s is None else grace_s
    answers: list[T] = []
    errors: list[BaseException] = []

    def store_outcome() -> None:
        try:
            answers.append(request())
        except BaseException as error:  # noqa: BLE001 - it is raised by who asked
            errors.append(error)

    # The copied context has the run's clock, progress and cancellation for the thread.
    thread = threading.Thread(target=copy_context().run, args=(store_outcome,), daemon=True)
    thread.start()
    deadline: float | None = None
    while thread.is_alive():
        # Python cannot end a thread: a scheduler that never answers must not hold up the end of a
        # run.
        thread.join(_CHECK_INTERVAL_S)
        if context.cancelled.is_set() and deadline is None:
            deadline = time.monotonic() + grace_s
        # Measured by this machine: the clock of an emulated run does not move while a thread
        # blocks.
        if deadline is not None and time.monotonic() >= deadline and thread.is_alive():
            raise Cancelled("interrupted: no answer in time")
    if errors:
        raise errors[0]
    return answers[0]
