"""Handle signals during a run: the first one cancels the run, the second one ends the process.

The modules that run operations pass `Signals` as the interruptions of an operation, and call
`raise_on_signals` around waits for locks and questions.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from gpuform.stacks.cli.failures import ABANDONED
from gpuform.stacks.cli.terminal.screen import Screen

INTERRUPTED_MESSAGE = (
    "Interrupted: gpuform starts nothing more, ends its waits, and records the results of "
    "running requests. Interrupt again to exit at once."
)

# Windows has no SIGHUP; SIGBREAK is sent when a console is closed.
_TERMINATION_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGBREAK") if hasattr(signal, name)
)
_SIGNALS = (signal.SIGINT, *_TERMINATION_SIGNALS)

_END_MARK = b"\0"  # no signal has this number

_Handler = Callable[[int, FrameType | None], None]


class Signals:
    """Interrupts operations when this process receives signals."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def register(
        self, cancel: Callable[[], None], terminate: Callable[[], None]
    ) -> contextlib.AbstractContextManager[None]:
        """Call `cancel` at the first signal in the context; at the second `terminate`, and exit."""

        def terminate_and_show_cursor() -> None:
            terminate()
            if self._screen.interactive:
                # A live display hides the cursor.
                os.write(self._screen.out.fileno(), b"\x1b[?25h\n")

        return handle_signals(cancel, terminate_and_show_cursor)


@contextlib.contextmanager
def handle_signals(cancel: Callable[[], None], terminate: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` at the first signal; at the second, call `terminate` and exit with code 8.

    Both are called in other threads: the main thread may be anywhere, and Python runs a handler
    only between its own instructions. Outside of the main thread nothing is handled.
    """
    # Python lets only the main thread set handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    if os.name == "posix":  # Windows accepts a blocking descriptor
        os.set_blocking(writer, False)
    watcher = threading.Thread(
        target=_count_signals, args=(reader, cancel, terminate), name="signals", daemon=True
    )
    watcher.start()
    previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        # A handler that does nothing: the number is in the pipe, and the default would end the
        # process.
        with _set_handler(lambda _number, _frame: None, *_SIGNALS):
            yield
    finally:
        signal.set_wakeup_fd(previous_fd)
        os.write(writer, _END_MARK)
        # Joined before the pipe is closed: the number of its end may be reused at once.
        watcher.join()
        os.close(writer)
        os.close(reader)


def _count_signals(reader: int, cancel: Callable[[], None], terminate: Callable[[], None]) -> None:
    """Read the numbers of received signals until the end mark, and call `cancel` at the first.

    At the second, call `terminate` and end the process with code ABANDONED.
    """
    received_count = 0
    while (number := os.read(reader, 1)) != _END_MARK:
        # Python writes the numbers of all signals with a handler.
        if number[0] not in _SIGNALS:
            continue
        received_count += 1
        if received_count == 1:
            # In a thread: a second signal must be seen while the first one still cancels.
            threading.Thread(target=cancel, name="cancel", daemon=True).start()
        else:
            # Whatever fails here, the process ends.
            with contextlib.suppress(Exception):
                terminate()
            os._exit(ABANDONED)


@contextlib.contextmanager
def raise_on_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM and a lost terminal, to release locks.

    Without a handler the process would end at once, and leave the stack locked. Outside of the main
    thread nothing is handled.
    """

    def handle(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    # Python lets only the main thread set handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _set_handler(handle, *_TERMINATION_SIGNALS):
        yield


@contextlib.contextmanager
def _set_handler(handler: _Handler, *numbers: int) -> Iterator[None]:
    """Set the handler for signals until the context ends, except for ignored ones (nohup)."""
    handled_numbers = [
        number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN
    ]
    previous_handlers = {number: signal.signal(number, handler) for number in handled_numbers}
    try:
        yield
    finally:
        for number, previous_handler in previous_handlers.items():
            signal.signal(number, previous_handler)
