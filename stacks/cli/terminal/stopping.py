"""Ctrl-C and its kin during a run: the first ends it in good order, a second one leaves at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from gpuform.stacks.cli.failures import ABANDONED
from gpuform.stacks.cli.terminal.screen import Screen

FIRST = (
    "Interrupted: no new work is begun and waiting ends; what is on its way is finished and kept. "
    "Once more leaves at once."
)

# Windows has no SIGHUP, and its own SIGBREAK for a console that is closed.
_ENDING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)
_SIGNALS = (signal.SIGINT, *_ENDING)

_END = b"\0"  # no signal has this number

_Handler = Callable[[int, FrameType | None], None]


class Signals:
    """Interrupts operations by the signals that this process gets."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def register(
        self, cancel: Callable[[], None], leave: Callable[[], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Around work that the first signal cancels and the second leaves."""

        def leave_screen() -> None:
            leave()
            if self._screen.interactive:
                # A live display hides the cursor.
                os.write(self._screen.out.fileno(), b"\x1b[?25h\n")

        return stopping(cancel, leave_screen)


@contextlib.contextmanager
def stopping(cancel: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
    """Calls `cancel` at the first signal; `leave` at the second, and ends the process with 8.

    Both are called in other threads: the main one may be in the midst of anything, and Python runs
    a handler only when it comes back to its own code.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    if os.name == "posix":  # which alone asks for it
        os.set_blocking(writer, False)
    watcher = threading.Thread(
        target=_watch, args=(reader, cancel, leave), name="signals", daemon=True
    )
    watcher.start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        with _handling(lambda _number, _frame: None, *_SIGNALS):
            yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(writer, _END)
        watcher.join()
        os.close(writer)
        os.close(reader)


def _watch(reader: int, cancel: Callable[[], None], leave: Callable[[], None]) -> None:
    """Reads the numbers of the signals as they come, until the run has ended."""
    received = 0
    while (number := os.read(reader, 1)) != _END:
        if number[0] not in _SIGNALS:
            continue
        received += 1
        if received == 1:
            threading.Thread(target=cancel, name="cancel", daemon=True).start()
        else:
            with contextlib.suppress(Exception):
                leave()
            os._exit(ABANDONED)


@contextlib.contextmanager
def unwinding() -> Iterator[None]:
    """Outside of a run, SIGTERM and a lost terminal are KeyboardInterrupt, which gives locks back.

    Without this the process would end where it stands, and leave the stack locked.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handling(handle, *_ENDING):
        yield


@contextlib.contextmanager
def _handling(handler: _Handler, *numbers: int) -> Iterator[None]:
    """The handler for these signals, but those that the process was started to ignore (nohup)."""
    kept = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in kept}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
