"""Writes the state behind the steps: one write serves all that wait for it.

Writes are spaced so that they take a tenth of the time at most; so the cost of a run stays linear,
however large the state is.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpuform.stacks.engine.errors import EngineError

_SHARE = 9.0  # after a write of d seconds the next one waits 9 d


@dataclass(slots=True)
class Writer:
    """Calls `write`, on a thread of its own, after each change or group of changes.

    A write that fails is tried once more, at the end.
    """

    write: Callable[[], None]
    _changes: int = 0
    _written: int = 0
    _error: EngineError | None = None
    _closing: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: threading.Condition = field(init=False)
    _saved: threading.Condition = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._news = threading.Condition(self._lock)
        self._saved = threading.Condition(self._lock)
        self._thread = threading.Thread(target=self._work, name="state", daemon=True)
        self._thread.start()

    def changed(self) -> int:
        """Asks for a write of what is there now; the number of this change."""
        with self._lock:
            self._changes += 1
            self._news.notify()
            return self._changes

    def check(self) -> None:
        """Raises EngineError when the last write failed."""
        if self._error is not None:
            raise self._error

    def wait(self, change: int) -> None:
        """Returns when the change is written; raises EngineError when it cannot be."""
        with self._lock:
            self._saved.wait_for(lambda: self._written >= change or self._error is not None)
            self.check()

    def close(self) -> None:
        """Writes what is not written yet; raises EngineError when it cannot be."""
        with self._lock:
            self._closing.set()
            self._news.notify()
        self._thread.join()
        self.check()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._news.wait_for(lambda: self._changes > self._written or self._closing.is_set())
                if self._changes == self._written:
                    return
                change = self._changes
            last = self._closing.is_set()
            pause = self._try(change)
            if last and self._error is not None:
                return
            self._closing.wait(pause)

    def _try(self, change: int) -> float | None:
        """Writes; how many seconds to wait before the next time, None: until the end."""
        began = time.monotonic()
        error = None
        try:
            self.write()
        except EngineError as refused:
            error = refused
        except Exception as bug:  # noqa: BLE001 - it is raised where someone waits
            error = EngineError(f"the state cannot be written: {type(bug).__name__}: {bug}")
        with self._lock:
            self._error = error
            self._written = self._written if error else change
            self._saved.notify_all()
        return None if error else (time.monotonic() - began) * _SHARE
