"""Handle signals during a run: the first one cancels the run, the second one ends the process."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from gpuform.stacks.cli.failures import ABANDONED
from gpuform.stacks.cli.terminal.screen import Screen

INTERRUPTED_MESSAGE = (
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
    """Interrupts operations when this process receives signals."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def register(
        self, cancel: Callable[[], None], leave: Callable[[], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Let the first signal call `cancel` and the second one `leave`, until the context ends."""

        def leave_screen() -> None:
            leave()
            if self._screen.interactive:
                # A live display hides the cursor.
                os.write(self._screen.out.fileno(), b"\x1b[?25h\n")

        return handle_signals(cancel, leave_screen)


@contextlib.contextmanager
def handle_signals(cancel: Callable[[], None], leave: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` at the first signal; at the second, call `leave` and exit with code 8.

    Both are called in other threads: the main thread may be anywhere, and Python runs a handler
    only
    between its own instructions.
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
        with _set_handler(lambda _number, _frame: None, *_SIGNALS):
            yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(writer, _END)
        watcher.join()
        os.close(writer)
        os.close(reader)


def _watch(reader: int, cancel: Callable[[], None], leave: Callable[[], None]) -> None:
    """Read the numbers of received signals until the run has ended."""
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
def raise_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and a lost terminal, to release locks.

    Without a handler the process would end at once, and leave the stack locked.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _set_handler(handle, *_ENDING):
        yield


@contextlib.contextmanager
def _set_handler(handler: _Handler, *numbers: int) -> Iterator[None]:
    """Set the handler for these signals, except ignored ones (nohup)."""
    handled_numbers = [
        number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, handler) for number in handled_numbers}
    try:
        yield
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)
