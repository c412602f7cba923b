"""Writes the state behind the steps: one write serves all that wait for it.

Writes are spaced so that they take a tenth of the time at most, and the cost of a run stays linear
however large the state is. Only when everything that is being worked on waits for a write there
is nothing to gain by putting it off.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    _working: int = 0
    _wanted: set[int] = field(default_factory=set)  # changes that someone waits for
    _error: EngineError | None = None
    _closing: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: threading.Condition = field(init=False)
    _saved: threading.Condition = field(init=False)
    _urgent: threading.Condition = field(init=False)
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._news = threading.Condition(self._lock)
        self._saved = threading.Condition(self._lock)
        self._urgent = threading.Condition(self._lock)
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
            if self._written < change:
                self._wanted.add(change)
                self._urgent.notify()
            self._saved.wait_for(lambda: self._written >= change or self._error is not None)
            self.check()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Around work that may come to wait for a write."""
        with self._lock:
            self._working += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1
                self._urgent.notify()

    def close(self) -> None:
        """Writes what is not written yet; raises EngineError when it cannot be."""
        with self._lock:
            self._closing = True
            self._news.notify()
            self._urgent.notify()
        self._thread.join()
        self.check()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._news.wait_for(lambda: self._changes > self._written or self._closing)
                if self._changes == self._written:
                    return
                change, last = self._changes, self._closing
            took = self._try(change)
            with self._lock:
                if last and self._error is not None:
                    return
                pause = None if self._error is not None else took * _SHARE
                self._urgent.wait_for(self._is_urgent, pause)

    def _is_urgent(self) -> bool:
        waiting = len(self._wanted) if self._error is None else 0
        return self._closing or 0 < self._working <= waiting

    def _try(self, change: int) -> float:
        """Writes; how many seconds it took."""
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
            if error is None:
                self._written = change
                self._wanted = {wanted for wanted in self._wanted if wanted > change}
            self._saved.notify_all()
        return time.monotonic() - began
