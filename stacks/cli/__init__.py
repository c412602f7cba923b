"""The command line: arguments -> operation -> view.

The console script `gpuform` calls `main`. A command imports its modules when it is run, because
start-up is felt on every call.
"""

import _thread
import os
import signal
import sys
from types import FrameType

from gpuform.providers import collect_less_garbage

SWITCH_INTERVAL_S = 0.03
"""Seconds after which a thread lets another one run; Python's own value is 0.005.

Each of the threads of a run does little between two answers: more switches only cost (a tenth of an
`up`).
"""


def main() -> None:
    """Run the command line, and end the process with the command's exit code.

    Ctrl-C ends the process without a traceback wherever the main thread is.
    """
    previous_handler = signal.getsignal(signal.SIGINT)
    is_handled = previous_handler is signal.default_int_handler  # ignored below nohup
    if is_handled:
        signal.signal(signal.SIGINT, _end_process)
    collect_less_garbage()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    from gpuform.stacks.cli.app import cli  # noqa: PLC0415 - importing a view must not need click

    sys.unraisablehook = _handle_unraisable
    try:
        # A command may have begun something: an exception ends its waits and releases its locks.
        signal.signal(signal.SIGINT, previous_handler)
        cli.main(prog_name="gpuform")
    except KeyboardInterrupt:  # before the command, or while its error is formatted
        _end_process()
    finally:
        if is_handled:
            signal.signal(signal.SIGINT, _end_process)


def _end_process(_number: int = signal.SIGINT, _frame: FrameType | None = None) -> None:
    """Report the interruption, and end the process at once."""
    os.write(2, b"error: interrupted\n")
    os._exit(1)


def _handle_unraisable(unraisable: "sys.UnraisableHookArgs") -> None:
    """Interrupt the main thread again if Ctrl-C hit a destructor or a weak reference's callback.

    Python prints the traceback of such an exception, and then continues.
    """
    if unraisable.exc_type is KeyboardInterrupt:
        # In a thread: here, the exception would be one of this function, and ignored again.
        _thread.start_new_thread(_thread.interrupt_main, ())
    else:
        sys.__unraisablehook__(unraisable)
