"""Ctrl-C and SIGTERM during a run: the first ends it in good order, a second one leaves at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from gpuform.stacks.cli.failures import ABANDONED

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

FIRST = (
    "Interrupted: no new work is begun and waiting ends; what is on its way is finished and kept. "
    "Once more leaves at once."
)


@contextlib.contextmanager
def stopping(cancel: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
    """Calls `cancel` at the first signal; `leave` at the second, and ends the process with 8."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received = 0

    def handle(_signal: int, _frame: FrameType | None) -> None:
        nonlocal received
        received += 1
        if received == 1:
            # Not here: the handler interrupts code that may hold a lock which `cancel` needs.
            threading.Thread(target=cancel, name="cancel", daemon=True).start()
            return
        with contextlib.suppress(Exception):
            leave()
        os._exit(ABANDONED)

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
