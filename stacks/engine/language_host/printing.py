"""What programs and providers print, as events."""

import contextlib
import io
import sys
import threading
from collections.abc import Iterator
from typing import TextIO

from gpuform.stacks.engine.planning import Diagnostic, EventBus, Severity


class _Lines(io.TextIOBase):
    """Stands for a text stream and makes an event of every line of each thread.

    What a listener prints goes to the real stream.
    """

    def __init__(self, events: EventBus, severity: Severity, real: TextIO) -> None:
        self._events, self._severity, self._real = events, severity, real
        self._begun: dict[int, str] = {}

    def write(self, text: str) -> int:
        if self._events.is_emitting_here:
            return self._real.write(text)
        thread = threading.get_ident()
        *lines, rest = (self._begun.pop(thread, "") + text).split("\n")
        if rest:
            self._begun[thread] = rest
        for line in lines:
            self._events.emit(Diagnostic(self._severity, line))
        return len(text)

    def close(self) -> None:
        while self._begun:
            self._events.emit(Diagnostic(self._severity, self._begun.popitem()[1]))
        super().close()


@contextlib.contextmanager
def print_to_events(events: EventBus) -> Iterator[None]:
    """What programs and providers print becomes diagnostics."""
    out = _Lines(events, "info", sys.stdout)
    err = _Lines(events, "info#err", sys.stderr)
    with out, err, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
