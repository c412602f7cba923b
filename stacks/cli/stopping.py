"""Ctrl-C and its kin during a run: the first ends it in good order, a second one leaves at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from gpuform.stacks.cli.failures import ABANDONED

FIRST = (
    "Interrupted: no new work is begun and waiting ends; what is on its way is finished and kept. "
    "Once more leaves at once."
)

_Handler = Callable[[int, FrameType | None], None]


@contextlib.contextmanager
def stopping(cancel: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
    """Calls `cancel` at the first signal; `leave` at the second, and ends the process with 8."""
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

    with _handling(handle, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Outside of a run, SIGTERM and a lost terminal are KeyboardInterrupt, which gives locks back.

    Without this the process would end where it stands, and leave the stack locked.
    """

    def handle(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling(handle, signal.SIGTERM, signal.SIGHUP):
        yield


@contextlib.contextmanager
def _handling(handler: _Handler, *numbers: int) -> Iterator[None]:
    """The handler for these signals, but those that the process was started to ignore (nohup)."""
    before = {}
    if threading.current_thread() is threading.main_thread():
        kept = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, handler) for number in kept}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
