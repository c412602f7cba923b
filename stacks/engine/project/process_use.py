"""Let the runs of one process take turns with what a process has only once.

This is its folder, its modules, its environment and its standard streams. Runs that execute code
of a project own the process, one after the other; runs of topologies in one folder share it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from gpuform.providers.errors import Cancelled
from gpuform.stacks.engine.errors import EngineError

_PAUSE_S = 0.2
"""How often a waiting run looks whether somebody has cancelled it."""

_belongs_to_run: ContextVar[bool] = ContextVar("gpuform_belongs_to_run", default=False)


@contextmanager
def mark_as_run() -> Iterator[None]:
    """Mark the code of the context as part of a run, for whose end that code cannot wait."""
    token = _belongs_to_run.set(True)
    try:
        yield
    finally:
        _belongs_to_run.reset(token)


def restore_environ(before: Mapping[str, str]) -> None:
    """Set the environment variables to `before`, and the C library's time zone if TZ changed."""
    zone = os.environ.get("TZ")
    for name in [name for name in os.environ if name not in before]:
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
    if os.environ.get("TZ") != zone and hasattr(time, "tzset"):
        # The C library reads TZ again only when it is told to.
        time.tzset()


class _ProcessUse:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._own_environ: Mapping[str, str] | None = None
        self._own_folder = Path()
        self._shared_folder: Path | None = None
        self._sharing = 0

    def read_environ(self) -> Mapping[str, str]:
        """Return the variables of this process, without those of a run that owns the process."""
        with self._changed:
            return dict(os.environ) if self._own_environ is None else self._own_environ

    @contextmanager
    def own(self, environ: Mapping[str, str], is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Own the process, once no other run uses it, with `environ` as its environment.

        Raises:
            EngineError: a run that uses the process waits for this code.
            Cancelled: `is_cancelled` returned True before that.
        """
        with self._changed:
            self._wait_for(lambda: self._own_environ is None and not self._sharing, is_cancelled)
            own_environ = self._own_environ = dict(os.environ)
        try:
            # Inside: after an error here, the process must be free for other runs.
            restore_environ(environ)
            with mark_as_run():
                yield
        finally:
            with self._changed:
                restore_environ(own_environ)
                self._own_environ = None
                self._changed.notify_all()

    @contextmanager
    def share(self, folder: Path, is_cancelled: Callable[[], bool]) -> Iterator[bool]:
        """Share the process, with `folder` as working folder; yield True for the first run in it.

        The runs must not execute code of a project. Errors are those of `own`.
        """
        with self._changed:
            self._wait_for(
                lambda: self._own_environ is None and self._shared_folder in (None, folder),
                is_cancelled,
            )
            is_first = self._shared_folder is None
            if is_first:
                own_folder = Path.cwd()
                os.chdir(folder)
                # Only now: after an error above, the process must be free for other runs.
                self._own_folder, self._shared_folder = own_folder, folder
            self._sharing += 1
        try:
            with mark_as_run():
                yield is_first
        finally:
            with self._changed:
                self._sharing -= 1
                if not self._sharing:
                    self._shared_folder = None
                    self._changed.notify_all()
                    os.chdir(self._own_folder)

    def _wait_for(self, is_possible: Callable[[], bool], is_cancelled: Callable[[], bool]) -> None:
        if not is_possible() and _belongs_to_run.get():
            raise EngineError(
                "another operation is running in this process",
                hint="A program, and a function that receives its events, cannot run an operation: "
                "wait until the other operation has ended, or use another process.",
            )
        while not self._changed.wait_for(is_possible, _PAUSE_S):
            if is_cancelled():
                raise Cancelled


PROCESS_USE = _ProcessUse()
