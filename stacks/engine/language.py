"""Runs an unmodified Pulumi Python program in this process, against an in-process monitor."""

import asyncio
import contextlib
import contextvars
import io
import os
import runpy
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import pulumi
from pulumi.runtime import config as pulumi_config
from pulumi.runtime import settings
from pulumi.runtime.stack import run_in_stack

from gpuform.stacks.engine import outstanding
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.events import Diagnostic, EventBus, Severity


class ProgramError(EngineError):
    """The program raised; the message holds its traceback, from the program's own code on."""


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and for which stack.

    `directory` is where the program is (Pulumi.yaml's `main` taken into account), `root` where
    Pulumi.yaml is. `config` is in plain text under full keys.
    """

    project: str
    stack: str
    directory: Path
    root: Path
    config: Mapping[str, str]
    secret_keys: Sequence[str]
    parallel: int


def run(
    program: Program,
    monitor: object,
    engine: object,
    *,
    preview: bool,
    stopped: Callable[[], bool],
) -> None:
    """Runs the program to its end.

    `stopped` tells whether the run was ended by a failed step: then what the program raises
    because its monitor is gone says nothing new. Raises ProgramError.
    """
    failure: list[BaseException] = []

    def work() -> None:
        try:
            _run(program, monitor, engine, preview)
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
            failure.append(error)

    # A context of its own: the SDK keeps all that it knows of a run in context variables.
    thread = threading.Thread(
        target=contextvars.Context().run, args=(work,), name="program", daemon=True
    )
    thread.start()
    thread.join()
    if failure and not stopped():
        raise _told(failure[0], program.directory)


def _run(program: Program, monitor: object, engine: object, preview: bool) -> None:
    pulumi_config.set_all_config(dict(program.config), list(program.secret_keys))
    settings.configure(
        settings.Settings(
            project=program.project,
            stack=program.stack,
            monitor=monitor,
            engine=engine,
            parallel=program.parallel,
            dry_run=preview,
            organization="organization",
            root_directory=str(program.root),
        )
    )
    loop = asyncio.new_event_loop()
    try:
        asyncio.set_event_loop(loop)
        # Every registration in flight holds a thread; a thread is made only when it is needed.
        executor = ThreadPoolExecutor(4 * max(program.parallel, 1), thread_name_prefix="rpc")
        loop.set_default_executor(executor)
        loop.set_exception_handler(lambda _loop, _context: None)
        with outstanding.one_wait():
            loop.run_until_complete(run_in_stack(lambda: _execute(program.directory)))
    finally:
        _end_tasks(loop)
        asyncio.set_event_loop(None)
        loop.close()


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Ends what a failed program left half done: Python would complain of it later."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(asyncio.wait(tasks, timeout=1))


def _execute(directory: Path) -> None:
    runpy.run_path(str(directory), run_name="__main__")


@contextlib.contextmanager
def project_modules(directory: Path) -> Iterator[None]:
    """The program's directory as the place of imports and work, its modules fresh.

    For the length of a run: deletes and refreshes load providers from there as well.

    The Pulumi CLI runs each program in a process of its own; here its modules are forgotten
    afterwards, so that the update runs the program as anew as the preview did.
    """
    before, cwd, argv = list(sys.path), Path.cwd(), sys.argv
    sys.path.insert(0, str(directory))
    sys.argv = [str(directory)]
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(cwd)
        sys.path[:], sys.argv = before, argv
        _forget_modules(directory)


def _forget_modules(directory: Path) -> None:
    inside = str(directory) + os.sep
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and file.startswith(inside) and "site-packages" not in file:
            del sys.modules[name]


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
def printing_to(events: EventBus) -> Iterator[None]:
    """What programs and providers print becomes diagnostics."""
    out = _Lines(events, "info", sys.stdout)
    err = _Lines(events, "info#err", sys.stderr)
    with out, err, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield


def _told(error: BaseException, directory: Path) -> ProgramError:
    if isinstance(error, pulumi.RunError):
        return ProgramError(str(error))
    if isinstance(error, SystemExit):
        return ProgramError(f"the program exited with code {error.code}")
    frames = traceback.extract_tb(error.__traceback__)
    own = [i for i, frame in enumerate(frames) if frame.filename.startswith(str(directory))]
    shown = frames[own[0] :] if own else []
    text = "".join(traceback.format_list(shown) + traceback.format_exception_only(error))
    return ProgramError(f"Program failed with an unhandled exception:\n{text}".rstrip())
