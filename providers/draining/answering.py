"""Questions to somebody who may never answer, so that an interrupted run still ends in time."""

import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import Final, TypeVar

from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import Cancelled

T = TypeVar("T")

FIRST_WORD: Final = 1.0
"""Seconds that an answer may still take when the run is interrupted."""

LAST_WORD: Final = 3.0
"""The same for what undoes something, and is asked after the interruption."""

_BEAT: Final = 0.05


def answered(
    call: ProviderContext, question: Callable[[], T], *, patience: float | None = None
) -> T:
    """What `question` returns or raises; Cancelled when the run is interrupted meanwhile.

    Then it has `patience` more seconds to answer, by default `FIRST_WORD`; if it does not, it goes
    on by itself.
    """
    patience = FIRST_WORD if patience is None else patience
    outcome: list[T] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            outcome.append(question())
        except BaseException as error:  # noqa: BLE001 - it is raised by who asked
            errors.append(error)

    thread = threading.Thread(target=copy_context().run, args=(ask,), daemon=True)
    thread.start()
    until: float | None = None
    while thread.is_alive():
        thread.join(_BEAT)
        if call.cancelled.is_set() and until is None:
            until = time.monotonic() + patience
        if until is not None and time.monotonic() >= until and thread.is_alive():
            raise Cancelled("interrupted: no answer in time")
    if errors:
        raise errors[0]
    return outcome[0]
