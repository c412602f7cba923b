"""Report the failure of a program by its own lines, including failures of threads and tasks that
Python only prints, or drops.
"""

import asyncio
import io
import os
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import pulumi

from gpuform.stacks.engine.errors import EngineError

_INSTALLED = ("site-packages", "dist-packages")
_ENGINE = str(Path(__file__).parent) + os.sep
_MACHINERY = (*(f"{folder}{os.sep}" for m in (asyncio, pulumi) for folder in m.__path__), _ENGINE)


class ProgramError(EngineError):
    """The program failed; the message holds its traceback, from the program's own code on."""

    help_page = "guides/troubleshooting"


@dataclass(frozen=True, slots=True)
class TaskTrace:
    """Where a task failed, in the program's own lines, and how Python printed it."""

    stack: traceback.StackSummary
    text: str


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """Which files are a program's own: those in its folders, but for packages installed there."""

    folders: tuple[Path, ...]

    def holds(self, filename: str) -> bool:
        """Whether a frame of this file is the program's."""
        inside = any(filename.startswith(str(folder) + os.sep) for folder in self.folders)
        return (
            inside
            and not filename.startswith(_ENGINE)
            and not any(name in Path(filename).parts for name in _INSTALLED)
        )

    def place(self, trace: TracebackType | traceback.StackSummary | None) -> str:
        """`file.py:12`, the innermost own line of a traceback; empty when there is none."""
        frames = trace if isinstance(trace, traceback.StackSummary) else traceback.extract_tb(trace)
        own = [frame for frame in frames if self.holds(frame.filename)]
        return self.line(own[-1].filename, own[-1].lineno) if own else ""

    def line(self, filename: str, number: int | None) -> str:
        """`file.py:12` for a line of the program's, from the first folder that holds the file."""
        for folder in self.folders:
            if filename.startswith(str(folder) + os.sep):
                return f"{filename.removeprefix(str(folder) + os.sep)}:{number}"
        return f"{filename}:{number}"


def explain_failure(
    error: BaseException, files: ProgramFiles, traces: Sequence[TaskTrace] = ()
) -> ProgramError:
    """An exception that ended a program, for its author.

    `traces` stand in where the exception has lost the lines that raised it.
    """
    if isinstance(error, EngineError):
        return ProgramError(error.message, error.hint)
    place = files.place(error.__traceback__)
    at = f"{place}: " if place else ""
    if isinstance(error, pulumi.RunError):
        return ProgramError(f"{at}{error}")
    if isinstance(error, SystemExit):
        left = f": {error.code}" if isinstance(error.code, str) else f" with code {error.code or 0}"
        return ProgramError(
            f"{at}the program exited{left}",
            hint="a program that does not come to its end deletes nothing",
        )
    text = _traceback(error, files, traces)
    return ProgramError(f"Program failed with an unhandled exception:\n{text}")


def _traceback(error: BaseException, files: ProgramFiles, traces: Sequence[TaskTrace]) -> str:
    """The traceback as Python prints it, without what stands between Python and the program."""
    whole = traceback.TracebackException.from_exception(error)
    only = "".join(whole.format_exception_only()).rstrip()
    chain = list(_chain(whole))
    if not any(files.place(part.stack) for part in chain):
        lost = next((trace.stack for trace in traces if trace.text.endswith(only)), None)
        if lost is None:
            return only
        whole.stack = lost
    for part in chain:
        own = [i for i, frame in enumerate(part.stack) if files.holds(frame.filename)]
        frames = part.stack[own[0] :] if own else filter(_is_telling, part.stack)
        part.stack = traceback.StackSummary.from_list(list(frames))
    return "".join(whole.format()).rstrip()


def _is_telling(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith(_MACHINERY)


def _chain(part: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    if part is None:
        return
    yield part
    yield from _chain(part.__cause__)
    yield from _chain(part.__context__)
    for member in part.exceptions or ():
        yield from _chain(member)


@dataclass(slots=True)
class StrayFailures:
    """What failed beside the program's own course.

    A thread or a task that failed has not declared all that it was to declare, so the run must not
    go on to delete what is missing. What fails outside of the program's own files is not counted:
    libraries' threads are their own affair.

    `traces` tell where tasks failed: asyncio forgets it when several await the same one.
    """

    files: ProgramFiles
    traces: list[TaskTrace] = field(default_factory=list)
    _threads: list[BaseException] = field(default_factory=list)
    _tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    def errors(self) -> list[BaseException]:
        """The failures of threads, and of tasks whose outcome nobody asked for."""
        unheard = [task for task in self._tasks if getattr(task, "_log_traceback", False)]
        dropped = [task.exception() for task in unheard if not task.cancelled()]
        return [*self._threads, *filter(None, dropped)]

    def in_thread(self, failure: threading.ExceptHookArgs) -> None:
        """For `threading.excepthook`."""
        error = failure.exc_value
        if isinstance(error, Exception) and self.files.place(error.__traceback__):
            self._threads.append(error)
        else:
            threading.__excepthook__(failure)

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Looks at every task of the loop when it is done."""
        loop.set_task_factory(self._task)
        loop.set_exception_handler(lambda _loop, _context: None)

    def _task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Any, /, **options: Any
    ) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        # Asking for the exception would count as hearing of it.
        frames = task.get_stack()
        own = [i for i, frame in enumerate(frames) if self.files.holds(frame.f_code.co_filename)]
        if not own:
            return
        printed = io.StringIO()
        task.print_stack(file=printed)
        lines = ((frame, frame.f_lineno) for frame in frames[own[0] :])
        stack = traceback.StackSummary.extract(lines)
        self.traces.append(TaskTrace(stack, printed.getvalue().rstrip()))
        self._tasks.append(task)
